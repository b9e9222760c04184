"""One equation of a step as one rank runs it: what is bound, how it is sharded, and what the rank knows of its place.

`local_equations` says how each kind of equation is run on slices; `part_lookup` does so for lookups in tables with uneven parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import jax
from jax.extend.core import Primitive

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.operation import Operation
from sporax.ir.placement import Axes, Placement
from sporax.lowering.execute.permute import permute
from sporax.planner import rules

if TYPE_CHECKING:
    from sporax.planner.rules import Assignment, FactorKind, Rule

Array = jax.Array
"""A jax.Array or a tracer."""


class Position(Protocol):
    """What a rank knows of its place on the mesh, and how it reaches others."""

    def index(self, axes: Axes) -> int | Array:
        """Where it is along `axes`, as one row-major number (an int or a traced scalar)."""
        ...

    def permute(self, x: Array, axes: Axes, pairs: Sequence[tuple[int, int]]) -> Array:
        """Send `x` from each pair's first place along `axes` to its second; zeros where nothing arrives."""
        ...


@dataclass(frozen=True, slots=True)
class DevicePosition:
    """The place of a device inside `shard_map`.

    Attributes:
        names: the name of each mesh axis.
    """

    names: tuple[str, ...]

    def index(self, axes: Axes) -> int | Array:
        """Row-major number along `axes`, traced."""
        return jax.lax.axis_index(self._names(axes)) if axes else 0

    def permute(self, x: Array, axes: Axes, pairs: Sequence[tuple[int, int]]) -> Array:
        """One collective-permute."""
        return permute(x, axes, self.names, pairs)

    def _names(self, axes: Axes) -> tuple[str, ...]:
        return tuple(self.names[axis] for axis in axes)


@dataclass(frozen=True, slots=True)
class LocalTask:
    """One equation to run on slices.

    Attributes:
        primitive: what is bound.
        operation: the whole operation, with global shapes.
        rule: its rule.
        assignment: how it is sharded.
        mesh: by what.
    """

    primitive: Primitive
    operation: Operation
    rule: Rule
    assignment: Assignment
    mesh: DeviceMatrix

    def bind(self, operands: Sequence[Array], params: Mapping[str, object]) -> list[Array]:
        """The primitive itself, always with a list of results."""
        outputs = self.primitive.bind(*operands, **params)
        # One form for all primitives, so that recipes need no special case.
        return list(outputs) if self.primitive.multiple_results else [outputs]

    def operand_placement(self, number: int) -> Placement:
        """Where an operand is."""
        return rules.placements(self.rule, self.assignment)[0][number]

    def result_placement(self, number: int) -> Placement:
        """Where a result is."""
        return rules.placements(self.rule, self.assignment)[1][number]

    def axes_of(self, kind: FactorKind) -> Axes:
        """All axes that are assigned to factors of one kind."""
        factors = zip(self.rule.factors, self.assignment, strict=True)
        return tuple(axis for factor, axes in factors if factor.kind is kind for axis in axes)
