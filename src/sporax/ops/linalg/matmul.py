"""Matrix products."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
import numpy as np

from sporax.ir.errors import SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, operator


def _turned(array: Array, turn: bool) -> Array:
    return jnp.swapaxes(array, -1, -2) if turn else array


def _check_contraction(name: str, left: Array, right: Array) -> None:
    if left.shape[-1] != right.shape[-2 if right.ndim > 1 else 0]:
        raise SporaxValueError(
            f"For '{name}', the last dim of the left operand must equal the second last of the right one, "
            f"but got shapes {left.shape} and {right.shape} (after transposition)."
        )


def _check_batch(name: str, left: Array, right: Array) -> None:
    try:
        np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise SporaxValueError(
            f"For '{name}', the leading dims must broadcast, but got shapes {left.shape} and {right.shape}."
        ) from None


@operator("MatMul(transpose_a, transpose_b)", function="")
def _matmul_2d(input: Array, mat2: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """Product of two matrices, each transposed first if its flag says so. Shapes (n, k) and (k, m) give (n, m).

    Raises:
        SporaxValueError: an operand is no matrix, or the contracted dimensions differ.
        SporaxTypeError: the dtypes differ.
    """
    check.rank("MatMul", 2, input=input, mat2=mat2)
    check.same_dtype("MatMul", input=input, mat2=mat2)
    left, right = _turned(input, transpose_a), _turned(mat2, transpose_b)
    _check_contraction("MatMul", left, right)
    return jnp.matmul(left, right)


@operator("BatchMatMul(transpose_a, transpose_b)", function="")
def _batch_matmul(x: Array, y: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """Products of matrices in the last two dimensions; the leading ones are broadcast. Errors as `MatMul`."""
    for name, array in (("x", x), ("y", y)):
        if array.ndim < 2:
            raise SporaxValueError(
                f"For 'BatchMatMul', '{name}' must have at least 2 dimensions, but got {array.shape}."
            )
    check.same_dtype("BatchMatMul", x=x, y=y)
    left, right = _turned(x, transpose_a), _turned(y, transpose_b)
    _check_contraction("BatchMatMul", left, right)
    _check_batch("BatchMatMul", left, right)
    return jnp.matmul(left, right)


@operator(function="matmul", method="matmul", mint="matmul")
def matmul(input: Array, other: Array) -> Array:
    """Matrix product of tensors with any number of leading dimensions (broadcast), or of vectors.

    Raises:
        SporaxTypeError: the dtypes differ.
        SporaxValueError: the contracted dimensions differ, or an operand has no dimension.
    """
    check.same_dtype("matmul", input=input, other=other)
    if not input.ndim or not other.ndim:
        raise SporaxValueError(
            f"For 'matmul', both operands need a dimension, but got shapes {input.shape}, {other.shape}."
        )
    _check_contraction("matmul", input, other)
    _check_batch("matmul", input, other)
    return jnp.matmul(input, other)


@operator(function="bmm", method="bmm", mint="bmm(input=input_x)")
def bmm(input_x: Array, mat2: Array) -> Array:
    """Product of the matrices in two three-dimensional tensors."""
    check.rank("bmm", 3, input_x=input_x, mat2=mat2)
    return _batch_matmul.kernel(input_x, mat2)


@operator(function="dense", mint="nn.functional.linear")
def dense(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """``input @ weight.T + bias``.

    Args:
        input: (…, in).
        weight: (out, in).
        bias: (out,) or None.

    Raises:
        SporaxTypeError: the dtypes differ.
        SporaxValueError: the shapes do not fit.
    """
    check.same_dtype("Dense", input=input, weight=weight)
    check.rank("Dense", 2, weight=weight)
    if input.shape[-1:] != weight.shape[-1:]:
        raise SporaxValueError(
            f"For 'Dense', the last dim of 'input' must equal the last dim of 'weight', "
            f"but got shapes {input.shape} and {weight.shape}."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise SporaxValueError(
            f"For 'Dense', 'bias' must have shape {weight.shape[:1]}, the rows of 'weight', but got {bias.shape}."
        )
    result = jnp.matmul(input, weight.T)
    return result if bias is None else result + bias


@operator("BiasAdd", function="bias_add")
def bias_add(input_x: Array, bias: Array, data_format: Literal["NCHW", "NHWC", "NCDHW"] = "NCHW") -> Array:
    """`bias` added along the channel dimension: dim 1, or the last for NHWC.

    Raises:
        SporaxValueError: the bias has not one element per channel.
    """
    check.rank("BiasAdd", 1, bias=bias)
    channel = input_x.ndim - 1 if data_format == "NHWC" else 1
    if input_x.ndim < 2 or input_x.shape[channel] != bias.shape[0]:
        raise SporaxValueError(
            f"For 'BiasAdd', 'bias' must have one element per channel, but got shapes {input_x.shape} and {bias.shape}."
        )
    return input_x + bias.reshape([-1 if dim == channel else 1 for dim in range(input_x.ndim)])
