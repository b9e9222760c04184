"""`mindspore.ops.auto_generate`: the operators of `sporax.ops`, and further primitives that MindSpore shows here only.

The further ones follow PyTorch's signatures: ``AddExt()(x, y, alpha)``. They are operators like others, with strategies of the
same form as those of their relatives in `sporax.ops`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp

from sporax.common.dtype import DType
from sporax.ir.errors import SporaxValueError
from sporax.ir.missing import missing_name
from sporax.ops._core import check
from sporax.ops._core.operator import FUNCTIONS, OPERATORS, PRIMITIVES, Array, Operand, operator

__path__: list[str] = []  # a package in MindSpore, see `sporax._module_paths`

_OTHERS = frozenset(PRIMITIVES)
Axes = int | tuple[int, ...] | None


def _kernel(name: str) -> Any:
    """What an operator of `sporax.ops` computes, on arrays."""
    return FUNCTIONS[name].kernel  # type: ignore[attr-defined]  # these are operators, none of them composed


@operator("AddExt()", function="")
def _add_ext(input: Operand, other: Operand, alpha: float | int | bool = 1) -> Array:
    """``input + alpha * other``."""
    return OPERATORS["Add"].kernel(input, other if alpha == 1 else other * alpha)


@operator("SubExt()", function="")
def _sub_ext(input: Operand, other: Operand, alpha: float | int | bool = 1) -> Array:
    """``input - alpha * other``."""
    return OPERATORS["Sub"].kernel(input, other if alpha == 1 else other * alpha)


@operator("SumExt()", function="")
def _sum_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Sum over `dim`; bools and integers are summed in int64 unless `dtype` says otherwise."""
    return _kernel("sum")(input, dim, keepdim, dtype=dtype)


@operator("MeanExt()", function="")
def _mean_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Mean over `dim`, in `dtype` where it is given."""
    return _kernel("mean")(input, dim, keepdim, dtype=dtype)


@operator("ProdExt()", function="")
def _prod_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Product over `dim`; bools and integers are multiplied in int64 unless `dtype` says otherwise."""
    return _kernel("prod")(input, dim, keepdim, dtype)


@operator("StackExt(dim)", function="")
def _stack_ext(tensors: tuple[Array, ...], dim: int = 0) -> Array:
    """Tensors of one shape along a new dimension `dim`."""
    return _kernel("stack")(tensors, dim)


@operator("TopkExt()", function="")
def _topk_ext(input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """The `k` largest (or smallest) elements along `dim` in order, and their positions (int64)."""
    return OPERATORS["_mint_topk"].kernel(input, k, dim, largest, sorted)


def _extreme(name: str, input: Array, dim: int, keepdim: bool, find: Any) -> tuple[Array, Array]:
    where = check.axis(name, dim, input.ndim, "dim")
    place = find(input, axis=where, keepdims=True)
    value = jnp.take_along_axis(input, place, where) if input.ndim else input
    if not keepdim and input.ndim:
        value, place = value.squeeze(where), place.squeeze(where)
    return value, place.astype(jnp.int64)


@operator("MaxDim()", function="")
def _max_dim(input: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The largest element along `dim`, and its first position (int64)."""
    return _extreme("MaxDim", input, dim, keepdim, jnp.argmax)


@operator("MinDim()", function="")
def _min_dim(input: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest element along `dim`, and its first position (int64)."""
    return _extreme("MinDim", input, dim, keepdim, jnp.argmin)


@operator("MatMulExt()", function="")
def _mat_mul_ext(input: Array, other: Array) -> Array:
    """Product of matrices, with leading dimensions broadcast, or of vectors."""
    return _kernel("matmul")(input, other)


@operator("BatchMatMulExt()", function="")
def _batch_mat_mul_ext(input: Array, mat2: Array) -> Array:
    """Products of matrices: (batch, n, k) and (batch, k, m) give (batch, n, m)."""
    check.rank("BatchMatMulExt", 3, input=input, mat2=mat2)
    return _kernel("bmm")(input, mat2)


def _split_sizes(name: str, input: Array, split_size: tuple[int, ...], dim: int) -> tuple[Array, ...]:
    where = check.axis(name, dim, input.ndim, "dim")
    if sum(split_size) != input.shape[where] or min(split_size, default=0) < 0:
        raise SporaxValueError(
            f"For '{name}', 'split_size' must add up to {input.shape[where]}, the size of dim {where}, but got {split_size}."
        )
    ends = [sum(split_size[: index + 1]) for index in range(len(split_size) - 1)]
    return tuple(jnp.split(input, ends, where))


@operator("SplitWithSize()", function="")
def _split_with_size(input: Array, split_size: tuple[int, ...], dim: int = 0) -> tuple[Array, ...]:
    """Parts of the sizes `split_size` along `dim`."""
    return _split_sizes("SplitWithSize", input, split_size, dim)


@operator("SplitTensor()", function="")
def _split_tensor(input: Array, split_size: int, dim: int = 0) -> tuple[Array, ...]:
    """Parts of the size `split_size` along `dim`; the last may be smaller."""
    return _kernel("split")(input, split_size, dim)


@operator("Swiglu()", function="")
def _swiglu(input: Array, dim: int = -1) -> Array:
    """``silu(a) * b`` for the halves a and b of the input along `dim` (Shazeer 2020)."""
    where = check.axis("Swiglu", dim, input.ndim, "dim")
    if input.shape[where] % 2:
        raise SporaxValueError(f"For 'Swiglu', the size of dim {where} must be even, but got {input.shape[where]}.")
    first, second = jnp.split(input, 2, where)
    return jax.nn.silu(first) * second


@operator("Scatter()", function="")
def _scatter(input: Array, dim: int, index: Array, src: Operand, reduce: Literal["none", "add"] = "none") -> Array:
    """`input` with elements of `src` put, or added, at the positions `index` along `dim`."""
    where = check.axis("Scatter", dim, input.ndim, "dim")
    places = list(jnp.indices(index.shape, sparse=True))
    places[where] = index
    values = jnp.broadcast_to(src, index.shape).astype(input.dtype)
    at = input.at[tuple(places)]
    return at.add(values) if reduce == "add" else at.set(values)


importlib.import_module("sporax.ops.linalg.grouped_products")  # its operators are of this module, too

# Shown here and not in `sporax.ops`, as in MindSpore.
_OWN = {name: PRIMITIVES.pop(name) for name in list(PRIMITIVES) if name not in _OTHERS}
globals().update(_OWN)

__all__ = [*_OWN]

if not TYPE_CHECKING:  # checkers should see a missing name themselves

    def __getattr__(name: str) -> Any:
        # At the call: this module is part of the package that it looks into.
        package = importlib.import_module("sporax.ops")
        if not name.startswith("__") and name in package.__all__:
            return getattr(package, name)
        return missing_name(__name__, name)

    def __dir__() -> list[str]:
        return sorted({*_OWN, *importlib.import_module("sporax.ops").__all__})
