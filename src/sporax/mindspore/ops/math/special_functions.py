"""Special functions: the Bessel, gamma, beta and zeta functions, and exponentials and logarithms to other bases.

JAX lacks the Bessel functions J, Y, and K with and without its exponential, of the orders 0 and 1. Each is a few smooth
functions, put together by the function's known form near zero and far away (Abramowitz & Stegun, 9.1, 9.2, 9.6, 9.7). The smooth
parts are Chebyshev series, which are fitted to SciPy's values in float64 when first needed. Derivatives are those of the series.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.ops._core import Array, Operand, check, extremes, operator, other_form, promote
from sporax.mindspore.ops._core.elementwise_table import pointwise


def _special(name: str) -> Callable[..., Array]:
    """A function of `jax.scipy.special`, which JAX loads when it is first used."""

    def compute(*inputs: Array) -> Array:
        return getattr(jax.scipy.special, name)(*inputs)

    compute.__name__ = name
    return compute


def _i0(x: Array) -> Array:
    """The Bessel function, whose gradient at 0 is 0; with JAX's |x| it would be 1."""
    return jnp.exp(extremes.magnitude(x)) * jax.scipy.special.i0e(x)


@jax.custom_jvp
def _xlogy(x: Array, y: Array) -> Array:
    return jax.scipy.special.xlogy(x, y)


_xlogy.defjvps(
    # Where the result is 0 for both it has no slope, as in MindSpore.
    lambda change, result, x, y: change * jnp.where((x == 0) & (y == 0), 0, jnp.log(y)),
    lambda change, result, x, y: change * (x / y),
)


@jax.custom_jvp
def _logit(x: Array) -> Array:
    return jnp.log(x / (1 - x))


# Infinite at 0 and 1; NaN beyond, where there is no value.
_logit.defjvps(lambda change, result, x: change * jnp.where((x < 0) | (x > 1), jnp.nan, 1 / (x * (1 - x))))


# primitive, function on arrays, names of function and methods, mint, what it computes
for _primitive, _compute, _names, _mint, _doc in (
    ("BesselI0", _i0, "bessel_i0", "", "Modified Bessel function of the first kind, order 0."),
    ("BesselI0e", _special("i0e"), "bessel_i0e", "", "exp(-|x|) times the modified Bessel function of order 0."),
    ("BesselI1", _special("i1"), "bessel_i1", "", "Modified Bessel function of the first kind, order 1."),
    ("BesselI1e", _special("i1e"), "bessel_i1e", "", "exp(-|x|) times the modified Bessel function of order 1."),
    (None, _i0, "i0", "", "Modified Bessel function of the first kind, order 0."),
    ("Lgamma", jax.lax.lgamma, "lgamma", "", "Logarithm of the absolute value of the gamma function."),
    ("Digamma", jax.lax.digamma, "digamma", "", "Derivative of `lgamma`."),
    (None, jnp.exp2, "exp2", "exp2", "2 to the power of the input."),
    (None, jnp.log2, "log2", "log2", "Logarithm to base 2."),
    (None, jnp.log10, "log10", "log10", "Logarithm to base 10."),
    ("Sinc", jnp.sinc, "sinc", "sinc", "sin(pi x) / (pi x), and 1 at 0."),
):
    _bessel = _names.startswith("bessel")  # MindSpore calls their input x, and gives Tensors no such methods
    pointwise(
        _primitive,
        _compute,
        _doc,
        function=_names,
        parameters=("x",) if _bessel else ("input",),
        method="" if _bessel else _names,
        mint=_mint,
    )


@operator(function="logit", method="logit")
def logit(input: Array, eps: float | None = None) -> Array:
    """log(x / (1 - x)), the inverse of the sigmoid.

    Args:
        input: probabilities.
        eps: the input is limited to [eps, 1 - eps] first; None or a negative number: it is not.
    """
    check.floating("Logit", input=input)
    values = input if eps is None or eps < 0 else jnp.clip(input, eps, 1 - eps)
    return _logit(values)


other_form(logit, "Logit(eps)", eps=-1.0)


@operator(function="mvlgamma", method="mvlgamma")
def mvlgamma(input: Array, p: int) -> Array:
    """Logarithm of the multivariate gamma function of dimension `p`; every element must exceed (p - 1) / 2.

    Raises:
        SporaxValueError: `p` is below 1.
    """
    if isinstance(p, bool) or not isinstance(p, int) or p < 1:
        raise SporaxValueError(f"For 'Mvlgamma', 'p' must be an int >= 1, but got {p!r}.")
    values = promote.inexact(input)
    steps = jnp.arange(p, dtype=values.dtype) / 2
    return p * (p - 1) / 4 * math.log(math.pi) + jnp.sum(jax.lax.lgamma(values[..., None] - steps), -1)


other_form(mvlgamma, "Mvlgamma(p)", "x=input p")

for _primitive, _compute, _own, _mint, _doc in (
    ("Igamma", _special("gammainc"), "igamma", "", "Regularised lower incomplete gamma function P(input, other)."),
    ("Igammac", _special("gammaincc"), "igammac", "", "Regularised upper incomplete gamma function Q(input, other)."),
    ("Xlogy", _xlogy, "xlogy", "xlogy", "input · log(other), and 0 where input is 0."),
    (None, jnp.logaddexp, "logaddexp", "logaddexp", "log(exp(input) + exp(other)), computed without overflow."),
    (None, jnp.logaddexp2, "logaddexp2", "logaddexp2", "log2(2^input + 2^other), computed without overflow."),
):
    pointwise(_primitive, _compute, _doc, function=_own, parameters=("input", "other"), method=_own, mint=_mint)
pointwise(
    "Zeta", _special("zeta"), "Hurwitz zeta function: the sum over k >= 0 of (k + other) to the power of -input.",
    function="zeta", parameters=("input", "other"),
)  # fmt: skip


@operator("Betainc", function="")
def _betainc(a: check.Float, b: check.Float, x: check.Float) -> Array:
    """Regularised incomplete beta function of tensors of one shape."""
    check.same_dtype("Betainc", a=a, b=b, x=x)
    return jax.scipy.special.betainc(a, b, x)


@operator("Polygamma()", function="polygamma")
def polygamma(n: Array | int, input: Array) -> Array:
    """The `n`-th derivative of the digamma function.

    Args:
        n: order, an int or a tensor with one integer, >= 0.
        input: where to evaluate.
    """
    values = promote.inexact(input)
    if isinstance(n, int):
        For("Polygamma").refuse(n < 0, "'n' must be >= 0", n)
        return jax.lax.digamma(values) if n == 0 else _higher_polygamma(jnp.asarray(n, jnp.int32), values)
    check.integral("Polygamma", n=n)
    For("Polygamma").refuse(n.size != 1, f"'n' must have one element, but its shape is {n.shape}")
    order = n.reshape(())
    return jnp.where(order == 0, jax.lax.digamma(values), _higher_polygamma(jnp.maximum(order, 1), values))


def _higher_polygamma(order: Array, values: Array) -> Array:
    """``(-1)^(n+1) n! zeta(n + 1, x)`` for n >= 1 (Abramowitz & Stegun 6.4.10)."""
    return jax.scipy.special.polygamma(jnp.broadcast_to(order, values.shape), values)


@operator(function="logsumexp", method="logsumexp", mint="logsumexp")
def logsumexp(input: check.One, dim: int | tuple[int, ...], keepdim: bool = False) -> Array:
    """Logarithm of the sum of exponentials over `dim`, computed without overflow."""
    return jax.scipy.special.logsumexp(
        promote.inexact(input), check.axes("logsumexp", dim, input.ndim, "dim"), keepdims=keepdim
    )


@operator(function="float_power", method="float_power(other=exponent)", mint="float_power")
def float_power(input: Operand, exponent: Operand) -> Array:
    """`input` to the power of `exponent`, computed and returned in float64 (complex128 for complex operands).

    Raises:
        SporaxTypeError: neither is a tensor.
    """
    if all(isinstance(operand, int | float | complex) for operand in (input, exponent)):
        raise SporaxTypeError("For 'float_power', 'input' or 'exponent' must be a Tensor, but got two numbers.")
    check.broadcast("float_power", input, exponent)
    is_complex = any(jnp.iscomplexobj(operand) for operand in (input, exponent))
    dtype = jnp.complex128 if is_complex else jnp.float64
    return jnp.power(jnp.asarray(input, dtype), jnp.asarray(exponent, dtype))


@operator("Eps()", function="eps")
def eps(x: check.Float) -> Array:
    """The distance from 1 to the next number of the dtype, in the shape of `x`."""
    return jnp.full_like(x, jnp.finfo(x.dtype).eps)


# Where the forms for small and for large arguments of J and Y meet, the usual bound: series are short on both sides.
_NEAR_JY = 8.0
# As above, for K.
_NEAR_K = 2.0
# Degree of the interpolation; trailing coefficients are left out.
_DEGREE = 30


@functools.cache
def _reference() -> Any:
    """SciPy's functions. Loading them takes a tenth of a second, which only those pay who call a function of this file."""
    return import_module("scipy.special")


@functools.cache
def _series(part: str) -> tuple[float, ...]:
    """Chebyshev coefficients of one smooth part on [0, 1], without those at the level of rounding errors."""
    fitted = np.polynomial.chebyshev.Chebyshev.interpolate(_PARTS[part], _DEGREE, domain=[0, 1])
    # 4e-15: some rounding errors of float64.
    return tuple(fitted.trim(4e-15 * np.abs(fitted.coef).max()).coef.tolist())


def _at(part: str, t: Array) -> Array:
    """A smooth part at `t` in [0, 1], by Clenshaw's recurrence."""
    # Chebyshev polynomials live on [-1, 1].
    place = 2 * t - 1
    last, before = jnp.zeros_like(t), jnp.zeros_like(t)
    first, *others = _series(part)
    # Clenshaw's recurrence needs no powers and is stable.
    for coefficient in reversed(others):
        last, before = coefficient + 2 * place * last - before, last
    return first + place * last - before


def _small(t: Any) -> Any:
    """The argument of J and Y for a share of the near range; t is its square."""
    return _NEAR_JY * np.sqrt(t)


def _phase(x: Any, order: int) -> Any:
    # The phase of Hankel's asymptotic form.
    return x - (2 * order + 1) * math.pi / 4


def _amplitude(order: int, quadrature: bool) -> Callable[[Any], Any]:
    """P and Q of Hankel's form ``J = sqrt(2 / (pi x)) (P cos - Q sin)``, ``Y`` likewise; t is (8 / x)²."""

    def part(t: Any) -> Any:
        x = _NEAR_JY / np.sqrt(t)
        first, second = _reference().jv(order, x), _reference().yv(order, x)
        cosine, sine = np.cos(_phase(x, order)), np.sin(_phase(x, order))
        # P and Q are smooth, unlike J and Y themselves.
        scale = np.sqrt(math.pi * x / 2)
        if quadrature:
            return scale * (second * cosine - first * sine) * x / _NEAR_JY
        return scale * (first * cosine + second * sine)

    return part


def _k_near(order: int) -> Callable[[Any], Any]:
    """K without its logarithm, and times x for order 1; t is (x / 2)²."""

    def part(t: Any) -> Any:
        x = _NEAR_K * np.sqrt(t)
        if order == 0:
            return _reference().k0(x) + np.log(x / 2) * _reference().i0(x)
        return x * (_reference().k1(x) - np.log(x / 2) * _reference().i1(x))

    return part


_PARTS: dict[str, Callable[[Any], Any]] = {
    "j0": lambda t: _reference().j0(_small(t)),
    "j1": lambda t: _reference().j1(_small(t)) / _small(t),
    # Without the logarithm (and for order 1 without the pole), what is left is smooth.
    "y0": lambda t: _reference().y0(_small(t)) - 2 / math.pi * np.log(_small(t)) * _reference().j0(_small(t)),
    "y1": lambda t: (
        (_reference().y1(_small(t)) - 2 / math.pi * (np.log(_small(t)) * _reference().j1(_small(t)) - 1 / _small(t)))
        / _small(t)
    ),
    "p0": _amplitude(0, False),
    "q0": _amplitude(0, True),
    "p1": _amplitude(1, False),
    "q1": _amplitude(1, True),
    "k0 near": _k_near(0),
    "k1 near": _k_near(1),
    "k0 far": lambda t: _reference().k0e(_NEAR_K / t) * np.sqrt(_NEAR_K / t),
    "k1 far": lambda t: _reference().k1e(_NEAR_K / t) * np.sqrt(_NEAR_K / t),
}


def _oscillating(order: int, second: bool) -> Callable[[Array], Array]:
    """J (or Y, the second kind)."""
    name = f"{'y' if second else 'j'}{order}"

    def near(x: Array) -> Array:
        # Order 1 is odd: the factor x was divided out of its series.
        smooth = _at(name, jnp.square(x / _NEAR_JY)) * (x if order else 1)
        if not second:
            return smooth
        first = _at(f"j{order}", jnp.square(x / _NEAR_JY)) * (x if order else 1)
        return smooth + 2 / math.pi * (jnp.log(x) * first - (1 / x if order else 0))

    def far(x: Array) -> Array:
        t = jnp.square(_NEAR_JY / x)
        p, q = _at(f"p{order}", t), _at(f"q{order}", t) * _NEAR_JY / x
        cosine, sine = jnp.cos(_phase(x, order)), jnp.sin(_phase(x, order))
        return jnp.sqrt(2 / (math.pi * x)) * (p * sine + q * cosine if second else p * cosine - q * sine)

    def value_at(x: Array) -> Array:
        # J is even or odd, so only its size is evaluated.
        size = jnp.abs(x)
        is_near = size <= _NEAR_JY
        inside = jnp.where(is_near & ((size > 0) | (not second)), size, 1)  # so that no gradient meets an infinity
        # Both branches are evaluated, so each gets an argument within its range.
        value = jnp.where(is_near, near(inside), far(jnp.where(is_near, _NEAR_JY, size)))
        if not second:
            return jnp.where(x < 0, -value, value) if order else value
        # Y has a pole at 0 and no real value below.
        return jnp.where(x > 0, value, jnp.where(x == 0, -jnp.inf, jnp.nan)).astype(x.dtype)

    return value_at


def _decaying(order: int, scaled: bool) -> Callable[[Array], Array]:
    """K, or (`scaled`) K times exp(x)."""

    def near(x: Array) -> Array:
        smooth = _at(f"k{order} near", jnp.square(x / _NEAR_K))
        grown = jax.scipy.special.i1(x) if order else jax.scipy.special.i0(x)
        value = smooth / x + jnp.log(x / 2) * grown if order else smooth - jnp.log(x / 2) * grown
        return value * jnp.exp(x) if scaled else value

    def far(x: Array) -> Array:
        value = _at(f"k{order} far", _NEAR_K / x) / jnp.sqrt(x)
        return value if scaled else value * jnp.exp(-x)

    def value_at(x: Array) -> Array:
        is_near = x <= _NEAR_K
        value = jnp.where(is_near, near(jnp.where(is_near & (x > 0), x, 1)), far(jnp.where(is_near, _NEAR_K, x)))
        return jnp.where(x > 0, value, jnp.where(x == 0, jnp.inf, jnp.nan)).astype(x.dtype)

    return value_at


def _register(letter: str, order: int, compute: Callable[[Array], Array], doc: str) -> None:
    def in_floats(x: Array) -> Array:
        values = promote.inexact(x)
        # Half precision does not hold the series' coefficients.
        half = values.dtype.itemsize < 4
        return compute(values.astype(jnp.float32) if half else values).astype(values.dtype)

    kind = f"{letter[0].upper()}{order}{letter[1:]}"
    pointwise(f"Bessel{kind}", in_floats, doc, function=f"bessel_{kind.lower()}", parameters=("x",))


for _order in (0, 1):
    _register("j", _order, _oscillating(_order, False), f"Bessel function of the first kind, order {_order}.")
    _register(
        "y", _order, _oscillating(_order, True), f"Bessel function of the second kind, order {_order}; for x > 0."
    )
    _register("k", _order, _decaying(_order, False), f"Modified Bessel function of the second kind, order {_order}.")
    _register("ke", _order, _decaying(_order, True), f"exp(x) times the modified Bessel function K, order {_order}.")
