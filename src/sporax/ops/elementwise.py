"""Elementwise operators: arithmetic, comparison, logic and mathematical functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common import dtype as dtypes
from sporax.ir.errors import SporaxTypeError
from sporax.ops import _check as check
from sporax.ops import _promote as promote
from sporax.ops._operator import Array, Operand, operator

# ----------------------------------------------------------------------------------------- two operands, broadcast


def _operands(name: str, left: Any, right: Any) -> tuple[Array, Array]:
    check.broadcast(name, left, right)
    return promote.pair(name, left, right)


def _refuse_bool(name: str, *arrays: Array) -> None:
    for array in arrays:
        if array.dtype == np.bool_:
            raise SporaxTypeError(
                f"For '{name}', the operands must be numbers, but got Tensor[Bool]; use logical operators."
            )


@operator("Add", method="add", mint="add")
def add(input: Operand, other: Operand) -> Array:
    """Sum of two tensors, broadcast against each other. A bool plus a bool is their logical or."""
    left, right = _operands("Add", input, other)
    return jnp.add(left, right)


@operator("Sub", method="sub, subtract", mint="sub")
def sub(input: Operand, other: Operand) -> Array:
    """Difference of two tensors, broadcast against each other."""
    left, right = _operands("Sub", input, other)
    return jnp.logical_xor(left, right) if left.dtype == np.bool_ else jnp.subtract(left, right)


@operator("Mul", method="mul, multiply", mint="mul")
def mul(input: Operand, other: Operand) -> Array:
    """Product of two tensors, element by element, broadcast against each other."""
    left, right = _operands("Mul", input, other)
    return jnp.multiply(left, right)


def _divide(name: str, input: Any, other: Any) -> Array:
    left, right = _operands(name, input, other)
    return jnp.divide(promote.inexact(left), promote.inexact(right))


@operator("Div", method="div, divide", mint="div")
def div(input: Operand, other: Operand, rounding_mode: str | None = None) -> Array:
    """True division; integers give float32.

    Args:
        input: dividend.
        other: divisor.
        rounding_mode: None, ``"floor"`` or ``"trunc"`` (both keep integer dtypes).
    """
    check.one_of("Div", rounding_mode, (None, "floor", "trunc"), "rounding_mode")
    if rounding_mode is None:
        return _divide("Div", input, other)
    left, right = _operands("Div", input, other)
    if rounding_mode == "floor":
        return jnp.floor_divide(left, right)
    integral = jnp.issubdtype(left.dtype, jnp.integer)
    return jax.lax.div(left, right) if integral else jnp.trunc(left / right)


@operator("RealDiv", function="true_divide")
def true_divide(dividend: Operand, divisor: Operand) -> Array:
    """True division; integers give float32."""
    return _divide("RealDiv", dividend, divisor)


@operator("FloorDiv", method="floor_divide, floor_div", mint="floor_divide")
def floor_div(x: Operand, y: Operand) -> Array:
    """Quotient rounded towards minus infinity."""
    left, right = _operands("FloorDiv", x, y)
    return jnp.floor_divide(left, right)


@operator("FloorMod")
def floor_mod(x: Operand, y: Operand) -> Array:
    """Remainder with the sign of the divisor."""
    left, right = _operands("FloorMod", x, y)
    return jnp.mod(left, right)


@operator("Mod", function="fmod", method="fmod", mint="fmod")
def fmod(input: Operand, other: Operand) -> Array:
    """Remainder with the sign of the dividend, as in C."""
    left, right = _operands("Mod", input, other)
    return jax.lax.rem(left, right)


@operator(function="remainder", method="remainder", mint="remainder")
def remainder(input: Operand, other: Operand) -> Array:
    """Remainder with the sign of the divisor."""
    left, right = _operands("Remainder", input, other)
    return jnp.mod(left, right)


@operator("Pow", method="pow", mint="pow(exponent=other)")
def pow(input: Operand, exponent: Array | float) -> Array:
    """`input` raised to `exponent`. A number as exponent is a constant of the program, so small powers are products."""
    if isinstance(exponent, bool | int | float):
        dtype = promote.common_dtype("Pow", input, exponent)
        base = jnp.asarray(input, dtype)
        whole = isinstance(exponent, int) and not isinstance(exponent, bool)
        return jax.lax.integer_pow(base, exponent) if whole and exponent >= 0 else jnp.power(base, exponent)
    left, right = _operands("Pow", input, exponent)
    return jnp.power(left, right)


@operator("Maximum", method="maximum", mint="maximum")
def maximum(input: Operand, other: Operand) -> Array:
    """The larger of two values, element by element."""
    left, right = _operands("Maximum", input, other)
    return jnp.maximum(left, right)


@operator("Minimum", method="minimum", mint="minimum")
def minimum(input: Operand, other: Operand) -> Array:
    """The smaller of two values, element by element."""
    left, right = _operands("Minimum", input, other)
    return jnp.minimum(left, right)


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


def _comparison(name: str, function: Callable[[Array, Array], Array], names: str, doc: str) -> None:
    def kernel(input: Operand, other: Operand) -> Array:
        return function(*_operands(name, input, other))

    kernel.__name__, kernel.__doc__ = names.split(",")[0], doc
    operator(name, method=names, mint=names.split(",")[0])(kernel)


for _name, _function, _names, _doc in (
    ("Equal", jnp.equal, "equal,eq", "Whether elements are equal."),
    ("NotEqual", jnp.not_equal, "not_equal,ne", "Whether elements differ."),
    ("Less", jnp.less, "less,lt", "Whether elements of the first are smaller."),
    ("LessEqual", jnp.less_equal, "less_equal,le", "Whether elements of the first are smaller or equal."),
    ("Greater", jnp.greater, "greater,gt", "Whether elements of the first are larger."),
    ("GreaterEqual", jnp.greater_equal, "greater_equal,ge", "Whether elements of the first are larger or equal."),
):
    _comparison(_name, _function, _names, _doc)


def _logical(name: str, function: Callable[[Array, Array], Array], own: str, doc: str) -> None:
    def kernel(input: Operand, other: Operand) -> Array:
        check.broadcast(name, input, other)
        return function(input, other)

    kernel.__name__, kernel.__doc__ = own, doc
    operator(name, method=own, mint=own)(kernel)


for _name, _function, _names, _doc in (
    ("LogicalAnd", jnp.logical_and, "logical_and", "Whether both are true (not zero)."),
    ("LogicalOr", jnp.logical_or, "logical_or", "Whether one of both is true (not zero)."),
    ("LogicalXor", jnp.logical_xor, "logical_xor", "Whether exactly one is true (not zero)."),
):
    _logical(_name, _function, _names, _doc)


def _bitwise(name: str, function: Callable[[Array, Array], Array], own: str, doc: str) -> None:
    def kernel(input: Operand, other: Operand) -> Array:
        left, right = _operands(name, input, other)
        if jnp.issubdtype(left.dtype, jnp.inexact):
            raise SporaxTypeError(
                f"For '{name}', the operands must be integers or bools, but got {dtypes.from_numpy(left.dtype)}."
            )
        return function(left, right)

    kernel.__name__, kernel.__doc__ = own, doc
    operator(name, method=own, mint=own)(kernel)


for _name, _function, _names, _doc in (
    ("BitwiseAnd", jnp.bitwise_and, "bitwise_and", "Bitwise and."),
    ("BitwiseOr", jnp.bitwise_or, "bitwise_or", "Bitwise or."),
    ("BitwiseXor", jnp.bitwise_xor, "bitwise_xor", "Bitwise exclusive or."),
):
    _bitwise(_name, _function, _names, _doc)


# --------------------------------------------------------------------------------------------------- one operand


def _same(array: Array) -> Array:
    return array


def _unary(
    name: str, function: Callable[[Array], Array], names: str, convert: Callable[[Any], Array], doc: str
) -> None:
    own = names.split(",")[0].strip()

    def kernel(input: Array) -> Array:
        check.tensor(name, input=input)
        return function(convert(input))

    kernel.__name__, kernel.__doc__ = own, doc
    operator(name, method=names, mint=own)(kernel)


_ROUNDING_DOC = "; integers stay as they are."

# primitive, function on arrays, names of function and methods, dtype conversion, what it computes
for _row in (
    ("Abs", jnp.abs, "abs,absolute", _same, "Absolute value."),
    ("Neg", jnp.negative, "neg,negative", _same, "Negative."),
    ("Sign", jnp.sign, "sign", _same, "-1, 0 or 1."),
    ("Square", jnp.square, "square", _same, "Square."),
    ("Exp", jnp.exp, "exp", promote.inexact, "e to the power of the input."),
    ("Expm1", jnp.expm1, "expm1", promote.inexact, "exp(x) - 1, exact near 0."),
    ("Log", jnp.log, "log", promote.inexact, "Natural logarithm."),
    ("Log1p", jnp.log1p, "log1p", promote.inexact, "log(1 + x), exact near 0."),
    ("Sqrt", jnp.sqrt, "sqrt", promote.inexact, "Square root."),
    ("Rsqrt", jax.lax.rsqrt, "rsqrt", promote.inexact, "One over the square root."),
    ("Reciprocal", jnp.reciprocal, "reciprocal", promote.inexact, "One over the input."),
    ("Sin", jnp.sin, "sin", promote.inexact, "Sine."),
    ("Cos", jnp.cos, "cos", promote.inexact, "Cosine."),
    ("Tan", jnp.tan, "tan", promote.inexact, "Tangent."),
    ("Asin", jnp.arcsin, "asin,arcsin", promote.inexact, "Inverse sine."),
    ("ACos", jnp.arccos, "acos,arccos", promote.inexact, "Inverse cosine."),
    ("Atan", jnp.arctan, "atan,arctan", promote.inexact, "Inverse tangent."),
    ("Sinh", jnp.sinh, "sinh", promote.inexact, "Hyperbolic sine."),
    ("Cosh", jnp.cosh, "cosh", promote.inexact, "Hyperbolic cosine."),
    ("Tanh", jnp.tanh, "tanh", promote.inexact, "Hyperbolic tangent."),
    ("Asinh", jnp.arcsinh, "asinh,arcsinh", promote.inexact, "Inverse hyperbolic sine."),
    ("Acosh", jnp.arccosh, "acosh,arccosh", promote.inexact, "Inverse hyperbolic cosine."),
    ("Atanh", jnp.arctanh, "atanh,arctanh", promote.inexact, "Inverse hyperbolic tangent."),
    ("Erf", jax.lax.erf, "erf", promote.inexact, "Error function."),
    ("Erfc", jax.lax.erfc, "erfc", promote.inexact, "One minus the error function, exact for large inputs."),
    ("Erfinv", jax.lax.erf_inv, "erfinv", promote.inexact, "Inverse of the error function."),
    ("Floor", jnp.floor, "floor", _same, "Largest whole number not above" + _ROUNDING_DOC),
    ("Ceil", jnp.ceil, "ceil", _same, "Smallest whole number not below" + _ROUNDING_DOC),
    ("Trunc", jnp.trunc, "trunc", _same, "Whole part" + _ROUNDING_DOC),
    ("Round", jnp.round, "round", _same, "Nearest whole number, halves to even" + _ROUNDING_DOC),
    ("Rint", jnp.rint, "rint", promote.inexact, "Nearest whole number, halves to even."),
    ("LogicalNot", jnp.logical_not, "logical_not", _same, "Whether the input is false (zero)."),
    ("IsFinite", jnp.isfinite, "isfinite", promote.inexact, "Whether elements are neither infinite nor NaN."),
    ("IsNan", jnp.isnan, "isnan", promote.inexact, "Whether elements are NaN."),
    ("IsInf", jnp.isinf, "isinf", promote.inexact, "Whether elements are infinite."),
):
    _unary(*_row)


# --------------------------------------------------------------------------------------------------- choice and range


@operator("Select", method="select", function="select")
def select(condition: Array, input: Operand, other: Operand) -> Array:
    """Elements of `input` where `condition`, of `other` elsewhere."""
    check.tensor("Select", condition=condition)
    left, right = promote.pair("Select", input, other)
    return jnp.where(condition, left, right)


@operator(function="where", mint="where")
def where(condition: Array, input: Operand, other: Operand) -> Array:
    """Elements of `input` where `condition`, of `other` elsewhere; all three are broadcast."""
    check.tensor("where", condition=condition)
    left, right = promote.pair("where", input, other)
    return jnp.where(condition, left, right)


@operator("MaskedFill", method="masked_fill", mint="masked_fill")
def masked_fill(input: Array, mask: Array, value: Operand) -> Array:
    """`value` where `mask`, `input` elsewhere.

    Raises:
        SporaxTypeError: `mask` is not a bool tensor.
    """
    if mask.dtype != np.bool_:
        raise SporaxTypeError(
            f"For 'MaskedFill', 'mask' must be Tensor[Bool], but got {dtypes.from_numpy(mask.dtype)}."
        )
    return jnp.where(mask, jnp.asarray(value, input.dtype), input)


@operator(function="clamp", method="clamp, clip", mint="clamp; clip")
def clamp(input: Array, min: Operand | None = None, max: Operand | None = None) -> Array:
    """`input` limited to [min, max]; None leaves that side open."""
    low = None if min is None else jnp.asarray(min, input.dtype)
    high = None if max is None else jnp.asarray(max, input.dtype)
    return jnp.clip(input, low, high)


@operator(function="clip_by_value")
def clip_by_value(x: Array, clip_value_min: Operand | None = None, clip_value_max: Operand | None = None) -> Array:
    """`x` limited to [clip_value_min, clip_value_max]; None leaves that side open."""
    low = None if clip_value_min is None else jnp.asarray(clip_value_min, x.dtype)
    high = None if clip_value_max is None else jnp.asarray(clip_value_max, x.dtype)
    return jnp.clip(x, low, high)


@operator("AddN", function="addn")
def addn(x: Array) -> Array:
    """Sum of a tuple of tensors of one shape and dtype."""
    check.same_dtype("AddN", **{f"x[{index}]": each for index, each in enumerate(x)})
    total = x[0]
    for each in x[1:]:
        total = total + each
    return total
