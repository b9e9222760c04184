"""Reductions over segments: rows with one segment number are reduced to one row."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.dims import segments
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES, Array, operator
from sporax.mindspore.ops.array.scatter import scattered


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
        raise SporaxValueError.must(
            name, "the shape of 'segment_ids'", "be the head of that of 'x'", f"{segment_ids.shape} and {x.shape}"
        )
    ids = jnp.where(segment_ids < 0, num_segments, segment_ids)  # out of range, hence left out
    target = jnp.full((num_segments, *x.shape[segment_ids.ndim :]), start, x.dtype)
    return scattered(target, (ids,), x, how)


def _count(name: str, num_segments: Any) -> int:
    if isinstance(num_segments, Tensor):
        num_segments = known(name, "num_segments", num_segments).item()
    # Attributes of operators are checked by annotations, but this one may be a tensor.
    check_type(name, "num_segments", num_segments, "an int", int, takes_bool=False)
    SporaxValueError.raise_if(num_segments < 1, name, "num_segments", "be >= 1", num_segments)
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
