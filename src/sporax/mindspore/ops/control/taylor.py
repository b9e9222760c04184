"""Derivatives of higher order along a curve: `jet`, `derivative`; and `linearize`.

For a curve ``x(t) = x + s1 t + s2 t²/2! + …`` the derivatives of ``fn(x(t))`` at 0 follow from forward differentiation with
respect to `t`, nested once per order. The cost doubles with each order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.common.transforms import jvp
from sporax.mindspore.ops._core.operator import FUNCTIONS


def jet(fn: Callable[..., Any], primals: Any, series: Any) -> tuple[Any, Any]:
    """The value of `fn`, and the derivatives of orders 1 to n along a curve.

    Args:
        fn: function or Cell of Tensors.
        primals: the point, a Tensor or a tuple of Tensors.
        series: the derivatives of the curve there, (n, …) for each of the primals.

    Returns:
        The value, and its derivatives stacked in the same form; tuples of them when `fn` returns a tuple.
    """
    points, curves = _as_tuple("jet", "primals", primals), _as_tuple("jet", "series", series)
    if len(points) != len(curves):
        raise SporaxValueError(
            f"For 'jet', 'primals' and 'series' must have the same length, but got {len(points)} and {len(curves)}."
        )
    for point, curve in zip(points, curves, strict=True):
        if curve.shape[1:] != point.shape or not curve.shape[0]:
            raise SporaxValueError(
                f"For 'jet', 'series' must have shape (orders, *primals.shape), but got {curve.shape} and {point.shape}."
            )
    # All curves of one call have as many orders as the first.
    orders = curves[0].shape[0]
    values = _along(fn, points, curves, orders)
    if isinstance(values[0], tuple):
        return values[0], tuple(FUNCTIONS["stack"](parts, 0) for parts in zip(*values[1:], strict=True))
    return values[0], FUNCTIONS["stack"](tuple(values[1:]), 0)


def derivative(fn: Callable[..., Any], primals: Any, order: int) -> tuple[Any, Any]:
    """The value of `fn`, and its derivative of one order with all inputs moving at speed 1.

    Args:
        fn: function or Cell of Tensors.
        primals: the point, a Tensor or a tuple of Tensors.
        order: of the derivative, at least 1.
    """
    check_type("derivative", "order", order, "an int", int, takes_bool=False)
    if order < 1:
        raise SporaxValueError(f"For 'derivative', 'order' must be >= 1, but got {order}.")
    points = _as_tuple("derivative", "primals", primals)
    speeds = tuple(FUNCTIONS["ones_like"](point).expand_dims(0) for point in points)
    values = _along(fn, points, speeds, order)
    return values[0], values[-1]


def linearize(fn: Callable[..., Any], inputs: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of `fn`, and the linear function of directions that is its derivative there.

    Args:
        fn: function or Cell of Tensors.
        inputs: the point, a Tensor or a tuple of Tensors.
    """
    points = _as_tuple("linearize", "inputs", inputs)

    def along(*directions: Any) -> Any:
        tangents = tuple(directions[0]) if len(directions) == 1 and isinstance(directions[0], tuple) else directions
        return jvp(fn, points, tangents)[1]

    return fn(*points), along


def _along(fn: Callable[..., Any], points: Sequence[Tensor], curves: Sequence[Tensor], orders: int) -> list[Any]:
    """The value and the derivatives of orders 1 to `orders` of `fn` along curves."""

    def at(t: Tensor) -> Any:
        positions = []
        for point, curve in zip(points, curves, strict=True):
            place = point
            for order in range(1, min(curve.shape[0], orders) + 1):
                # Taylor's coefficients: the order's factorial divides.
                place = place + curve[order - 1] * (t**order / math.factorial(order)).astype(point.dtype)
            positions.append(place)
        return fn(*positions)

    origin, one = Tensor(0.0, points[0].dtype), Tensor(1.0, points[0].dtype)
    # Nested once per order: the slope of the slope.
    functions: list[Callable[[Tensor], Any]] = [at]
    for _ in range(orders):
        functions.append(_slope(functions[-1], one))
    # All functions at the origin, since each is the derivative of the one before.
    return [function(origin) for function in functions]


def _slope(function: Callable[[Tensor], Any], one: Tensor) -> Callable[[Tensor], Any]:
    return lambda t: jvp(function, (t,), (one,))[1]


def _as_tuple(name: str, what: str, value: Any) -> tuple[Tensor, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    for item in values:
        if not isinstance(item, Tensor):
            raise SporaxTypeError(f"For '{name}', '{what}' must be a Tensor or a tuple of them, but got {item!r}.")
    return values


FUNCTIONS.update(jet=jet, derivative=derivative, linearize=linearize)
