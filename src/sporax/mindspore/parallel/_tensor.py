"""MindSpore's inner tools for slices of arrays: `mindspore.parallel._tensor`.

A layout is a device matrix, a tensor map and a shape. The entry of a tensor map for a dimension names the axis of the device
matrix, counted from the right, that shards it, several of them in a list, the outermost first; -1 is none. Slices are numbered
row-major. The tools that write the operators between two layouts are absent: `transform_checkpoints` converts files.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sporax.base.errors import For
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.communication.management import get_group_size, get_rank

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)

Map = Sequence[int | Sequence[int]]
Array = np.ndarray[Any, Any]


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
