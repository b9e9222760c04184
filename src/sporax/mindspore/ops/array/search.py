"""Searching and ordering: nth elements, differences of lists, unraveled indices, permutations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import wrap_numpy
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.operator import Array, Operand, operator
from sporax.mindspore.ops.math.statistics_classes import _bound

Axes = int | tuple[int, ...] | None


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

    The result's shape depends on the values, so this cannot be part of a compiled step.
    """
    check.one_of("ListDiff", out_idx, (dtypes.int32, dtypes.int64), "out_idx")
    values, others = known("ListDiff", "x", x), known("ListDiff", "y", y)
    if values.ndim != 1 or others.ndim != 1 or values.dtype != others.dtype:
        raise SporaxValueError(
            f"For 'ListDiff', 'x' and 'y' must be vectors of one dtype, but got {x.dtype}{list(x.shape)} and "
            f"{y.dtype}{list(y.shape)}."
        )
    # The order of `x`, as MindSpore gives it.
    positions = np.flatnonzero(~np.isin(values, others))
    return wrap_numpy(values[positions]), wrap_numpy(positions.astype(out_idx.np_dtype))


@operator("UnravelIndex()", function="")
def _unravel_index(indices: Array, dims: Array) -> Array:
    """The positions, one row for each dim, of elements counted through a tensor of the sizes `dims`.

    Positions out of range give those of the last element.
    """
    check.integral("UnravelIndex", indices=indices, dims=dims)
    check.rank("UnravelIndex", 1, dims=dims)
    check.rank("UnravelIndex", (0, 1), indices=indices)
    # MindSpore clamps instead of refusing.
    rest = jnp.minimum(indices, jnp.prod(dims) - 1).astype(indices.dtype)
    rows = []
    # From the last dim, which counts fastest.
    for dim in range(dims.shape[0] - 1, -1, -1):
        rows.append(rest % dims[dim])
        rest = rest // dims[dim]
    return jnp.stack(rows[::-1]).astype(indices.dtype)


@operator("InvertPermutation()", function="", composed=True)
def _invert_permutation(input_x: tuple[int, ...]) -> tuple[int, ...]:
    """Where each number from 0 to n - 1 is in a tuple of all of them."""
    numbers = tuple(input_x)
    if sorted(numbers) != list(range(len(numbers))):
        raise SporaxValueError(
            f"For 'InvertPermutation', 'input_x' must hold the numbers 0 to {len(numbers) - 1}, but got {numbers}."
        )
    return tuple(numbers.index(number) for number in range(len(numbers)))


@operator("SubAndFilter()", function="", composed=True)
def _sub_and_filter(input_x: Any, max_num: Any, offset: Any) -> Any:
    """Of ``input_x - offset`` the elements in [0, max_num), and where they are (int32).

    The result's shape depends on the values, so this cannot be part of a compiled step.
    """
    values = known("SubAndFilter", "input_x", input_x) - np.asarray(offset, input_x.dtype.np_dtype)
    # Compared as numpy values: the number of results depends on them.
    positions = np.flatnonzero((values >= 0) & (values < np.asarray(max_num)))
    return wrap_numpy(values[positions]), wrap_numpy(positions.astype(np.int32))


@operator("NoRepeatNGram(ngram_size)", function="")
def _no_repeat_ngram(state_seq: Array, log_probs: Array, ngram_size: int = 1) -> Array:
    """`log_probs`, with the least number of the dtype for words that would repeat the last words of a sequence.

    Args:
        state_seq: (batch, beams, length), the words so far.
        log_probs: (batch, beams, words).
        ngram_size: how many words in a row must not occur twice.
    """
    name = "NoRepeatNGram"
    check.rank(name, 3, state_seq=state_seq, log_probs=log_probs)
    check.integral(name, state_seq=state_seq)
    length, size = state_seq.shape[-1], ngram_size
    if not 0 < size < length or state_seq.shape[:2] != log_probs.shape[:2]:
        raise SporaxValueError(
            f"For '{name}', 'ngram_size' must be in (0, {length}) and the batches equal, but got {size}, "
            f"{state_seq.shape} and {log_probs.shape}."
        )
    starts = jnp.arange(length - size + 1)
    windows = state_seq[..., starts[:, None] + jnp.arange(size)]
    # The last words of the sequence against the begin of each earlier window.
    begins_equally = (windows[..., :-1] == state_seq[..., None, length - size + 1 :]).all(-1)
    words = jnp.arange(log_probs.shape[-1])
    # Any window with the same beginning bans its last word.
    is_banned = (begins_equally[..., None] & (windows[..., -1:] == words)).any(-2)
    return jnp.where(is_banned, jnp.finfo(log_probs.dtype).min, log_probs)
