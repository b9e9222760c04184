"""Functions of `mindspore.mint.nn.functional`: operators under other names, and those that are more than that.

Those with ``inplace`` write the result to their input when it is True, and return it; so do the ones whose name ends in an
underscore. A Tensor then holds a new array; other Tensors that were made from it before keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore import ops
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common import Tensor, dtypes
from sporax.mindspore.mint._functions import offer
from sporax.mindspore.ops._core import MINT, Array, check, operator


def _placed(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    if not inplace:
        return result
    input._replace(result.array)
    return input


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The input where it is positive, zero elsewhere; `inplace` writes it to the input."""
    return _placed(input, ops.relu(input), inplace)


@operator(function="")
def _limited(input: Array, low: float, high: float) -> Array:
    """The input limited to [low, high]; its gradient is 0 at both ends."""
    check.tensor("hardtanh", input=input)
    # The ends are constants, so their gradient is 0.
    ends = jax.lax.stop_gradient(jnp.clip(input, jnp.asarray(low, input.dtype), jnp.asarray(high, input.dtype)))
    return jnp.where((input > low) & (input < high), input, ends)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """The input limited to [0, 6]; `inplace` writes it to the input."""
    return _placed(input, _limited(input, 0.0, 6.0), inplace)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x · sigmoid(x), also called swish; `inplace` writes it to the input."""
    return _placed(input, ops.silu(input), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where it is positive, ``alpha * (exp(x) - 1)`` elsewhere; `inplace` writes it to the input."""
    return _placed(input, ops.elu(input, alpha), inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """The input limited to [min_val, max_val]; `inplace` writes it to the input."""
    return _placed(input, _limited(input, min_val, max_val), inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """The input where it exceeds `threshold`, `value` elsewhere; `inplace` writes it to the input."""
    return _placed(input, ops.threshold(input, threshold, value), inplace)


def relu_(input: Tensor) -> Tensor:
    """`relu`, written to the input, which is returned."""
    return relu(input, True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu`, written to the input, which is returned."""
    return elu(input, alpha, True)


def hardtanh_(input: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    """`hardtanh`, written to the input, which is returned."""
    return hardtanh(input, min_val, max_val, True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold`, written to the input, which is returned."""
    return _placed(input, ops.threshold(input, threshold, value), True)


def sigmoid_(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), written to the input, which is returned."""
    return _placed(input, ops.sigmoid(input), True)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Elements zeroed with probability `p`, the others divided by ``1 - p``; nothing happens unless `training`."""
    return _placed(input, ops.dropout(input, p, training), inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Channels of (n, c, h, w) or (c, h, w) zeroed with probability `p`, the others divided by ``1 - p``."""
    batched = input if input.ndim != 3 else input.expand_dims(0)
    result = ops.dropout2d(batched, p, training)
    return _placed(input, result if input.ndim != 3 else result.squeeze(0), inplace)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the position each integer names, 0 elsewhere, in a new last dimension; int64.

    Args:
        tensor: integers >= 0.
        num_classes: size of the new dimension; -1: the largest integer plus one.

    Raises:
        SporaxTypeError: `tensor` holds no integers.
        SporaxValueError: `num_classes` is neither -1 nor positive, or `tensor` is empty and it is -1.
    """
    if tensor.dtype not in (*dtypes.int_type, *dtypes.uint_type):
        raise SporaxTypeError(f"For 'one_hot', 'tensor' must hold integers, but got {tensor.dtype}.")
    # The size is a shape, so the largest integer must be known.
    if num_classes == -1 and tensor.size:
        num_classes = int(check.known("one_hot", "tensor", tensor).max()) + 1
    For("one_hot").refuse(
        num_classes < 1, "'num_classes' must be positive (or -1 where 'tensor' is not empty)", num_classes
    )
    return ops.one_hot(tensor, num_classes)


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    relu, relu6, silu, elu, hardtanh, threshold, relu_, elu_, hardtanh_, threshold_, sigmoid_, dropout, dropout2d, one_hot,
)  # fmt: skip
offer(*_FUNCTIONS, place="nn.functional.")

_PREFIX = "nn.functional."

globals().update({name.removeprefix(_PREFIX): function for name, function in MINT.items() if name.startswith(_PREFIX)})

__all__ = [name.removeprefix(_PREFIX) for name in MINT if name.startswith(_PREFIX)]

answer_missing_names(__name__)
