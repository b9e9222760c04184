"""Sorting, the largest elements, searching in sorted rows, and unique elements.

Sorts are stable, as MindSpore's are. The number of unique elements depends on the values, which XLA cannot express, so
these operators compute with numpy, outside of compiled steps or on known values.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.ir.operator_dims import OperatorDims
from sporax.mindspore.common import DType, dtypes
from sporax.mindspore.common.tensor import Tensor, wrap_numpy
from sporax.mindspore.ops._core import Array, check, known, operator, other_form
from sporax.mindspore.ops._core.dims import LAST, Along, labels, never_sharded


def _order(name: str, x: Array, axis: int, descending: bool) -> Array:
    check.tensor(name, input=x)
    where = check.axis(name, axis, x.ndim)
    # Stable, as MindSpore keeps the order of equal elements.
    return jnp.argsort(x, where, descending=descending, stable=True) if x.ndim else jnp.zeros((), jnp.int32)


def _sorted(name: str, x: Array, axis: int, descending: bool, index_dtype: Any) -> tuple[Array, Array]:
    order = _order(name, x, axis, descending)
    values = jnp.take_along_axis(x, order, check.axis(name, axis, x.ndim)) if x.ndim else x
    return values, order.astype(index_dtype)


@operator("Sort(axis, descending)", function="sort", method="sort", dims=Along("axis", -1))
def sort(input_x: Array, axis: int = -1, descending: bool = False) -> tuple[Array, Array]:
    """The elements in order along `axis`, and the position each came from (int32). Equal ones keep their order."""
    return _sorted("Sort", input_x, axis, descending, jnp.int32)


@operator(function="", mint="sort", dims=Along("dim", -1))
def _mint_sort(input: Array, *, dim: int = -1, descending: bool = False, stable: bool = False) -> tuple[Array, Array]:
    """As `ops.sort`, with positions in int64. The order of equal elements is always kept."""
    return _sorted("sort", input, dim, descending, jnp.int64)


@operator(function="argsort", method="argsort")
def argsort(input: Array, axis: int = -1, descending: bool = False) -> Array:
    """Positions (int32) of the elements in order along `axis`."""
    return _order("argsort", input, axis, descending).astype(jnp.int32)


@operator(function="", mint="argsort")
def _mint_argsort(input: Array, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    """As `ops.argsort`, with positions in int64. The order of equal elements is always kept."""
    return _order("argsort", input, dim, descending).astype(jnp.int64)


@operator(function="msort", method="msort")
def msort(input: Array) -> Array:
    """The elements in ascending order along dim 0."""
    return _sorted("msort", input, 0, False, jnp.int32)[0]


def _top(name: str, x: Array, k: int, dim: int, largest: bool, index_dtype: Any) -> tuple[Array, Array]:
    check.tensor(name, input=x)
    where = check.axis(name, dim, x.ndim, "dim")
    For(name).typed("k", k, "an int", int | np.integer, takes_bool=False)
    size = x.shape[where] if x.ndim else 1
    For(name).refuse(not 0 <= k <= size, f"'k' must be in [0, {size}], the size of dim {dim}", k)
    rows = jnp.moveaxis(jnp.atleast_1d(x), where, -1)
    # XLA's `top_k` knows the largest only; the smallest come by sorting, since negation would overflow for the least integer.
    if largest:
        values, index = jax.lax.top_k(rows, int(k))
    else:
        index = jnp.argsort(rows, -1, stable=True)[..., : int(k)]
        values = jnp.take_along_axis(rows, index, -1)
    # A scalar was treated as a vector of one element.
    if not x.ndim:
        return values.reshape(()), index.reshape(()).astype(index_dtype)
    return jnp.moveaxis(values, -1, where), jnp.moveaxis(index, -1, where).astype(index_dtype)


@operator("TopK(sorted)", function="", dims=LAST)
def _top_k_primitive(input_x: Array, k: int, sorted: bool = True) -> tuple[Array, Array]:
    """The `k` largest elements of the last dim in descending order (whatever `sorted` says), and positions (int32)."""
    return _top("TopK", input_x, k, -1, True, jnp.int32)


@operator(function="topk", method="topk")
def topk(
    input: Array, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    """The `k` largest (or smallest) elements along `dim` in order, and their positions (int32).

    Args:
        input: tensor.
        k: how many.
        dim: the dimension; the last by default.
        largest: False for the smallest.
        sorted: accepted; the result is always in order, the most extreme first.
    """
    return _top("topk", input, k, -1 if dim is None else dim, largest, jnp.int32)


@operator(function="", mint="topk")
def _mint_topk(input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """As `ops.topk`, with positions in int64."""
    return _top("topk", input, k, dim, largest, jnp.int64)


@operator(function="", method="kthvalue", mint="kthvalue")
def kthvalue(input: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The `k`-th smallest element along `dim` (k counts from 1), and its position (int64)."""
    where = check.axis("kthvalue", dim, input.ndim, "dim")
    size = input.shape[where] if input.ndim else 1
    For("kthvalue").refuse(not 1 <= k <= size, f"'k' must be in [1, {size}]", k)
    values, index = _sorted("kthvalue", jnp.atleast_1d(input), where, False, jnp.int64)
    picked = [jax.lax.slice_in_dim(array, k - 1, k, axis=where) for array in (values, index)]
    if keepdim and input.ndim:
        return picked[0], picked[1]
    return jnp.squeeze(picked[0], where), jnp.squeeze(picked[1], where)


@operator("InTopK(k)", function="intopk", dims=labels)
def intopk(x1: check.Rank2, x2: check.Int1, k: int) -> Array:
    """Whether the score of the true class `x2` (n,) is among the `k` highest of its row in `x1` (n, classes)."""
    # Classes out of range are in no top k.
    inside = (x2 >= 0) & (x2 < x1.shape[1])
    own = jnp.take_along_axis(x1, jnp.clip(x2, 0, x1.shape[1] - 1)[:, None], 1)
    # Ties count for the class; an infinite score never does, as in MindSpore.
    return inside & jnp.isfinite(own[:, 0]) & (jnp.sum(x1 > own, 1) < k)


def _search(sequence: Array, values: Array, right: bool, dtype: Any) -> Array:
    if sequence.ndim > 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise SporaxValueError(
            "For 'searchsorted', 'sorted_sequence' must be a vector or agree with 'values' in all dims but the last, "
            f"but got shapes {sequence.shape} and {values.shape}."
        )
    side = "right" if right else "left"

    def look_up(row: Array, values: Array) -> Array:
        return jnp.searchsorted(row, values, side=side)

    for _ in range(sequence.ndim - 1):
        look_up = jax.vmap(look_up)
    return look_up(sequence, values).astype(dtype)


@operator(function="searchsorted", mint="searchsorted")
def searchsorted(
    sorted_sequence: Array,
    values: Array,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    """Where `values` would have to be put into the sorted rows: before the first element that is not smaller.

    Args:
        sorted_sequence: a vector, or rows that agree with those of `values`; ascending in the last dim.
        values: what is looked for.
        out_int32: give int32 instead of int64.
        right: after the last element that is not larger, instead.
        side: the same as a word, ``"left"`` or ``"right"``; must not contradict `right`.
        sorter: positions that bring `sorted_sequence` in order.
    """
    check.one_of("searchsorted", side, (None, "left", "right"), "side")
    For("searchsorted").refuse(side == "left" and right, "'side' and 'right' contradict: got 'left' and True")
    sequence = sorted_sequence if sorter is None else jnp.take_along_axis(sorted_sequence, sorter, -1)
    return _search(sequence, jnp.asarray(values), right or side == "right", jnp.int32 if out_int32 else jnp.int64)


@operator("SearchSorted(dtype, right)", function="")
def _search_sorted_primitive(
    sorted_sequence: Array, values: Array, sorter: Array | None = None, dtype: DType = dtypes.int64, right: bool = False
) -> Array:
    """As `ops.searchsorted`, with positions in `dtype`."""
    sequence = sorted_sequence if sorter is None else jnp.take_along_axis(sorted_sequence, sorter, -1)
    return _search(sequence, values, right, dtype.np_dtype)


@operator(function="", method="searchsorted")
def _searchsorted_method(input: Array, v: Array, side: str = "left", sorter: Array | None = None) -> Array:
    """Where (int32) the elements of `v` would have to be put into this sorted vector; see `ops.searchsorted`."""
    check.one_of("searchsorted", side, ("left", "right"), "side")
    return searchsorted.kernel(input, v, out_int32=True, right=side == "right", sorter=sorter)


@operator(function="bucketize")
def bucketize(input: check.One, boundaries: Any, *, right: bool = False) -> Array:
    """The number (int32) of the interval each element falls into.

    Args:
        input: tensor.
        boundaries: ascending numbers, a list or a Tensor.
        right: False: ``boundaries[i - 1] < x <= boundaries[i]``; True: the left end is included, the right one not.
    """
    if isinstance(boundaries, jax.Array):
        return searchsorted.kernel(boundaries, input, out_int32=True, right=right)
    For("bucketize").typed("boundaries", boundaries, "a list", tuple)
    # float32, as MindSpore's boundaries.
    edges = jnp.asarray(np.asarray(boundaries, np.float32))
    return jnp.searchsorted(edges, input, side="right" if right else "left").astype(jnp.int32)


@operator(
    "Unique()", function="unique", method="unique", composed=True, dims=OperatorDims(never_sharded, unsharded=True)
)
def unique(input: Any) -> tuple[Tensor, Tensor]:
    """The different elements in the order they first occur in, and for each element the position of its like there.

    The result's shape depends on the values: a compiled step with it runs operator by operator.
    """
    values = known("Unique", "input", input)
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    # numpy gives sorted values; MindSpore the order of first occurrence.
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    index = place[inverse.reshape(values.shape)]
    # The dtype of positions follows int64 input, as in MindSpore.
    return wrap_numpy(distinct[order]), wrap_numpy(index.astype(np.int64 if values.dtype == np.int64 else np.int32))


@operator("UniqueWithPad()", function="unique_with_pad", method="unique_with_pad", composed=True)
def unique_with_pad(x: Any, pad_num: Any) -> tuple[Tensor, Tensor]:
    """As `unique`, with `pad_num` appended until there are as many elements as before; outside compiled steps only."""
    check.rank("UniqueWithPad", 1, x=x)
    distinct, index = unique(x)
    filler = np.asarray(pad_num.array if isinstance(pad_num, Tensor) else pad_num)
    # MindSpore fills up to the old size, so that shapes do not depend on values.
    padded = np.full(x.shape, filler, np.asarray(distinct.array).dtype)
    padded[: distinct.size] = np.asarray(distinct.array)
    return wrap_numpy(padded), index


@operator(
    "UniqueConsecutive(return_inverse, return_counts, dim)",
    function="unique_consecutive",
    method="unique_consecutive",
    mint="unique_consecutive",
    composed=True,
)
def unique_consecutive(
    input: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements without those that equal the one before; outside compiled steps only.

    Args:
        input: tensor.
        return_inverse: also give for each element its position in the result (int64).
        return_counts: also give how many equal elements each stands for (int64).
        dim: compare slices along this dimension instead of single elements.
    """
    values = known("UniqueConsecutive", "input", input)
    rows = (
        values.reshape(-1) if dim is None else np.moveaxis(values, check.axis("UniqueConsecutive", dim, input.ndim), 0)
    )
    changed = (rows[1:] != rows[:-1]).any(axis=tuple(range(1, rows.ndim)))
    starts = np.concatenate([np.ones(min(len(rows), 1), bool), changed])
    firsts = rows[starts]
    result = [firsts if dim is None else np.moveaxis(firsts, 0, dim)]
    if return_inverse:
        inverse = np.cumsum(starts, dtype=np.int64) - 1
        result.append(inverse.reshape(values.shape) if dim is None else inverse)
    if return_counts:
        # Distances between starts; a start behind the end closes the last run.
        result.append(np.diff(np.flatnonzero(np.append(starts, True))).astype(np.int64))
    tensors = tuple(map(wrap_numpy, result))
    return tensors if len(tensors) > 1 else tensors[0]


top_k = other_form(_top_k_primitive, function="top_k", method="top_k")
# Intervals with their left ends, without their right ones.
other_form(bucketize, "Bucketize(boundaries)", "input boundaries", right=True)
