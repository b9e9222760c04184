"""What it costs to bring a tensor from one placement to another, asked a hundred thousand times.

`sporax.planner.redistribution` searches for the cheapest way. `Mover` first goes one straight way: it slices as early as it
can, brings axes directly where they are wanted, and gathers only what stands in the way. Where that is a single move it is the
cheapest. For all other pairs the search is asked, unless the caller is in a hurry.

Tensors of all shapes ask the same few questions: what matters is how many bytes there are, and of the dimensions only those
that are cut before or after, and by how many ranks they can be cut. So answers are remembered by that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.planner.moves import NATIVE_REDUCTIONS, LinkCosts
from sporax.planner.redistribution import redistribute

Floats = NDArray[np.float64]

_Place = tuple[tuple[Axes, ...], Axes, str]
_Question = tuple[tuple[int, ...], int, _Place, _Place]
"""Shape, bytes per element, and the fields of two placements."""


class Mover:
    """Remembers costs of moves on one mesh.

    Args:
        mesh: the mesh.
        links: costs of communication on it.
        alltoall: whether all-to-all and permute may be used.
        hurry: take the straight way for an answer.
    """

    def __init__(self, mesh: DeviceMatrix, links: LinkCosts, alltoall: bool = True, hurry: bool = False) -> None:
        self.mesh, self.links, self.alltoall, self.hurry = mesh, links, alltoall, hurry
        self._known: dict[_Question, float] = {}
        self._tables: dict[tuple[TensorSpec, tuple[Placement, ...], tuple[Placement, ...]], Floats] = {}

    def seconds(self, spec: TensorSpec, source: Placement, target: Placement) -> float:
        """Time of the cheapest way, or in a hurry of the straight one."""
        if source == target:
            return 0.0
        question = self._question(spec, source, target)
        known = self._known.get(question)
        if known is None:
            known = self._known[question] = self._answer(*question)
        return known

    def _question(self, spec: TensorSpec, source: Placement, target: Placement) -> _Question:
        """The same move of a tensor without what does not matter; one more dimension, never cut, has the other elements."""
        devices = self.mesh.num_devices
        dims = sorted(
            (old, new, math.gcd(size, devices))
            for size, old, new in zip(spec.shape, source.dims, target.dims, strict=True)
            if old or new
        )
        shape = tuple(size for _, _, size in dims)
        rest = math.prod(spec.shape) // math.prod(shape)
        olds, news = tuple(old for old, _, _ in dims), tuple(new for _, new, _ in dims)
        return (
            (*shape, rest),
            spec.itemsize,
            ((*olds, ()), source.partial, source.reduction),
            ((*news, ()), target.partial, target.reduction),
        )

    def _answer(self, shape: tuple[int, ...], itemsize: int, *places: _Place) -> float:
        source, target = (Placement(*place) for place in places)
        num_bytes = math.prod(shape) * itemsize
        way = _Way(self, num_bytes, source, target)
        seconds = way.seconds()
        if self.hurry:
            return min(seconds, self._turned(num_bytes, source, target))
        if way.num_moves > 1:
            return redistribute(shape, itemsize, source, target, self.mesh, self.alltoall, self.links).seconds
        return seconds

    def _turned(self, num_bytes: int, source: Placement, target: Placement) -> float:
        """Time with a permute at the end that brings the axes of each dimension in order."""
        between = _in_other_order(source, target)
        if between == target or not self.alltoall:
            return np.inf
        return _Way(self, num_bytes, source, between).seconds() + _Way(self, num_bytes, between, target).seconds()

    def table(self, spec: TensorSpec, sources: Sequence[Placement], targets: Sequence[Placement]) -> Floats:
        """Times [sources, targets]; equal sources or targets are worked out once."""
        rows, row_of = _distinct(sources)
        columns, column_of = _distinct(targets)
        key = (spec, rows, columns)
        if key not in self._tables:
            self._tables[key] = np.array([[self.seconds(spec, a, b) for b in columns] for a in rows])
        return self._tables[key][np.ix_(row_of, column_of)]

    def sizes(self, axes: Axes) -> list[int]:
        """Devices along each axis."""
        return [self.mesh.shape[axis] for axis in axes]


class _Way:
    """One straight way: the present cuts, the parts that are left to combine, and the bytes of a slice."""

    def __init__(self, mover: Mover, num_bytes: int, source: Placement, target: Placement) -> None:
        self.mover, self.links = mover, mover.links
        self.source, self.target = source, target
        self.dims = [*source.dims]
        same = source.reduction == target.reduction
        self.parts = tuple(axis for axis in source.partial if not (same and axis in target.partial))
        self.masked = tuple(axis for axis in target.partial if not (same and axis in source.partial))
        self.bytes = num_bytes // math.prod(num_parts(mover.mesh, axes) for axes in source.dims)
        self.num_moves = 0

    def seconds(self) -> float:
        """Time of all moves."""
        total, moves = 0.0, 0
        self.num_moves = 1
        if self._same_counts():
            changed = tuple(sorted({axis for pair in self._changed() for cut in pair for axis in cut}))
            return self.links.permute(changed, self.mover.sizes(changed), self.bytes)
        while self.dims != [*self.target.dims] or self.parts:
            total += self._slice() or self._scatter() or self._trade() or self._reduce() or self._gather()
            moves += 1
        self.num_moves = moves + bool(self.masked)
        return total + (self.links.copy(self.bytes) if self.masked else 0.0)

    def _changed(self) -> list[tuple[Axes, Axes]]:
        return [(old, new) for old, new in zip(self.dims, self.target.dims, strict=True) if old != new]

    def _same_counts(self) -> bool:
        """Whether devices only trade whole slices."""
        if not self.mover.alltoall or self.parts or self.masked or not self._changed():
            return False
        num = self.mover.mesh.shape
        return all(
            np.prod([num[axis] for axis in old]) == np.prod([num[axis] for axis in new]) for old, new in self._changed()
        )

    def _wanted(self) -> list[tuple[int, Axes]]:
        """Dimensions whose cuts are right as far as they go, and the axes that are still missing."""
        return [
            (dim, new[len(old) :])
            for dim, (old, new) in enumerate(zip(self.dims, self.target.dims, strict=True))
            if len(new) > len(old) and new[: len(old)] == old
        ]

    def _cut(self, dim: int, axes: Axes) -> None:
        self.dims[dim] = (*self.dims[dim], *axes)
        for size in self.mover.sizes(axes):
            self.bytes //= size

    def _slice(self) -> float:
        """Cut by axes that do nothing yet."""
        busy = {axis for cut in self.dims for axis in cut} | set(self.parts)
        for dim, missing in self._wanted():
            axes = _leading(missing, lambda axis: axis not in busy)
            if axes:
                seconds = self.links.copy(self.bytes)
                self._cut(dim, axes)
                return max(seconds, 1e-15)
        return 0.0

    def _scatter(self) -> float:
        """Combine parts and cut by their axes at once."""
        for dim, missing in self._wanted():
            axes = _leading(missing, lambda axis: axis in self.parts)
            if axes:
                scatter = self.links.reduce_scatter if self.source.reduction == "sum" else self.links.all_to_all
                seconds = scatter(axes, self.mover.sizes(axes), self.bytes)
                self.parts = tuple(axis for axis in self.parts if axis not in axes)
                self._cut(dim, axes)
                return seconds
        return 0.0

    def _trade(self) -> float:
        """Bring axes from the end of one dimension to another."""
        if not self.mover.alltoall:
            return 0.0
        for dim, missing in self._wanted():
            for other, cut in enumerate(self.dims):
                right = _common(cut, self.target.dims[other])
                for start in range(right, len(cut)):
                    axes = cut[start:]
                    if missing[: len(axes)] == axes:
                        seconds = self.links.all_to_all(axes, self.mover.sizes(axes), self.bytes)
                        self.dims[other] = cut[:start]
                        self.dims[dim] = (*self.dims[dim], *axes)
                        return seconds
        return 0.0

    def _reduce(self) -> float:
        """Combine parts whose axes are not wanted elsewhere at present."""
        if not self.parts:
            return 0.0
        axes, self.parts = self.parts, ()
        native = self.source.reduction in NATIVE_REDUCTIONS
        return (self.links.all_reduce if native else self.links.gather)(axes, self.mover.sizes(axes), self.bytes)

    def _gather(self) -> float:
        """Undo the cuts of one dimension that are not as they shall be."""
        for dim, (old, new) in enumerate(zip(self.dims, self.target.dims, strict=True)):
            axes = old[_common(old, new) :]
            if axes:
                sizes = self.mover.sizes(axes)
                seconds = self.links.gather(axes, sizes, self.bytes)
                self.dims[dim] = old[: len(old) - len(axes)]
                for size in sizes:
                    self.bytes *= size
                return seconds
        raise AssertionError("whatever is missing can be sliced once all else is in its place")


def _in_other_order(source: Placement, target: Placement) -> Placement:
    """The target with axes that cut a dimension already before those that are new there: a permute brings them in order."""
    dims = tuple(
        (*(axis for axis in old if axis in new), *(axis for axis in new if axis not in old))
        for old, new in zip(source.dims, target.dims, strict=True)
    )
    return Placement(dims, target.partial, target.reduction)


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
    places = [seen.setdefault(each, len(seen)) for each in placements]
    return tuple(seen), places
