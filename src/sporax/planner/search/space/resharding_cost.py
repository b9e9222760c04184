"""The time to bring a tensor from one placement to another, computed a hundred thousand times per search.

Problem: `planner.communication.resharding` searches for the sequence of moves of least cost, which is too slow for every
pair of candidates.

Method: `ReshardingCosts` first builds a direct route: slice as early as possible, move axes directly to their target,
gather only what is in the way. A direct route of one move has the least cost, but for permutes along axes whose links differ. For
these and longer ones the full search runs, unless the caller requested speed (`approximate`).

Caching: a route depends on placements, and only on dimensions that are sharded before or after; the number of bytes changes
its cost. The full search also depends on sizes, as far as devices can shard them, and not on which of several equal axes is
where (`comparable`): for eight devices that is one search in place of about fifteen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Axes, Placement, num_parts, placed
from sporax.planner.communication.factored_shape import FactoredShape, comparable, factor_shape
from sporax.planner.communication.moves import LinkCosts, MoveKind, Shape
from sporax.planner.communication.shortest_path import least_seconds

Floats = NDArray[np.float64]

_Question = tuple[Shape, Placement, Placement]
"""Sizes of a tensor, as far as they matter, where it is, and where it should be."""


class ReshardingCosts:
    """Remembers costs of moves on one mesh, by all-to-all and permute if `alltoall`; if `approximate`, of straight ways."""

    def __init__(self, mesh: DeviceMatrix, links: LinkCosts, alltoall: bool = True, approximate: bool = False) -> None:
        self.mesh, self.links, self.alltoall, self.approximate = mesh, links, alltoall, approximate
        properties = links.axis_alpha, links.axis_beta, links.axis_rings
        axes = [*zip(mesh.shape, *(values or (0,) * mesh.num_axes for values in properties), strict=True)]
        self._kinds = [axes.index(axis) for axis in axes]
        self._speeds = [axis[1:] for axis in axes]
        self._routes: dict[tuple[Placement, Placement], _Route] = {}
        self._ways: dict[_Question, _Route | _Searched] = {}
        self._requested: dict[_Searched, _Searched] = {}
        self._tables: dict[object, tuple[list[_Route | _Searched], NDArray[np.int64]]] = {}
        """The different ways between some placements of tensors of some sizes, and for each pair which of them it is."""

    def seconds(self, spec: TensorSpec, source: Placement, target: Placement, sharing: int = 1) -> float:
        """Least time of a route, or approximately of the straight one, of one of `sharing` tensors that share starts."""
        return self._way(self._sizes(spec), source, target).seconds(spec.num_bytes, self.links.shared_by(sharing))

    def table(
        self, spec: TensorSpec, sources: Sequence[Placement], targets: Sequence[Placement], sharing: int = 1
    ) -> Floats:
        """Times [sources, targets]; equal sources or targets are worked out once."""
        rows, row_of = _distinct(sources)
        columns, column_of = _distinct(targets)
        key = self._sizes(spec), rows, columns
        if key not in self._tables:
            ways = [[self._way(key[0], a, b) for b in columns] for a in rows]
            # By identity: hashing a question for every pair would take longer than all else here.
            different = {id(way): way for row in ways for way in row}
            number = {name: place for place, name in enumerate(different)}
            self._tables[key] = [*different.values()], np.array([[number[id(way)] for way in row] for row in ways])
        found, numbers = self._tables[key]
        links = self.links.shared_by(sharing)
        seconds = np.array([way.seconds(spec.num_bytes, links) for way in found])
        return seconds[numbers][np.ix_(row_of, column_of)]

    def _sizes(self, spec: TensorSpec) -> Shape:
        """A dimension can be sharded by common factors with the number of devices only, so other factors do not matter."""
        return tuple(math.gcd(size, self.mesh.num_devices) for size in spec.shape)

    def _way(self, sizes: Shape, source: Placement, target: Placement) -> _Route | _Searched:
        """How a tensor of these sizes gets from one placement to another."""
        question = _essential(sizes, source, target)
        way = self._ways.get(question)
        if way is None:
            way = route = self._direct_route(*question[1:])
            # For approximate costs no other one is looked for.
            if not (self.approximate or self._is_least(route)):
                way = self._searched(*question)
            self._ways[question] = way
        return way

    def _is_least(self, route: _Route) -> bool:
        """Whether it is one move, and no permute that sends over slow links what copies across quick ones have."""
        unlike = (move for move in route.moves if len({self._speeds[axis] for axis in move.axes}) > 1)
        return len(route.moves) < 2 and all(move.kind is not MoveKind.PERMUTE for move in unlike)

    def _direct_route(self, source: Placement, target: Placement) -> _Route:
        """The straight way; if `approximate`, perhaps one of lower cost that ends with a permute to bring axes in order."""
        route = self._routes.get((source, target))
        if route is None:
            turned: tuple[_Route, ...] = ()
            between = _in_other_order(source, target)
            # Without a hurry the full search sees such routes by itself.
            if self.approximate and self.alltoall and between not in (source, target):
                turned = self._direct_route(source, between), self._direct_route(between, target)
            moves = _DirectRoute(self.mesh, self.alltoall, source, target).moves
            route = self._routes[source, target] = _Route(moves, turned)
        return route

    def _searched(self, sizes: Shape, source: Placement, target: Placement) -> _Searched:
        """The full search, made once for all tensors that differ in nothing that matters."""
        task = factor_shape(sizes, source, target, self.mesh)
        reduction = source.reduction if task.start.parts else ""
        staying = math.prod(sizes) // math.prod(task.shape)
        task = comparable(task, self._kinds, self.mesh.num_devices)
        requested = _Searched(task, staying, reduction, self.mesh, self.alltoall)
        return self._requested.setdefault(requested, requested)


class _Move(NamedTuple):
    """One move of a way: what it is, along which axes of which sizes, and in how many slices the tensor is sharded before."""

    kind: MoveKind
    slices: int
    reduction: str = ""
    axes: Axes = ()
    sizes: tuple[int, ...] = ()


class _Searched(NamedTuple):
    """A way that the full search finds; `staying` is in how many slices the tensor is before, after and between."""

    task: FactoredShape
    staying: int
    reduction: str
    mesh: DeviceMatrix
    alltoall: bool

    def seconds(self, num_bytes: int, links: LinkCosts) -> float:
        """Time for a tensor of so many bytes."""
        task, staying, *rest = self
        # Nothing has to be sent of a tensor without elements.
        return least_seconds(task, num_bytes // staying, *rest, links) if num_bytes else 0.0


class _Route:
    """A straight way between two placements, and perhaps another one by way of a third; costs are remembered."""

    def __init__(self, moves: Sequence[_Move], turned: Sequence[_Route]) -> None:
        self.moves, self.turned = moves, turned
        self._seconds: dict[tuple[int, int], float] = {}

    def seconds(self, num_bytes: int, links: LinkCosts) -> float:
        """Time for a tensor of so many bytes."""
        # The links' other values are the same within one `ReshardingCosts`, so the number of sharers stands for all.
        key = num_bytes, links.sharing
        cached = self._seconds.get(key)
        if cached is None:
            cached = 0.0
            for kind, slices, reduction, axes, sizes in self.moves:
                cached += links.seconds(kind, reduction, axes, sizes, num_bytes // slices)
            if self.turned:
                cached = min(cached, sum(route.seconds(num_bytes, links) for route in self.turned))
            self._seconds[key] = cached
        return cached


class _DirectRoute:
    """Walks one straight way: the present shardings, the parts that are left to combine, and the moves so far."""

    def __init__(self, mesh: DeviceMatrix, alltoall: bool, source: Placement, target: Placement) -> None:
        self.mesh, self.alltoall = mesh, alltoall
        self.source, self.target = source, target
        self.dims = [*source.dims]
        same = source.reduction == target.reduction
        # Partial sums of one reduction can stay partial; those of another reduction must be combined first.
        self.parts = tuple(axis for axis in source.partial if not (same and axis in target.partial))
        masked = tuple(axis for axis in target.partial if not (same and axis in source.partial))
        self.slices = math.prod(source.parts(mesh))
        self.moves: list[_Move] = []
        # The same number of slices in each changed dimension: devices trade whole slices, which one permute does.
        if alltoall and not self.parts and not masked and self._same_counts():
            changed = tuple(sorted({axis for pair in self._changed() for axes_of_dim in pair for axis in axes_of_dim}))
            self._move(MoveKind.PERMUTE, changed)
            return
        self._walk()
        if masked:
            self.moves.append(_Move(MoveKind.MASK, self.slices))

    def _walk(self) -> None:
        """Moves until the shardings are the target's and no parts are left."""
        while self.dims != [*self.target.dims] or self.parts:
            # In this order: slicing sends nothing and makes later moves smaller; gathering makes them larger, so it comes last.
            moved = self._slice() or self._scatter() or self._trade() or self._reduce() or self._gather()
            assert moved, "whatever is missing can be sliced once all else is in its place"

    def _move(self, kind: MoveKind, axes: Axes) -> bool:
        sizes = tuple(self.mesh.shape[axis] for axis in axes)
        self.moves.append(_Move(kind, self.slices, self.source.reduction, axes, sizes))
        return True

    def _changed(self) -> list[tuple[Axes, Axes]]:
        return [(old, new) for old, new in zip(self.dims, self.target.dims, strict=True) if old != new]

    def _same_counts(self) -> bool:
        """Whether devices only trade whole slices."""
        changed = self._changed()
        return bool(changed) and all(num_parts(self.mesh, old) == num_parts(self.mesh, new) for old, new in changed)

    def _missing(self) -> list[tuple[int, Axes]]:
        """Dimensions whose sharding is a prefix of the target's, and the axes that are still missing."""
        return [
            (dim, new[len(old) :])
            for dim, (old, new) in enumerate(zip(self.dims, self.target.dims, strict=True))
            # Axes are appended only: a dimension that begins with a wrong axis must be gathered first.
            if len(new) > len(old) and new[: len(old)] == old
        ]

    def _shard(self, dim: int, axes: Axes) -> None:
        self.dims[dim] = (*self.dims[dim], *axes)
        self.slices *= num_parts(self.mesh, axes)

    def _slice(self) -> bool:
        """Shard by axes that do nothing yet."""
        busy = {axis for axes_of_dim in self.dims for axis in axes_of_dim} | set(self.parts)
        for dim, missing in self._missing():
            axes = _leading(missing, lambda axis: axis not in busy)
            if axes:
                self._move(MoveKind.SLICE, axes)
                self._shard(dim, axes)
                return True
        return False

    def _scatter(self) -> bool:
        """Reduce partial sums and shard by their axes in one move."""
        for dim, missing in self._missing():
            axes = _leading(missing, lambda axis: axis in self.parts)
            if axes:
                self._move(MoveKind.REDUCE_SCATTER, axes)
                self.parts = tuple(axis for axis in self.parts if axis not in axes)
                self._shard(dim, axes)
                return True
        return False

    def _trade(self) -> bool:
        """Bring axes from the end of one dimension to another."""
        for dim, missing in self._missing() if self.alltoall else ():
            for other, axes_of_dim in enumerate(self.dims):
                right = _common(axes_of_dim, self.target.dims[other])
                # Only a tail can be taken off: the slices of the axes before it stay where they are.
                for start in range(right, len(axes_of_dim)):
                    axes = axes_of_dim[start:]
                    if missing[: len(axes)] == axes:
                        self.dims[other] = axes_of_dim[:start]
                        self.dims[dim] = (*self.dims[dim], *axes)
                        return self._move(MoveKind.ALL_TO_ALL, axes)
        return False

    def _reduce(self) -> bool:
        """Combine parts whose axes are not requested elsewhere at present."""
        axes, self.parts = self.parts, ()
        return bool(axes) and self._move(MoveKind.ALL_REDUCE, axes)

    def _gather(self) -> bool:
        """Gather one dimension whose sharding is in the way."""
        for dim, (old, new) in enumerate(zip(self.dims, self.target.dims, strict=True)):
            axes = old[_common(old, new) :]
            if axes:
                self._move(MoveKind.ALL_GATHER, axes)
                self.dims[dim] = old[: len(old) - len(axes)]
                self.slices //= num_parts(self.mesh, axes)
                return True
        return False


def _essential(sizes: Shape, source: Placement, target: Placement) -> _Question:
    """The same of a tensor without dimensions that are never sharded, the others in an order of their own."""
    # Sorted: the order of dimensions changes neither moves nor costs, so fewer routes are kept.
    dims = sorted(row for row in zip(source.dims, target.dims, sizes, strict=True) if row[0] or row[1])
    olds, news, rest = zip(*dims, strict=True) if dims else ((), (), ())
    return rest, placed(olds, source.partial, source.reduction), placed(news, target.partial, target.reduction)


def _in_other_order(source: Placement, target: Placement) -> Placement:
    """The target with axes that shard a dimension already before those that are new there: a permute brings them in order."""
    dims = tuple(
        (*(axis for axis in old if axis in new), *(axis for axis in new if axis not in old))
        for old, new in zip(source.dims, target.dims, strict=True)
    )
    return placed(dims, target.partial, target.reduction)


def _leading(axes: Axes, accept: Callable[[int], bool]) -> Axes:
    """The first axes that are accepted."""
    taken = 0
    while taken < len(axes) and accept(axes[taken]):
        taken += 1
    return axes[:taken]


def _common(first: Axes, second: Axes) -> int:
    """Length of the beginning that both share."""
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count


def _distinct(placements: Sequence[Placement]) -> tuple[tuple[Placement, ...], list[int]]:
    """The different ones, and for each of `placements` its place among them."""
    seen: dict[Placement, int] = {}
    positions = [seen.setdefault(placement, len(seen)) for placement in placements]
    return tuple(seen), positions
