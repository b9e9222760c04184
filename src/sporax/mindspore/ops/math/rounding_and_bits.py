"""Arithmetic beyond the basic operations: other conventions at zero, for signs and for rounding, bits, closeness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.elementwise_table import inexact, integral, pointwise, same
from sporax.mindspore.ops._core.operator import REQUIRED, Array, Operand, operator, other_form


def _safe(divisor: Array) -> Array:
    """`divisor` with ones for zeros, so that neither a quotient nor its gradient meets a zero."""
    return jnp.where(divisor == 0, jnp.ones((), divisor.dtype), divisor)


def _quotient(left: Array, right: Array) -> Array:
    return jax.lax.div(left, right) if jnp.issubdtype(left.dtype, jnp.integer) else left / right


def _div_no_nan(left: Array, right: Array) -> Array:
    zero = jnp.zeros((), left.dtype)
    return jnp.where(right == 0, zero, _quotient(*jnp.broadcast_arrays(left, _safe(right))))


def _mul_no_nan(left: Array, right: Array) -> Array:
    return jnp.where(right == 0, jnp.zeros((), left.dtype), left * right)


def _xdivy(left: Array, right: Array) -> Array:
    divisor = jnp.where(left == 0, _safe(right), right)
    return jnp.where(left == 0, jnp.zeros((), left.dtype), left / divisor)


def _truncate_div(left: Array, right: Array) -> Array:
    quotient = _quotient(*jnp.broadcast_arrays(left, right))
    return jnp.trunc(quotient) if jnp.issubdtype(quotient.dtype, jnp.inexact) else quotient


# `rem` has the sign of the dividend.
def _truncate_mod(left: Array, right: Array) -> Array:
    return jax.lax.rem(*jnp.broadcast_arrays(left, right))


def _step(array: Array, at_zero: Array) -> Array:
    # JAX makes floats of integers.
    return jnp.heaviside(array, at_zero).astype(array.dtype)


def _ldexp(left: Array, right: Array) -> Array:
    return left * jnp.exp2(right)


def _fmax(x: Array, y: Array) -> Array:
    # The first of two equal values has the gradient.
    return jnp.where((x >= y) | jnp.isnan(y), x, y)


def _fmin(x: Array, y: Array) -> Array:
    return jnp.where((x <= y) | jnp.isnan(y), x, y)


_PAIR = ("input", "other")

# primitive, function on arrays, function's name, parameters, conversion, method, mint, what it computes
_BINARY: tuple[tuple[str | None, Callable[..., Array], str, tuple[str, ...], Any, str, str, str], ...] = (
    ("DivNoNan", _div_no_nan, "", ("x1", "x2"), same, "", "", "Quotient, and 0 where the divisor is 0."),
    ("MulNoNan", _mul_no_nan, "", ("x", "y"), same, "", "", "Product, and 0 where `y` is 0, whatever `x` is."),
    ("Xdivy", _xdivy, "xdivy", ("x", "y"), inexact, "xdivy", "", "x / y, and 0 where `x` is 0."),
    ("TruncateDiv", _truncate_div, "truncate_div", ("x", "y"), same, "", "", "Quotient rounded towards zero."),
    ("TruncateMod", _truncate_mod, "truncate_mod", ("x", "y"), same, "", "", "Remainder with the sign of `x`."),
    ("Fmax", _fmax, "fmax", _PAIR, same, "fmax", "", "The larger of two values; a NaN loses to a number."),
    ("Fmin", _fmin, "fmin", _PAIR, same, "fmin", "", "The smaller of two values; a NaN loses to a number."),
    ("Hypot", jnp.hypot, "hypot", _PAIR, inexact, "hypot", "", "Length of the hypotenuse over two legs."),
    ("Gcd", jnp.gcd, "gcd", _PAIR, integral, "gcd", "gcd", "Greatest common divisor."),
    ("Lcm", jnp.lcm, "lcm", _PAIR, integral, "lcm", "", "Least common multiple."),
    ("Heaviside", _step, "heaviside", ("input", "values"), same, "heaviside", "",
     "0 for negative input, 1 for positive, `values` at 0."),
    ("NextAfter", jnp.nextafter, "nextafter", _PAIR, inexact, "nextafter", "",
     "The next number the dtype has after `input` towards `other`."),
    (None, jnp.copysign, "copysign", ("x", "other"), inexact, "copysign", "", "`x` with the sign of `other`."),
    (None, _ldexp, "ldexp", ("x", "other"), inexact, "ldexp", "", "x times 2 to the power of `other`."),
    (None, jnp.left_shift, "bitwise_left_shift", _PAIR, integral, "bitwise_left_shift", "",
     "Bits of `input` moved left by `other` places."),
    (None, jnp.right_shift, "bitwise_right_shift", _PAIR, integral, "bitwise_right_shift", "",
     "Bits of `input` moved right by `other` places; the sign stays."),
    ("LeftShift", jnp.left_shift, "", ("x1", "x2"), integral, "", "", "Bits moved left."),
    ("RightShift", jnp.right_shift, "", ("input_x", "input_y"), integral, "", "", "Bits moved right."),
)  # fmt: skip


def _inverse(array: Array) -> Array:
    """One over the input; integers give the whole part, as MindSpore's Inv does."""
    if not jnp.issubdtype(array.dtype, jnp.integer):
        return jnp.reciprocal(array)
    # Integers give 0 for 0, where MindSpore's Inv does.
    return _div_no_nan(jnp.ones_like(array), array)


def _frac(array: Array) -> Array:
    return array - jnp.trunc(array) if jnp.issubdtype(array.dtype, jnp.inexact) else jnp.zeros_like(array)


def _population_count(array: Array) -> Array:
    return jax.lax.population_count(array).astype(jnp.uint8)


_UNARY: tuple[tuple[str | None, Callable[..., Array], str, tuple[str, ...], Any, str, str, str], ...] = (
    ("Inv", _inverse, "inv", ("x",), same, "inv", "", "One over the input."),
    ("Invert", jnp.bitwise_not, "invert", ("x",), integral, "invert", "", "All bits flipped."),
    (None, jnp.bitwise_not, "", ("input",), integral, "bitwise_not", "bitwise_not", "All bits flipped."),
    (None, jnp.sign, "sgn", ("input",), same, "sgn", "", "Sign; of a complex number its direction."),
    (None, _frac, "frac", ("x",), same, "frac", "frac(input=x)", "What follows the decimal point."),
    (None, jnp.signbit, "signbit", ("input",), inexact, "signbit", "", "Whether the sign bit is set."),
    (None, jnp.isposinf, "isposinf", ("input",), inexact, "isposinf", "", "Whether elements are +inf."),
    (None, jnp.isneginf, "isneginf", ("input",), inexact, "isneginf", "isneginf", "Whether elements are -inf."),
    (None, jnp.isreal, "isreal", ("input",), same, "isreal", "", "Whether elements have no imaginary part."),
    (None, jnp.positive, "positive", ("input",), same, "positive", "", "The input itself."),
    (None, jnp.deg2rad, "deg2rad", ("x",), inexact, "deg2rad", "", "Degrees as radians."),
    (None, jnp.rad2deg, "rad2deg", ("x",), inexact, "rad2deg", "", "Radians as degrees."),
    ("PopulationCount", _population_count, "population_count", ("input_x",), integral, "", "",
     "Number of bits that are set (uint8)."),
)  # fmt: skip
for _primitive, _compute, _own, _names, _convert, _method, _mint, _doc in (*_BINARY, *_UNARY):
    pointwise(
        _primitive, _compute, _doc,
        function=_own, parameters=_names, convert=_convert, method=_method, mint=_mint,
    )  # fmt: skip


@operator("NanToNum(nan, posinf, neginf)", function="nan_to_num", method="nan_to_num", mint="nan_to_num")
def nan_to_num(
    input: check.One, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Array:
    """NaN and infinities replaced by `nan` (0 by default), `posinf` and `neginf` (the extremes of the dtype)."""
    return jnp.nan_to_num(input, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@operator("Lerp", function="lerp", method="lerp", mint="lerp")
def lerp(input: check.Float, end: check.Float, weight: Operand) -> Array:
    """``input + weight * (end - input)``; all three are broadcast.

    Raises:
        SporaxTypeError: not floating point, or dtypes that differ.
    """
    check.same_dtype("Lerp", input=input, end=end)
    check.broadcast("Lerp", input, end)
    return input + jnp.asarray(weight, input.dtype) * (end - input)


def _matching(name: str, input: Array, left: Array, right: Array, value: Any) -> Array:
    check.tensor(name, input=input, tensor1=left, tensor2=right)
    check.same_dtype(name, input=input, tensor1=left, tensor2=right)
    return jnp.asarray(value, input.dtype)


@operator(function="addcdiv", method="addcdiv", mint="addcdiv")
def addcdiv(input: Array, tensor1: Array, tensor2: Array, value: Operand = 1) -> Array:
    """``input + value * tensor1 / tensor2``."""
    return input + _matching("Addcdiv", input, tensor1, tensor2, value) * (tensor1 / tensor2)


@operator(function="addcmul", method="addcmul")
def addcmul(input: Array, tensor1: Array, tensor2: Array, value: Operand = 1) -> Array:
    """``input + value * tensor1 * tensor2``."""
    return input + _matching("Addcmul", input, tensor1, tensor2, value) * (tensor1 * tensor2)


other_form(addcdiv, "Addcdiv()", value=REQUIRED)
other_form(addcmul, "Addcmul()", value=REQUIRED)
other_form(addcmul, mint="addcmul", parameters="input tensor1 tensor2 * value")


@operator("ApproximateEqual", function="approximate_equal", method="approximate_equal(input=x, other=y)")
def approximate_equal(x: check.One, y: check.One, tolerance: float = 1e-5) -> Array:
    """Whether two tensors of one shape and dtype differ by less than `tolerance`, element by element."""
    check.same_dtype("ApproximateEqual", x=x, y=y)
    return jnp.abs(x - y) < tolerance


@operator("IsClose(rtol, atol, equal_nan)", function="isclose", method="isclose", mint="isclose")
def isclose(
    input: check.One, other: check.One, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Array:
    """Whether ``|input - other| <= atol + rtol * |other|``, element by element."""
    check.same_dtype("IsClose", input=input, other=other)
    check.broadcast("IsClose", input, other)
    return jnp.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


@operator(function="", method="allclose", mint="allclose", composed=True)
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close (see `isclose`), as a Python bool."""
    # As a Python bool, so it ends a compiled step.
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@operator("Complex", function="")
def _complex(real: check.Float, imag: check.Float) -> Array:
    """Complex numbers of real and imaginary parts (float32 or float64)."""
    check.same_dtype("Complex", real=real, imag=imag)
    # XLA does not broadcast complex numbers' parts.
    return jax.lax.complex(*jnp.broadcast_arrays(real, imag))


@operator("Polar", function="polar", mint="polar")
def polar(abs: check.Float, angle: check.Float) -> Array:
    """Complex numbers of lengths and angles."""
    return jax.lax.complex(abs * jnp.cos(angle), abs * jnp.sin(angle))


def _complex_abs(array: Array) -> Array:
    For("ComplexAbs").refuse_type(not jnp.iscomplexobj(array), "the input must be complex", check.describe(array))
    return jnp.abs(array)


_COMPLEX: tuple[tuple[str, Callable[..., Array], str, Any, str, str], ...] = (
    ("Real", jnp.real, "real", same, "real", "Real part."),
    ("Imag", jnp.imag, "imag", same, "imag", "Imaginary part; zeros for real input."),
    ("Conj", jnp.conj, "conj", same, "", "The complex conjugate."),
    ("Angle", jnp.angle, "angle", inexact, "", "Angle in the complex plane, in (-pi, pi]."),
    ("ComplexAbs", _complex_abs, "", same, "", "Length of complex numbers."),
)
for _primitive, _compute, _own, _convert, _mint, _doc in _COMPLEX:
    pointwise(_primitive, _compute, _doc, function=_own, convert=_convert, method=_own, mint=_mint)


def _is(kind: Any, value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype.np_dtype, kind))


@operator(function="is_complex", method="is_complex", composed=True)
def is_complex(input: object) -> bool:
    """Whether the dtype is complex."""
    return _is(np.complexfloating, input)


@operator(function="is_floating_point", method="is_floating_point", composed=True)
def is_floating_point(input: object) -> bool:
    """Whether the dtype is floating point."""
    return _is(jnp.floating, input)
