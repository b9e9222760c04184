"""Functions of MindSpore's `ops.functional` on Python values, which its compiler needs because it has no Python at hand."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore._names.missing import late
from sporax.mindspore.ops._core import check, export

# `autograph` stands on operators.
_choose, _item = late("sporax.mindspore.autograph.flow:choose"), late("sporax.mindspore.autograph.flow:item")


def make_range(*limits: int) -> tuple[int, ...]:
    """`range(*limits)` as a tuple."""
    return tuple(range(*limits))


def make_tuple(*elements: Any) -> tuple[Any, ...]:
    """The arguments as a tuple."""
    return elements


def tuple_len(values: Sequence[Any]) -> int:
    """Number of elements of a tuple."""
    return len(values)


def list_len(values: Sequence[Any]) -> int:
    """Number of elements of a list."""
    return len(values)


def tuple_getitem(values: Sequence[Any], index: int) -> Any:
    """One element of a tuple."""
    return values[index]


def tuple_reversed(values: Sequence[Any]) -> tuple[Any, ...]:
    """The elements from the last to the first."""
    return tuple(reversed(values))


def is_(x: object, y: object) -> bool:
    """Whether both are the same object."""
    return x is y


def bool_not(x: Any) -> bool:
    """`not x`."""
    return not x


def shape_mul(input_data: Sequence[int]) -> int:
    """Product of the sizes of a shape."""
    product = 1
    for size in input_data:
        product *= size
    return product


def is_sequence_value_unknown(shape: Sequence[int]) -> bool:
    """False: programs are compiled for the shapes that they meet."""
    return False


def make_list(*elements: Any) -> list[Any]:
    """The arguments as a list."""
    return list(elements)


def make_dict(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    """A dict of keys and their values."""
    return dict(zip(keys, values, strict=True))


def make_slice(start: Any, stop: Any, step: Any) -> slice:
    """`slice(start, stop, step)`."""
    return slice(start, stop, step)


def list_getitem(values: Sequence[Any], index: int) -> Any:
    """One element of a list."""
    return values[index]


def dict_getitem(values: dict[Any, Any], key: Any) -> Any:
    """The value of a key."""
    return values[key]


def tuple_setitem(values: Sequence[Any], index: int, value: Any) -> tuple[Any, ...]:
    """A tuple with one element replaced."""
    return tuple(list_setitem(values, index, value))


def list_setitem(values: Sequence[Any], index: int, value: Any) -> list[Any]:
    """A list with one element replaced."""
    changed = list(values)
    changed[index] = value
    return changed


def dict_setitem(values: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """A dict with the value of one key replaced or added."""
    return {**values, key: value}


def tuple_equal(x: Sequence[Any], y: Sequence[Any]) -> bool:
    """Whether two tuples have equal elements."""
    return tuple(x) == tuple(y)


def list_equal(x: Sequence[Any], y: Sequence[Any]) -> bool:
    """Whether two lists have equal elements."""
    return list(x) == list(y)


def tuple_div(x: Sequence[int], y: Sequence[int]) -> tuple[int, ...]:
    """Quotients of the elements of two tuples, which must be whole.

    Raises:
        SporaxValueError: the lengths differ, or a quotient is not whole.
    """
    if len(x) != len(y) or any(top % bottom for top, bottom in zip(x, y, strict=False)):
        raise SporaxValueError(f"For 'tuple_div', elements must be multiples of each other, but got {x} and {y}.")
    return tuple(top // bottom for top, bottom in zip(x, y, strict=True))


def reduced_shape(input_shape: Sequence[int], axis: Sequence[int]) -> tuple[int, ...]:
    """A shape whose dims `axis` have size 1; no axes stand for all of them."""
    # No axes mean all, as in MindSpore's reductions.
    gone = {place % len(input_shape) for place in axis} or set(range(len(input_shape)))
    return tuple(1 if place in gone else size for place, size in enumerate(input_shape))


def in_dict(key: Any, values: dict[Any, Any]) -> bool:
    """Whether a dict has a key."""
    return key in values


def not_in_dict(key: Any, values: dict[Any, Any]) -> bool:
    """Whether a dict lacks a key."""
    return key not in values


def is_not(x: object, y: object) -> bool:
    """Whether both are different objects."""
    return x is not y


def broadcast_gradient_args(x_shape: Sequence[int], y_shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes along which a gradient of the broadcast shape is summed for each of two operands, those of size 1.

    Equal shapes need no sum.

    Raises:
        SporaxValueError: the shapes do not broadcast.
    """
    # Empty arrays have the shapes without memory behind them.
    check.broadcast("broadcast_gradient_args", np.empty(x_shape), np.empty(y_shape))
    if tuple(x_shape) == tuple(y_shape):
        return (), ()
    length = max(len(x_shape), len(y_shape))
    first, second = ([1] * (length - len(shape)) + list(shape) for shape in (x_shape, y_shape))
    # Equal shapes are handled above; here size 1 may be broadcast or not, and MindSpore names both.
    return (
        tuple(place for place, size in enumerate(first) if size == 1),
        tuple(place for place, size in enumerate(second) if size == 1),
    )


def switch(condition: Any, true_branch: Any, false_branch: Any) -> Any:
    """One of two values by a bool or a Tensor of one element."""
    return _choose(condition, lambda: true_branch, lambda: false_branch, 0)


def switch_layer(index: Any, layers: Sequence[Any]) -> Any:
    """One of several functions by its number."""
    return _item(layers, index)


def array_to_scalar(x: Any) -> Any:
    """The number in a Tensor of one element, whose value must be known."""
    return x.item()


def _of_one(name: str, operation: Callable[[Any], Any]) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        return operation(x)

    return _named(name, operation, function)


def _of_two(name: str, operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(x: Any, y: Any) -> Any:
        return operation(x, y)

    return _named(name, operation, function)


def _named(name: str, operation: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{operation.__name__}` of Python's, on Python's values."
    return function


_OF_ONE: dict[str, Callable[..., Any]] = {"scalar_log": math.log, "scalar_uadd": op.pos, "scalar_usub": op.neg}
_OF_TWO: dict[str, Callable[..., Any]] = {
    **{f"scalar_{name}": getattr(op, name) for name in "add sub mul mod floordiv pow eq ne lt le gt ge".split()},
    "scalar_div": op.truediv,
    "bool_and": op.and_,
    "bool_or": op.or_,
    "bool_eq": op.eq,
    "string_eq": op.eq,
    "string_concat": op.add,
}

export(make_range, make_tuple, tuple_len, list_len, tuple_getitem, tuple_reversed, is_, bool_not, shape_mul)
export(make_list, make_dict, make_slice, list_getitem, dict_getitem, tuple_setitem, list_setitem, dict_setitem)
export(tuple_equal, list_equal, tuple_div, reduced_shape, in_dict, not_in_dict, is_not, broadcast_gradient_args)
export(is_sequence_value_unknown)
export(*(_of_one(name, operation) for name, operation in _OF_ONE.items()))
export(switch, switch_layer, array_to_scalar, *(_of_two(name, operation) for name, operation in _OF_TWO.items()))
