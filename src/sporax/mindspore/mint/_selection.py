"""Functions of `mint` with a form of their own: largest and smallest elements, and a few that are not in `ops`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sporax.base.errors import SporaxTypeError, check_type
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.tensor import Tensor, wrap_numpy
from sporax.mindspore.mint._registry import offer
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.operator import MINT, Array, operator
from sporax.mindspore.ops._core.signatures import renamed


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The largest element; along `dim`, the largest elements and their positions (int64); or the larger of two tensors.

    Args:
        input: tensor.
        dim: the dimension; or, as in ``max(input, other)``, the other tensor.
        keepdim: keep the dimension with size 1.
        other: tensor to compare with, element by element.
    """
    return _extreme("max", ops.reduce_max, ops.maximum, ops.ArgMaxWithValue, input, dim, keepdim, other)


def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The smallest element; along `dim`, the smallest elements and their positions (int64); or the smaller of two tensors.

    Args: as `max`.
    """
    return _extreme("min", ops.reduce_min, ops.minimum, ops.ArgMinWithValue, input, dim, keepdim, other)


def _extreme(
    name: str, reduced: Any, pairwise: Any, along: Any, input: Tensor, dim: Any, keepdim: bool, other: Tensor | None
) -> Any:
    # ``max(input, other)`` has the other tensor in the place of `dim`.
    if isinstance(dim, Tensor) and other is None:
        dim, other = None, dim
    if other is not None:
        if dim is not None or keepdim:
            raise SporaxTypeError(
                f"For '{name}', 'other' stands alone, but got 'dim' {dim} and 'keepdim' {keepdim} too."
            )
        return pairwise(input, other)
    if dim is None:
        if keepdim:
            raise SporaxTypeError(f"For '{name}', 'keepdim' needs a 'dim', but that is None.")
        return reduced(input)
    # The operator gives positions first, PyTorch's form values first.
    positions, values = along(dim, keepdim)(input)
    return values, positions


def _unique(array: np.ndarray[Any, Any], inverse: bool, counts: bool, axis: int | None) -> list[np.ndarray[Any, Any]]:
    """The different elements, and what else is requested; numpy gives a bare array where nothing is."""
    # Its overloads know no bools that are variables.
    unique_of: Any = np.unique
    result = unique_of(array, return_inverse=inverse, return_counts=counts, axis=axis)
    return list(result) if inverse or counts else [result]


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements, in ascending order; outside compiled steps only.

    Args:
        input: tensor.
        sorted: accepted for compatibility; they are in order either way.
        return_inverse: also give for each element its position in the result (int64).
        return_counts: also give how often each occurs (int64).
        dim: compare slices along this dimension instead of single elements.
    """
    where = None if dim is None else check.axis("unique", dim, input.ndim)
    # How many different elements there are is a shape, so values must be known.
    values, *others = _unique(known("unique", "input", input), return_inverse, return_counts, where)
    if not others:
        return wrap_numpy(values)
    if return_inverse:
        others[0] = others[0].reshape(input.shape if where is None else -1)
    return (wrap_numpy(values), *(wrap_numpy(other.astype(np.int64)) for other in others))


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``."""
    # Without a factor the product is left out, which keeps the dtype of integers.
    return ops.add(input, other) if type(alpha) is int and alpha == 1 else ops.add(input, other * alpha)


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``."""
    return ops.sub(input, other) if type(alpha) is int and alpha == 1 else ops.sub(input, other * alpha)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; outside compiled steps only. See `eq` for each element."""
    for name, value in (("input", input), ("other", other)):
        check_type("equal", name, value, "a Tensor", Tensor)
    # Tensors of different shapes are different, whatever would broadcast.
    return input.shape == other.shape and bool(ops.reduce_all(ops.equal(input, other)).item())


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Position (int64) of the first smallest element along `dim`, or in the flattened tensor."""
    return ops.argmin(input, dim, keepdim).astype(dtypes.int64)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of the numbers 0, 1, … occurs (int64), or the sum of their `weights`; outside compiled steps only.

    Args:
        input: integers >= 0, (n,).
        weights: (n,), added instead of ones.
        minlength: least number of results.
    """
    counts = ops.bincount(input, weights, minlength)
    return counts.astype(dtypes.int64) if weights is None else counts


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return ops.addcmul(input, tensor1, tensor2, value)


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """The tensor with two dimensions exchanged."""
    return ops.swapaxes(input, axis0, axis1)


def addr_(input: Tensor, vec1: Tensor, vec2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``, written to `input`, which is returned."""
    # With beta 0, NaN in the input must not come through.
    result = ops.outer(vec1, vec2) * alpha + (input * beta if beta != 0 else 0)
    input._replace(result.astype(input.dtype).array)
    return input


def item(input: Tensor) -> Any:
    """The one element of `input` as a Python number."""
    return input.item()


def npu_gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """As `nn.functional.gelu`, under the name of Ascend's kernel."""
    return ops.gelu(input, approximate)


@operator(function="", mint="conv_tbc")
def conv_tbc(input: Array, weight: Array, bias: Array, pad: int = 0) -> Array:
    """Cross-correlation of sequences with time first.

    Args:
        input: (time, n, c_in).
        weight: (kernel, c_in, c_out).
        bias: (c_out,), added to each channel.
        pad: zeros at both ends of the time.
    """
    check.rank("conv_tbc", 3, input=input, weight=weight)
    # W stands for the time.
    result = jax.lax.conv_general_dilated(input, weight, (1,), [(pad, pad)], dimension_numbers=("WNC", "WIO", "WNC"))
    return result + bias


isnan = renamed(ops.isnan, {"tensor": "input"})

offer(max, min, argmin, bincount, unique, add, sub, equal, addcmul, swapaxes, addr_, item, npu_gelu)
MINT.update(isnan=isnan, fix=ops.trunc, ge=ops.ge, conv2d=MINT["nn.functional.conv2d"])
