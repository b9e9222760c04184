"""Small layers around single functions; MindSpore has replaced `Range`, `Roll` and `Moments` by the functions.

Cells of sparse matrices: `SparseToDense` and `SparseTensorDenseMatmul`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, check_type, named
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import COOTensor, DType, Parameter, Tensor, dtypes
from sporax.mindspore.common.initializer import Uniform, initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell, Layer, PlainLayer, applied
from sporax.mindspore.ops._core.operator import PRIMITIVES


class BiDense(Layer):
    """``x1ᵀ · weight · x2 + bias`` for each output channel.

    Args:
        in1_channels, in2_channels: sizes of the inputs' last dimensions.
        out_channels: size of the output's last dimension.
        weight_init: initializer of `weight`, (out_channels, in1_channels, in2_channels); None: uniform on ±1/√in1_channels.
        bias_init: initializer of `bias`, (out_channels,); None: as the weight.
        has_bias: whether there is a bias.
        dtype: element type of the Parameters.

    Raises:
        SporaxTypeError, SporaxValueError: sizes that do not fit.
    """

    in1_channels: int = setting(argument.positive_int)
    in2_channels: int = setting(argument.positive_int)
    out_channels: int = setting(argument.positive_int)
    weight_init: Any = setting(default=None, attribute=False)
    bias_init: Any = setting(default=None, attribute=False)
    has_bias: bool = setting(argument.boolean, default=True)
    dtype: DType = setting(default=dtypes.float32, attribute=False)

    def _prepare(self, weight_init: Any, bias_init: Any, dtype: DType) -> None:
        shape = (self.out_channels, self.in1_channels, self.in2_channels)
        argument.initial_shape("BiDense", "weight_init", weight_init, shape)
        argument.initial_shape("BiDense", "bias_init", bias_init, (self.out_channels,))
        standard = Uniform(1 / math.sqrt(self.in1_channels))
        self.weight = Parameter(initializer(standard if weight_init is None else weight_init, shape, dtype), "weight")
        self.bias = None
        if self.has_bias:
            value = initializer(standard if bias_init is None else bias_init, (self.out_channels,), dtype)
            self.bias = Parameter(value, name="bias")

    def construct(self, input1: Tensor, input2: Tensor) -> Tensor:
        """`input1`: (…, in1_channels), `input2`: (…, in2_channels), equal in the other dimensions."""
        if input1.shape != (*input2.shape[:-1], self.in1_channels) or input2.shape[-1] != self.in2_channels:
            raise SporaxValueError(
                f"For 'BiDense', the inputs must be (…, {self.in1_channels}) and (…, {self.in2_channels}), "
                f"but got shapes {input1.shape} and {input2.shape}."
            )
        weight, bias = argument.cast_like(self, input1, self.weight, self.bias if self.has_bias else None)
        result = ops.einsum("...i,oij,...j->...o", input1, weight, input2)
        return result if bias is None else result + bias


class OneHot(Layer):
    """Vectors with `on_value` at the given indices and `off_value` elsewhere.

    Args:
        on_value, off_value: see above.
    """

    axis: int = setting(None, "where the new dimension goes.", default=-1)
    depth: int = setting(argument.positive_int, "its size.", default=1)
    on_value: float = setting(default=1.0, attribute=False)
    off_value: float = setting(default=0.0, attribute=False)
    dtype: DType = setting(None, "element type.", default=dtypes.float32, attribute=False)

    def _prepare(self, on_value: float, off_value: float, dtype: DType) -> None:
        self.on_value, self.off_value, self.dtype = on_value, off_value, dtype
        self.onehot = ops.OneHot(self.axis)

    def construct(self, indices: Tensor) -> Tensor:
        """`indices`: integers of any shape."""
        on, off = (Tensor(value, self.dtype) for value in (self.on_value, self.off_value))
        return self.onehot(indices, self.depth, on, off)


class Norm(Cell):
    """Euclidean norm along `axis` (all of them by default)."""

    def __init__(self, axis: int | tuple[int, ...] = (), keep_dims: bool = False) -> None:
        super().__init__()
        self.axis = For("Norm").typed("axis", axis, "an int or a tuple", int | tuple | list)
        self.keep_dims = argument.boolean("Norm", "keep_dims", keep_dims)

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return ops.sqrt(ops.reduce_sum(ops.square(x), self.axis, self.keep_dims))


class L1Regularizer(Layer):
    """`scale` times the sum of absolute values.

    Raises:
        SporaxValueError: `scale` is not positive and finite.
    """

    scale: float = setting(argument.within, low=0.0, high=math.inf, ends="()")

    def construct(self, weights: Tensor) -> Tensor:
        """`weights` of any shape."""
        return self.scale * ops.reduce_sum(ops.abs(weights))


class ClipByNorm(Layer):
    """The input, shortened to `clip_norm` where its norm along `axis` is larger."""

    axis: int | tuple[int, ...] | None = setting(
        check_type, default=None, expected="an int or a tuple", types=int | tuple | list | None, takes_bool=False
    )

    def construct(self, x: Tensor, clip_norm: Any) -> Tensor:
        """`x` of any shape; `clip_norm`: a positive number or scalar Tensor."""
        norm = ops.sqrt(ops.reduce_sum(ops.square(x), () if self.axis is None else self.axis, True))
        limit = clip_norm if isinstance(clip_norm, Tensor) else Tensor(clip_norm, x.dtype)
        # Norms below the limit are divided by it, so the factor is 1.
        return x * (limit / ops.maximum(norm, limit))


class Tril(PlainLayer):
    """The input with zeros above the `k`-th diagonal."""

    def construct(self, x: Tensor, k: int = 0) -> Tensor:
        """`x`: (…, M, N)."""
        return ops.tril(x, k)


class Triu(PlainLayer):
    """The input with zeros below the `k`-th diagonal."""

    def construct(self, x: Tensor, k: int = 0) -> Tensor:
        """`x`: (…, M, N)."""
        return ops.triu(x, k)


class Unflatten(Cell):
    """Dimension `axis` split into several of the sizes `unflattened_size`."""

    def __init__(self, axis: int, unflattened_size: tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.axis = For("Unflatten").typed("axis", axis, "an int", int, takes_bool=False)
        sizes = For("Unflatten").typed("unflattened_size", unflattened_size, "a tuple or list", tuple | list)
        self.unflattened_size = tuple(sizes)

    def construct(self, input: Tensor) -> Tensor:
        """`input` whose size along `axis` is the product."""
        axis = self.axis % input.ndim
        return input.reshape((*input.shape[:axis], *self.unflattened_size, *input.shape[axis + 1 :]))


class LGamma(PlainLayer):
    """Logarithm of the absolute value of the gamma function."""

    construct = applied(ops.lgamma, "x", "`x`: floating.")


class DiGamma(PlainLayer):
    """Derivative of `LGamma`."""

    construct = applied(ops.digamma, "x", "`x`: floating.")


class IGamma(PlainLayer):
    """Regularised lower incomplete gamma function P(a, x)."""

    construct = applied(ops.igamma, "a x", "`a` and `x`: floating, of shapes that broadcast.")


class LBeta(PlainLayer):
    """Logarithm of the beta function: lgamma(x) + lgamma(y) - lgamma(x + y)."""

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        """`x` and `y`: floating, of shapes that broadcast."""
        return ops.lgamma(x) + ops.lgamma(y) - ops.lgamma(x + y)


class MatDet(PlainLayer):
    """Determinant of symmetric positive definite matrices, through their Cholesky factors."""

    def construct(self, a: Tensor) -> Tensor:
        """`a`: (…, M, M)."""
        factor = ops.cholesky(a)
        # The determinant is the square of the product on the diagonal of the factor.
        return ops.square(ops.reduce_prod(ops.diagonal(factor, 0, -2, -1), -1))


class MatInverse(PlainLayer):
    """Inverse of symmetric positive definite matrices."""

    construct = applied(ops.inverse, "a", "`a`: (…, M, M).")


class MatrixDiag(PlainLayer):
    """Matrices with the vectors of the last dimension as diagonals."""

    construct = applied(ops.diag_embed, "input_x", "`input_x`: (…, N).")


class MatrixDiagPart(PlainLayer):
    """Main diagonals of matrices."""

    construct = applied(lambda x: ops.diagonal(x, 0, -2, -1), "input_x", "`input_x`: (…, M, N).")


class MatrixSetDiag(PlainLayer):
    """Matrices with other values on their diagonals."""

    construct = applied(ops.matrix_set_diag, "input_x diagonal", "`input_x`: (…, M, N); `diagonal`: (…, min(M, N)).")


class ReduceLogSumExp(Cell):
    """Logarithm of the sum of exponentials along `axis`, computed without overflow."""

    def __init__(self, axis: int | tuple[int, ...] | list[int], keep_dims: bool = False) -> None:
        super().__init__()
        For("ReduceLogSumExp").typed("axis", axis, "an int or a tuple", int | tuple | list, takes_bool=False)
        self.axis = tuple(axis) if isinstance(axis, list) else axis
        self.keep_dims = argument.boolean("ReduceLogSumExp", "keep_dims", keep_dims)

    construct = applied(ops.logsumexp, "x", "`x` of any shape.", "axis keep_dims")


class MatMul(Layer):
    """Product of matrices, or of vectors, with leading dimensions broadcast. Vectors are not transposed.

    Args:
        transpose_x1, transpose_x2: whether the last two dimensions of an input are exchanged first.

    Raises:
        SporaxTypeError: they are not bools.
    """

    transpose_x1: bool = setting(argument.boolean, default=False)
    transpose_x2: bool = setting(argument.boolean, default=False)

    def construct(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The product of two Tensors."""
        # A vector has nothing to exchange.
        if self.transpose_x1 and x1.ndim > 1:
            x1 = x1.swapaxes(-1, -2)
        if self.transpose_x2 and x2.ndim > 1:
            x2 = x2.swapaxes(-1, -2)
        return ops.matmul(x1, x2)


class Range(Layer):
    """The numbers from `start` up to `limit` in steps of `delta`: int32, or float32 where one of them is a float.

    Raises:
        SporaxValueError: `delta` is 0.
    """

    start: float = setting(None, "first number; with `start` alone the numbers go from 0 to it.", attribute=False)
    limit: float | None = setting(None, "end, which is not one of them.", default=None, attribute=False)
    delta: float = setting(None, "step.", default=1, attribute=False)

    def _prepare(self, start: float, limit: float | None, delta: float) -> None:
        For("Range").refuse(delta == 0, "'delta' must not be 0", "0")
        numbers = np.arange(0, start, delta) if limit is None else np.arange(start, limit, delta)
        # MindSpore has no float64 here.
        self.numbers = Tensor(numbers, dtypes.float32 if numbers.dtype == np.float64 else dtypes.int32)

    def construct(self) -> Tensor:
        """The numbers."""
        return self.numbers


class Roll(Cell):
    """Elements moved along dims; those that fall off the end come in at the start.

    Args:
        shift: how far, one number or one per dim of `axis`.
        axis: dim, or dims.

    Raises:
        SporaxTypeError: neither ints nor tuples or lists of ints.
        SporaxValueError: not as many shifts as dims.
    """

    def __init__(self, shift: int | tuple[int, ...] | list[int], axis: int | tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.shift, self.axis = _ints("shift", shift), _ints("axis", axis)
        if len(self.shift) != len(self.axis):
            raise For("Roll").error("'shift' and 'axis' must have the same length", len(self.shift), len(self.axis))

    construct = applied(ops.roll, "input_x", "`input_x` of any shape.", "shift axis")


class Moments(Cell):
    """Mean and variance.

    Args:
        axis: dim or dims; all by default.
        keep_dims: keep them with size 1.

    Raises:
        SporaxTypeError: an argument, or at the call the dtype, is not valid: float16 or float32.
    """

    def __init__(self, axis: int | tuple[int, ...] | None = None, keep_dims: bool | None = None) -> None:
        super().__init__()
        For("Moments").typed("axis", axis, "an int or a tuple", int | tuple | None)
        self.axis = () if axis is None else axis
        self.keep_dims = argument.boolean("Moments", "keep_dims", bool(keep_dims) if keep_dims is None else keep_dims)

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` of any shape; mean and variance."""
        if x.dtype not in (dtypes.float16, dtypes.float32):
            raise SporaxTypeError(f"For 'Moments', 'x' must be float16 or float32, but got {x.dtype}.")
        # Means of float16 numbers would lose digits.
        wide = x.astype(dtypes.float32)
        mean = ops.mean(wide, self.axis, True)
        # The mean counts as a constant: its derivative cancels anyway.
        variance = ops.mean(ops.square(wide - ops.stop_gradient(mean)), self.axis, True)
        if not self.keep_dims:
            dims = tuple(range(x.ndim)) if self.axis == () else self.axis
            mean, variance = ops.squeeze(mean, dims), ops.squeeze(variance, dims)
        return mean.astype(x.dtype), variance.astype(x.dtype)


def _ints(what: str, value: Any) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    for item in values:
        if isinstance(item, bool) or not isinstance(item, int):
            raise For("Roll").type_error(f"{named(what)} must be an int, or a tuple or list of ints", repr(value))
    return values


class SparseToDense(PlainLayer):
    """The dense form of a COOTensor; same as `COOTensor.to_dense`."""

    def construct(self, sparse_tensor: COOTensor) -> Tensor:
        """Add up the entries."""
        if not isinstance(sparse_tensor, COOTensor):
            raise For("SparseToDense").type_error("the input must be a COOTensor", type(sparse_tensor).__name__)
        return sparse_tensor.to_dense()


class SparseTensorDenseMatmul(Cell):
    """A matrix of entries times a dense matrix.

    Args:
        adjoint_st: the sparse matrix is transposed (and conjugated) before.
        adjoint_dt: the dense matrix is.
    """

    def __init__(self, adjoint_st: bool = False, adjoint_dt: bool = False) -> None:
        super().__init__()
        self.adj_st = adjoint_st
        self.adj_dt = adjoint_dt
        self.sparse_dense_matmul = PRIMITIVES["SparseTensorDenseMatmul"](adjoint_st, adjoint_dt)

    def construct(self, indices: Tensor, values: Tensor, sparse_shape: tuple[int, ...], dense: Tensor) -> Any:
        """The product of the (entries, 2) `indices`, (entries,) `values` and the dense matrix."""
        return self.sparse_dense_matmul(indices, values, sparse_shape, dense)
