"""Python's operators on Tensors, and the methods whose arguments differ from those of the function."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from sporax.base.errors import For
from sporax.mindspore.common import COOTensor, CSRTensor, DType, Parameter, Tensor
from sporax.mindspore.ops._core import FUNCTIONS, check
from sporax.mindspore.ops.array import conversion, creation, manipulation
from sporax.mindspore.ops.linalg import products
from sporax.mindspore.ops.math import elementwise, reduction
from sporax.mindspore.ops.random import dropout
from sporax.runtime.state import frames

_BINARY: dict[str, Callable[..., Any]] = {
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "truediv": elementwise._real_div,
    "floordiv": elementwise.floor_div,
    "mod": elementwise.floor_mod,
    "pow": elementwise.pow,
    "matmul": products.matmul,
    "and": FUNCTIONS["bitwise_and"],
    "or": FUNCTIONS["bitwise_or"],
    "xor": FUNCTIONS["bitwise_xor"],
}
_COMPARISONS = {
    "lt": FUNCTIONS["less"],
    "le": FUNCTIONS["less_equal"],
    "gt": FUNCTIONS["greater"],
    "ge": FUNCTIONS["greater_equal"],
}
_UNARY = {"neg": FUNCTIONS["neg"], "abs": FUNCTIONS["abs"], "invert": FUNCTIONS["logical_not"]}


def _refuse(name: str, other: object) -> None:
    # numpy arrays would be converted silently, again in every call.
    if isinstance(other, np.ndarray | str | dict | set) or other is None:
        raise For(f"Tensor.__{name}__").type_error(
            "the other operand must be a Tensor, a number, a list or a tuple", type(other).__name__
        )


def _forward(name: str, function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        if not isinstance(other, Tensor):
            if isinstance(other, COOTensor | CSRTensor):
                return NotImplemented  # they know what a dense tensor on their left side gives
            _refuse(name, other)
        return function(self, other)

    method.__name__ = f"__{name}__"
    return method


def _in_place(name: str, function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    """``x += y``: another Tensor, but in compiled code a Parameter takes the value, as in MindSpore."""
    forward = _forward(name, function)

    def method(self: Tensor, other: Any) -> Any:
        result = forward(self, other)
        if result is NotImplemented or not frames.compiling() or result.shape != self.shape:
            return result
        if isinstance(self, Parameter):
            self._replace(result.array.astype(self.dtype.np_dtype))
            return self
        if not isinstance(self.raw, jax.core.Tracer):
            _warn_lost(name)
        return result

    method.__name__ = f"__i{name}__"
    return method


@functools.cache
def _warn_lost(name: str) -> None:
    """Warn once of a change that would outlive the step in MindSpore."""
    warnings.warn(
        f"For 'Tensor.__i{name}__', a Tensor from outside of the compiled step stays as it is, and the change is seen in this "
        "step alone; MindSpore changes it. Keep it in a Parameter.",
        stacklevel=4,
    )


def _reflected(name: str, function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        _refuse(name, other)
        return function(other, self)

    method.__name__ = f"__{name}__"
    return method


def _equality(function: Callable[..., Any], otherwise: bool) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        # Comparing with something else is no error in Python: it is unequal.
        if not isinstance(other, Tensor | int | float | list | tuple | np.generic):
            return otherwise
        return function(self, other)

    return method


def _unary(function: Callable[..., Any]) -> Callable[[Tensor], Any]:
    return lambda self: function(self)


for _dunder, _function in {**_BINARY, **_COMPARISONS}.items():
    setattr(Tensor, f"__{_dunder}__", _forward(_dunder, _function))
for _dunder, _function in _BINARY.items():
    setattr(Tensor, f"__r{_dunder}__", _reflected(f"r{_dunder}", _function))
for _dunder in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    setattr(Tensor, f"__i{_dunder}__", _in_place(_dunder, _BINARY[_dunder]))
for _dunder, _function in _UNARY.items():
    setattr(Tensor, f"__{_dunder}__", _unary(_function))

_UFUNCS: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.power: operator.pow,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """What numpy does with a Tensor: a numpy scalar on the left is a number, everything else works on numpy's copy."""
    # numpy calls its scalar's ufunc before our reflected operator.
    if method == "__call__" and not kwargs and ufunc in _UFUNCS and isinstance(inputs[0], np.generic):
        return _UFUNCS[ufunc](inputs[0].item(), inputs[1])
    # Everything else is numpy's business, on copies.
    arrays = [np.asarray(operand) if isinstance(operand, Tensor) else operand for operand in inputs]
    return getattr(ufunc, method)(*arrays, **kwargs)


# Operators stand above tensors, so Tensor gets them here.
_MEMBERS = {
    "__pos__": lambda self: conversion.deepcopy(self),  # a copy: MindSpore's + gives a new Tensor
    "T": property(lambda self: self.transpose(), doc="The Tensor with its dimensions reversed."),
    "__eq__": _equality(FUNCTIONS["equal"], False),
    "__ne__": _equality(FUNCTIONS["not_equal"], True),
    "__array_ufunc__": _array_ufunc,
}
for _name, _member in _MEMBERS.items():
    setattr(Tensor, _name, _member)


Axis = int | tuple[int, ...] | None


def _sum(
    self: Tensor, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False, initial: Any = None
) -> Tensor:
    """Sum over `axis`, added to `initial`."""
    # In the dtype that the sum has.
    total = reduction.sum(self, axis, keepdims, dtype=dtype)
    return total if initial is None else total + initial


def _extreme(name: str, with_positions: Callable[..., Any], alone: Callable[..., Any], doc: str) -> None:
    def method(
        self: Tensor,
        axis: Axis = None,
        keepdims: bool = False,
        *,
        initial: Any = None,
        where: Any = None,
        return_indices: bool = False,
    ) -> Any:
        if return_indices:
            return with_positions(self, axis, keepdims, initial=initial, where=where)
        return alone(reduction.limited(name, self, initial, where), axis, keepdims)

    method.__name__, method.__doc__ = name, doc
    setattr(Tensor, name, method)


_extreme("max", reduction.max, reduction.reduce_max, "Largest elements over `axis`; arguments as `ops.max`.")
_extreme("min", reduction.min, reduction.reduce_min, "Smallest elements over `axis`; arguments as `ops.min`.")


def _argmax_with_value(self: Tensor, axis: int = 0, keep_dims: bool = False) -> tuple[Tensor, Tensor]:
    """Value and position of the first largest element along `axis`; the operator has them the other way round."""
    position, value = reduction._argmax_with_value(self, axis, keep_dims)
    return value, position


def _argmin_with_value(self: Tensor, axis: int = 0, keep_dims: bool = False) -> tuple[Tensor, Tensor]:
    """Value and position of the first smallest element along `axis`, as `argmax_with_value`."""
    position, value = reduction._argmin_with_value(self, axis, keep_dims)
    return value, position


def _select(self: Tensor, condition: Any, y: Any) -> Tensor:
    """Own elements where `condition`, those of `y` elsewhere; with two ints, ``(dim, index)``, the slice there."""
    if isinstance(condition, int) and isinstance(y, int):
        where = check.axis("Tensor.select", condition, self.ndim, "dim")
        return self[(*(slice(None),) * where, y)]
    return FUNCTIONS["select"](condition, self, y)


def _expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Broadcast to the shape of another Tensor."""
    return manipulation.broadcast_to(self, other.shape)


def _dropout(self: Tensor, p: float = 0.5, training: bool = True, seed: int | None = None) -> Tensor:
    """See `ops.dropout`."""
    return dropout.dropout(self, p, training, seed)


def _fill(self: Tensor, value: Any) -> Tensor:
    """A Tensor of this shape and dtype filled with `value`."""
    return creation.full(self.shape, value, dtype=self.dtype)


for _method in (
    _sum, _argmax_with_value, _argmin_with_value, _select, _expand_as, _dropout, _fill,
):  # fmt: skip
    setattr(Tensor, _method.__name__.removeprefix("_"), _method)
