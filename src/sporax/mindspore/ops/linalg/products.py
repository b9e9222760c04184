"""Products of vectors and matrices of several kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.ir.operator_dims import OperatorDims
from sporax.mindspore.ops._core import Array, Operand, Product, channels, check, operator, other_form

_Product = Callable[[Array, Array], Array]


def _pair(name: str, input: Any, other: Any) -> None:
    # Before dtypes, so that a number among the operands is named as such.
    check.tensor(name, input=input, other=other)
    check.same_dtype(name, input=input, other=other)


@operator(function="mm", method="mm", mint="mm", dims=Product())
def mm(input: Array, mat2: Array) -> Array:
    """Product of two matrices."""
    _pair("mm", input, mat2)
    check.rank("mm", 2, input=input, mat2=mat2)
    return jnp.matmul(input, mat2)


@operator(function="mv", mint="mv(input=mat)")
def mv(mat: Array, vec: Array) -> Array:
    """Product of a matrix and a vector."""
    _pair("mv", mat, vec)
    check.rank("mv", 2, mat=mat)
    check.rank("mv", 1, vec=vec)
    return jnp.matmul(mat, vec)


@operator(function="dot", method="dot")
def dot(input: Array, other: Array) -> Array:
    """Sum over the last dim of `input` and the second last of `other`: shapes (…, k) and (…, k, m) give (…, …, m)."""
    _pair("dot", input, other)
    check.rank("dot", range(1, 9), input=input, other=other)
    return jnp.dot(input, other)


@operator(function="", mint="dot")
def _vector_dot(input: Array, other: Array) -> Array:
    """Inner product of two vectors."""
    _pair("dot", input, other)
    check.rank("dot", 1, input=input, other=other)
    return jnp.dot(input, other)


@operator(function="", mint="vdot")
def _vdot(input: Array, other: Array) -> Array:
    """Inner product of two vectors, the first one conjugated."""
    _pair("vdot", input, other)
    check.rank("vdot", 1, input=input, other=other)
    return jnp.vdot(input, other)


@operator(function="vecdot")
def vecdot(x: Array, y: Array, *, axis: int = -1) -> Array:
    """Inner products along `axis`; the other dimensions are broadcast."""
    _pair("vecdot", x, y)
    return jnp.sum(jnp.conj(x) * y, check.axis("vecdot", axis, max(x.ndim, y.ndim)))


@operator(function="inner", method="inner")
def inner(input: Array, other: Array) -> Array:
    """Sum over the last dims of both; with a scalar the plain product."""
    _pair("inner", input, other)
    return jnp.inner(input, other)


@operator(function="outer", method="outer", mint="outer", dims="n, m")
def outer(input: check.One, vec2: check.One) -> Array:
    """Products of all pairs of elements of two vectors, (n,) and (m,) giving (n, m)."""
    return jnp.outer(input, vec2)


@operator("Ger", function="ger", method="ger")
def ger(input: check.Float, vec2: check.Float) -> Array:
    """Same as `outer`, for floating vectors of one dtype."""
    check.same_dtype("Ger", input=input, vec2=vec2)
    check.rank("Ger", 1, input=input, vec2=vec2)
    return jnp.outer(input, vec2)


@operator(function="kron")
def kron(input: check.One, other: check.One) -> Array:
    """Kronecker product: every element of `input` times all of `other`."""
    both_bool = input.dtype == other.dtype == jnp.bool_
    if both_bool:
        return jnp.kron(input.astype(jnp.uint8), other.astype(jnp.uint8)).astype(jnp.bool_)
    return jnp.kron(input, other)


@operator("Cross(dim)", function="", method="", mint="")
def _cross_primitive(input: Array, other: Array, dim: int = -65530) -> Array:
    """Cross product along `dim`; by default the first dimension of size 3."""
    # -65530 is MindSpore's mark of a missing dim.
    return cross.kernel(input, other, None if dim == -65530 else dim)


@operator(function="cross", method="cross", mint="cross")
def cross(input: Array, other: Array, dim: int | None = None) -> Array:
    """Cross product of vectors of length 3 along `dim`; by default along the first dimension of that size."""
    _pair("Cross", input, other)
    shape = check.broadcast("Cross", input, other)
    left, right = jnp.broadcast_to(input, shape), jnp.broadcast_to(other, shape)
    For("Cross").refuse(dim is None and 3 not in shape, f"a dimension must be of size 3, but the shape is {shape}")
    where = shape.index(3) if dim is None else check.axis("Cross", dim, len(shape), "dim")
    For("Cross").refuse(shape[where] != 3, f"dim {dim} must be of size 3, but the shape is {shape}")
    return jnp.cross(left, right, axis=where)


@operator(function="tensor_dot")
def tensor_dot(x1: Array, x2: Array, axes: int | tuple[Any, ...]) -> Array:
    """Sum over several dimensions of two tensors.

    Args:
        x1, x2: tensors of one dtype.
        axes: a number n: the last n of `x1` with the first n of `x2`; or a pair of tuples of dims (or of dims).
    """
    _pair("tensor_dot", x1, x2)
    return jnp.tensordot(x1, x2, axes)


@operator(function="batch_dot")
def batch_dot(x1: Array, x2: Array, axes: int | tuple[int, ...] | None = None) -> Array:
    """Sum over one dimension of each tensor, for every element of the batch in dim 0.

    Args:
        x1, x2: floating tensors of at least two dimensions with equal dim 0.
        axes: the dimension of each, or one for both; the last of `x1` and the second last of `x2` by default (the last
            one when `x2` has two dimensions).
    """
    _pair("batch_dot", x1, x2)
    check.floating("batch_dot", x1=x1, x2=x2)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[0] != x2.shape[0]:
        raise SporaxValueError(
            f"For 'batch_dot', 'x1' and 'x2' must have at least 2 dims and one batch size, but got {x1.shape}, {x2.shape}."
        )
    # MindSpore's defaults: the last dim, and the second last.
    default = (x1.ndim - 1, max(x2.ndim - 2, 1))
    one, other = default if axes is None else (axes, axes) if isinstance(axes, int) else axes
    left, right = check.axis("batch_dot", one, x1.ndim, "axes"), check.axis("batch_dot", other, x2.ndim, "axes")
    result = jax.lax.dot_general(x1, x2, (((left,), (right,)), ((0,), (0,))))
    return result[:, None] if result.ndim == 1 else result


@operator(function="einsum", mint="einsum")
def einsum(equation: str, *operands: Array) -> Array:
    """Sum of products after Einstein: ``einsum("ij,jk->ik", a, b)`` is the matrix product.

    Raises:
        SporaxTypeError: `equation` is not a string.
        SporaxValueError: the operands do not fit to it.
    """
    For("einsum").typed("equation", equation, "a str", str)
    return jnp.einsum(equation, *operands)


@operator("Einsum(equation)", function="")
def _einsum_primitive(inputs: Array, equation: str) -> Array:
    """Sum of products after Einstein of a tuple of tensors."""
    return einsum.kernel(equation, *inputs)


def _fused(
    name: str, product: _Product, ranks: tuple[int, int], input: Array, left: Array, right: Array, beta: Any, alpha: Any
) -> Array:
    """``beta * input + alpha * product(left, right)``."""
    check.tensor(name, input=input)
    _pair(name, left, right)
    check.same_dtype(name, input=input, left=left, right=right)
    check.rank(name, ranks[0], left=left)
    check.rank(name, ranks[1], right=right)
    # In the dtype of the tensors: Python's numbers must not widen them.
    return jnp.asarray(beta, input.dtype) * input + jnp.asarray(alpha, input.dtype) * product(left, right)


@operator(function="addmm", method="addmm", mint="addmm")
def addmm(input: Array, mat1: Array, mat2: Array, *, beta: Operand = 1, alpha: Operand = 1) -> Array:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    return _fused("addmm", jnp.matmul, (2, 2), input, mat1, mat2, beta, alpha)


@operator(function="addmv", method="addmv", mint="addmv")
def addmv(input: Array, mat: Array, vec: Array, *, beta: Operand = 1, alpha: Operand = 1) -> Array:
    """``beta * input + alpha * (mat @ vec)``."""
    return _fused("addmv", jnp.matmul, (2, 1), input, mat, vec, beta, alpha)


@operator(function="addr")
def addr(x: Array, vec1: Array, vec2: Array, *, beta: Operand = 1, alpha: Operand = 1) -> Array:
    """``beta * x + alpha * outer(vec1, vec2)``."""
    return _fused("addr", jnp.outer, (1, 1), x, vec1, vec2, beta, alpha)


other_form(addr, None, "x vec1 vec2 beta alpha", method="addr")


@operator(function="addbmm", method="addbmm", mint="addbmm")
def addbmm(input: Array, batch1: Array, batch2: Array, *, beta: Operand = 1, alpha: Operand = 1) -> Array:
    """``beta * input + alpha * sum of batch1[i] @ batch2[i]``."""
    return _fused(
        "addbmm", lambda left, right: jnp.matmul(left, right).sum(0), (3, 3), input, batch1, batch2, beta, alpha
    )


@operator(function="baddbmm", method="baddbmm", mint="baddbmm")
def baddbmm(input: Array, batch1: Array, batch2: Array, beta: Operand = 1, alpha: Operand = 1) -> Array:
    """``beta * input[i] + alpha * batch1[i] @ batch2[i]`` for every i."""
    return _fused("baddbmm", jnp.matmul, (3, 3), input, batch1, batch2, beta, alpha)


@operator(function="bidense")
def bidense(input1: Array, input2: Array, weight: check.Rank3, bias: Array | None = None) -> Array:
    """``input1 @ weight[o] @ input2 + bias[o]`` for each output o.

    Args:
        input1, input2: (…, in1) and (…, in2), equal in the other dims.
        weight: (out, in1, in2).
        bias: (out,).
    """
    if input1.shape[:-1] != input2.shape[:-1] or (input1.shape[-1], input2.shape[-1]) != weight.shape[1:]:
        raise SporaxValueError(
            f"For 'bidense', the inputs must be (…, {weight.shape[1]}) and (…, {weight.shape[2]}) for 'weight' of shape "
            f"{weight.shape}, but got {input1.shape} and {input2.shape}."
        )
    # One contraction, so that plans see a single product.
    result = jnp.einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


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


@operator("MatMul(transpose_a, transpose_b)", function="", dims=OperatorDims(Product(), takes_out_strategy=True))
def _matmul_2d(input: check.Rank2, mat2: check.Rank2, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """Product of two matrices, each transposed first if its flag says so. Shapes (n, k) and (k, m) give (n, m).

    Raises:
        SporaxValueError: an operand is no matrix, or the contracted dimensions differ.
        SporaxTypeError: the dtypes differ.
    """
    check.same_dtype("MatMul", input=input, mat2=mat2)
    left, right = _turned(input, transpose_a), _turned(mat2, transpose_b)
    _check_contraction("MatMul", left, right)
    return jnp.matmul(left, right)


@operator("BatchMatMul(transpose_a, transpose_b)", function="", dims=OperatorDims(Product(), takes_out_strategy=True))
def _batch_matmul(x: Array, y: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """Products of matrices in the last two dimensions; the leading ones are broadcast. Errors as `MatMul`."""
    for name, array in (("x", x), ("y", y)):
        For("BatchMatMul").refuse(array.ndim < 2, f"'{name}' must have at least 2 dimensions", array.shape)
    check.same_dtype("BatchMatMul", x=x, y=y)
    left, right = _turned(x, transpose_a), _turned(y, transpose_b)
    _check_contraction("BatchMatMul", left, right)
    _check_batch("BatchMatMul", left, right)
    return jnp.matmul(left, right)


@operator(function="matmul", method="matmul", mint="matmul", dims=Product())
def matmul(input: Array, other: Array) -> Array:
    """Matrix product of tensors with any number of leading dimensions (broadcast), or of vectors.

    Raises:
        SporaxTypeError: the dtypes differ.
        SporaxValueError: the contracted dimensions differ, or an operand has no dimension.
    """
    check.same_dtype("matmul", input=input, other=other)
    if not input.ndim or not other.ndim:
        raise For("matmul").error(f"both operands need a dimension, but got shapes {input.shape}, {other.shape}")
    _check_contraction("matmul", input, other)
    _check_batch("matmul", input, other)
    # After the checks, since JAX's messages name neither operator nor operand.
    return jnp.matmul(input, other)


@operator(function="bmm", method="bmm", mint="bmm(input=input_x)", dims=Product())
def bmm(input_x: check.One, mat2: check.One) -> Array:
    """Product of the matrices in two three-dimensional tensors, or of two matrices."""
    check.rank("bmm", (2, 3), input_x=input_x, mat2=mat2)
    return _batch_matmul.kernel(input_x, mat2)


@operator(function="dense", mint="nn.functional.linear", dims=Product(transpose_b=True))
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
        raise For("Dense").error(
            f"the last dim of 'input' must equal the last dim of 'weight', but got shapes {input.shape} and {weight.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise For("Dense").error(f"'bias' must have shape {weight.shape[:1]}, the rows of 'weight'", bias.shape)
    # As one product: a plan shards it like MatMul.
    result = jnp.matmul(input, weight.T)
    return result if bias is None else result + bias


@operator("BiasAdd", function="bias_add", dims=channels)
def bias_add(input_x: Array, bias: check.Rank1, data_format: Literal["NCHW", "NHWC", "NCDHW"] = "NCHW") -> Array:
    """`bias` added along the channel dimension: dim 1, or the last for NHWC.

    Raises:
        SporaxValueError: the bias has not one element per channel.
    """
    channel = input_x.ndim - 1 if data_format == "NHWC" else 1
    if input_x.ndim < 2 or input_x.shape[channel] != bias.shape[0]:
        raise SporaxValueError(
            f"For 'BiasAdd', 'bias' must have one element per channel, but got shapes {input_x.shape} and {bias.shape}."
        )
    return input_x + bias.reshape([-1 if dim == channel else 1 for dim in range(input_x.ndim)])
