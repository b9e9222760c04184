"""Dijkstra's algorithm over the placements of a factored shape.

Every move takes one unit (axes that move together) to another dimension. To keep the search small, a unit goes only to
dimensions that the target shards, or out of the way. A permute of two units must bring at least one of them to its
target. On meshes of three axes this seldom loses anything against trying all moves (a test compares the two).

What may be done next does not depend on how large a tensor is, or what sending costs: it is worked out once for all tensors
that are sharded in the same ways (`_Steps`). Nor does the least time depend on the names of units (`least_seconds`).
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from sporax.ir.device_matrix import DeviceMatrix, transposed
from sporax.ir.placement import Axes, Placement
from sporax.planner.communication.factored_shape import FactoredShape, State, factor_shape
from sporax.planner.communication.moves import LinkCosts, Move, MoveKind, Redistribution, Shape

MAX_STATES = 500
"""Placements that are visited before the search prefers those that look closer to the target. They grow exponentially."""


class _UnitMove(NamedTuple):
    """A move in terms of units."""

    kind: MoveKind
    units: tuple[int, ...]
    source: int
    target: int
    after: State


def find_moves(
    shape: Shape,
    itemsize: int,
    source: Placement,
    target: Placement,
    mesh: DeviceMatrix,
    alltoall: bool,
    costs: LinkCosts,
) -> Redistribution:
    """The moves of least cost from `source` to `target`; arguments as in `redistribute`."""
    task, devices = factor_shape(shape, source, target, mesh), mesh.num_devices
    # Only by factors of the number of devices can a dimension be sharded, and only those that the target shards are.
    forms = tuple(math.gcd(size, devices) if new else 1 for size, new in zip(task.shape, task.goal.dims, strict=True))
    possible, reductions = _steps(task.sizes, forms, task.goal, alltoall), (source.reduction, target.reduction)
    search = _Search(task, possible, math.prod(task.shape) * itemsize, mesh, costs, reductions)
    moves = tuple(itertools.starmap(search.move, search.merged(search.found())))
    seconds, slices = sum(move.seconds for move in moves), task.local_shape(task.start)
    return Redistribution(source, target, target.local_shape(shape, mesh), slices, moves, seconds)


@functools.lru_cache(maxsize=65536)
def least_seconds(
    task: FactoredShape, num_bytes: int, reduction: str, mesh: DeviceMatrix, alltoall: bool, costs: LinkCosts
) -> float:
    """Seconds that `find_moves` finds for a `comparable` task of a tensor of so many bytes, before the task's units shard it."""
    possible = _steps(task.sizes, task.shape, task.goal, alltoall)
    search = _Search(task, possible, num_bytes, mesh, costs, (reduction, reduction))
    steps = search.merged(search.found())
    return sum(search.seconds(step.kind, step.units, search.local_bytes(before)) for step, before in steps)


class _Steps:
    """What may be done next in each placement, of all tensors with these forms.

    Args:
        sizes: ranks along each unit.
        shape: of each factored dimension what decides by which units it can be sharded.
        goal: the target.
        alltoall: as in `find_moves`.
    """

    def __init__(self, sizes: tuple[int, ...], shape: Shape, goal: State, alltoall: bool) -> None:
        self.sizes, self.shape, self.goal = sizes, shape, goal
        self.alltoall = alltoall
        self.goal_dims = {unit: dim for dim, units in enumerate(goal.dims) for unit in units}
        self.sharded_dims = [dim for dim, units in enumerate(goal.dims) if units]
        self.goal_parts = [self._num_slices(units) for units in goal.dims]
        self._from: dict[State, tuple[_UnitMove, ...]] = {}
        self._slices: dict[State, int] = {}

    def __call__(self, state: State) -> tuple[_UnitMove, ...]:
        """Everything that may be done next."""
        steps = self._from.get(state)
        if steps is None:
            steps = self._from[state] = tuple(self._found(state))
        return steps

    def num_slices(self, state: State) -> int:
        """In how many slices a placement shards the tensor."""
        number = self._slices.get(state)
        if number is None:
            number = self._slices[state] = math.prod(self._num_slices(units) for units in state.dims)
        return number

    def _found(self, state: State) -> Iterator[_UnitMove]:
        placed = {unit: dim for dim, units in enumerate(state.dims) for unit in units}
        for unit in range(len(self.sizes)):
            if unit in placed:
                yield from self._from_dim(state, unit, placed[unit])
            elif unit in state.parts:
                yield from self._from_partial(state, unit)
            elif unit not in state.masked:
                yield from self._from_copies(state, unit)
        if self.alltoall:
            yield from self._trades(state, placed)

    def _from_dim(self, state: State, unit: int, dim: int) -> Iterator[_UnitMove]:
        # Only the innermost unit can leave: gathering an outer one would leave slices with gaps.
        if state.dims[dim][-1] != unit:
            return
        without = _with_units(state, dim, state.dims[dim][:-1])
        yield _UnitMove(MoveKind.ALL_GATHER, (unit,), dim, -1, without)
        if self.alltoall:
            for target in self._target_dims(unit):
                if target != dim and self._fits(without, unit, target):
                    after = _with_units(without, target, (*without.dims[target], unit))
                    yield _UnitMove(MoveKind.ALL_TO_ALL, (unit,), dim, target, after)

    def _from_partial(self, state: State, unit: int) -> Iterator[_UnitMove]:
        without = state._replace(parts=tuple(other_unit for other_unit in state.parts if other_unit != unit))
        yield _UnitMove(MoveKind.ALL_REDUCE, (unit,), -1, -1, without)
        for target in self._target_dims(unit):
            if self._fits(state, unit, target):
                after = _with_units(without, target, (*without.dims[target], unit))
                yield _UnitMove(MoveKind.REDUCE_SCATTER, (unit,), -1, target, after)

    def _from_copies(self, state: State, unit: int) -> Iterator[_UnitMove]:
        if unit in self.goal.masked:
            after = state._replace(masked=tuple(sorted((*state.masked, unit))))
            # Masking gives the tensor a partial sum of the target's kind, and two kinds cannot be held at once.
            if not state.parts:  # parts of two kinds at once would not combine
                yield _UnitMove(MoveKind.MASK, (unit,), -1, -1, after)
        for target in self._target_dims(unit):
            if self._fits(state, unit, target):
                after = _with_units(state, target, (*state.dims[target], unit))
                yield _UnitMove(MoveKind.SLICE, (unit,), -1, target, after)

    def _trades(self, state: State, placed: dict[int, int]) -> Iterator[_UnitMove]:
        """Permutes: all the way when only the places of units differ, two units of one size, two neighbours in a dimension."""
        goal = self.goal
        complete = state.parts == goal.parts and state.masked == goal.masked
        # Equal numbers of slices in every dimension: ranks hold slices of the same shape and only trade them.
        if state != goal and complete and [self._num_slices(units) for units in state.dims] == self.goal_parts:
            yield self._permute(state, goal)
        yield from self._swaps(state, placed)
        yield from self._turns(state)

    def _swaps(self, state: State, placed: dict[int, int]) -> Iterator[_UnitMove]:
        """Two units of one size change places."""
        busy = {*state.parts, *state.masked}
        for first, second in itertools.combinations(range(len(self.sizes)), 2):
            # Only units of one size can swap places without changing the shape of slices.
            if self.sizes[first] != self.sizes[second] or busy & {first, second}:
                continue
            if first not in placed and second not in placed:
                continue
            other = {first: second, second: first}
            after = state._replace(dims=tuple(tuple(other.get(unit, unit) for unit in units) for units in state.dims))
            if self._is_at_target(after, first) or self._is_at_target(after, second):
                yield self._permute(state, after)

    def _turns(self, state: State) -> Iterator[_UnitMove]:
        """Two neighbours in one dimension swap their order; slices keep their shape whatever their sizes."""
        for dim, units in enumerate(state.dims):
            for place in range(len(units) - 1):
                turned = (*units[:place], units[place + 1], units[place], *units[place + 2 :])
                # Even one after another brings every order about, and permutes in a row are merged into one.
                yield self._permute(state, _with_units(state, dim, turned))

    def _permute(self, before: State, after: State) -> _UnitMove:
        return _UnitMove(MoveKind.PERMUTE, self._changed(before, after), -1, -1, after)

    def _is_at_target(self, state: State, unit: int) -> bool:
        """Whether a unit is exactly where the target has it."""
        dim = self.goal_dims.get(unit)
        return (
            dim is not None
            and unit in state.dims[dim]
            and state.dims[dim].index(unit) == self.goal.dims[dim].index(unit)
        )

    def _target_dims(self, unit: int) -> list[int]:
        """Dimensions that a unit may go to: those that the target shards, for a unit that shards in the target."""
        return self.sharded_dims if unit in self.goal_dims else []

    def _fits(self, state: State, unit: int, dim: int) -> bool:
        # The dimension must divide evenly, as `Placement.fits` requires.
        return self.shape[dim] % (self._num_slices(state.dims[dim]) * self.sizes[unit]) == 0

    def _num_slices(self, units: tuple[int, ...]) -> int:
        return math.prod(self.sizes[unit] for unit in units)

    def _changed(self, before: State, after: State) -> tuple[int, ...]:
        """The units that change places, with all others in their dimensions."""
        changed = {
            unit for old, new in zip(before.dims, after.dims, strict=True) if old != new for unit in (*old, *new)
        }
        return tuple(sorted(changed))


_steps = functools.lru_cache(maxsize=256)(_Steps)


class _Search:
    def __init__(
        self,
        task: FactoredShape,
        steps: _Steps,
        num_bytes: int,
        mesh: DeviceMatrix,
        costs: LinkCosts,
        reductions: tuple[str, str],
    ) -> None:
        self.task, self.steps, self.mesh, self.costs = task, steps, mesh, costs
        self.reduction, self.target_reduction = reductions
        self.num_bytes = num_bytes
        self._seconds: dict[tuple[MoveKind, tuple[int, ...], int], float] = {}

    def found(self) -> list[_UnitMove]:
        """The steps of least cost; where there are too many placements to look at, the target draws the search."""
        attraction, limit = 0.0, MAX_STATES
        steps = self.run(attraction, limit)
        while steps is None:
            # In seconds, so it is measured by a move of this very tensor: two permutes for each unit out of place, or more.
            attraction = 2 * (attraction or self.seconds(MoveKind.PERMUTE, (0,), self.local_bytes(self.task.start)))
            steps = self.run(attraction, limit)
            limit = 2 * limit + 1
        return steps

    def run(self, attraction: float, limit: int) -> list[_UnitMove] | None:
        """The steps of least cost; None when there are more than `limit` placements to look at.

        Args:
            attraction: seconds that a unit out of place counts for when the next placement to look at is chosen. Above 0 the
                search ends sooner, and what it finds need not be of least cost.
            limit: how many placements are looked at.
        """
        start, goal = self.task.start, self.task.goal
        best: dict[State, float] = {start: 0.0}
        reached: dict[State, tuple[State, _UnitMove]] = {}
        done: set[State] = set()
        number = itertools.count()
        # The number breaks ties, so that states (which have no order) are never compared.
        queue = [(0.0, next(number), start)]
        while queue:
            _, _, state = heapq.heappop(queue)
            if state == goal:
                return self._path(reached)
            # A state may be in the queue several times; only its first entry, that of least cost, counts.
            if state in done:
                continue
            done.add(state)
            if len(done) > limit:
                return None
            size = self.local_bytes(state)
            # Costs are never negative, so a state that is taken from the queue has its final cost (Dijkstra).
            for step in self.steps(state):
                # In femtoseconds: ways of equal cost differ by rounding, and tensors that are sent together must go one way.
                total = round(best[state] + self.seconds(step.kind, step.units, size), 15)
                if total < best.get(step.after, math.inf):
                    best[step.after] = total
                    reached[step.after] = (state, step)
                    # A guess that may be too high: with it the search is no longer exact.
                    away = attraction * self._num_misplaced(step.after) if attraction else 0.0
                    heapq.heappush(queue, (total + away, next(number), step.after))
        raise AssertionError("gathering everything and slicing again is always possible")

    def _num_misplaced(self, state: State) -> int:
        pairs = zip(state.dims, self.task.goal.dims, strict=True)
        # Each unit out of its place needs about one move, on the way out and on the way in.
        return sum(len(units) + len(goal) - 2 * (units == goal) * len(goal) for units, goal in pairs) + len(state.parts)

    def _path(self, reached: dict[State, tuple[State, _UnitMove]]) -> list[_UnitMove]:
        steps = []
        state = self.task.goal
        while state != self.task.start:
            state, step = reached[state]
            steps.append(step)
        return steps[::-1]

    def local_bytes(self, state: State) -> int:
        """Bytes of one rank's slice."""
        # Integer: every state divides the tensor evenly.
        return self.num_bytes // self.steps.num_slices(state)

    def seconds(self, kind: MoveKind, units: tuple[int, ...], local_bytes: int) -> float:
        """Predicted time of a move."""
        key = (kind, units, local_bytes)
        cached = self._seconds.get(key)
        # By kind, units and bytes: many states share these three.
        if cached is None:
            axes = self._axes(units)
            sizes = [self.mesh.shape[axis] for axis in axes]
            cached = self._seconds[key] = self.costs.seconds(kind, self.reduction, axes, sizes, local_bytes)
        return cached

    def _axes(self, units: tuple[int, ...]) -> Axes:
        return tuple(axis for unit in units for axis in self.task.units[unit])

    def merged(self, steps: list[_UnitMove]) -> Iterator[tuple[_UnitMove, State]]:
        """Steps, each with the placement before it; permutes in a row become one, and so do masks."""
        state = self.task.start
        position = 0
        while position < len(steps):
            step, before = steps[position], state
            # Moves of one kind that touch the same slices are one collective, and pay one start.
            joins = step.kind in (MoveKind.PERMUTE, MoveKind.MASK)
            while joins and [step.kind for step in steps[position + 1 : position + 2]] == [step.kind]:
                position += 1
                units = tuple(sorted({*step.units, *steps[position].units}))
                step = steps[position]._replace(units=units)
            yield step, before
            state = step.after
            position += 1

    def move(self, step: _UnitMove, before: State) -> Move:
        """A step in terms of mesh axes."""
        axes, size = self._axes(step.units), self.local_bytes(before)
        combines = step.kind in (MoveKind.ALL_REDUCE, MoveKind.REDUCE_SCATTER)
        reduction = self.reduction if combines else self.target_reduction if step.kind is MoveKind.MASK else ""
        pairs = self._pairs(before, step) if step.kind is MoveKind.PERMUTE else ()
        native = self.costs.has_reduce_scatter or step.kind is not MoveKind.REDUCE_SCATTER
        seconds = self.seconds(step.kind, step.units, size)
        return Move(step.kind, axes, step.source, step.target, reduction, pairs, size, seconds, native)

    def _pairs(self, before: State, step: _UnitMove) -> tuple[tuple[int, int], ...]:
        """Who sends its slice to whom, as places along the axes of the units that change.

        A receiver wants the slice of its new place. Several ranks may have it, distinguished by the units that shard nothing;
        giving the receiver the sender with the same number among those makes the trade one-to-one.
        """
        sizes = [self.task.sizes[unit] for unit in step.units]
        senders, receivers = (transposed(sizes, self._order(state, step.units)) for state in (before, step.after))
        return tuple(sorted(zip(senders, receivers, strict=True)))

    def _order(self, state: State, units: tuple[int, ...]) -> list[int]:
        """Positions among units of those that shard, dimension after dimension, and then of those that do not."""
        sharding = [units.index(unit) for dim in state.dims for unit in dim if unit in units]
        return [*sharding, *(position for position in range(len(units)) if position not in sharding)]


def _with_units(state: State, dim: int, units: tuple[int, ...]) -> State:
    return state._replace(dims=(*state.dims[:dim], units, *state.dims[dim + 1 :]))
