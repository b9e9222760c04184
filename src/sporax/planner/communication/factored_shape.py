"""The factored shape on which a redistribution is planned.

Problem: an axis that is not the innermost one of its dimension cannot move to another dimension by itself.

Method: split every dimension at the positions where the source or the target shards it. Take a 64 x 32 tensor on a mesh
(2, 2, 2, 2) that goes from rows by (0, 1), columns by (2, 3) to rows by (0, 1, 2), columns by (3,). Rows stay sharded
by (0, 1), which is left out. The rest is

    rows 16 -> 2 x 8          columns 32 -> 2 x 2 x 8
    source:  -                         2   3   -
    target:  2                         3   -   -

Now axis 2 can move to the rows by itself, and axis 3 into the position that it left. Axes that are adjacent in the
source and in the target move together as one *unit*.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.planner.communication.moves import Shape

_DIM, _FREE, _PARTIAL = "dim", "free", "partial"
"""What an axis does in a placement: it shards a dimension, it does nothing, or values along it are still to be combined."""


class State(NamedTuple):
    """Where the units are: per factored dimension those that shard it, and those along which the tensor is partial.

    `parts` are partial in the way of the source, `masked` in the way of the target. All others are free.
    """

    dims: tuple[tuple[int, ...], ...]
    parts: tuple[int, ...]
    masked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FactoredShape:
    """A redistribution on the factored shape.

    Attributes:
        units: mesh axes that move together; a unit's number is its position here.
        sizes: ranks along each unit.
        shape: the factored shape of what the axes that stay leave to each rank.
        start, goal: source and target.
    """

    units: tuple[Axes, ...]
    sizes: tuple[int, ...]
    shape: Shape
    start: State
    goal: State

    def local_shape(self, state: State) -> Shape:
        """Factored shape of one rank's slice."""
        return tuple(
            size // math.prod(self.sizes[unit] for unit in units)
            for size, units in zip(self.shape, state.dims, strict=True)
        )


def factor_shape(shape: Shape, source: Placement, target: Placement, mesh: DeviceMatrix) -> FactoredShape:
    """Set up the task for a tensor of `shape`."""
    # A common prefix stays in its place whatever happens, so it is taken out of the search.
    fixed = [_common_prefix(old, new) for old, new in zip(source.dims, target.dims, strict=True)]
    shape = tuple(size // num_parts(mesh, axes) for size, axes in zip(shape, fixed, strict=True))
    old = tuple(axes[len(stay) :] for axes, stay in zip(source.dims, fixed, strict=True))
    new = tuple(axes[len(stay) :] for axes, stay in zip(target.dims, fixed, strict=True))
    # An axis that is partial before and after needs no move, unless the values combine in another way.
    common = set(source.partial) & set(target.partial) if source.reduction == target.reduction else set()
    partial = tuple(axis for axis in source.partial if axis not in common)
    masked = tuple(axis for axis in target.partial if axis not in common)
    runs, split = _movable_runs(shape, old, new, _runs(old, new, partial, masked), mesh)
    return _assemble(runs, mesh, split, partial, masked)


def comparable(task: FactoredShape, kinds: Sequence[int], devices: int) -> FactoredShape:
    """The task with units and dimensions in an order of their own: equal ones take equally long for as many bytes.

    Args:
        kinds: for each axis of the mesh the first one that is as large and has links that are as fast.
        devices: how many devices there are. Only by factors of it can a dimension be sharded.
    """
    start, goal = task.start, task.goal
    axes = [tuple(kinds[axis] for axis in unit) for unit in task.units]
    sizes = (math.gcd(size, devices) if new else 1 for size, new in zip(task.shape, goal.dims, strict=True))
    dims = [row for row in zip(start.dims, goal.dims, sizes, strict=True) if row[0] or row[1]]
    looks = [(own, unit in start.parts, unit in goal.masked, _seen(unit, dims, axes)) for unit, own in enumerate(axes)]
    order = sorted(range(len(axes)), key=looks.__getitem__)

    def named(units: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(order.index, units))

    rows = sorted((named(old), named(new), size) for old, new, size in dims)
    olds, news, shape = zip(*rows, strict=True) if rows else ((), (), ())
    ends = State(olds, tuple(sorted(named(start.parts))), ()), State(news, (), tuple(sorted(named(goal.masked))))
    return FactoredShape(tuple(axes[unit] for unit in order), tuple(task.sizes[unit] for unit in order), shape, *ends)


def _seen(unit: int, dims: Sequence[tuple[Axes, Axes, int]], axes: Sequence[Axes]) -> list[tuple[object, ...]]:
    """Where a unit is before and after, with the axes of what else is there: all but its name."""
    return [
        (
            size,
            *((units.index(unit) if unit in units else -1, [axes[other] for other in units]) for units in (old, new)),
        )
        for old, new, size in dims
        if unit in (*old, *new)
    ]


def _movable_runs(
    shape: Shape, old: Sequence[Axes], new: Sequence[Axes], runs: list[Axes], mesh: DeviceMatrix
) -> tuple[list[Axes], _Split]:
    """The longest runs of which each lies in one piece of a dimension, and the pieces."""
    # Splitting into single axes ends the loop at the latest: a run of one axis can be taken apart no further.
    while True:
        # A run is named by its first axis, which is the outermost one of its steps.
        sizes = {run[0]: num_parts(mesh, run) for run in runs}
        split = _split_dims(shape, _by_unit(old, runs), _by_unit(new, runs), sizes)
        # A run that would span several pieces of a dimension cannot move at once, so it is taken apart and the split repeated.
        broken = [run for run in runs if len(run) > 1 and run[0] in split.misfits]
        if not broken:
            return runs, split
        runs = [piece for run in runs for piece in ([(axis,) for axis in run] if run in broken else [run])]


class _Split(NamedTuple):
    """The factored dimensions with the units in each, before and after; `misfits` are across several of them."""

    shape: Shape
    old: tuple[tuple[int, ...], ...]
    new: tuple[tuple[int, ...], ...]
    misfits: frozenset[int]


def _common_prefix(first: Axes, second: Axes) -> Axes:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(axis for axis, _ in pairs)


def _runs(old: Sequence[Axes], new: Sequence[Axes], partial: Axes, masked: Axes) -> list[Axes]:
    """Axes that are next to each other before and after; being repeated, or partial, together counts as that."""
    sides = (_Side(old, partial), _Side(new, masked))
    active = sorted({*itertools.chain(*old, *new), *partial, *masked})
    pairs = [*sides[0].after.items(), *sides[1].after.items(), *zip(partial, partial[1:], strict=False)]
    # Both sides must agree: a pair that is together on one side only has to be moved apart.
    joined = {first: second for first, second in pairs if all(side.together(first, second) for side in sides)}
    heads = [axis for axis in active if axis not in joined.values()]
    runs = []
    for head in heads:
        run = [head]
        while run[-1] in joined:
            run.append(joined[run[-1]])
        runs.append(tuple(run))
    return runs


class _Side:
    """One placement, and which of its axes belong together."""

    def __init__(self, dims: Sequence[Axes], partial: Axes) -> None:
        self.after = {first: second for axes in dims for first, second in zip(axes, axes[1:], strict=False)}
        self.sorts = dict.fromkeys(itertools.chain(*dims), _DIM) | dict.fromkeys(partial, _PARTIAL)

    def together(self, first: int, second: int) -> bool:
        sorts = {self.sorts.get(first, _FREE), self.sorts.get(second, _FREE)}
        # Axes that do nothing, or are partial, have no order, so any two of them count as neighbours.
        return self.after.get(first) == second or (len(sorts) == 1 and _DIM not in sorts)


def _by_unit(dims: Sequence[Axes], runs: Sequence[Axes]) -> list[tuple[int, ...]]:
    """Per dimension the first axes of the runs that shard it."""
    heads = {run[0] for run in runs}
    return [tuple(axis for axis in axes if axis in heads) for axes in dims]


def _split_dims(
    shape: Shape, old: Sequence[tuple[int, ...]], new: Sequence[tuple[int, ...]], sizes: Mapping[int, int]
) -> _Split:
    factored: list[int] = []
    before: list[tuple[int, ...]] = []
    after: list[tuple[int, ...]] = []
    misfits: set[int] = set()
    for size, old_units, new_units in zip(shape, old, new, strict=True):
        points, across = _split_points(old_units, new_units, sizes)
        misfits |= across
        # The innermost piece is what no axis shards; it is missing where the axes divide the dimension to single elements.
        edges = [1, *points, size] if size > (points[-1] if points else 0) else [1, *points]
        factored += [outer // inner for inner, outer in zip(edges, edges[1:], strict=False)] or [1]
        # One piece of size one for a dimension without elements to split, so that dimensions keep their numbers.
        spans = list(zip(edges, edges[1:], strict=False)) or [(1, 1)]
        before += [_units_between(old_units, sizes, *span) for span in spans]
        after += [_units_between(new_units, sizes, *span) for span in spans]
    return _Split(tuple(factored), tuple(before), tuple(after), frozenset(misfits))


def _split_points(
    old: tuple[int, ...], new: tuple[int, ...], sizes: Mapping[int, int]
) -> tuple[list[int], frozenset[int]]:
    """Where a dimension is split, and which units would then span several pieces.

    All shardings of both placements if each unit then fits one piece; else the shardings that they share, and pieces with several
    units each.
    """
    # Cumulative products: after how many slices each unit's sharding ends.
    products = [list(itertools.accumulate((sizes[unit] for unit in units), lambda a, b: a * b)) for units in (old, new)]
    points = sorted({*products[0], *products[1]})
    edges = [1, *points]
    across = {
        unit
        for units, own in zip((old, new), products, strict=True)
        for unit, first, last in zip(units, [1, *own], own, strict=False)
        # A unit that begins and ends at neighbouring points fits one piece.
        if edges.index(last) != edges.index(first) + 1
    }
    if not across and all(outer % inner == 0 for inner, outer in zip(edges, edges[1:], strict=False)):
        return points, frozenset()
    # No common refinement exists, for example sizes 2 and 3: units are then moved as the shared points allow, or gathered.
    return sorted(set(products[0]) & set(products[1])), frozenset({*across, *old, *new})


def _units_between(units: tuple[int, ...], sizes: Mapping[int, int], first: int, last: int) -> tuple[int, ...]:
    """The units whose shards begin in [first, last) of a dimension."""
    inside = []
    place = 1
    for unit in units:
        if first <= place < last:
            inside.append(unit)
        place *= sizes[unit]
    return tuple(inside)


def _assemble(runs: Sequence[Axes], mesh: DeviceMatrix, split: _Split, partial: Axes, masked: Axes) -> FactoredShape:
    number = {run[0]: index for index, run in enumerate(runs)}

    def state(dims: tuple[tuple[int, ...], ...], partial: Axes, is_start: bool) -> State:
        units = tuple(tuple(number[head] for head in heads) for heads in dims)
        members = tuple(sorted(number[axis] for axis in partial if axis in number))
        return State(units, members, ()) if is_start else State(units, (), members)

    return FactoredShape(
        tuple(runs),
        tuple(num_parts(mesh, run) for run in runs),
        split.shape,
        state(split.old, partial, True),
        state(split.new, masked, False),
    )
