"""One equation of a step as one rank runs it: what is bound, how it is sharded, and what the rank knows of its place.

`local_equations` says how each kind of equation is run on slices; `part_lookup` does so for lookups in tables with uneven parts.

Callbacks of the host in a program of many devices: once a call, as in a program of one.

Problem: inside of `shard_map` every device would call the host, so logs and counters would be manifold. Method: callbacks have
whole operands everywhere. The first device of each process calls; the results of the first device of all are sent to the others,
bit by bit, but for callbacks of the same process: they read what the first device has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import io_callback
from jax.extend.core import Primitive

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.operation import Operation
from sporax.ir.placement import Axes, Placement
from sporax.lowering.execute.redistribute import permute
from sporax.planner import rules

if TYPE_CHECKING:
    from sporax.planner.rules import Assignment, FactorKind, Rule


class Position(Protocol):
    """What a rank knows of its place on the mesh, and how it reaches others."""

    def index(self, axes: Axes) -> int | Array:
        """Where it is along `axes`, as one row-major number (an int or a traced scalar)."""

    def permute(self, x: Array, axes: Axes, pairs: Sequence[tuple[int, int]]) -> Array:
        """Send `x` from each pair's first place along `axes` to its second; zeros where nothing arrives."""


@dataclass(frozen=True, slots=True)
class DevicePosition:
    """The place of a device inside `shard_map`.

    Attributes:
        names: the name of each mesh axis.
    """

    names: tuple[str, ...]

    def index(self, axes: Axes) -> int | Array:
        """Row-major number along `axes`, traced."""
        return jax.lax.axis_index(tuple(self.names[axis] for axis in axes)) if axes else 0

    def permute(self, x: Array, axes: Axes, pairs: Sequence[tuple[int, int]]) -> Array:
        """One collective-permute."""
        return permute(x, axes, self.names, pairs)


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


HOST_CALLS = frozenset(["pure_callback", "io_callback", "debug_callback", "debug_print"])
"""Primitives that run Python on the host."""


def call_once(task: LocalTask, names: tuple[str, ...], operands: Sequence[Array]) -> list[Array]:
    """The results of a callback on the first device of each process; zeros on the others.

    Args:
        names: of the axes of the surrounding `shard_map`, all of them.
        operands: whole.
    """
    place, specs, params = jax.lax.axis_index(names), task.operation.results, task.operation.params

    def call(arrays: Sequence[Array]) -> list[Array]:
        # JAX has ordered callbacks of this kind for one device alone.
        if "Ordered" in type(params.get("effect")).__name__ and "debug" in task.operation.name:
            return list(io_callback(lambda *values: tuple(params["callback"](*values)), (), *arrays, ordered=True))
        return task.bind(arrays, params)

    def nothing(arrays: Sequence[Array]) -> list[Array]:
        return [jnp.zeros(spec.shape, spec.dtype) for spec in specs]

    calls = jnp.isin(place, jnp.asarray(first_of_processes(task.mesh.ranks), place.dtype))
    return jax.lax.cond(calls, call, nothing, list(operands))


def sent_from_first(results: Sequence[Array], names: tuple[str, ...]) -> list[Array]:
    """Those of the first device of all, on every device."""
    return [_of_first(result, jax.lax.axis_index(names) == 0, names) for result in results]


def first_of_processes(ranks: Sequence[int]) -> list[int]:
    """The place of each process's first device among those of a mesh."""
    devices = jax.devices()
    firsts: dict[int, int] = {}
    for place, rank in enumerate(ranks):
        firsts.setdefault(devices[rank].process_index, place)
    return [*firsts.values()]


def _of_first(x: Array, is_first: Array, names: tuple[str, ...]) -> Array:
    """The first device's array, in a sum of bits to which no other device adds."""
    if jnp.iscomplexobj(x):
        return jax.lax.complex(_of_first(x.real, is_first, names), _of_first(x.imag, is_first, names))
    # What is narrower than 32 bits is widened, since not every backend adds it up.
    width = jnp.dtype(f"uint{8 * x.dtype.itemsize}")
    bits = x.astype(width) if x.dtype == bool else jax.lax.bitcast_convert_type(x, width)
    wide = jnp.where(is_first, bits.astype(jnp.promote_types(width, jnp.uint32)), 0)
    sent = jax.lax.psum(wide, names).astype(width)
    return sent.astype(bool) if x.dtype == bool else jax.lax.bitcast_convert_type(sent, x.dtype)
