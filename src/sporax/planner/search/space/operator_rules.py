"""What one operator and one tensor may be: rules of operators, cached, and shardings over axes of the mesh.

Operators are of three kinds; candidates of their own have

identity    marks and barriers: every tensor passes through
light       elementwise, dimension maps, reductions, creation: fast, so they take the placement of their operand
heavy       everything else: products, windows, indexing, sorting, algebra, control flow, and what cannot be sharded

the heavy ones alone. Mesh axes are assigned in *units*, runs of axes that go to one factor together (`assignments_of`,
`placements_of`). A round of the recursive search extends the decided sharding (`base`) by one unit; the other searches assign
all units at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from sporax.base.errors import SporaxValueError
from sporax.base.identity import ByIdentity
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import IDENTITIES, MARK, Operator, OperatorGraph
from sporax.ir.operation import Operation, TensorSpec
from sporax.ir.placement import Axes, Placement, placed
from sporax.planner.communication.moves import LinkCosts
from sporax.planner.rules import Assignment, FactorKind, Rule, entry_for, is_legal, replicate, rule_for
from sporax.planner.rules.elementwise import side_by_side
from sporax.planner.rules.loop_rules import CARRY, ENTER, JOIN, STACK

_LIGHT_FAMILIES = frozenset(["1 elementwise", "2 dimensions", "4 reduction", "9 creation"])
"""Families of rules (`planner.rules.rule_table`) whose operators cost little next to products."""
_HEAVY = frozenset(
    ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "rng_uniform", "rng_bit_generator", "argmax", "argmin"]
)
"""Members of those families that still decide for themselves: one dimension, or all of them, cannot be sharded."""
_PINS = frozenset(["sharding_constraint", "reshard", "layout_constraint", "device_put", "with_memory_space_constraint"])
"""Identities of JAX that have rules of other families."""
_LINEAR = frozenset(["neg", "mul", "div", "copy", "convert_element_type"])
"""Elementwise operators that may let partial sums of their only tensor through."""

_EDGES = frozenset([ENTER, STACK, CARRY, JOIN])
"""Operators at the edge of an inlined loop, where a tensor may have another placement inside than outside."""

_Answer = TypeVar("_Answer")

Signature = tuple[Hashable, ...]


def is_identity(operator: Operator) -> bool:
    """Whether its results are its operands, one by one."""
    return operator.name in IDENTITIES


def is_light(operator: Operator) -> bool:
    """Whether it follows its operand instead of having a choice."""
    name = operator.name
    if operator.bodies or name in _HEAVY:
        return False
    return name in _PINS or entry_for(name).family in _LIGHT_FAMILIES


def is_reduction(operator: Operator) -> bool:
    """Whether its results need a decision of their own: they may be partial, or are on the other side of a loop's edge."""
    return operator.name in _EDGES or entry_for(operator.name).family == "4 reduction"


def is_linear(operator: Operator) -> bool:
    """Whether partial values of an operator's only tensor may be partial values of its result."""
    return operator.name in _LINEAR or entry_for(operator.name).family == "2 dimensions"


def signature(operation: Operation) -> Signature:
    """A key that is equal for operations that can be sharded equally. Unhashable objects equal only themselves."""
    params = tuple((name, _hashable(value)) for name, value in operation.params.items())
    return operation.name, operation.operands, operation.results, operation.fused, params


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    # Arrays and functions among the parameters; a kind is then no larger than what shares the very object.
    except TypeError:
        return ByIdentity(value)
    return value  # type: ignore[no-any-return]  # marks hold values of any type


class Kinds:
    """The operators of a graph by kind. Layers repeat, so what is known of an operator by itself is computed once per kind.

    Marks are of one kind, whatever passes through them, and so are barriers.

    Args:
        late: for every operator whether it belongs to the backward pass or depends on it.

    Attributes:
        of: for every operator its kind.
        examples: for every kind an operator,
        late: and whether it is late.
    """

    def __init__(self, graph: OperatorGraph, late: Sequence[bool]) -> None:
        self.of: list[int] = []
        self.examples: list[Operator] = []
        self.late: list[bool] = []
        numbers: dict[Hashable, int] = {}
        for operator, is_late in zip(graph.operators, late, strict=True):
            # What a mark carries does not matter here, and its operands differ from place to place.
            key: Hashable = operator.name
            if not is_identity(operator):
                key = signature(operator.operation), bool(operator.bodies), operator.times, is_late
            kind = numbers.setdefault(key, len(numbers))
            if kind == len(self.examples):
                self.examples.append(operator)
                self.late.append(is_late)
            self.of.append(kind)

    def per_operator(self, question: Callable[[Operator], _Answer]) -> list[_Answer]:
        """For every operator the answer to `question`, which is called once per kind."""
        answers = [question(example) for example in self.examples]
        return [answers[kind] for kind in self.of]


def rule_of(operator: Operator) -> Rule:
    """The rule of an operator. Control flow is held whole: its bodies are not planned from inside."""
    if operator.bodies:
        # Its rule shards nothing: searches see loops inlined, so this remains for bodies that cannot be inlined.
        return replicate(operator.operation, f"'{operator.name}' is not sharded: bodies of control flow are run whole")
    if is_identity(operator):
        return _identity_rule(operator.operation.operands)
    return rule_for(operator.operation)


# Marks carry names and numbers, so their operations differ though their rules are equal.
@lru_cache(maxsize=1 << 12)
def _identity_rule(specs: tuple[TensorSpec, ...]) -> Rule:
    """The rule of identities on such tensors; marks differ in much that does not matter here."""
    return side_by_side(Operation(MARK, specs, specs))


Units = tuple[Axes, ...]
_MOST_UNITS = 4
"""Units into which strategies may divide the mesh."""


def default_units(mesh: DeviceMatrix, most: int = 2) -> Units:
    """All axes in at most `most` units, of sizes as equal as the order of the axes allows; the outer one is smaller.

    Example:
        >>> default_units(DeviceMatrix((2, 2, 2)))
        ((0,), (1, 2))
    """
    axes = [axis for axis in mesh.device_axes if mesh.shape[axis] > 1]
    if len(axes) <= most:
        # Two units are enough for plans such as data parallel by tensor parallel, and keep candidates few.
        return tuple((axis,) for axis in axes)
    boundaries = itertools.combinations(range(1, len(axes)), most - 1)

    def spread(boundary: Sequence[int]) -> tuple[float, ...]:
        sizes = [math.prod(mesh.shape[axis] for axis in unit) for unit in _split(axes, boundary)]
        # The outer unit is the smaller one among equals: the axes between nodes are few and slow.
        return max(sizes) / min(sizes), *sizes

    return _split(axes, min(boundaries, key=spread))


def link_runs(mesh: DeviceMatrix, links: LinkCosts) -> Units:
    """Runs of axes whose links are equally fast: within nodes, between nodes."""
    axes = [axis for axis in mesh.device_axes if mesh.shape[axis] > 1]
    # Without measured links all axes count as equal.
    runs = itertools.groupby(axes, key=lambda axis: links.axis_beta[axis] if links.axis_beta else 0.0)
    return tuple(tuple(run) for _, run in runs)


def natural_units(mesh: DeviceMatrix, links: LinkCosts) -> Units:
    """Two runs of axes: those within nodes and the others, or about halves where all links are equal."""
    runs = link_runs(mesh, links)
    if len(runs) < 2:
        return default_units(mesh)
    return tuple(itertools.chain(*runs[:-1])), runs[-1]


def refined(units: Units, used: Iterable[Axes]) -> Units:
    """Units divided where runs of axes that strategies use begin or end, so that other operators can follow these.

    Example:
        >>> refined(((0, 1, 2), (3, 4, 5)), [(0, 1, 2, 3, 4), (5,)])
        ((0, 1, 2), (3, 4), (5,))
    """
    runs = [frozenset(run) for run in dict.fromkeys(used)]
    pieces = [
        tuple(piece)
        for unit in units
        for _, piece in itertools.groupby(unit, key=lambda axis: tuple(axis in run for run in runs))
    ]
    # Candidates grow with the power of the units.
    return tuple(pieces) if len(pieces) <= _MOST_UNITS else units


def _split(axes: Sequence[int], boundaries: Sequence[int]) -> Units:
    bounds = [0, *boundaries, len(axes)]
    return tuple(tuple(axes[start:end]) for start, end in itertools.pairwise(bounds))


def check_units(units: Units, mesh: DeviceMatrix) -> None:
    """Raise unless every axis is in one unit at most.

    Raises:
        SporaxValueError: an axis is there twice, or is not of the mesh.
    """
    axes = [*itertools.chain(*units)]
    if len(set(axes)) != len(axes) or not set(axes) <= set(mesh.device_axes):
        raise SporaxValueError(
            f"For 'units', every axis must be one of the {mesh.num_axes} axes of {mesh} and stand there once, but got {units}."
        )


def assignments_of(
    rule: Rule, mesh: DeviceMatrix, units: Units, base: Assignment | None = None
) -> Iterator[Assignment]:
    """Legal assignments: `base` extended by every unit at one factor or none. Operands must be complete."""
    base = base or ((),) * len(rule.factors)
    # Blocked factors cannot be sharded, and partial ones are only ever the consequence of another sharding.
    takers = [
        number
        for number, factor in enumerate(rule.factors)
        if factor.kind not in (FactorKind.BLOCKED, FactorKind.PARTIAL)
    ]
    for owners in itertools.product((None, *takers), repeat=len(units)):
        extended = [list(axes) for axes in base]
        for owner, unit in zip(owners, units, strict=True):
            if owner is not None:
                extended[owner] += unit
        assignment = tuple(map(tuple, extended))
        # Legal for the rule and divisible: which of the products are, only the whole assignment shows.
        if is_legal(rule, assignment, mesh):
            yield assignment


def placements_of(
    shape: Sequence[int], mesh: DeviceMatrix, units: Units, base: Placement | None = None
) -> Iterator[Placement]:
    """Placements: the shardings of `base` extended by every unit at one dimension or none; parts of `base` stay parts."""
    base = base or Placement.replicated(len(shape))
    for owners in itertools.product((None, *range(len(shape))), repeat=len(units)):
        extended = [list(axes) for axes in base.dims]
        for owner, unit in zip(owners, units, strict=True):
            if owner is not None:
                extended[owner] += unit
        placement = placed(tuple(map(tuple, extended)), base.partial, base.reduction)
        if placement.fits(shape, mesh):
            yield placement


def with_partial_sums(placements: Iterable[Placement], units: Units) -> Iterator[Placement]:
    """The same placements, and those with partial sums along units that they do not use."""
    for placement in placements:
        free = [unit for unit in units if placement.used.isdisjoint(unit)]
        for count in range(len(free) + 1):
            for chosen in itertools.combinations(free, count):
                yield Placement(placement.dims, (*placement.partial, *itertools.chain(*chosen)), placement.reduction)


def restricted(placement: Placement, axes: frozenset[int]) -> Placement:
    """A placement restricted to some axes."""
    dims = tuple(tuple(axis for axis in boundary if axis in axes) for boundary in placement.dims)
    return placed(dims, tuple(axis for axis in placement.partial if axis in axes), placement.reduction)
