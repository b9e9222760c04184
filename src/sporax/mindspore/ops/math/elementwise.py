"""Elementwise operators: arithmetic, comparison, logic and mathematical functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.ops._core import Array, Operand, check, export, extremes, operator, other_form, promote
from sporax.mindspore.ops._core.dims import position_by_position
from sporax.mindspore.ops._core.elementwise_table import inexact, pointwise, same


def _operands(name: str, left: Any, right: Any) -> tuple[Array, Array]:
    check.broadcast(name, left, right)
    return promote.pair(name, left, right)


@operator("Add", method="add", mint="add")
def add(input: Operand, other: Operand) -> Array:
    """Sum of two tensors, broadcast against each other. A bool plus a bool is their logical or."""
    return jnp.add(*_operands("Add", input, other))


@operator("Sub", method="sub, subtract", mint="sub")
def sub(input: Operand, other: Operand) -> Array:
    """Difference of two tensors, broadcast against each other."""
    left, right = _operands("Sub", input, other)
    # Differences of bools are "exclusive or" in MindSpore; JAX refuses them.
    return jnp.logical_xor(left, right) if left.dtype == np.bool_ else jnp.subtract(left, right)


@operator("Mul", method="mul, multiply(value=other)", mint="mul")
def mul(input: Operand, other: Operand) -> Array:
    """Product of two tensors, element by element, broadcast against each other."""
    return jnp.multiply(*_operands("Mul", input, other))


def _divide(name: str, input: Any, other: Any) -> Array:
    left, right = _operands(name, input, other)
    return jnp.divide(promote.inexact(left), promote.inexact(right))


@operator("Div()", method="div, divide", mint="div; divide")
def div(input: Operand, other: Operand, *, rounding_mode: Literal["floor", "trunc"] | None = None) -> Array:
    """Quotient; integers give float32.

    Args:
        input: dividend.
        other: divisor; the two are broadcast.
        rounding_mode: None, or how the quotient is rounded to a whole number; integers then stay integers.
    """
    if rounding_mode is None:
        return _divide("Div", input, other)
    left, right = _operands("Div", input, other)
    if rounding_mode == "floor":
        # MindSpore rounds the quotient and keeps the dtype of integers.
        return jnp.floor_divide(left, right)
    if not jnp.issubdtype(left.dtype, jnp.integer):
        return jnp.trunc(left / right)
    # XLA's integer division truncates towards zero.
    return jax.lax.div(*jnp.broadcast_arrays(left, right))


@operator("RealDiv", function="")
def _real_div(x: Operand, y: Operand) -> Array:
    """Quotient; integers give float32."""
    return _divide("RealDiv", x, y)


def true_divide(dividend: Any, divisor: Any) -> Any:
    """Quotient; integers give float32."""
    return _real_div(dividend, divisor)


export(true_divide)


@operator("FloorDiv", method="floor_divide, floor_div", mint="floor_divide")
def floor_div(x: Operand, y: Operand) -> Array:
    """Quotient rounded towards minus infinity."""
    left, right = _operands("FloorDiv", x, y)
    # Back to the common dtype: JAX widens some quotients.
    return jnp.floor_divide(left, right).astype(left.dtype)


@operator("FloorMod")
def floor_mod(x: Operand, y: Operand) -> Array:
    """Remainder with the sign of the divisor."""
    return jnp.mod(*_operands("FloorMod", x, y))


@operator("Mod", function="fmod", method="fmod", mint="fmod")
def fmod(input: Operand, other: Operand) -> Array:
    """Remainder with the sign of the dividend, as in C."""
    # `rem` has the sign of the dividend, unlike numpy's `mod`.
    return jax.lax.rem(*jnp.broadcast_arrays(*_operands("Mod", input, other)))


@operator(function="remainder", method="remainder", mint="remainder")
def remainder(input: Operand, other: Operand) -> Array:
    """Remainder with the sign of the divisor."""
    return jnp.mod(*_operands("Remainder", input, other))


@operator("Pow()", method="pow", mint="pow")
def pow(input: Operand, exponent: Array | float | bool) -> Array:
    """`input` raised to `exponent`; the two are broadcast.

    A number as exponent is a constant of the program, so that small whole powers become products.
    """
    if isinstance(exponent, bool | int | float):
        # The exponent is no operand here, so its dtype is not mixed in by JAX.
        dtype = promote.common_dtype("Pow", input, exponent)
        base = jnp.asarray(input, dtype)
        integral = isinstance(exponent, int) and not isinstance(exponent, bool)
        # Small whole powers become products, which are exact and have simple gradients.
        if integral and exponent < 0 and jnp.issubdtype(dtype, jnp.integer):
            return _integer_power(base, jnp.asarray(exponent, dtype))
        return jax.lax.integer_pow(base, int(exponent)) if integral and exponent >= 0 else jnp.power(base, exponent)
    base, power = _operands("Pow", input, exponent)
    return (_integer_power if jnp.issubdtype(base.dtype, jnp.signedinteger) else jnp.power)(base, power)


def _integer_power(base: Array, exponent: Array) -> Array:
    """Powers of integers; those with a negative exponent are rounded towards 0."""
    odd = jnp.where(exponent % 2 == 0, 1, -1)
    inverse = jnp.where(base == 1, 1, jnp.where(base == -1, odd, 0)).astype(base.dtype)
    return jnp.where(exponent < 0, inverse, jnp.power(base, jnp.maximum(exponent, 0)))


@operator("Maximum", method="maximum", mint="maximum")
def maximum(input: Operand, other: Operand) -> Array:
    """The larger of two values, element by element; where they are equal each gets half of the gradient."""
    return extremes.larger(*_operands("Maximum", input, other))


@operator("Minimum", method="minimum", mint="minimum")
def minimum(input: Operand, other: Operand) -> Array:
    """The smaller of two values, element by element; where they are equal each gets half of the gradient."""
    return extremes.smaller(*_operands("Minimum", input, other))


@operator("SquaredDifference", function="squared_difference")
def squared_difference(x: Operand, y: Operand) -> Array:
    """Square of the difference."""
    left, right = _operands("SquaredDifference", x, y)
    return jnp.square(left - right)


@operator("Atan2", method="atan2, arctan2", mint="atan2")
def atan2(input: Operand, other: Operand) -> Array:
    """Angle of the point (other, input), in (-pi, pi]."""
    left, right = _operands("Atan2", input, other)
    return jnp.arctan2(promote.inexact(left), promote.inexact(right))


def _truths(name: str, left: Any, right: Any) -> tuple[Any, Any]:
    # No promotion: MindSpore takes any two dtypes, since only truth counts.
    check.broadcast(name, left, right)
    return left, right


def _bits(name: str, left: Any, right: Any) -> tuple[Array, Array]:
    left, right = _operands(name, left, right)
    # Bits of floats have no meaning in MindSpore.
    if jnp.issubdtype(left.dtype, jnp.inexact):
        raise For(name).type_error("the operands must be integers or bools", dtypes.from_numpy(left.dtype))
    return left, right


def _binary(name: str, function: Callable[..., Array], names: str, convert: Callable[..., Any], doc: str) -> None:
    own = names.split(",")[0]

    def kernel(input: Operand, other: Operand) -> Array:
        return function(*convert(name, input, other))

    kernel.__name__, kernel.__doc__ = own, doc
    operator(name, method=names, mint=own)(kernel)


_FIRST = "Whether elements of the first are "

# primitive, function on arrays, names of function and methods, what becomes of the operands, what it computes
for _two in (
    ("Equal", jnp.equal, "equal,eq", _operands, "Whether elements are equal."),
    ("NotEqual", jnp.not_equal, "not_equal,ne", _operands, "Whether elements differ."),
    ("Less", jnp.less, "less,lt", _operands, _FIRST + "smaller."),
    ("LessEqual", jnp.less_equal, "less_equal,le", _operands, _FIRST + "smaller or equal."),
    ("Greater", jnp.greater, "greater,gt", _operands, _FIRST + "larger."),
    ("GreaterEqual", jnp.greater_equal, "greater_equal,ge", _operands, _FIRST + "larger or equal."),
    ("LogicalAnd", jnp.logical_and, "logical_and", _truths, "Whether both are true (not zero)."),
    ("LogicalOr", jnp.logical_or, "logical_or", _truths, "Whether one of both is true (not zero)."),
    ("LogicalXor", jnp.logical_xor, "logical_xor", _truths, "Whether exactly one is true (not zero)."),
    ("BitwiseAnd", jnp.bitwise_and, "bitwise_and", _bits, "Bitwise and."),
    ("BitwiseOr", jnp.bitwise_or, "bitwise_or", _bits, "Bitwise or."),
    ("BitwiseXor", jnp.bitwise_xor, "bitwise_xor", _bits, "Bitwise exclusive or."),
):
    _binary(*_two)


_ROUNDING_DOC = "; integers stay as they are."


def _rounding(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Rounding, whose gradient is 0, of integers, too: there a bitwise operation ends it."""
    return lambda array: function(array) if jnp.issubdtype(array.dtype, jnp.inexact) else array | array


# primitive, function on arrays, names of function and methods, dtype conversion, what it computes
for _primitive, _compute, _names, _convert, _doc in (
    ("Abs", extremes.magnitude, "abs,absolute", same, "Absolute value; its gradient at 0 is 0."),
    ("Neg", jnp.negative, "neg,negative", same, "Negative."),
    ("Sign", jnp.sign, "sign", same, "-1, 0 or 1."),
    ("Square", jnp.square, "square", same, "Square."),
    ("Exp", jnp.exp, "exp", inexact, "e to the power of the input."),
    ("Expm1", jnp.expm1, "expm1", inexact, "exp(x) - 1, exact near 0."),
    ("Log", jnp.log, "log", inexact, "Natural logarithm."),
    ("Log1p", jnp.log1p, "log1p", inexact, "log(1 + x), exact near 0."),
    ("Rsqrt", jax.lax.rsqrt, "rsqrt", inexact, "One over the square root."),
    ("Reciprocal", jnp.reciprocal, "reciprocal", inexact, "One over the input."),
    ("Sin", jnp.sin, "sin", inexact, "Sine."),
    ("Cos", jnp.cos, "cos", inexact, "Cosine."),
    ("Tan", jnp.tan, "tan", inexact, "Tangent."),
    ("Asin", jnp.arcsin, "asin,arcsin", inexact, "Inverse sine."),
    ("ACos", jnp.arccos, "acos,arccos", inexact, "Inverse cosine."),
    ("Atan", jnp.arctan, "atan,arctan", inexact, "Inverse tangent."),
    ("Sinh", jnp.sinh, "sinh", inexact, "Hyperbolic sine."),
    ("Cosh", jnp.cosh, "cosh", inexact, "Hyperbolic cosine."),
    ("Tanh", jnp.tanh, "tanh", inexact, "Hyperbolic tangent."),
    ("Asinh", jnp.arcsinh, "asinh,arcsinh", inexact, "Inverse hyperbolic sine."),
    ("Acosh", jnp.arccosh, "acosh,arccosh", inexact, "Inverse hyperbolic cosine."),
    ("Atanh", jnp.arctanh, "atanh,arctanh", inexact, "Inverse hyperbolic tangent."),
    ("Erf", jax.lax.erf, "erf", inexact, "Error function."),
    ("Erfc", jax.lax.erfc, "erfc", inexact, "One minus the error function, exact for large inputs."),
    ("Erfinv", jax.lax.erf_inv, "erfinv", inexact, "Inverse of the error function."),
    ("Floor", _rounding(jnp.floor), "floor", same, "Largest whole number not above" + _ROUNDING_DOC),
    ("Ceil", _rounding(jnp.ceil), "ceil", same, "Smallest whole number not below" + _ROUNDING_DOC),
    ("Trunc", _rounding(jnp.trunc), "trunc", same, "Whole part" + _ROUNDING_DOC),
    ("Rint", jnp.rint, "rint", inexact, "Nearest whole number, halves to even."),
    ("LogicalNot", jnp.logical_not, "logical_not", same, "Whether the input is false (zero)."),
    ("IsFinite", jnp.isfinite, "isfinite", inexact, "Whether elements are neither infinite nor NaN."),
    ("IsNan", jnp.isnan, "isnan", inexact, "Whether elements are NaN."),
    ("IsInf", jnp.isinf, "isinf", inexact, "Whether elements are infinite."),
):
    _own = _names.split(",")[0]
    pointwise(_primitive, _compute, _doc, function=_own, convert=_convert, method=_names, mint=_own)


@operator("Sqrt", method="sqrt", mint="sqrt(input=x)")
def sqrt(x: Array) -> Array:
    """Square root."""
    return jnp.sqrt(promote.inexact(x))


@operator("Round()", method="round", mint="round")
def round(input: Array, decimals: int = 0) -> Array:
    """The nearest number with so many decimals, halves to even; integers stay as they are."""
    return _rounding(jnp.positive)(jnp.round(input, decimals))


def _chosen(name: str, condition: Array, input: Any, other: Any) -> Array:
    # The condition takes no part in promotion.
    left, right = promote.pair(name, input, other)
    check.broadcast(name, left, right, condition)
    return jnp.where(condition, left, right)


@operator("Select")
def select(condition: Array, input: Operand, other: Operand) -> Array:
    """Elements of `input` where `condition`, of `other` elsewhere; all three are broadcast."""
    return _chosen("Select", condition, input, other)


@operator(function="where", mint="where")
def where(condition: Array, input: Operand, other: Operand) -> Array:
    """Elements of `input` where `condition`, of `other` elsewhere; all three are broadcast."""
    return _chosen("where", condition, input, other)


other_form(where, method="where", parameters="input condition y=other")


@operator("MaskedFill", method="masked_fill", mint="masked_fill(input=input_x)")
def masked_fill(input_x: Array, mask: Array, value: Operand) -> Array:
    """`value` where `mask`, `input_x` elsewhere; the mask is broadcast.

    Raises:
        SporaxTypeError: `mask` is not a bool tensor.
        SporaxValueError: `mask` cannot be broadcast, or `value` is a tensor with a dimension.
    """
    For("MaskedFill").refuse_type(mask.dtype != np.bool_, "'mask' must be Tensor[Bool]", dtypes.from_numpy(mask.dtype))
    # MindSpore takes one value only.
    For("MaskedFill").refuse(np.ndim(value), "'value' must be a number or a 0-D Tensor", np.shape(value))
    check.broadcast("MaskedFill", input_x, mask)
    return jnp.where(mask, jnp.asarray(value, input_x.dtype), input_x)


def _limited(name: str, x: Array, low: Any, high: Any, names: str, shares: bool = True) -> Array:
    """`x` limited to [low, high], in its own dtype; a value on a limit gets all of the gradient, half where it `shares`."""
    For(name).refuse(low is None and high is None, f"at least one of {names} must not be None")
    if low is not None:
        check.broadcast(name, x, low)
        # In the dtype of `x`: limits do not widen it.
        low = jnp.asarray(low, x.dtype)
        x = extremes.larger(x, low) if shares else jnp.where(x < low, low, x)
    if high is not None:
        check.broadcast(name, x, high)
        high = jnp.asarray(high, x.dtype)
        x = extremes.smaller(x, high) if shares else jnp.where(x > high, high, x)
    return x


@operator(function="clamp", method="clamp, clip", mint="clamp; clip")
def clamp(input: Array, min: Operand | None = None, max: Operand | None = None) -> Array:
    """`input` limited to [min, max] in its own dtype; None leaves that side open.

    Raises:
        SporaxValueError: both limits are None, or one cannot be broadcast.
    """
    return _limited("clamp", input, min, max, "'min' and 'max'", shares=False)


@operator(function="clip_by_value")
def clip_by_value(x: Array, clip_value_min: Operand | None = None, clip_value_max: Operand | None = None) -> Array:
    """`x`, or each of a tuple, limited to [clip_value_min, clip_value_max] in its own dtype; None leaves that side open.

    Raises:
        SporaxValueError: both limits are None, or one cannot be broadcast.
    """
    names = "'clip_value_min' and 'clip_value_max'"
    if isinstance(x, tuple):
        each = tuple(_limited("clip_by_value", part, clip_value_min, clip_value_max, names) for part in x)
        return cast(Array, each)
    return _limited("clip_by_value", x, clip_value_min, clip_value_max, names)


@operator("AddN", function="addn", dims=position_by_position)
def addn(x: tuple[Array, ...]) -> Array:
    """Sum of several tensors of one dtype, broadcast against each other.

    Raises:
        SporaxValueError: there are none, or they do not broadcast.
        SporaxTypeError: the dtypes differ.
    """
    For("AddN").refuse(not x, "'x' must hold at least one Tensor, but it is empty")
    check.same_dtype("AddN", **{f"x[{index}]": tensor for index, tensor in enumerate(x)})
    check.broadcast("AddN", *x)
    # In order: a sum of floats depends on it.
    return functools.reduce(jnp.add, x)
