"""Operators that convert, copy and make tensors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common import dtype as dtypes
from sporax.common.dtype import DType, to_dtype
from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, Operand, export, operator


@operator("Cast()", function="")
def _cast(input_x: Operand, dtype: DType) -> Array:
    """The elements in another dtype."""
    return _converted(input_x, dtype)


@operator(function="cast")
def cast(input: Operand, dtype: DType) -> Array:
    """The elements in another dtype."""
    return _converted(input, dtype)


def _converted(value: Any, dtype: DType) -> Array:
    return jnp.asarray(value).astype(dtype.np_dtype)


def _astype(self: Tensor, dtype: Any, copy: bool = True) -> Tensor:
    """The elements in another dtype, given as a dtype, a numpy dtype or a name.

    Args:
        dtype: the dtype.
        copy: False: a Tensor that has this dtype already comes back itself.
    """
    target = to_dtype(dtype)
    return self if not copy and self.dtype == target else cast(self, target)


def _conversion(name: str, dtype: DType) -> None:
    def method(self: Tensor) -> Tensor:
        return cast(self, dtype)

    method.__name__, method.__doc__ = name, f"The elements as {dtype}."
    setattr(Tensor, name, method)


for _name, _dtype in (
    ("float", dtypes.float32),
    ("half", dtypes.float16),
    ("bfloat16", dtypes.bfloat16),
    ("double", dtypes.float64),
    ("int", dtypes.int32),
    ("long", dtypes.int64),
    ("bool", dtypes.bool_),
    ("byte", dtypes.uint8),
):
    _conversion(_name, _dtype)


def _like(name: str, value: int) -> None:
    def primitive(x: Array) -> Array:
        return jnp.full_like(x, value)

    def function(input: Array, *, dtype: DType | None = None) -> Array:
        return jnp.full_like(input, value, dtype=input.dtype if dtype is None else dtype.np_dtype)

    primitive.__name__, function.__name__ = f"_{name}_like", f"{name}_like"
    primitive.__doc__ = function.__doc__ = f"{name.capitalize()} in the shape and dtype of the input, or in `dtype`."
    operator(f"{name.capitalize()}Like", function="")(primitive)
    operator(mint=f"{name}_like")(function)


_like("zeros", 0)
_like("ones", 1)


@operator("Identity", function="deepcopy", method="copy, clone")
def deepcopy(input_x: Array) -> Array:
    """A copy."""
    return jnp.array(input_x, copy=True)


@operator("StopGradient", function="stop_gradient")
def stop_gradient(value: Array) -> Array:
    """The values, as a constant for differentiation."""
    return jax.lax.stop_gradient(value)


@operator("Tril", function="tril", method="tril", mint="tril")
def tril(input: Array, diagonal: int = 0) -> Array:
    """The lower triangle of the last two dimensions; zeros above `diagonal`."""
    return jnp.tril(input, diagonal)


@operator("Triu", function="triu", method="triu", mint="triu")
def triu(input: Array, diagonal: int = 0) -> Array:
    """The upper triangle of the last two dimensions; zeros below `diagonal`."""
    return jnp.triu(input, diagonal)


def zeros(size: Any, dtype: DType | None = None) -> Tensor:
    """Zeros in a shape (int, tuple or list); float32 by default."""
    return _filled("zeros", size, 0, dtype or dtypes.float32)


def ones(shape: Any, dtype: DType | None = None) -> Tensor:
    """Ones in a shape (int, tuple or list); float32 by default."""
    return _filled("ones", shape, 1, dtype or dtypes.float32)


def full(size: Any, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one value, which also gives the dtype when there is none.

    Raises:
        SporaxTypeError: `size` is no shape, or `fill_value` is not a number (or a Tensor with one element).
    """
    return _filled("full", size, fill_value, dtype)


def _filled(name: str, size: Any, value: Any, dtype: DType | None) -> Tensor:
    sizes = check.shape(name, size, "size")
    if min(sizes, default=0) < 0:
        raise SporaxValueError(f"For '{name}', the sizes in 'size' must be >= 0, but got {sizes}.")
    return wrap(jnp.full(sizes, Tensor(value, dtype).array))


def full_like(input: Tensor, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one value in the shape (and dtype) of `input`."""
    return full(input.shape, fill_value, dtype=dtype or input.dtype)


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: DType | None = None) -> Tensor:
    """Numbers from `start` up to `end` (without it); int64, or float32 when a float is among the arguments.

    Raises:
        SporaxValueError: `step` is 0.
    """
    first, last = (0, start) if end is None else (start, end)
    first, last, step = (value.item() if isinstance(value, Tensor) else value for value in (first, last, step))
    if step == 0:
        raise SporaxValueError("For 'arange', 'step' must not be 0.")
    whole = all(isinstance(value, int | np.integer) for value in (first, last, step))
    kind = dtype or (dtypes.int64 if whole else dtypes.float32)
    return wrap(jnp.asarray(np.arange(first, last, step), kind.np_dtype))


def eye(n: int, m: int | None = None, dtype: DType | None = None) -> Tensor:
    """Ones on the diagonal of an n × m matrix (n × n without `m`); float32 by default."""
    return wrap(jnp.eye(n, m, dtype=(dtype or dtypes.float32).np_dtype))


def linspace(start: float, end: float, steps: int) -> Tensor:
    """`steps` float32 numbers at equal distances, both ends included."""
    return wrap(jnp.linspace(start, end, steps, dtype=jnp.float32))


export(zeros, ones, full, full_like, arange, eye, linspace)
for _method in ("astype", "to"):
    setattr(Tensor, _method, _astype)
