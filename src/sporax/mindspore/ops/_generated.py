"""Inner primitives of `mindspore.ops.auto_generate`, which its own functions call.

Problem: programs for language models build these inner primitives themselves, `AddExt` or `SplitWithSize`, to give each a
strategy of its own. They differ from the public ones in what they take at the call, not in what they compute. Method: one
operator per name with the parameters of MindSpore's, made of the kernels of the public operators.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core import promotion as promote
from sporax.mindspore.ops._core.dims import Along, Product
from sporax.mindspore.ops._core.operator import Array, Operand, operator
from sporax.mindspore.ops.array import diagonal, join_split, scatter, sorting
from sporax.mindspore.ops.linalg import products
from sporax.mindspore.ops.linalg.grouped import GroupedMatmul, GroupedMatmulV4
from sporax.mindspore.ops.math import reduction
from sporax.mindspore.ops.nn import activation

GENERATED: dict[str, type[Any]] = {"GroupedMatmul": GroupedMatmul, "GroupedMatmulV4": GroupedMatmulV4}
"""Primitive classes that are here and not in `sporax.mindspore.ops`."""

Axes = int | tuple[int, ...] | None


# --------------------------------------------------------------------------------------------------------- arithmetic


def _scaled(name: str, input: Any, other: Any, alpha: float) -> tuple[Array, Array]:
    """Both operands in their common dtype, the second times `alpha`."""
    check.broadcast(name, input, other)
    left, right = promote.pair(name, input, other)
    if isinstance(alpha, float) and not jnp.issubdtype(left.dtype, jnp.inexact):
        raise SporaxTypeError(
            f"For '{name}', a float 'alpha' needs floating 'input' and 'other', but got {alpha} with {left.dtype}."
        )
    return left, right if alpha == 1 else right * jnp.asarray(alpha, right.dtype)


@operator("AddExt()", function="", classes=GENERATED)
def _add_ext(input: Operand, other: Operand, alpha: int | float = 1) -> Array:
    """``input + alpha * other``.

    Raises:
        SporaxTypeError: a float `alpha` with integers.
    """
    return jnp.add(*_scaled("AddExt", input, other, alpha))


@operator("SubExt()", function="", classes=GENERATED)
def _sub_ext(input: Operand, other: Operand, alpha: int | float = 1) -> Array:
    """``input - alpha * other``; of bools, whether they differ.

    Raises:
        SporaxTypeError: a float `alpha` with integers.
    """
    left, right = _scaled("SubExt", input, other, alpha)
    return jnp.logical_xor(left, right) if left.dtype == np.bool_ else jnp.subtract(left, right)


@operator("SumExt()", function="", classes=GENERATED)
def _sum_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Sum over `dim`; bools and integers are summed in int64 unless `dtype` says otherwise."""
    return reduction.sum.kernel(input, dim, keepdim, dtype=dtype)


@operator("MeanExt()", function="", classes=GENERATED)
def _mean_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Mean over `dim`, in the dtype of `input` or in `dtype`."""
    return reduction.mean.kernel(input, dim, keepdim, dtype=dtype)


@operator("ProdExt()", function="", classes=GENERATED)
def _prod_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Product over `dim`; bools and integers are multiplied in int64 unless `dtype` says otherwise."""
    return reduction.prod.kernel(input, dim, keepdim, dtype)


@operator("MatMulExt()", function="", classes=GENERATED, dims=Product())
def _matmul_ext(input: Array, other: Array) -> Array:
    """Matrix product of tensors with any number of leading dimensions (broadcast), or of vectors."""
    return products.matmul.kernel(input, other)


@operator("BatchMatMulExt()", function="", classes=GENERATED, dims=Product())
def _batch_matmul_ext(input: Array, mat2: Array) -> Array:
    """Products of the matrices in two three-dimensional tensors."""
    check.rank("BatchMatMulExt", 3, input=input, mat2=mat2)
    return products._batch_matmul.kernel(input, mat2)


@operator("Swiglu()", function="", classes=GENERATED)
def _swiglu(input: Array, dim: int = -1) -> Array:
    """The swish of the first half along `dim` times the second (Shazeer 2020)."""
    return activation.swiglu.kernel(input, dim)


# --------------------------------------------------------------------------------------------------- parts and extremes


@operator("StackExt(dim)", function="", classes=GENERATED)
def _stack_ext(tensors: tuple[Array, ...], dim: int = 0) -> Array:
    """Tensors of one shape joined along a new dimension."""
    return join_split.stack.kernel(tensors, dim)


@operator("SplitWithSize()", function="", classes=GENERATED, dims=Along("dim", 0))
def _split_with_size(input: Array, split_size: tuple[int, ...], dim: int = 0) -> tuple[Array, ...]:
    """Parts of the sizes in `split_size` along `dim`.

    Raises:
        SporaxValueError: a size is negative, or they do not add up to that of `dim`.
    """
    where = check.axis("SplitWithSize", dim, input.ndim, "dim")
    size = input.shape[where]
    if min(split_size, default=0) < 0 or sum(split_size) != size:
        raise SporaxValueError(
            f"For 'SplitWithSize', the sum of 'split_size' must be {size}, the size of dim {where}, but got {split_size}."
        )
    return tuple(jnp.split(input, np.cumsum(split_size)[:-1].tolist(), where))


@operator("SplitTensor()", function="", classes=GENERATED)
def _split_tensor(input: Array, split_size: int, dim: int = 0) -> tuple[Array, ...]:
    """Parts of the size `split_size` along `dim`; the last may be smaller."""
    return join_split.split.kernel(input, split_size, dim)


@operator("Diagonal(offset, dim1, dim2)", function="", classes=GENERATED)
def _diagonal(input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The diagonals in the plane of two dims, along a last dimension of their own."""
    return diagonal.diagonal.kernel(input, offset, dim1, dim2)


@operator("TopkExt()", function="", classes=GENERATED, dims=Along("dim", -1))
def _topk_ext(input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """The `k` largest (or smallest) elements along `dim` in order, and their positions (int64)."""
    return sorting._mint_topk.kernel(input, k, dim, largest, sorted)


def _extreme_along(name: str, pick: Any, input: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """The element that `pick` chooses along `dim`, which also gets the gradient, and its position (int64)."""
    check.tensor(name, input=input)
    where = check.axis(name, dim, input.ndim, "dim")
    if not input.ndim:
        return input, jnp.zeros((), jnp.int64)
    place = jnp.expand_dims(pick(jax.lax.stop_gradient(input), where), where).astype(jnp.int64)
    values = jnp.take_along_axis(input, place, where)
    return (values, place) if keepdim else (jnp.squeeze(values, where), jnp.squeeze(place, where))


@operator("MaxDim()", function="", classes=GENERATED)
def _max_dim(input: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The largest elements along `dim`, and their positions (int64)."""
    return _extreme_along("MaxDim", jnp.argmax, input, dim, keepdim)


@operator("MinDim()", function="", classes=GENERATED)
def _min_dim(input: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest elements along `dim`, and their positions (int64)."""
    return _extreme_along("MinDim", jnp.argmin, input, dim, keepdim)


@operator("Scatter()", function="", classes=GENERATED)
def _scatter(input: Array, dim: int, index: Array, src: Array, reduce: Literal["none"] = "none") -> Array:
    """`input` with the elements of `src` put to the places `index` along `dim`; sums are `ops.scatter_add`."""
    return scatter.scatter.kernel(input, dim, index, src)
