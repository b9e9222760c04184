"""Operators that reduce over dimensions.

Axes are counted from the front or, when negative, from the back; None and ``()`` stand for all of them. Segments, rows with
one segment number, are reduced to one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.ops._core import check, extremes, promote
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.dims import Along, segments
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES, Array, export, operator, other_form
from sporax.mindspore.ops.array.scatter import scattered

Axes = int | tuple[int, ...] | None


def _reduction(name: str, function: Callable[..., Array], doc: str) -> Any:
    def kernel(x: Array, axis: Axes = (), keep_dims: bool = False) -> Array:
        return function(x, axis=check.axes(name, axis, x.ndim), keepdims=keep_dims)

    kernel.__name__ = "reduce_" + name.removeprefix("Reduce").lower()
    kernel.__doc__ = doc + " Over `axis`: one, several, or all when it is empty. The dtype stays."
    return operator(f"{name}(keep_dims)")(kernel)


def _mean(x: Array, **settings: Any) -> Array:
    """The mean in the dtype of `x`: that of integers is truncated to a whole number, as MindSpore's."""
    if x.dtype == np.bool_:
        return jnp.mean(x.astype(jnp.float32), **settings)
    return jnp.mean(x, **settings).astype(x.dtype)


reduce_mean = _reduction("ReduceMean", _mean, "Mean.")
reduce_max = _reduction("ReduceMax", extremes.largest, "Largest element; equal ones share the gradient.")
reduce_min = _reduction("ReduceMin", extremes.smallest, "Smallest element; equal ones share the gradient.")
reduce_prod = _reduction("ReduceProd", lambda x, **settings: jnp.prod(x, dtype=x.dtype, **settings), "Product.")
reduce_any = _reduction("ReduceAny", jnp.any, "Whether any is true.")


@operator("ReduceAll(keep_dims)")
def reduce_all(input: Array, axis: Axes = None, keep_dims: bool = False) -> Array:
    """Whether all elements over `axis` are true."""
    return jnp.all(input, axis=check.axes("ReduceAll", axis, input.ndim), keepdims=keep_dims)


@operator("ReduceSum(keep_dims, skip_mode)")
def reduce_sum(x: Array, axis: Axes = (), keep_dims: bool = False, skip_mode: bool = False) -> Array:
    """Sum over `axis` in the dtype of `x`; with `skip_mode` an empty `axis` gives `x` itself."""
    if skip_mode and axis == ():
        return x
    return jnp.sum(x, axis=check.axes("ReduceSum", axis, x.ndim), keepdims=keep_dims, dtype=x.dtype)


def _wide(x: Array, dtype: DType | None) -> Array:
    """`x` as it is summed: in `dtype`, else bools, bytes and signed integers in 64 bits."""
    if dtype is not None:
        return x.astype(dtype.np_dtype)
    is_narrow = x.dtype in (np.bool_, np.uint8)
    return x.astype(jnp.int64) if is_narrow or jnp.issubdtype(x.dtype, jnp.signedinteger) else x


@operator(function="sum", mint="sum")
def sum(input: Array, dim: Axes = None, keepdim: bool = False, *, dtype: DType | None = None) -> Array:
    """Sum over `dim`; bools and integers are summed in int64 unless `dtype` says otherwise."""
    values = _wide(input, dtype)
    return jnp.sum(values, axis=check.axes("sum", dim, input.ndim, "dim"), keepdims=keepdim, dtype=values.dtype)


@operator(function="prod", method="prod", mint="prod(dim=axis, keepdim=keep_dims)")
def prod(input: Array, axis: Axes = None, keep_dims: bool = False, dtype: DType | None = None) -> Array:
    """Product over `axis`; bools and integers are multiplied in int64 unless `dtype` says otherwise."""
    values = _wide(input, dtype)
    return jnp.prod(values, axis=check.axes("prod", axis, input.ndim), keepdims=keep_dims, dtype=values.dtype)


@operator(function="mean", method="mean", mint="mean(input=x, dim=axis, keepdim=keep_dims)")
def mean(x: Array, axis: Axes = None, keep_dims: bool = False, *, dtype: DType | None = None) -> Array:
    """Mean over `axis` in the dtype of `x`, or in `dtype`; that of integers is truncated to a whole number."""
    values = x if dtype is None else x.astype(dtype.np_dtype)
    return _mean(values, axis=check.axes("mean", axis, x.ndim), keepdims=keep_dims)


@operator(function="var", method="var")
def var(input: Array, axis: Axes = None, ddof: int | bool = 0, keepdims: bool = False) -> Array:
    """Mean squared distance to the mean over `axis`; `ddof` is taken off the number of elements."""
    return jnp.var(promote.inexact(input), axis=check.axes("var", axis, input.ndim), ddof=int(ddof), keepdims=keepdims)


@operator(function="std", method="std")
def std(input: Array, axis: Axes = None, ddof: int | bool = 0, keepdims: bool = False) -> Array:
    """Square root of `var`."""
    return jnp.std(promote.inexact(input), axis=check.axes("std", axis, input.ndim), ddof=int(ddof), keepdims=keepdims)


_MINT_MOMENTS = "input dim=axis * correction=ddof keepdim=keepdims"
other_form(var, None, _MINT_MOMENTS, mint="var", correction=1)
other_form(std, None, _MINT_MOMENTS, mint="std", correction=1)


@operator(function="all", mint="all(dim=axis, keepdim=keep_dims)", method="all")
def all(input: Array, axis: Axes = None, keep_dims: bool = False) -> Array:
    """Whether all elements over `axis` are true (not zero)."""
    return jnp.all(input, axis=check.axes("all", axis, input.ndim), keepdims=keep_dims)


@operator(function="any", mint="any(dim=axis, keepdim=keep_dims)", method="any")
def any(input: Array, axis: Axes = None, keep_dims: bool = False) -> Array:
    """Whether any element over `axis` is true (not zero)."""
    return jnp.any(input, axis=check.axes("any", axis, input.ndim), keepdims=keep_dims)


def picked_along(
    name: str, index: Callable[..., Array], input: Array, axis: int, keep: bool, what: str = "axis"
) -> tuple[Array, Array]:
    """Position (int64) and value of the element that `index` finds along `axis`."""
    check.tensor(name, input=input)
    where = check.axis(name, axis, input.ndim, what)
    check.filled(name, input, where)
    if not input.ndim:
        return jnp.zeros((), jnp.int64), input
    positions = index(input, axis=where, keepdims=True).astype(jnp.int64)
    # The value is picked, so that its gradient goes to this position alone.
    values = jnp.take_along_axis(input, positions, where)
    return (positions, values) if keep else (jnp.squeeze(positions, where), jnp.squeeze(values, where))


def _with_index(name: str, index: Callable[..., Array], doc: str) -> Any:
    def kernel(input: Array, axis: int = 0, keep_dims: bool = False) -> tuple[Array, Array]:
        return picked_along(name, index, input, axis, keep_dims)

    kernel.__name__ = "_" + name.lower()
    kernel.__doc__ = doc
    return operator(name, function="")(kernel)


_argmax_with_value = _with_index(
    "ArgMaxWithValue", jnp.argmax, "Position (int64) and value of the first largest element along `axis`."
)
_argmin_with_value = _with_index(
    "ArgMinWithValue", jnp.argmin, "Position (int64) and value of the first smallest element along `axis`."
)


def _position(name: str, find: Callable[..., Array], x: Array, axis: int | None, keep: bool, what: str) -> Array:
    where = None if axis is None else check.axis(name, axis, x.ndim, what)
    check.filled(name, x, where)
    return find(x, axis=where, keepdims=keep and axis is not None)


@operator(function="argmax", method="argmax(axis=dim, keepdims=keepdim)", mint="argmax")
def argmax(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Position (int64) of the first largest element along `dim`, or in the flattened tensor."""
    return _position("argmax", jnp.argmax, input, dim, keepdim, "dim").astype(jnp.int64)


@operator(function="argmin", method="argmin", mint="argmin(dim=axis, keepdim=keepdims)")
def argmin(input: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """Position (int32) of the first smallest element along `axis`, or in the flattened tensor."""
    return _position("argmin", jnp.argmin, input, axis, keepdims, "axis").astype(jnp.int32)


@operator("Argmax(axis, output_type)", function="")
def _argmax_primitive(input_x: Array, axis: int = -1, output_type: DType = dtypes.int32) -> Array:
    """Position of the first largest element along `axis`, in the dtype `output_type`."""
    return _position("Argmax", jnp.argmax, input_x, axis, False, "axis").astype(output_type.np_dtype)


@operator("CumSum(exclusive, reverse)", function="", dims=Along("axis", 0))
def _cumsum_primitive(input: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Running sum along `axis`; `exclusive`: without the element itself; `reverse`: from the back."""
    where = check.axis("CumSum", axis, input.ndim)
    values = jnp.flip(input, where) if reverse else input
    total = jnp.cumsum(values, where, dtype=input.dtype)
    total = total - values if exclusive else total
    return jnp.flip(total, where) if reverse else total


@operator(function="cumsum", method="cumsum", mint="cumsum(input=x, dim=axis)")
def cumsum(x: Array, axis: int, dtype: DType | None = None) -> Array:
    """Running sum along `axis`, in the dtype of `x` or in `dtype`."""
    values = x if dtype is None else x.astype(dtype.np_dtype)
    return jnp.cumsum(values, check.axis("cumsum", axis, x.ndim), dtype=values.dtype)


def max(
    input: Tensor, axis: int | None = None, keepdims: bool = False, *, initial: Any = None, where: Any = None
) -> tuple[Tensor, Tensor]:
    """Largest elements along `axis` and their positions (int64); the largest of all, and 0, without `axis`.

    Args:
        input: tensor.
        axis: the dimension.
        keepdims: keep it with size 1.
        initial: a value that counts as one more element.
        where: bool tensor, broadcast: elements that count; needs `initial`.
    """
    return _extreme("max", _argmax_with_value, reduce_max, input, axis, keepdims, initial, where)


def min(
    input: Tensor, axis: int | None = None, keepdims: bool = False, *, initial: Any = None, where: Any = None
) -> tuple[Tensor, Tensor]:
    """Smallest elements along `axis` and their positions (int64); arguments as `max`."""
    return _extreme("min", _argmin_with_value, reduce_min, input, axis, keepdims, initial, where)


def _extreme(
    name: str, with_index: Any, of_all: Any, input: Any, axis: int | None, keepdims: bool, initial: Any, where: Any
) -> tuple[Tensor, Tensor]:
    input = limited(name, input, initial, where)
    if axis is None:
        return of_all(input), Tensor(0)
    positions, values = with_index(input, axis, keepdims)
    return values, positions


def limited(name: str, input: Tensor, initial: Any, where: Any) -> Tensor:
    """What "max" or "min" chooses from: elements where `where`, else `initial`, and nothing on the wrong side of it."""
    For(name).refuse(where is not None and initial is None, "'where' needs an 'initial' value, but that is None")
    return input if initial is None else _bounded(input, initial, True if where is None else where, name == "max")


@operator(function="")
def _bounded(x: Array, initial: Array | float, where: Array | bool, upwards: bool) -> Array:
    """`x` where `where` is true, else `initial`; but nowhere beyond `initial`."""
    limit = jnp.asarray(initial, x.dtype)
    return (extremes.larger if upwards else extremes.smaller)(jnp.where(where, x, limit), limit)


export(max, min)


def _start(how: str, dtype: Any) -> Any:
    """What a segment without rows holds."""
    if how in ("add", "mul"):
        return 0 if how == "add" else 1
    # The neutral element of maximum and minimum.
    limits = jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype)
    return limits.max if how == "min" else limits.min


def _segments(name: str, x: Array, segment_ids: Array, num_segments: int, how: str, start: Any) -> Array:
    check.tensor(name, x=x, segment_ids=segment_ids)
    check.integral(name, segment_ids=segment_ids)
    if x.shape[: segment_ids.ndim] != segment_ids.shape:
        raise For(name).error(
            "the shape of 'segment_ids' must be the head of that of 'x'", f"{segment_ids.shape} and {x.shape}"
        )
    ids = jnp.where(segment_ids < 0, num_segments, segment_ids)  # out of range, hence left out
    target = jnp.full((num_segments, *x.shape[segment_ids.ndim :]), start, x.dtype)
    return scattered(target, (ids,), x, how)


def _count(name: str, num_segments: Any) -> int:
    if isinstance(num_segments, Tensor):
        num_segments = known(name, "num_segments", num_segments).item()
    # Attributes of operators are checked by annotations, but this one may be a tensor.
    For(name).typed("num_segments", num_segments, "an int", int, takes_bool=False)
    For(name).refuse(num_segments < 1, "'num_segments' must be >= 1", num_segments)
    return num_segments


def _unsorted(word: str, how: str, doc: str, first: str) -> None:
    name, own = f"UnsortedSegment{word}", f"unsorted_segment_{word.lower()}"

    @operator(function="", dims=segments)
    def compute(x: Array, segment_ids: Array, num_segments: int) -> Array:
        return _segments(name, x, segment_ids, num_segments, how, _start(how, x.dtype))

    compute.name = name

    def of_input_x(input_x: Any, segment_ids: Any, num_segments: Any) -> Any:
        return compute(input_x, segment_ids, _count(name, num_segments))

    def of_x(x: Any, segment_ids: Any, num_segments: Any) -> Any:
        return compute(x, segment_ids, _count(name, num_segments))

    kernel = of_x if first == "x" else of_input_x
    kernel.__name__ = own
    kernel.__doc__ = (
        f"{doc} of the elements with one number.\n\n"
        f"    Args:\n        {first}: tensor.\n"
        f"        segment_ids: integers, the segment of each element; its shape is the head of that of `{first}`, and\n"
        "            negative numbers leave an element out.\n"
        "        num_segments: how many segments there are.\n"
    )
    operator(f"{name}()", function=own, method="" if how == "add" else own, composed=True, dims=segments)(kernel)


_unsorted("Sum", "add", "Sums", "input_x")
_unsorted("Prod", "mul", "Products (1 for a segment without elements)", "x")
_unsorted("Max", "max", "Maxima (the least number of the dtype for a segment without elements)", "x")
_unsorted("Min", "min", "Minima (the largest number of the dtype for a segment without elements)", "x")


def _sorted(word: str, how: str, empty: int, doc: str) -> None:
    """Reductions whose number of segments follows from the last, largest number; hence outside compiled steps only."""
    name = f"Segment{word}"

    @operator(function="")
    def compute(input_x: Array, segment_ids: Array, num_segments: int) -> Array:
        reduced = _segments(
            name, input_x, segment_ids, num_segments, "add" if how == "mean" else how,
            0 if how == "mean" else _start(how, input_x.dtype),
        )  # fmt: skip
        # Segments without rows must not show the neutral element.
        counts = jnp.zeros((num_segments,), input_x.dtype).at[segment_ids].add(1)
        counts = counts.reshape(-1, *[1] * (input_x.ndim - 1))
        if how == "mean":
            # No division by 0; such segments are 0 anyway.
            return reduced / jnp.maximum(counts, 1)
        return jnp.where(counts == 0, jnp.asarray(empty, input_x.dtype), reduced)

    compute.name = name

    def kernel(input_x: Any, segment_ids: Any) -> Any:
        check.rank(name, 1, segment_ids=segment_ids)
        ids = known(name, "segment_ids", segment_ids)
        # MindSpore requires ascending numbers; the last one then gives the number of segments.
        if ids.size and ((ids[1:] < ids[:-1]).any() or ids[0] < 0):
            raise SporaxValueError(f"For '{name}', 'segment_ids' must be ascending and not negative, but got {ids}.")
        return compute(input_x, segment_ids, int(ids[-1]) + 1 if ids.size else 0)

    kernel.__name__ = f"_{name.lower()}"
    kernel.__doc__ = f"{doc} of the rows with one number in the ascending `segment_ids`; {empty} for one without rows."
    operator(f"{name}()", function="", composed=True)(kernel)


_sorted("Sum", "add", 0, "Sums")
_sorted("Prod", "mul", 1, "Products")
_sorted("Max", "max", 0, "Maxima")
_sorted("Min", "min", 0, "Minima")
_sorted("Mean", "mean", 0, "Means")


@operator(function="sparse_segment_mean", composed=True)
def sparse_segment_mean(x: Any, indices: Any, segment_ids: Any) -> Any:
    """Means of the rows of `x` at `indices` that have one number in the ascending `segment_ids`.

    The number of segments follows from the last number, so this is for outside of compiled steps, or for known numbers.

    Args:
        x: (rows, …).
        indices: (n,) int32 or int64, which rows.
        segment_ids: (n,) of the same dtype.
    """
    if indices.dtype != segment_ids.dtype or indices.shape != segment_ids.shape:
        raise SporaxValueError(
            "For 'sparse_segment_mean', 'indices' and 'segment_ids' must have the same shape and dtype, but got "
            f"{indices.dtype}{list(indices.shape)} and {segment_ids.dtype}{list(segment_ids.shape)}."
        )
    return PRIMITIVES["SegmentMean"]()(FUNCTIONS["gather"](x, indices, 0), segment_ids)
