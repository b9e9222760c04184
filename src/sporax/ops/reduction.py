"""Operators that reduce over dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from sporax.common.dtype import DType
from sporax.ops import _check as check
from sporax.ops import _promote as promote
from sporax.ops._operator import Array, export, operator


def _reduction(name: str, function: Callable[..., Array], convert: Callable[[Array], Array], doc: str) -> Any:
    def kernel(
        x: Array, axis: int | tuple[int, ...] | None = None, keep_dims: bool = False, skip_mode: bool = False
    ) -> Array:
        check.tensor(name, x=x)
        if skip_mode and axis == ():
            return x
        return function(convert(x), axis=check.axes(name, axis, x.ndim), keepdims=keep_dims)

    kernel.__name__ = "reduce_" + name.removeprefix("Reduce").lower()
    kernel.__doc__ = doc + " Over `axis` (one, several, or all when it is None or empty)."
    return operator(f"{name}(keep_dims, skip_mode)")(kernel)


def _wide(x: Array) -> Array:
    """Sums and products of bools and small integers are computed in 64 bits, as MindSpore's."""
    return x.astype(jnp.int64) if x.dtype == np.bool_ or jnp.issubdtype(x.dtype, jnp.signedinteger) else x


def _keep(x: Array) -> Array:
    return x


def _as_input(function: Callable[..., Array]) -> Callable[..., Array]:
    """The reduction with the result in the input's dtype."""
    return lambda x, **settings: function(x, dtype=x.dtype, **settings)


reduce_sum = _reduction("ReduceSum", _as_input(jnp.sum), _keep, "Sum.")
reduce_mean = _reduction("ReduceMean", jnp.mean, promote.inexact, "Mean.")
reduce_max = _reduction("ReduceMax", jnp.max, _keep, "Largest element.")
reduce_min = _reduction("ReduceMin", jnp.min, _keep, "Smallest element.")
reduce_prod = _reduction("ReduceProd", _as_input(jnp.prod), _keep, "Product.")
reduce_all = _reduction("ReduceAll", jnp.all, _keep, "Whether all are true.")
reduce_any = _reduction("ReduceAny", jnp.any, _keep, "Whether any is true.")


@operator(function="sum", mint="sum(axis=dim, keepdims=keepdim)")
def sum(
    input: Array, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Array:
    """Sum over `dim`; bools and integers are summed in int64 unless `dtype` says otherwise."""
    check.tensor("sum", input=input)
    values = _wide(input) if dtype is None else input.astype(dtype.np_dtype)
    return jnp.sum(values, axis=check.axes("sum", dim, input.ndim, "dim"), keepdims=keepdim, dtype=values.dtype)


@operator(function="prod", mint="prod(dim=axis, keepdim=keep_dims)")
def prod(input: Array, axis: int | None = None, keep_dims: bool = False, dtype: DType | None = None) -> Array:
    """Product over `axis`; bools and integers are multiplied in int64 unless `dtype` says otherwise."""
    check.tensor("prod", input=input)
    values = _wide(input) if dtype is None else input.astype(dtype.np_dtype)
    return jnp.prod(values, axis=check.axes("prod", axis, input.ndim), keepdims=keep_dims, dtype=values.dtype)


@operator(function="mean", mint="mean(dim=axis, keepdim=keep_dims)")
def mean(
    input: Array, axis: int | tuple[int, ...] | None = None, keep_dims: bool = False, dtype: DType | None = None
) -> Array:
    """Mean over `axis`."""
    check.tensor("mean", input=input)
    values = promote.inexact(input) if dtype is None else input.astype(dtype.np_dtype)
    return jnp.mean(values, axis=check.axes("mean", axis, input.ndim), keepdims=keep_dims)


@operator(function="var", mint="var(dim=axis, keepdim=keepdims)")
def var(input: Array, axis: int | tuple[int, ...] | None = None, ddof: int = 0, keepdims: bool = False) -> Array:
    """Mean squared distance to the mean over `axis`; `ddof` is taken off the number of elements."""
    return jnp.var(promote.inexact(input), axis=check.axes("var", axis, input.ndim), ddof=ddof, keepdims=keepdims)


@operator(function="std", mint="std(dim=axis, keepdim=keepdims)")
def std(input: Array, axis: int | tuple[int, ...] | None = None, ddof: int = 0, keepdims: bool = False) -> Array:
    """Square root of `var`."""
    return jnp.std(promote.inexact(input), axis=check.axes("std", axis, input.ndim), ddof=ddof, keepdims=keepdims)


@operator(function="all", mint="all(dim=axis, keepdim=keep_dims)", method="all")
def all(input: Array, axis: int | tuple[int, ...] | None = None, keep_dims: bool = False) -> Array:
    """Whether all elements over `axis` are true."""
    return jnp.all(input, axis=check.axes("all", axis, input.ndim), keepdims=keep_dims)


@operator(function="any", mint="any(dim=axis, keepdim=keep_dims)", method="any")
def any(input: Array, axis: int | tuple[int, ...] | None = None, keep_dims: bool = False) -> Array:
    """Whether any element over `axis` is true."""
    return jnp.any(input, axis=check.axes("any", axis, input.ndim), keepdims=keep_dims)


def _with_index(name: str, value: Callable[..., Array], index: Callable[..., Array], doc: str) -> Any:
    def kernel(x: Array, axis: int = 0, keep_dims: bool = False) -> tuple[Array, Array]:
        check.tensor(name, x=x)
        where = check.axis(name, axis, x.ndim)
        positions = index(x, axis=where, keepdims=keep_dims).astype(jnp.int32)
        return positions, value(x, axis=where, keepdims=keep_dims)

    kernel.__name__ = "_" + name.lower()
    kernel.__doc__ = doc
    return operator(name, function="")(kernel)


_argmax_with_value = _with_index(
    "ArgMaxWithValue", jnp.max, jnp.argmax, "Position (int32) and value of the largest element along `axis`."
)
_argmin_with_value = _with_index(
    "ArgMinWithValue", jnp.min, jnp.argmin, "Position (int32) and value of the smallest element along `axis`."
)


@operator(function="argmax", method="argmax", mint="argmax")
def argmax(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Position (int64) of the largest element along `dim`, or in the flattened tensor."""
    where = None if dim is None else check.axis("argmax", dim, input.ndim, "dim")
    return jnp.argmax(input, axis=where, keepdims=keepdim and dim is not None).astype(jnp.int64)


@operator(function="argmin", method="argmin", mint="argmin")
def argmin(input: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """Position (int64) of the smallest element along `axis`, or in the flattened tensor."""
    where = None if axis is None else check.axis("argmin", axis, input.ndim)
    return jnp.argmin(input, axis=where, keepdims=keepdims and axis is not None).astype(jnp.int64)


@operator("Argmax(axis, output_type)", function="")
def _argmax_primitive(x: Array, axis: int = -1, output_type: DType | None = None) -> Array:
    """Position of the largest element along `axis`; int32 unless `output_type` says otherwise."""
    positions = jnp.argmax(x, axis=check.axis("Argmax", axis, x.ndim))
    return positions.astype(jnp.int32 if output_type is None else output_type.np_dtype)


@operator("CumSum(exclusive, reverse)", function="")
def _cumsum_primitive(x: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Running sum along `axis`."""
    where = check.axis("CumSum", axis, x.ndim)
    values = jnp.flip(x, where) if reverse else x
    total = jnp.cumsum(values, where, dtype=x.dtype)
    total = total - values if exclusive else total
    return jnp.flip(total, where) if reverse else total


@operator(function="cumsum", method="cumsum", mint="cumsum(dim=axis)")
def cumsum(x: Array, axis: int, dtype: DType | None = None) -> Array:
    """Running sum along `axis`."""
    values = x if dtype is None else x.astype(dtype.np_dtype)
    return jnp.cumsum(values, check.axis("cumsum", axis, x.ndim), dtype=values.dtype)


def max(input: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Largest element; with `axis` the pair of values and positions along it."""
    if axis is None:
        return reduce_max(input)
    positions, values = _argmax_with_value(input, axis, keepdims)
    return values, positions


def min(input: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Smallest element; with `axis` the pair of values and positions along it."""
    if axis is None:
        return reduce_min(input)
    positions, values = _argmin_with_value(input, axis, keepdims)
    return values, positions


export(max, min)
