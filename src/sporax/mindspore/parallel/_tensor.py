"""Slices of arrays by device matrix and tensor map: `mindspore.parallel._tensor`.

The entry of a tensor map for a dimension names the axis of the device matrix, counted from the right, that shards it, several of
them in a list, the outermost first; -1 is none. Slices are numbered row-major.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.communication.management import get_group_size, get_rank

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
    if not isinstance(layout, tuple):
        raise SporaxTypeError.must("_load_tensor_by_layout", "layout", "be a tuple", layout)
    if len(layout) < 7:
        raise SporaxValueError.must("_load_tensor_by_layout", "layout", "have at least 7 members", layout)
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
