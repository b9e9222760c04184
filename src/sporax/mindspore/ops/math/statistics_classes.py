"""Statistics in MindSpore's class forms, whose constructors take what the functions take as arguments; searching and ordering."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.mindspore.common import DType, dtypes
from sporax.mindspore.common.tensor import Tensor, wrap_numpy
from sporax.mindspore.ops._core import Array, Operand, check, known, operator, promote
from sporax.mindspore.ops.array.sorting import searchsorted
from sporax.mindspore.ops.math.statistics import logcumsumexp, nanquantile, quantile

Axes = int | tuple[int, ...] | None


@operator("CountNonZero(dims)", function="")
def _count_nonzero(x: Array, dims: Axes = None) -> Array:
    """How many elements over `dims` (all by default) are not zero (int64)."""
    return jnp.count_nonzero(x, check.axes("CountNonZero", dims, x.ndim, "dims")).astype(jnp.int64)


@operator("Bincount()", function="", composed=True)
def _bincount(array: Any, size: Any, weights: Any) -> Any:
    """The sum of `weights` at each number below `size` in `array` (int32); larger numbers are left out.

    Without elements in `weights` every number counts as 1.
    """
    count = known("Bincount", "size", size).item() if isinstance(size, Tensor) else size
    return _weighed_below(array, weights, count)


@operator(function="")
def _weighed_below(array: Array, weights: Array, size: int) -> Array:
    """Sums of the weights of each of `size` numbers."""
    check.integral("Bincount", array=array)
    if size < 0 or weights.size not in (0, array.size):
        raise For("Bincount").error(
            f"'size' must be >= 0 and 'weights' have the shape of 'array' or no elements, but got {size}, "
            f"{weights.shape} and {array.shape}"
        )
    amounts = weights if weights.size else jnp.ones(array.shape, weights.dtype)
    # Numbers beyond the size are left out, where JAX would clamp.
    return jnp.zeros((size,), weights.dtype).at[array].add(amounts, mode="drop")


@operator("EqualCount()", function="")
def _equal_count(x: Array, y: Array) -> Array:
    """How many elements of two tensors of one shape and dtype are equal, (1,)."""
    check.same_dtype("EqualCount", x=x, y=y)
    For("EqualCount").refuse(x.shape != y.shape, "'x' and 'y' must have one shape", x.shape, y.shape)
    # Count in the operand's dtype and of shape (1,), as MindSpore's kernel gives it.
    return jnp.sum(x == y, dtype=x.dtype).reshape(1)


@operator("HistogramFixedWidth(nbins, dtype)", function="")
def _histogram_fixed_width(x: Array, range: Array, nbins: int, dtype: str = "int32") -> Array:
    """How many elements (int32) fall into each of `nbins` equal parts of the interval `range` (2,).

    Elements outside count for the part at the end.
    """
    check.one_of("HistogramFixedWidth", dtype, ("int32",), "dtype")
    For("HistogramFixedWidth").refuse(
        nbins < 1 or range.shape != (2,), "'nbins' must be >= 1 and 'range' have shape (2,)", nbins, range.shape
    )
    low, high = promote.inexact(range)
    place = jnp.clip(jnp.floor((x.reshape(-1) - low) / (high - low) * nbins), 0, nbins - 1).astype(jnp.int32)
    return jnp.zeros((nbins,), jnp.int32).at[place].add(1)


@operator("ConfusionMatrix(num_classes, dtype)", function="")
def _confusion_matrix(
    labels: check.Int, predictions: check.Int, weights: Array | None = None, *, num_classes: int, dtype: str = "int32"
) -> Array:
    """How often each label (rows) was predicted as each class (columns), or the sums of `weights`; (classes, classes)."""
    check.one_of("ConfusionMatrix", dtype, ("int32", "float32", "float16", "int64"), "dtype")
    kind = jnp.dtype(dtype)
    amounts = jnp.ones(labels.shape, kind) if weights is None else weights.astype(kind)
    return jnp.zeros((num_classes, num_classes), kind).at[labels, predictions].add(amounts, mode="drop")


def _bound(name: str, right: bool, doc: str) -> None:
    def kernel(sorted_x: Array, values: Array, out_type: DType = dtypes.int32) -> Array:
        check.rank(name, 2, sorted_x=sorted_x, values=values)
        check.same_dtype(name, sorted_x=sorted_x, values=values)
        check.one_of(name, out_type, (dtypes.int32, dtypes.int64), "out_type")
        positions: Array = searchsorted.kernel(sorted_x, values, right=right)
        return positions.astype(out_type.np_dtype)

    kernel.__doc__ = doc
    operator(f"{name}(out_type)", function="")(kernel)


@operator("Quantile(dim, keep_dims, ignore_nan)", function="")
def _quantile(
    input: Array, q: Operand, dim: int | None = None, keep_dims: bool = False, ignore_nan: bool = False
) -> Array:
    """Quantiles along `dim` at the levels `q` in [0, 1], interpolated linearly; `ignore_nan` leaves NaN out."""
    return (nanquantile if ignore_nan else quantile).kernel(input, q, dim, keep_dims)


def _ints(name: str, what: str, value: Any) -> Any:
    """Ints, which MindSpore's class form may also be given as a Tensor."""
    values = known(name, what, value).tolist() if isinstance(value, Tensor) else value
    return tuple(values) if isinstance(values, list) else values


@operator("EuclideanNorm(keep_dims)", function="", composed=True)
def _euclidean_norm(x: Any, axes: Any, keep_dims: bool = False) -> Any:
    """The root of the sum of squares over `axes` (ints or a Tensor), in the dtype of `x`."""
    return _root_of_squares(x, _ints("EuclideanNorm", "axes", axes), keep_dims)


@operator(function="")
def _root_of_squares(x: Array, axes: Axes, keep_dims: bool) -> Array:
    """The root of the sum of squares over `axes`."""
    where = check.axes("EuclideanNorm", axes, x.ndim, "axes")
    # In floats: squares of narrow integers overflow.
    total = jnp.sum(jnp.square(promote.inexact(x)), where, keepdims=keep_dims)
    return jnp.sqrt(total).astype(x.dtype)


@operator("CumulativeLogsumexp(exclusive, reverse)", function="", composed=True)
def _cumulative_logsumexp(x: Any, axis: Any, exclusive: bool = False, reverse: bool = False) -> Any:
    """Logarithms of running sums of exponentials along `axis` (an int or a Tensor).

    `exclusive` leaves out the element itself (the first result is the smallest number of the dtype); `reverse` starts at the
    end.
    """
    return _running_logsumexp(x, _ints("CumulativeLogsumexp", "axis", axis), exclusive, reverse)


@operator(function="")
def _running_logsumexp(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Logarithms of running sums of exponentials along `axis`."""
    check.floating("CumulativeLogsumexp", x=x)
    where = check.axis("CumulativeLogsumexp", axis, x.ndim)
    values = jnp.flip(x, where) if reverse else x
    if exclusive:
        # The logarithm of zero is minus infinity; MindSpore has the dtype's least number.
        first = jnp.full_like(jax.lax.slice_in_dim(values, 0, 1, axis=where), jnp.finfo(x.dtype).min)
        values = jnp.concatenate([first, jax.lax.slice_in_dim(values, 0, x.shape[where] - 1, axis=where)], where)
    sums: Array = logcumsumexp.kernel(values, where)
    return jnp.flip(sums, where) if reverse else sums


_bound("LowerBound", False, "Where in each sorted row the first element is that is not smaller than each of `values`.")
_bound("UpperBound", True, "Where in each sorted row the first element is that is larger than each of `values`.")


@operator("NthElement(reverse)", function="")
def _nth_element(input: Array, n: Operand, reverse: bool = False) -> Array:
    """The `n`-th smallest element (from 0) of the last dim, the `n`-th largest with `reverse`."""
    check.rank("NthElement", range(1, 9), input=input)
    ordered = jnp.sort(input, -1, descending=reverse)
    return jnp.take(ordered, jnp.asarray(n, jnp.int32), -1)


@operator("ListDiff(out_idx)", function="", composed=True)
def _list_diff(x: Any, y: Any, out_idx: DType = dtypes.int32) -> Any:
    """The elements of the vector `x` that are not in `y`, and where they are (in `out_idx`).

    The result's shape depends on the values: a compiled step with it runs operator by operator.
    """
    check.one_of("ListDiff", out_idx, (dtypes.int32, dtypes.int64), "out_idx")
    values, others = known("ListDiff", "x", x), known("ListDiff", "y", y)
    if values.ndim != 1 or others.ndim != 1 or values.dtype != others.dtype:
        raise For("ListDiff").error(
            f"'x' and 'y' must be vectors of one dtype, but got {x.dtype}{list(x.shape)} and {y.dtype}{list(y.shape)}"
        )
    positions = np.flatnonzero(~np.isin(values, others))
    return wrap_numpy(values[positions]), wrap_numpy(positions.astype(out_idx.np_dtype))


@operator("UnravelIndex()", function="")
def _unravel_index(indices: check.Int, dims: check.Int1) -> Array:
    """The positions, one row for each dim, of elements counted through a tensor of the sizes `dims`.

    Positions out of range give those of the last element.
    """
    check.rank("UnravelIndex", (0, 1), indices=indices)
    # MindSpore clamps instead of refusing.
    rest = jnp.minimum(indices, jnp.prod(dims) - 1).astype(indices.dtype)
    rows = []
    for dim in range(dims.shape[0] - 1, -1, -1):
        rows.append(rest % dims[dim])
        rest = rest // dims[dim]
    return jnp.stack(rows[::-1]).astype(indices.dtype)


@operator("InvertPermutation()", function="", composed=True)
def _invert_permutation(input_x: tuple[int, ...]) -> tuple[int, ...]:
    """Where each number from 0 to n - 1 is in a tuple of all of them."""
    numbers = tuple(input_x)
    if sorted(numbers) != list(range(len(numbers))):
        raise For("InvertPermutation").error(
            f"'input_x' must hold the numbers 0 to {len(numbers) - 1}, but got {numbers}"
        )
    return tuple(numbers.index(number) for number in range(len(numbers)))


@operator("SubAndFilter()", function="", composed=True)
def _sub_and_filter(input_x: Any, max_num: Any, offset: Any) -> Any:
    """Of ``input_x - offset`` the elements in [0, max_num), and where they are (int32).

    The result's shape depends on the values: a compiled step with it runs operator by operator.
    """
    values = known("SubAndFilter", "input_x", input_x) - np.asarray(offset, input_x.dtype.np_dtype)
    # Compared as numpy values: the number of results depends on them.
    positions = np.flatnonzero((values >= 0) & (values < np.asarray(max_num)))
    return wrap_numpy(values[positions]), wrap_numpy(positions.astype(np.int32))


@operator("NoRepeatNGram(ngram_size)", function="")
def _no_repeat_ngram(state_seq: check.Int, log_probs: Array, ngram_size: int = 1) -> Array:
    """`log_probs`, with the least number of the dtype for words that would repeat the last words of a sequence.

    Args:
        state_seq: (batch, beams, length), the words so far.
        log_probs: (batch, beams, words).
        ngram_size: how many words in a row must not occur twice.
    """
    name = "NoRepeatNGram"
    check.rank(name, 3, state_seq=state_seq, log_probs=log_probs)
    length, size = state_seq.shape[-1], ngram_size
    if not 0 < size < length or state_seq.shape[:2] != log_probs.shape[:2]:
        raise For(name).error(
            f"'ngram_size' must be in (0, {length}) and the batches equal, but got {size}, {state_seq.shape} and "
            f"{log_probs.shape}"
        )
    starts = jnp.arange(length - size + 1)
    windows = state_seq[..., starts[:, None] + jnp.arange(size)]
    begins_equally = (windows[..., :-1] == state_seq[..., None, length - size + 1 :]).all(-1)
    words = jnp.arange(log_probs.shape[-1])
    is_banned = (begins_equally[..., None] & (windows[..., -1:] == words)).any(-2)
    return jnp.where(is_banned, jnp.finfo(log_probs.dtype).min, log_probs)
