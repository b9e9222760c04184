"""MindSpore's inner tools for slices of arrays: `mindspore.parallel._tensor`.

A layout is a device matrix, a tensor map and a global shape. The entry of a tensor map for a dimension names the axis of the
device matrix, counted from the right, that shards it, several of them in a list, the outermost first; -1 is none. Slices are
numbered row-major.

Problem: which slices of other ranks make the slice of a rank under another layout? Method: an axis of a layout stands in the
flat tensor at one stride and among the flat ranks at another. Both layouts are refined at the strides of either (`_refined`),
after which each dimension has one axis or none; then axes are gathered and dimensions split until the tensor maps are equal.
Layouts whose strides do not divide one another are gathered whole and split again. Operators are ``("Reshape", shape)``,
``("AllConcat", [*ranks, dim])`` and ``("StridedSlice", [*begin, *end, *strides])``. Results are those of MindSpore 2.10, and
mostly its lists; it merges operators under `enable_redist_opt`, which has no effect here.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sporax.base.errors import For
from sporax.ir import DeviceMatrix
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.communication.management import get_group_size, get_rank

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)

Map = Sequence[int | Sequence[int]]
Array = np.ndarray[Any, Any]
Operator = tuple[str, list[int]]
TensorLayout = tuple[Sequence[int], Map, Sequence[int]]
"""Device matrix, tensor map and global shape."""
Segment = tuple[int, int, int]
"""An axis that shards a dimension: its outer strides in the flat tensor and among the ranks, and its number of slices."""


def _axes(entry: int | Sequence[int]) -> list[int]:
    return [axis for axis in ([entry] if isinstance(entry, int) else entry) if axis != -1]


def _get_tensor_strategy(dev_mat: Sequence[int], tensor_map: Map) -> list[int]:
    """The number of slices of each dimension."""
    return [math.prod(dev_mat[-axis - 1] for axis in _axes(entry)) for entry in tensor_map]


def _slice_shape(dev_mat: Sequence[int], tensor_map: Map, shape: Sequence[int]) -> list[int]:
    return list(map(operator.floordiv, shape, _get_tensor_strategy(dev_mat, tensor_map)))


_rank_to_coordinate = np.unravel_index
_coordinate_to_rank = np.ravel_multi_index


def _get_tensor_slice_index(
    device_arrangement: Sequence[int], tensor_strategy: Sequence[int], tensor_map: Map, rank_index: int
) -> int:
    """The number of the slice that a rank holds; `tensor_strategy` follows from the others."""
    own = np.unravel_index(rank_index, device_arrangement)
    index = 0
    for axis in (axis for entry in tensor_map for axis in _axes(entry)):
        index = index * device_arrangement[-axis - 1] + int(own[-axis - 1])
    return index


def _get_slice_index(dev_mat: Sequence[int], tensor_map: Map, opt_shard_group: str) -> int:
    """The number of this rank's slice; those of an optimizer's group are numbered behind the ranks of the world."""
    index = _get_tensor_slice_index(dev_mat, (), tensor_map, get_rank())
    return index + get_group_size() + get_rank(opt_shard_group) if opt_shard_group else index


def _chunk_shape_by_strategy(full_shape: Sequence[int], strategy: Sequence[int]) -> list[list[list[int]]]:
    """Begin and end of all slices in each dimension, in their order.

    Raises:
        SporaxValueError: a number of slices that does not divide its dimension, or more numbers than dimensions.
    """
    wrong = len(strategy) != len(full_shape) or any(map(operator.mod, full_shape, strategy))
    For("_chunk_tensor_by_strategy").refuse(wrong, f"'strategy' must divide the shape {tuple(full_shape)}", strategy)
    sizes = map(operator.floordiv, full_shape, strategy)
    spans = [[[at * size, (at + 1) * size] for at in range(count)] for size, count in zip(sizes, strategy, strict=True)]
    return [list(one) for one in itertools.product(*spans)]


def _chunk_tensor_by_strategy(np_tensor: Array, strategy: Sequence[int]) -> list[Array]:
    """All slices of an array, in their order; raises as `_chunk_shape_by_strategy`, SporaxTypeError for other than arrays."""
    For("_chunk_tensor_by_strategy").typed("np_tensor", np_tensor, "a numpy array", np.ndarray)
    spans = _chunk_shape_by_strategy(np_tensor.shape, strategy)
    return [np_tensor[tuple(itertools.starmap(slice, one))] for one in spans]


def _load_tensor_shape(
    dev_mat: Sequence[int], tensor_map: Map, full_shape: Sequence[int], rank_id: int = -1
) -> tuple[slice, ...]:
    """The part of an array of `full_shape` that a rank holds, by default this one; raises as `_chunk_shape_by_strategy`."""
    strategy = _get_tensor_strategy(dev_mat, tensor_map)
    index = _get_tensor_slice_index(dev_mat, strategy, tensor_map, get_rank() if rank_id == -1 else rank_id)
    return tuple(itertools.starmap(slice, _chunk_shape_by_strategy(full_shape, strategy)[index]))


def _load_tensor(
    tensor: Tensor, dev_mat: Sequence[int], tensor_map: Map, full_shape: Sequence[int] | None = None, rank_id: int = -1
) -> Array:
    """The slice of a rank, by default this one; raises as `_chunk_shape_by_strategy`."""
    values = tensor.asnumpy()
    values = values.reshape(full_shape) if full_shape else values
    return values[_load_tensor_shape(dev_mat, tensor_map, values.shape, rank_id)]


def _checked(where: str, layout: tuple[Any, ...]) -> tuple[Any, ...]:
    """An entry of `Cell.parameter_layout_dict`: matrix, map, slice shape, field size, evenness, group, global shape.

    Raises:
        SporaxTypeError, SporaxValueError: the layout is no tuple, or too short.
        SporaxRuntimeError: slices that differ in size.
    """
    For(where).refuse_type(not isinstance(layout, tuple), "'layout' must be a tuple", layout)
    For(where).refuse(len(layout) < 7, "'layout' must have at least 7 members", layout)
    For(where).refuse_state(layout[1] and not layout[4], "all slices must have one size, but the layout has others")
    return layout[:7]


def _load_tensor_by_layout(tensor: Tensor, layout: tuple[Any, ...], rank_id: int) -> Tensor:
    """The slice of a rank by an entry of `Cell.parameter_layout_dict`; raises as `_checked`."""
    dev_mat, tensor_map, slice_shape, _, _, group, full_shape = _checked("_load_tensor_by_layout", layout)
    if not tensor_map:
        return tensor
    values = _load_tensor(tensor, dev_mat, tensor_map, full_shape, rank_id)
    if group:
        values = np.split(values, get_group_size(group))[get_rank(group)]
    return Tensor(values.reshape(slice_shape) if slice_shape else values, tensor.dtype)


def _load_tensor_shape_by_layout(tensor: Tensor, layout: tuple[Any, ...], rank_id: int) -> Sequence[int]:
    """The shape of `_load_tensor_by_layout`; raises as `_checked`."""
    dev_mat, tensor_map, slice_shape, _, _, group, full_shape = _checked("_load_tensor_shape_by_layout", layout)
    if slice_shape or not tensor_map:
        return slice_shape or tensor.shape
    shape = _slice_shape(dev_mat, tensor_map, full_shape or tensor.shape)
    return [shape[0] // get_group_size(group), *shape[1:]] if group else shape


def _reshape_param_data(param_data: Tensor, dev_mat: Sequence[int], tensor_map: Map) -> Tensor:
    """The whole of a Parameter, from the slices of all ranks one after another along dimension 0."""
    held = np.split(param_data.asnumpy(), math.prod(dev_mat), axis=0)
    shape = list(map(operator.mul, held[0].shape, _get_tensor_strategy(dev_mat, tensor_map)))
    values = np.empty(shape, held[0].dtype)
    for rank, part in enumerate(held):
        values[_load_tensor_shape(dev_mat, tensor_map, shape, rank)] = part
    return Tensor(values)


def _reshape_param_data_with_weight(param_data: Tensor, dev_mat: Sequence[int], field_size: int) -> Tensor:
    """The whole of a table that is sharded inside of each of its `field_size` fields; slices as in `_reshape_param_data`."""
    values = param_data.asnumpy()
    by_rank = values.reshape(math.prod(dev_mat), field_size, -1, values.shape[1])
    return Tensor(by_rank.swapaxes(0, 1).reshape(values.shape))


def _extract_layout_item(layout_item: Sequence[Any]) -> tuple[Any, Any, int, int]:
    """Device matrix, tensor map, step and size of the optimizer's sharding, of an entry of a layout."""
    dev_matrix, tensor_map, _, _, step, size = layout_item[:6]
    if size == -1:
        size = math.prod(dev_matrix) // math.prod(_get_tensor_strategy(dev_matrix, tensor_map))
    return dev_matrix, tensor_map, step, size


def _expand_layout(
    dev_matrix: Sequence[int], tensor_map: Map, tensor_shape: Sequence[int]
) -> tuple[Sequence[int], list[int], list[int]]:
    """One dimension for each axis: ``[[2, 1], 0]`` of ``[8, 8]`` over ``[4, 2, 2]`` is ``[2, 1, 0]`` of ``[4, 2, 8]``."""
    new_map: list[int] = []
    new_shape: list[int] = []
    for entry, size in zip(tensor_map, tensor_shape, strict=True):
        axes = [entry] if isinstance(entry, int) else list(entry)
        outer = [dev_matrix[-axis - 1] for axis in axes[:-1]]
        new_map += axes
        new_shape += [*outer, size // math.prod(outer)]
    return dev_matrix, new_map, new_shape


def _repeated_axes(dev_matrix: Sequence[int], tensor_map: Map) -> list[int]:
    """The axes along which slices repeat, counted from the right.

    Raises:
        SporaxValueError: there are none.
    """
    used = [axis for entry in tensor_map for axis in _axes(entry)]
    repeated = [axis for axis, size in enumerate(reversed(dev_matrix)) if size > 1 and axis not in used]
    For("parallel optimizer").refuse(not repeated, "an axis must repeat slices", dev_matrix, tensor_map)
    return repeated


def _construct_tensor_layout_for_opt_shard_by_layout(
    dev_matrix: Sequence[int], tensor_map: Map, opt_shard_step: int, opt_shard_size: int, shape: Sequence[int]
) -> tuple[Sequence[int], Any, list[int]]:
    """The layout of a weight whose first dimension is sharded further by an optimizer, along axes along which it repeats.

    The first dimension becomes its slices, and one dimension for each of those axes, of which the innermost ones are taken.

    Args:
        opt_shard_step: the distance of ranks that share a slice; 0 for none.
        opt_shard_size: how many ranks share one; 0 for none, -1 for all that hold the same.

    Raises:
        SporaxValueError: no axis repeats, or axes that `opt_shard_size` does not divide.
    """
    if not (opt_shard_step and opt_shard_size):
        return dev_matrix, tensor_map, list(shape)
    matrix, new_map = list(dev_matrix), list(tensor_map)
    repeated = _repeated_axes(dev_matrix, tensor_map)
    left = math.prod(matrix[-axis - 1] for axis in repeated) if opt_shard_size == -1 else opt_shard_size
    taken: list[int] = []
    for axis in repeated:
        size = matrix[-axis - 1]
        count = min(size, left)
        For("parallel optimizer").refuse(
            size % count or left % count, "'opt_shard_size' must fit each axis", size, left
        )
        if count < size:
            # The inner part of the axis is taken, so that axes at its left count one more from the right.
            position = len(matrix) - axis - 1
            matrix[position : position + 1] = [size // count, count]
            new_map = [
                entry + (entry > axis) if isinstance(entry, int) else [own + (own > axis) for own in entry]
                for entry in new_map
            ]
        taken.insert(0, axis)
        left //= count
        if left == 1:
            break
    slices = _get_tensor_strategy(dev_matrix, tensor_map)[0]
    sizes = [matrix[-axis - 1] for axis in taken[:-1]]
    new_shape = [slices, *sizes, shape[0] // slices // math.prod(sizes), *shape[1:]]
    return matrix, [new_map[0], *taken, *new_map[1:]], new_shape


def _construct_tensor_layout_for_opt_shard(
    dev_matrix: Sequence[int], tensor_map: Map, opt_shard_step: int, opt_shard_size: int, shape: Sequence[int]
) -> tuple[Sequence[int], list[int], list[int]]:
    """As `_construct_tensor_layout_for_opt_shard_by_layout`, with one axis for each dimension.

    MindSpore writes the same slices over another matrix where only the outermost axis repeats.
    """
    settings = dev_matrix, tensor_map, opt_shard_step, opt_shard_size, shape
    return _expand_layout(*_construct_tensor_layout_for_opt_shard_by_layout(*settings))


def _construct_from_to_tensor_layout(
    from_full_tensor_shape: Sequence[int],
    from_dev_matrix: Sequence[int],
    from_tensor_map: Map,
    to_full_tensor_shape: Sequence[int],
    to_dev_matrix: Sequence[int],
    to_tensor_map: Map,
    param_name: str = "",
) -> tuple[TensorLayout, TensorLayout]:
    """Two layouts over equal numbers of devices: the smaller matrix gets an axis at its left, along which slices repeat.

    Raises:
        SporaxValueError: a tensor map of another length than its shape, or numbers of devices that do not divide each other.
    """
    old = (list(from_dev_matrix), list(from_tensor_map), list(from_full_tensor_shape))
    new = (list(to_dev_matrix), list(to_tensor_map), list(to_full_tensor_shape))
    for _, entries, shape in (old, new):
        For(f"param {param_name}").refuse(
            len(entries) != len(shape), f"the tensor map must fit the shape {shape}", entries
        )
    smaller, larger = sorted((old[0], new[0]), key=math.prod)
    repeats, rest = divmod(math.prod(larger), math.prod(smaller))
    if rest:
        raise For(f"param {param_name}").error(
            "one device number must divide the other", *map(math.prod, (old[0], new[0]))
        )
    if repeats > 1:
        smaller.insert(0, repeats)
    return old, new


def _refined(source: TensorLayout, target: TensorLayout) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """One device matrix and one shape for both, and two tensor maps with one axis at most for each dimension.

    None where the strides of one layout do not divide those of the other.
    """
    ends = [list(_segments(*layout)) for layout in (source, target)]
    strides = _common_strides(source, target, [*ends[0], *ends[1]])
    if strides is None:
        return None
    flat, ranks = strides
    matrix, shape = ([larger // size for size, larger in itertools.pairwise(own)][::-1] for own in (ranks, flat))
    # Axes are counted from the right, as their outer strides are.
    old, new = (
        [next((ranks.index(outer) - 1 for outer in _outer_strides(segments, stride)), -1) for stride in flat[:0:-1]]
        for segments in ends
    )
    uneven = any(any(map(operator.mod, shape, _get_tensor_strategy(matrix, entries))) for entries in (old, new))
    return None if uneven else (matrix, shape, old, new)


def _outer_strides(segments: Sequence[Segment], stride: int) -> Iterator[int]:
    """The outer stride among the ranks of the axis that begins at a stride of the tensor."""
    for outer, rank_outer, slices in segments:
        if outer // slices < stride <= outer:
            yield rank_outer * stride // outer


def _common_strides(
    source: TensorLayout, target: TensorLayout, segments: Sequence[Segment]
) -> tuple[list[int], list[int]] | None:
    """Ascending strides in the tensor and among the ranks at which both layouts are refined; None where there are none.

    A stride inside of an axis divides it in the tensor and among the ranks, which may divide others in turn.
    """
    flat = {1, *_strides(source[2]), *_strides(target[2]), *(stride for stride, _, _ in segments)}
    ranks = {1, *_strides(source[0]), *_strides(target[0])}
    before = 0
    while before < len(flat) + len(ranks):
        before = len(flat) + len(ranks)
        for outer, rank_outer, slices in segments:
            for own, at, other, other_at in ((flat, outer, ranks, rank_outer), (ranks, rank_outer, flat, outer)):
                inside = [at / stride for stride in own if at // slices < stride < at]
                if any(part % 1 or slices % part for part in inside):
                    return None
                other.update(other_at // int(part) for part in inside)
    both = sorted(flat), sorted(ranks)
    pairs = itertools.chain.from_iterable(map(itertools.pairwise, both))
    return None if any(larger % size for size, larger in pairs) else both


def _strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[at:]) for at in range(len(sizes))]


def _segments(dev_matrix: Sequence[int], tensor_map: Map, shape: Sequence[int]) -> Iterator[Segment]:
    for stride, entry in zip(_strides(shape), tensor_map, strict=True):
        outer = stride
        for axis in _axes(entry):
            size = dev_matrix[-axis - 1]
            if size > 1:
                yield outer, math.prod(dev_matrix[len(dev_matrix) - axis - 1 :]), size
            outer //= size


def _moves(now: list[int], goal: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    """Dimension, axis and whether it is gathered, else split, from one tensor map to another."""
    while now != goal:
        waiting = [dim for dim, axis in enumerate(goal) if axis != -1 == now[dim]]
        free = [dim for dim in waiting if goal[dim] not in now]
        if free:
            yield free[0], goal[free[0]], False
            now[free[0]] = goal[free[0]]
            continue
        wrong = [dim for dim, axis in enumerate(now) if axis not in (-1, goal[dim])]
        # What others wait for comes first, then what none needs.
        dim = now.index(goal[waiting[0]]) if waiting else min(wrong, key=lambda dim: now[dim] in goal)
        yield dim, now[dim], True
        now[dim] = -1


def _transform_tensor_by_layout(
    from_layout: TensorLayout,
    to_layout: TensorLayout,
    device_list: Sequence[int],
    rank_id: int,
    enable_redist_opt: bool = False,
) -> list[Operator]:
    """The operators that make a rank's slice under one layout of slices under another.

    Raises:
        SporaxTypeError: a layout that is no tuple.
        SporaxRuntimeError: layouts of other numbers of elements or of devices than `device_list`, or slices that do not divide a
            dimension.
        SporaxValueError: a rank that is not among the devices.
    """
    where = For("_transform_tensor_by_layout")
    for layout in (from_layout, to_layout):
        where.refuse_type(not isinstance(layout, tuple), "a layout must be a tuple", layout)
        wrong = math.prod(layout[0]) != len(device_list) or len(layout[1]) != len(layout[2])
        wrong = wrong or any(map(operator.mod, layout[2], _get_tensor_strategy(*layout[:2])))
        where.refuse_state(wrong, f"a layout must divide its shape evenly on {len(device_list)} devices", layout)
    wrong = math.prod(from_layout[2]) != math.prod(to_layout[2])
    where.refuse_state(wrong, "both shapes must have as many elements", from_layout[2], to_layout[2])
    shapes = [_slice_shape(*layout) for layout in (from_layout, to_layout)]
    refined = _refined(from_layout, to_layout)
    if refined is None:
        complete = [(matrix, [-1] * len(shape), shape) for matrix, _, shape in (from_layout, to_layout)]
        return [
            *_transform_tensor_by_layout(from_layout, complete[0], device_list, rank_id),
            *_reshape(complete[0][2], complete[1][2]),
            *_transform_tensor_by_layout(complete[1], to_layout, device_list, rank_id),
        ]
    matrix, shape, old, new = refined
    mesh = DeviceMatrix(tuple(matrix), (), tuple(device_list))
    own, held = mesh.coordinates(rank_id), _slice_shape(matrix, old, shape)
    first = list(held)
    steps: list[Operator] = []
    for dim, axis, gathers in _moves(list(old), new):
        count, position = matrix[-axis - 1], len(matrix) - axis - 1
        if gathers:
            group = next(group for group in mesh.groups((position,)) if rank_id in group)
            steps.append(("AllConcat", [*group, dim]))
            held[dim] *= count
        else:
            begin, end = [0] * len(held), list(held)
            held[dim] //= count
            begin[dim], end[dim] = own[position] * held[dim], (own[position] + 1) * held[dim]
            steps.append(("StridedSlice", [*begin, *end, *[1] * len(held)]))
    if not steps:
        return _reshape(*shapes)
    return [*_reshape(shapes[0], first), *steps, *_reshape(held, shapes[1])]


def _reshape(shape: Sequence[int], new_shape: Sequence[int]) -> list[Operator]:
    return [("Reshape", list(new_shape))] if list(shape) != list(new_shape) else []


def _get_needed_rank_transform_operator_map_by_layouts(
    from_tensor_layout: TensorLayout,
    to_tensor_layout: TensorLayout,
    device_list: Sequence[int],
    self_rank: int,
    enable_redist_opt: bool = False,
) -> dict[int, list[Operator]]:
    """The operators of this rank, and of all ranks whose slices they gather, directly or before others gather them."""
    found: dict[int, list[Operator]] = {}
    # A rank is needed up to the position where its slice is gathered, so only earlier gathers of it add ranks.
    waiting = [(self_rank, math.inf)]
    while waiting:
        rank, end = waiting.pop(0)
        if rank not in found:
            found[rank] = _transform_tensor_by_layout(from_tensor_layout, to_tensor_layout, device_list, rank)
        for position, (name, numbers) in enumerate(found[rank]):
            if name == "AllConcat" and position < end:
                waiting += [(other, position) for other in numbers[:-1] if other not in found]
    return found


def _get_needed_rank_list_by_layouts(
    from_tensor_layout: TensorLayout, to_tensor_layout: TensorLayout, device_list: Sequence[int], self_rank: int
) -> list[int]:
    """The ranks whose slices a rank needs, ascending."""
    return sorted(
        _get_needed_rank_transform_operator_map_by_layouts(from_tensor_layout, to_tensor_layout, device_list, self_rank)
    )


def _generate_transform_operator_stack(
    transform_operators_map: dict[int, list[Operator]], self_rank: int
) -> list[tuple[int, int, Operator]]:
    """The operators of all ranks on which this rank's result depends, as (rank, position, operator), the last one first.

    Raises:
        SporaxValueError: the map has no operators of this rank.
    """
    where = For("_generate_transform_operator_stack")
    where.refuse(self_rank not in transform_operators_map, f"the map must hold rank {self_rank}")
    stack: list[tuple[int, int, Operator]] = []
    needed = [self_rank]
    for position in reversed(range(len(transform_operators_map[self_rank]))):
        operators = [(rank, position, transform_operators_map[rank][position]) for rank in needed]
        stack += operators
        needed = [
            other
            for rank, _, (name, numbers) in operators
            for other in (numbers[:-1] if name == "AllConcat" else [rank])
        ]
    return stack


def _apply_tensor_transform_operators(
    transform_operator_stack: list[tuple[int, int, Operator]], tensor_dict: dict[int, Array], device_num: int
) -> None:
    """Apply a stack to the slices of all ranks, in place; ranks count modulo `device_num`. The stack is used up.

    Raises:
        SporaxValueError: a slice that is missing, or ranks whose operators at a position have other names.
    """
    where = For("_apply_tensor_transform_operators")
    by_position = itertools.groupby(reversed(transform_operator_stack), key=lambda one: one[1])
    for level, same in [(level, list(same)) for level, same in by_position]:
        names = {name for _, _, (name, _) in same}
        where.refuse(len(names) > 1, f"operators at position {level} must have one name", sorted(names))
        # All ranks gather what the others had before.
        gathers = "AllConcat" in names
        before = dict(tensor_dict) if gathers else tensor_dict
        for rank, _, (name, numbers) in same:
            needed = [other % device_num for other in (numbers[:-1] if gathers else [rank])]
            for other in needed:
                where.refuse(other not in before, f"the checkpoint file of rank {other} is missing")
            tensor_dict[rank % device_num] = _apply_operator(name, numbers, [before[other] for other in needed])
    transform_operator_stack.clear()


def _apply_operator(name: str, numbers: list[int], slices: list[Array]) -> Array:
    if name == "AllConcat":
        return np.concatenate(slices, numbers[-1])
    if name == "Reshape":
        return slices[0].reshape(numbers)
    return slices[0][tuple(itertools.starmap(slice, np.reshape(numbers, (3, -1)).T.tolist()))]


RankedLayout = tuple[Sequence[int], Map, Sequence[int], Sequence[int]]
"""Device matrix, tensor map, global shape, and the ranks of the matrix."""


def _get_resharding_operator_map(
    from_layout: RankedLayout, to_layout: RankedLayout, self_rank: int
) -> dict[int, list[Operator]]:
    """As `_get_needed_rank_transform_operator_map_by_layouts`, of layouts that name their ranks."""
    return _get_needed_rank_transform_operator_map_by_layouts(from_layout[:3], to_layout[:3], from_layout[3], self_rank)


def _get_pipeline_operator_map(
    from_layout: RankedLayout, to_layout: RankedLayout, self_rank: int
) -> dict[int, list[tuple[str, int, list[int]]]]:
    """Which rank sends its slice to which, where stages are merged: ranks that are new get those of a stage, one after another.

    Empty where there are no more ranks than before.
    """
    old, new = list(from_layout[3]), to_layout[3]
    if len(old) >= len(new):
        return {}
    position = self_rank % len(old)
    further = [rank for rank in new if rank not in old]
    group = sorted([old[position], *further[position :: len(old)]])
    return {rank: [("Broadcast", old[position], group)] for rank in group}
