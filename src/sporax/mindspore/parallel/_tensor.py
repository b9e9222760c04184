"""MindSpore's inner tools for slices of arrays: `mindspore.parallel._tensor`.

A layout is a device matrix, a tensor map and a global shape. The entry of a tensor map for a dimension names the axis of the
device matrix, counted from the right, that shards it, several of them in a list, the outermost first; -1 is none. Slices are
numbered row-major. Lists of operators (`_redistribution`) are computed for ranks of their own, with no process of a job: a
stack of them (rank, position in the rank's list, operator), the last first, is applied to the slices of all ranks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sporax.base.errors import (
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
)
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.communication.management import get_group_size, get_rank
from sporax.mindspore.parallel._redistribution import Operator, RawLayout, shortened, transform_operators

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)

Map = Sequence[int | Sequence[int]]
Array = np.ndarray[Any, Any]


def _axes(entry: int | Sequence[int]) -> list[int]:
    return [axis for axis in ([entry] if isinstance(entry, int) else entry) if axis != -1]


def _get_tensor_strategy(dev_mat: Sequence[int], tensor_map: Map) -> list[int]:
    """The number of slices of each dimension."""
    return [math.prod(dev_mat[-axis - 1] for axis in _axes(entry)) for entry in tensor_map]


def _get_tensor_slice_index(
    device_arrangement: Sequence[int], tensor_strategy: Sequence[int], tensor_map: Map, rank_index: int
) -> int:
    """The number of the slice that a rank holds; `tensor_strategy` follows from the others."""
    own = np.unravel_index(rank_index, device_arrangement)
    index = 0
    for axis in (axis for entry in tensor_map for axis in _axes(entry)):
        index = index * device_arrangement[-axis - 1] + int(own[-axis - 1])
    return index


def _chunk_tensor_by_strategy(np_tensor: Array, strategy: Sequence[int]) -> list[Array]:
    """All slices of an array, in their order.

    Raises:
        SporaxTypeError: no array.
        SporaxValueError: a number of slices that does not divide its dimension, or more numbers than dimensions.
    """
    if not isinstance(np_tensor, np.ndarray):
        raise SporaxTypeError.must(
            "_chunk_tensor_by_strategy", "np_tensor", "be a numpy array", type(np_tensor).__name__
        )
    shape = np_tensor.shape
    if len(strategy) != len(shape) or any(size % count for size, count in zip(shape, strategy, strict=True)):
        raise SporaxValueError.must("_chunk_tensor_by_strategy", "strategy", f"divide the shape {shape}", strategy)
    slices = [np_tensor]
    for dim, count in enumerate(strategy):
        slices = [part for large in slices for part in np.split(large, count, dim)]
    return slices


def _load_tensor(
    tensor: Tensor, dev_mat: Sequence[int], tensor_map: Map, full_shape: Sequence[int] | None = None, rank_id: int = -1
) -> Array:
    """The slice of a rank, by default this one.

    Raises:
        SporaxValueError: slices that do not divide the Tensor.
    """
    values, strategy = tensor.asnumpy(), _get_tensor_strategy(dev_mat, tensor_map)
    rank = get_rank() if rank_id == -1 else rank_id
    slices = _chunk_tensor_by_strategy(values.reshape(full_shape) if full_shape else values, strategy)
    return slices[_get_tensor_slice_index(dev_mat, strategy, tensor_map, rank)]


def _load_tensor_by_layout(tensor: Tensor, layout: tuple[Any, ...], rank_id: int) -> Tensor:
    """The slice of a rank by an entry of `Cell.parameter_layout_dict`.

    Raises:
        SporaxTypeError, SporaxValueError: the layout is no tuple, or too short.
        SporaxRuntimeError: slices that differ in size.
    """
    SporaxTypeError.raise_if(not isinstance(layout, tuple), "_load_tensor_by_layout", "layout", "be a tuple", layout)
    SporaxValueError.raise_if(len(layout) < 7, "_load_tensor_by_layout", "layout", "have at least 7 members", layout)
    dev_mat, tensor_map, slice_shape, _, is_uniform, group, full_shape = layout[:7]
    if not tensor_map:
        return tensor
    if not is_uniform:
        raise SporaxRuntimeError(
            "For '_load_tensor_by_layout', all slices must have one size, but the layout has others."
        )
    values = _load_tensor(tensor, dev_mat, tensor_map, full_shape, rank_id)
    if group:
        values = np.split(values, get_group_size(group))[get_rank(group)]
    return Tensor(values.reshape(slice_shape) if slice_shape else values, tensor.dtype)


def _reshape_param_data(param_data: Tensor, dev_mat: Sequence[int], tensor_map: Map) -> Tensor:
    """The whole of a Parameter, from the slices of all ranks one after another along dimension 0."""
    held = np.split(param_data.asnumpy(), math.prod(dev_mat), axis=0)
    strategy = _get_tensor_strategy(dev_mat, tensor_map)
    slices = {_get_tensor_slice_index(dev_mat, strategy, tensor_map, rank): part for rank, part in enumerate(held)}
    parts = [slices[index] for index in range(math.prod(strategy))]
    # From the last dimension to the first, since slices are in row-major order.
    for dim in reversed(range(len(strategy))):
        count = strategy[dim]
        parts = [np.concatenate(parts[at : at + count], axis=dim) for at in range(0, len(parts), count)]
    return Tensor(parts[0])


def _transform_tensor_by_layout(
    from_layout: RawLayout,
    to_layout: RawLayout,
    device_list: Sequence[int],
    rank_id: int,
    enable_redist_opt: bool = False,
) -> list[Operator]:
    """The operators that make a rank's slice under one layout of slices under another.

    With `enable_redist_opt` gathers come first and are merged.

    Raises:
        SporaxTypeError: a layout that is no tuple.
        SporaxValueError: layouts that do not fit together or to the devices.
    """
    if not isinstance(from_layout, tuple) or not isinstance(to_layout, tuple):
        raise SporaxTypeError.must("_transform_tensor_by_layout", "a layout", "be a tuple", (from_layout, to_layout))
    operators = transform_operators(from_layout, to_layout, device_list, rank_id)
    if not enable_redist_opt:
        return operators
    return shortened(operators, _slice_shape(*from_layout))


def _slice_shape(dev_matrix: Sequence[int], tensor_map: Map, shape: Sequence[int]) -> list[int]:
    return [size // count for size, count in zip(shape, _get_tensor_strategy(dev_matrix, tensor_map), strict=True)]


def _get_needed_rank_transform_operator_map_by_layouts(
    from_tensor_layout: RawLayout,
    to_tensor_layout: RawLayout,
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
            found[rank] = _transform_tensor_by_layout(
                from_tensor_layout, to_tensor_layout, device_list, rank, enable_redist_opt
            )
        for position, (name, numbers) in enumerate(found[rank]):
            if name == "AllConcat" and position < end:
                waiting += [(other, position) for other in numbers[:-1] if other not in found]
    return found


def _get_needed_rank_list_by_layouts(
    from_tensor_layout: RawLayout, to_tensor_layout: RawLayout, device_list: Sequence[int], self_rank: int
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
    if self_rank not in transform_operators_map:
        raise SporaxValueError.must("_generate_transform_operator_stack", "the map", f"hold rank {self_rank}", "others")
    stack: list[tuple[int, int, Operator]] = []
    needed = [self_rank]
    for position in reversed(range(len(transform_operators_map[self_rank]))):
        before: list[int] = []
        for rank in needed:
            operator = transform_operators_map[rank][position]
            stack.append((rank, position, operator))
            before += operator[1][:-1] if operator[0] == "AllConcat" else [rank]
        needed = before
    return stack


def _apply_tensor_transform_operators(
    transform_operator_stack: list[tuple[int, int, Operator]], tensor_dict: dict[int, Array], device_num: int
) -> None:
    """Apply a stack to the slices of all ranks, in place; ranks count modulo `device_num`. The stack is used up.

    Raises:
        SporaxValueError: a slice that is missing, or ranks whose operators at a position have other names.
    """
    while transform_operator_stack:
        level = transform_operator_stack[-1][1]
        same: list[tuple[int, Operator]] = []
        while transform_operator_stack and transform_operator_stack[-1][1] == level:
            rank, _, operator = transform_operator_stack.pop()
            same.append((rank % device_num, operator))
        names = {name for _, (name, _) in same}
        if len(names) > 1:
            raise SporaxValueError.must(
                "_apply_tensor_transform_operators", f"operators at position {level}", "have one name", sorted(names)
            )
        # All ranks gather what the others had before.
        gathers = "AllConcat" in names
        held = dict(tensor_dict) if gathers else tensor_dict
        for rank, (name, numbers) in same:
            needed = [other % device_num for other in numbers[:-1]] if gathers else [rank]
            missing = [other for other in needed if other not in held]
            if missing:
                raise SporaxValueError(f"The checkpoint file of rank {missing[0]} is missing.")
            tensor_dict[rank] = _apply_operator(name, numbers, [held[other] for other in needed])


def _apply_operator(name: str, numbers: list[int], slices: list[Array]) -> Array:
    if name == "AllConcat":
        return np.concatenate(slices, numbers[-1])
    if name == "Reshape":
        return slices[0].reshape(numbers)
    return slices[0][tuple(itertools.starmap(slice, np.reshape(numbers, (3, -1)).T.tolist()))]


def _construct_from_to_tensor_layout(
    from_full_tensor_shape: Iterable[int],
    from_dev_matrix: Iterable[int],
    from_tensor_map: Iterable[Any],
    to_full_tensor_shape: Iterable[int],
    to_dev_matrix: Iterable[int],
    to_tensor_map: Iterable[Any],
    param_name: str = "",
) -> tuple[tuple[list[int], list[Any], list[int]], tuple[list[int], list[Any], list[int]]]:
    """Two layouts over equal numbers of devices: the smaller matrix gets an axis at its left, along which slices repeat.

    Raises:
        SporaxValueError: a tensor map of another length than its shape, or numbers of devices that do not divide each other.
    """
    old = (list(from_dev_matrix), list(from_tensor_map), list(from_full_tensor_shape))
    new = (list(to_dev_matrix), list(to_tensor_map), list(to_full_tensor_shape))
    for _, tensor_map, shape in (old, new):
        if len(tensor_map) != len(shape):
            raise SporaxValueError(
                f"For param '{param_name}', the tensor map dimensions must match the tensor shape dimensions, but got "
                f"{tensor_map} for {shape}. Please check your strategy file."
            )
    numbers = math.prod(old[0]), math.prod(new[0])
    larger, smaller = max(numbers), min(numbers)
    if larger % smaller:
        raise SporaxValueError(f"Cannot transform device_num from {numbers[0]} to {numbers[1]}")
    if larger != smaller:
        (old if numbers[0] == smaller else new)[0].insert(0, larger // smaller)
    return old, new


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


def _construct_tensor_layout_for_opt_shard_by_layout(
    dev_matrix: Sequence[int],
    tensor_map: Map,
    opt_shard_step: int,
    opt_shard_size: int,
    origin_full_tensor_shape: Sequence[int],
) -> tuple[Sequence[int], Any, list[int]]:
    """The layout of a weight whose first dimension is sharded further by an optimizer, along axes along which it repeats.

    The first dimension becomes its slices, and one dimension for each of those axes, of which the innermost ones are taken.

    Args:
        opt_shard_step: the distance of ranks that share a slice; 0 for none.
        opt_shard_size: how many ranks share one; 0 for none, -1 for all that hold the same.

    Raises:
        SporaxValueError: no axis repeats, or axes that `opt_shard_size` does not divide.
    """
    if opt_shard_step == 0 or opt_shard_size == 0:
        return dev_matrix, tensor_map, list(origin_full_tensor_shape)
    repeated = _repeated_axes(dev_matrix, tensor_map)
    matrix = list(dev_matrix)
    left = math.prod(matrix[axis] for axis in repeated) if opt_shard_size == -1 else opt_shard_size
    taken: list[int] = []
    divided = None
    for axis in reversed(repeated):
        size = matrix[axis]
        if size > left:
            SporaxValueError.raise_if(
                size % left != 0, "parallel optimizer", "opt_shard_size", f"divide the {size} ranks of an axis", left
            )
            # The inner part of an axis is taken.
            matrix[axis : axis + 1] = [size // left, left]
            size, divided = left, axis
        SporaxValueError.raise_if(
            left % size != 0,
            "parallel optimizer",
            "opt_shard_size",
            f"be divisible by the {size} ranks of an axis",
            left,
        )
        taken.insert(0, axis)
        left //= size
        if left == 1:
            break
    if divided is not None:
        # Axes right of the divided one, and its inner part, have moved by one.
        taken = [axis + 1 for axis in taken]
    bound = len(dev_matrix) - (len(dev_matrix) if divided is None else divided)

    def moved(axis: int) -> int:
        """An axis left of the divided one has one more at its right."""
        return axis + 1 if divided is not None and axis >= bound else axis

    new_map = [
        [moved(axis) for axis in _axes(entry)] if not isinstance(entry, int) else moved(entry) for entry in tensor_map
    ]
    first, *others = origin_full_tensor_shape
    slices = _get_tensor_strategy(dev_matrix, tensor_map)[0]
    sizes = [matrix[axis] for axis in taken[:-1]]
    new_map[1:1] = [len(matrix) - axis - 1 for axis in taken]
    return matrix, new_map, [slices, *sizes, first // slices // math.prod(sizes), *others]


def _repeated_axes(dev_matrix: Sequence[int], tensor_map: Map) -> list[int]:
    """The axes, counted from the left, along which slices repeat.

    Raises:
        SporaxValueError: there are none.
    """
    used = {len(dev_matrix) - axis - 1 for entry in tensor_map for axis in _axes(entry)}
    repeated = [axis for axis, size in enumerate(dev_matrix) if size > 1 and axis not in used]
    if not repeated:
        raise SporaxValueError(
            f"The device_matrix {dev_matrix} and tensor_map {tensor_map} cannot sharding opt_shard: no axis repeats slices."
        )
    return repeated


def _construct_tensor_layout_for_opt_shard(
    dev_matrix: Sequence[int],
    tensor_map: Map,
    opt_shard_step: int,
    opt_shard_size: int,
    origin_full_tensor_shape: Sequence[int],
) -> tuple[Sequence[int], Any, list[int]]:
    """As `_construct_tensor_layout_for_opt_shard_by_layout`, for tensor maps with one axis per dimension, too.

    Where only the outermost axis repeats, the new matrix has the axes of the strategy, and the optimizer's at their left.

    Raises:
        SporaxValueError: as there, or an `opt_shard_step` that is not the distance along the one axis that repeats.
    """
    settings = dev_matrix, tensor_map, opt_shard_step, opt_shard_size, origin_full_tensor_shape
    if any(not isinstance(entry, int) for entry in tensor_map):
        return _expand_layout(*_construct_tensor_layout_for_opt_shard_by_layout(*settings))
    if opt_shard_step == 0 or opt_shard_size == 0:
        return dev_matrix, tensor_map, list(origin_full_tensor_shape)
    repeated = _repeated_axes(dev_matrix, tensor_map)
    distance = math.prod(dev_matrix[repeated[0] + 1 :])
    SporaxValueError.raise_if(
        len(repeated) == 1 and distance != opt_shard_step,
        "parallel optimizer",
        "opt_shard_step",
        f"be {distance}",
        opt_shard_step,
    )
    if 1 < len(repeated) < len(dev_matrix) or repeated[0] > 0:
        return _construct_tensor_layout_for_opt_shard_by_layout(*settings)
    strategy = _get_tensor_strategy(dev_matrix, tensor_map)
    last = len(strategy) - 1
    new_map = [-1 if count == 1 else last - dim for dim, count in enumerate(strategy)]
    repeats = math.prod(dev_matrix) // (opt_shard_step * opt_shard_size)
    first, *others = origin_full_tensor_shape
    return (
        [*([repeats] if repeats > 1 else []), opt_shard_size, *strategy],
        [new_map[0], len(strategy), *new_map[1:]],
        [strategy[0], first // strategy[0], *others],
    )


def _extract_layout_item(layout_item: Sequence[Any]) -> tuple[Any, Any, int, int]:
    """Device matrix, tensor map, step and size of the optimizer's sharding, of an entry of a layout."""
    dev_matrix, tensor_map, _, _, step, size = layout_item[:6]
    if size == -1:
        size = math.prod(dev_matrix) // math.prod(_get_tensor_strategy(dev_matrix, tensor_map))
    return dev_matrix, tensor_map, step, size


def _load_tensor_shape(
    dev_mat: Sequence[int], tensor_map: Map, full_shape: Sequence[int], rank_id: int = -1
) -> tuple[slice, ...]:
    """The part of an array of `full_shape` that a rank holds, by default this one."""
    strategy = _get_tensor_strategy(dev_mat, tensor_map)
    rank = get_rank() if rank_id == -1 else rank_id
    index = np.unravel_index(_get_tensor_slice_index(dev_mat, strategy, tensor_map, rank), strategy)
    sizes = _slice_shape(dev_mat, tensor_map, full_shape)
    return tuple(slice(int(at) * size, (int(at) + 1) * size) for at, size in zip(index, sizes, strict=True))


RankedLayout = tuple[Sequence[int], Map, Sequence[int], Sequence[int]]
"""Device matrix, tensor map, global shape, and the ranks of the matrix."""


def _is_multi_shard(in_tensor_map: Map) -> bool:
    """Whether several axes shard one dimension."""
    return any(not isinstance(entry, int) and len(entry) > 1 for entry in in_tensor_map)


def _get_resharding_operator_map(
    from_layout: RankedLayout, to_layout: RankedLayout, self_rank: int
) -> dict[int, list[Operator]]:
    """As `_get_needed_rank_transform_operator_map_by_layouts`, merged, for layouts whose dimensions may have several axes."""
    source, target = from_layout[:3], to_layout[:3]
    old = _expand_layout(*source)
    needed = _get_needed_rank_transform_operator_map_by_layouts(
        old, _expand_layout(*target), from_layout[3], self_rank, True
    )
    before = [("Reshape", _slice_shape(*old))] if _is_multi_shard(source[1]) else []
    after = [("Reshape", _slice_shape(*target))] if _is_multi_shard(target[1]) else []
    return {rank: [*before, *operators, *after] for rank, operators in needed.items()}


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
