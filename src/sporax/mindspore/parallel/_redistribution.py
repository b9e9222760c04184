"""Which operators turn the slice that a rank holds under one layout into its slice under another, as MindSpore writes them.

Problem: tools of MindSpore read lists such as ``[('Reshape', [1, 4, 256]), ('AllConcat', [0, 1, 1]), ('StridedSlice', …)]``.
Method: both layouts are written over one device matrix and one shape, whose dimensions each have one axis or none (`_unify`);
then axes are split, exchanged and gathered dimension by dimension (`_moves`). Layouts that have no such form are gathered
whole and split again. The planner's own way is `sporax.planner.communication`, which asks for costs; this one asks for none.
Reference: MindSpore 2.10's `TensorTransform`, whose lists these are equal to. A dimension's entry in a tensor map is the axis
of the device matrix, counted from the right, that shards it; -1 is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import common_shape, ravel, unravel

Operator = tuple[str, list[int]]
"""Name, and numbers: a shape ("Reshape"), ranks and a dimension ("AllConcat"), or begin, end, strides ("StridedSlice")."""
RawLayout = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Device matrix, tensor map and global shape, as MindSpore's tools pass them."""

_NONE = -1
# MindSpore goes through dimensions as its hash table does, which has 8 places for up to 6 of them and 16 for up to 12.
_ORDERS = {6: (0, 1, 4, 5, 3, 2), 12: (0, 4, 8, 3, 11, 10, 1, 5, 6, 7, 9, 2)}
_WHERE = "_transform_tensor_by_layout"


class _NotUnifiableError(SporaxValueError):
    """Two layouts that have no common device matrix and shape."""


@dataclass(frozen=True, slots=True)
class _Sharded:
    """A layout: the sizes of the axes, for each dimension its axis from the right or -1, the global shape."""

    matrix: tuple[int, ...]
    tensor_map: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def make(cls, matrix: Sequence[int], tensor_map: Sequence[int], shape: Sequence[int]) -> _Sharded:
        """Without axes of one device, which shard nothing.

        Raises:
            SporaxValueError: an axis that is not there or used twice, or slices that do not divide their dimension.
        """
        used = [axis for axis in tensor_map if axis != _NONE]
        fits = len(tensor_map) == len(shape) and len(set(used)) == len(used) and set(used) <= set(range(len(matrix)))
        if not fits or any(
            size % matrix[-axis - 1] for axis, size in zip(tensor_map, shape, strict=True) if axis != _NONE
        ):
            raise _NotUnifiableError.must(
                _WHERE, "a layout", "shard each dimension evenly by an axis of its own", (matrix, tensor_map, shape)
            )
        larger = [axis for axis in range(len(matrix)) if matrix[-axis - 1] > 1]
        new_map = tuple(larger.index(axis) if axis in larger else _NONE for axis in tensor_map)
        return cls(tuple(size for size in matrix if size > 1) or (1,), new_map, tuple(shape))

    def slices(self, dim: int) -> int:
        """The number of slices of a dimension."""
        axis = self.tensor_map[dim]
        return 1 if axis == _NONE else self.matrix[-axis - 1]

    @property
    def slice_shape(self) -> tuple[int, ...]:
        """The shape of what a rank holds."""
        return tuple(size // self.slices(dim) for dim, size in enumerate(self.shape))

    def squeezed(self) -> _Sharded:
        """Without dimensions of size 1, of which one stays where there are no others."""
        stays = [dim for dim, size in enumerate(self.shape) if size > 1]
        return _Sharded(
            self.matrix,
            tuple(self.tensor_map[dim] for dim in stays) or (_NONE,),
            tuple(self.shape[dim] for dim in stays) or (1,),
        )

    def on_matrix(self, matrix: tuple[int, ...]) -> _Sharded:
        """Over a finer device matrix: a dimension whose axis becomes several becomes as many dimensions."""
        factors = _grouped(self.matrix, matrix)
        # The number, from the right, of the last axis that each one becomes.
        last = [sum(map(len, factors[axis + 1 :])) for axis in range(len(factors))]
        new_map: list[int] = []
        shape: list[int] = []
        for axis, size in zip(self.tensor_map, self.shape, strict=True):
            own = () if axis == _NONE else factors[-axis - 1]
            new_map += [last[-axis - 1] + number for number in reversed(range(len(own)))] or [_NONE]
            shape += [*own[:-1], size // math.prod(own[:-1])]
        return _Sharded.make(matrix, new_map, shape)

    def on_shape(self, shape: tuple[int, ...]) -> _Sharded:
        """Over a finer shape: axes are divided where their dimension is, and the outer dimensions take them."""
        parts = _grouped(self.shape, shape)
        matrix: list[int] = []
        for axis, size in zip(reversed(range(len(self.matrix))), self.matrix, strict=True):
            dims = parts[self.tensor_map.index(axis)] if axis in self.tensor_map else ()
            matrix += _front(dims, size) or [size]
        finer = self.on_matrix(tuple(matrix))
        parts = _grouped(finer.shape, shape)
        new_map = [
            entry
            for axis, part in zip(finer.tensor_map, parts, strict=True)
            for entry in (axis, *[_NONE] * (len(part) - 1))
        ]
        return _Sharded.make(finer.matrix, new_map, shape)


def _grouped(coarse: Sequence[int], fine: Sequence[int]) -> list[tuple[int, ...]]:
    """For each of the coarse sizes the fine ones whose product it is, from the left.

    Raises:
        _NotUnifiableError: there are none.
    """
    groups: list[tuple[int, ...]] = []
    rest = list(fine)
    for size in coarse:
        group = [rest.pop(0)] if rest else []
        while rest and math.prod(group) < size:
            group.append(rest.pop(0))
        if math.prod(group) != size or not group:
            raise _NotUnifiableError.must(_WHERE, "the sizes", f"refine {tuple(coarse)}", tuple(fine))
        groups.append(tuple(group))
    if rest:
        raise _NotUnifiableError.must(_WHERE, "the sizes", f"refine {tuple(coarse)}", tuple(fine))
    return groups


def _front(dims: Sequence[int], size: int) -> list[int]:
    """The first dimensions whose product is `size`, the last of them in part; [] where they are smaller."""
    taken: list[int] = []
    product = 1
    for dim in dims:
        if product >= size:
            break
        taken.append(dim if product * dim <= size else size // product)
        product *= dim
    return taken if product >= size else []


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The coarsest sizes that refine both; raises _NotUnifiableError where there are none."""
    common = common_shape(first, second)
    if common is None:
        raise _NotUnifiableError.must(_WHERE, "the sizes", f"have a common refinement with {first}", second)
    return common or (1,)


def _unify(source: _Sharded, target: _Sharded) -> tuple[_Sharded, _Sharded]:
    """The same two layouts over one device matrix and one shape.

    Raises:
        _NotUnifiableError: there is no such form.
    """
    matrix = _common(source.matrix, target.matrix)
    source, target = source.squeezed().on_matrix(matrix), target.squeezed().on_matrix(matrix)
    while source.shape != target.shape:
        # A finer shape may divide an axis, and a finer matrix a dimension, so that it takes turns.
        for _ in range(2):
            while (shape := _common(source.shape, target.shape)) != source.shape:
                source = source.on_shape(shape)
                target = target.on_matrix(source.matrix)
            source, target = target, source
    return source, target


class _Moves:
    """The operators that change the tensor map of a layout step by step.

    Args:
        layout: where it begins.
        ranks: the devices of the matrix, row-major.
        rank: whose operators these are.
    """

    def __init__(self, layout: _Sharded, ranks: Sequence[int], rank: int) -> None:
        self.layout = layout
        self.ranks = ranks
        self.rank = rank
        self.operators: list[Operator] = []

    def _along(self, axis: int) -> tuple[list[int], int]:
        """The ranks that differ along an axis only, and which of them this one is."""
        matrix = self.layout.matrix
        own = list(unravel(self.ranks.index(self.rank), matrix))
        number = own[-axis - 1]
        group = []
        for other in range(matrix[-axis - 1]):
            own[-axis - 1] = other
            group.append(self.ranks[ravel(own, matrix)])
        return group, number

    def _set(self, dim: int, axis: int) -> None:
        new_map = list(self.layout.tensor_map)
        new_map[dim] = axis
        self.layout = _Sharded(self.layout.matrix, tuple(new_map), self.layout.shape)

    def split(self, dim: int, axis: int) -> None:
        """Take this rank's part of a whole dimension."""
        end = list(self.layout.slice_shape)
        group, number = self._along(axis)
        size = end[dim] // len(group)
        begin = [0] * len(end)
        begin[dim], end[dim] = number * size, (number + 1) * size
        self.operators.append(("StridedSlice", [*begin, *end, *[1] * len(end)]))
        self._set(dim, axis)

    def gather(self, dim: int, axis: int) -> None:
        """Put the parts of a dimension together."""
        self.operators.append(("AllConcat", [*self._along(axis)[0], dim]))
        self._set(dim, _NONE)

    def change(self, target: Sequence[int]) -> None:
        """Reach a tensor map, in MindSpore's order: split what is whole and free, exchange, and gather last.

        A dimension that is whole and whose new axis shards another one still waits for that one: it is gathered first.
        """
        first = self.layout.tensor_map
        # The axis of each dimension that is not settled yet.
        order = next((dims for most, dims in _ORDERS.items() if len(first) <= most), range(len(first)))
        left = {dim: first[dim] for dim in order if dim < len(first)}
        while left:
            before = len(self.operators)
            while left and self._split_and_exchange(left, first, target):
                pass
            for dim, axis in list(left.items()):
                if axis != _NONE and axis not in target:
                    self.gather(dim, axis)
                    left[dim] = _NONE
                    if target[dim] == _NONE:
                        del left[dim]
            if len(self.operators) == before and left:
                # Dimensions that wait for each other in a circle: one of them is gathered.
                dim = next(iter(left))
                self.gather(dim, left[dim])
                left[dim] = _NONE

    def _split_and_exchange(self, left: dict[int, int], first: Sequence[int], target: Sequence[int]) -> bool:
        """Splits and exchanges that are possible now; whether there was one."""
        before = len(self.operators)
        for dim, axis in list(left.items()):
            if axis == target[dim]:
                del left[dim]
            elif axis == _NONE and target[dim] not in left.values():
                self.split(dim, target[dim])
                del left[dim]
        exchanged = -1
        while exchanged != len(self.operators):
            exchanged = len(self.operators)
            for dim in list(left):
                wanted = target[dim]
                if left[dim] == wanted:
                    del left[dim]
                elif left[dim] == _NONE and wanted in left.values():
                    holder = first.index(wanted)
                    self.gather(holder, wanted)
                    self.split(dim, wanted)
                    del left[dim]
                    left[holder] = _NONE
        return len(self.operators) > before


def _reshape(shape: Sequence[int], new_shape: Sequence[int]) -> list[Operator]:
    return [("Reshape", list(new_shape))] if tuple(shape) != tuple(new_shape) else []


def transform_operators(source: RawLayout, target: RawLayout, ranks: Sequence[int], rank: int) -> list[Operator]:
    """The operators by which a rank gets its slice under `target` from slices under `source`, in order.

    Raises:
        SporaxValueError: layouts of other numbers of elements or of devices than `ranks`, slices that do not divide a dimension,
            or a rank that is not among `ranks`.
    """
    old, new = _Sharded.make(*source), _Sharded.make(*target)
    SporaxValueError.raise_if(
        math.prod(old.shape) != math.prod(new.shape),
        _WHERE,
        "the shapes",
        "have as many elements",
        (old.shape, new.shape),
    )
    SporaxValueError.raise_if(
        {math.prod(old.matrix), math.prod(new.matrix)} != {len(ranks)},
        _WHERE,
        "both device matrices",
        f"have the {len(ranks)} devices of the list",
        (tuple(source[0]), tuple(target[0])),
    )
    SporaxValueError.raise_if(rank not in ranks, _WHERE, "the rank", f"be one of {list(ranks)}", rank)
    try:
        unified, goal = _unify(old, new)
    except _NotUnifiableError:
        gathered = _Moves(old, ranks, rank)
        gathered.change([_NONE] * len(old.shape))
        split = _Moves(_Sharded(new.matrix, (_NONE,) * len(new.shape), new.shape), ranks, rank)
        split.change(new.tensor_map)
        return [*gathered.operators, *_reshape(old.shape, new.shape), *split.operators]
    moves = _Moves(unified, ranks, rank)
    moves.change(goal.tensor_map)
    if not moves.operators:
        return _reshape(old.slice_shape, new.slice_shape)
    before, after = _reshape(old.slice_shape, unified.slice_shape), _reshape(goal.slice_shape, new.slice_shape)
    return [*before, *moves.operators, *after]


def shortened(operators: Sequence[Operator], shape: Sequence[int]) -> list[Operator]:
    """A list with the same result, whose gathers come before its slices and are merged where their ranks are one series.

    Args:
        operators: what `transform_operators` makes.
        shape: of the slice to begin with.
    """
    # A gather along another dimension than the first is three operators in MindSpore, which leaves single ones alone.
    if len(operators) < 2 and not any(name == "AllConcat" and numbers[-1] for name, numbers in operators):
        return list(operators)
    steps = _merged_reshapes(_as_parts(operators, shape), shape)
    steps = _in_order(steps)
    steps = _merged_reshapes(_along_the_first(steps, shape), shape)
    return _as_strides(_merged(steps), shape)


def _after(steps: Sequence[Operator], shape: Sequence[int]) -> list[list[int]]:
    """The shape in front of all steps, and behind each; slices are "Part": dimension, number of parts, which one."""
    shapes = [list(shape)]
    for name, numbers in steps:
        new = list(numbers) if name == "Reshape" else list(shapes[-1])
        if name == "AllConcat":
            new[numbers[-1]] *= len(numbers) - 1
        elif name == "Part":
            new[numbers[0]] //= numbers[1]
        elif name == "StridedSlice":
            begin, end = numbers[: len(new)], numbers[len(new) : 2 * len(new)]
            new = [high - low for low, high in zip(begin, end, strict=True)]
        shapes.append(new)
    return shapes


def _as_parts(operators: Sequence[Operator], shape: Sequence[int]) -> list[Operator]:
    """Slices by their part of a dimension, which does not change with the sizes of others."""
    steps = []
    for (name, numbers), before, after in zip(operators, *_pairs_of(operators, shape), strict=True):
        if name == "StridedSlice":
            dim = next(dim for dim, size in enumerate(after) if size != before[dim])
            name, numbers = "Part", [dim, before[dim] // after[dim], numbers[dim] // after[dim]]
        steps.append((name, numbers))
    return steps


def _pairs_of(steps: Sequence[Operator], shape: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
    """The shapes in front of each step and behind it."""
    shapes = _after(steps, shape)
    return shapes[:-1], shapes[1:]


def _as_strides(steps: Sequence[Operator], shape: Sequence[int]) -> list[Operator]:
    operators = []
    for (name, numbers), before in zip(steps, _after(steps, shape), strict=False):
        if name == "Part":
            dim, parts, number = numbers
            begin, end = [0] * len(before), list(before)
            size = before[dim] // parts
            begin[dim], end[dim] = size * number, size * (number + 1)
            name, numbers = "StridedSlice", [*begin, *end, *[1] * len(before)]
        operators.append((name, numbers))
    return operators


def _merged_reshapes(steps: Sequence[Operator], shape: Sequence[int]) -> list[Operator]:
    """One reshape for several in a row, and none where it changes nothing."""
    merged: list[Operator] = []
    for step in steps:
        if step[0] == "Reshape" and merged and merged[-1][0] == "Reshape":
            merged.pop()
        merged.append(step)
    shapes = _after(merged, shape)
    return [step for at, step in enumerate(merged) if step[0] != "Reshape" or shapes[at] != shapes[at + 1]]


def _in_order(steps: Sequence[Operator]) -> list[Operator]:
    """Between reshapes: gathers, those of the last dimensions first, then slices, those of the first dimensions first."""
    ordered: list[Operator] = []
    between: list[Operator] = []
    for step in [*steps, ("Reshape", [])]:
        if step[0] == "Reshape":
            ordered += sorted(
                between, key=lambda one: (one[0] == "Part", -one[1][-1] if one[0] == "AllConcat" else one[1][0])
            )
            ordered.append(step)
            between = []
        else:
            between.append(step)
    return ordered[:-1]


def _along_the_first(steps: Sequence[Operator], shape: Sequence[int]) -> list[Operator]:
    """Gathers and slices of a dimension behind others of size 1 as those of the first one, between reshapes."""
    new: list[Operator] = []
    shapes = _after(steps, shape)
    for at, (name, numbers) in enumerate(steps):
        dim = numbers[-1] if name == "AllConcat" else 0
        if dim and set(shapes[at][:dim]) == {1}:
            # MindSpore goes back to the shape behind the last step that is no reshape.
            start = next((back + 1 for back in reversed(range(len(new))) if new[back][0] != "Reshape"), None)
            flat = shapes[at][dim:] if start is None else _after(new, shape)[start]
            new += [("Reshape", flat), (name, [*numbers[:-1], 0]), ("Reshape", shapes[at + 1])]
        else:
            new.append((name, numbers))
    for at in reversed(range(len(new) - 1)):
        (name, numbers), (following, new_shape) = new[at], new[at + 1]
        before = _after(new, shape)[at]
        if name == "Part" and following == "Reshape" and set(before[: numbers[0]]) <= {1}:
            new[at] = ("Reshape", [new_shape[0] * numbers[1], *new_shape[1:]])
            new[at + 1] = ("Part", [0, *numbers[1:]])
    return new


def _merged(steps: Sequence[Operator]) -> list[Operator]:
    """Gathers along one dimension whose ranks are one series together as one, and slices of one dimension as one."""
    merged: list[Operator] = []
    for name, numbers in steps:
        last_name, last = merged[-1] if merged else ("", [])
        if name == last_name == "AllConcat" and last[-1] == numbers[-1]:
            step, larger = last[1] - last[0], numbers[1] - numbers[0]
            if step * (len(last) - 1) == larger:
                (common,) = set(last[:-1]) & set(numbers[:-1])
                first = numbers[0] - (common - last[0])
                merged[-1] = (name, [*range(first, first + larger * (len(numbers) - 1), step), last[-1]])
                continue
        if name == last_name == "Part" and last[0] == numbers[0]:
            merged[-1] = (name, [last[0], last[1] * numbers[1], last[2] * numbers[1] + numbers[2]])
            continue
        merged.append((name, numbers))
    return merged
