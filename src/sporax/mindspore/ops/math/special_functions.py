"""Special functions: the Bessel, gamma, beta and zeta functions, and exponentials and logarithms to other bases."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.scipy

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core import promotion as promote
from sporax.mindspore.ops._core.elementwise_table import pointwise
from sporax.mindspore.ops._core.operator import Array, Operand, operator, other_form


def _special(name: str) -> Callable[..., Array]:
    """A function of `jax.scipy.special`, which JAX loads when it is first asked for."""

    def compute(*inputs: Array) -> Array:
        return getattr(jax.scipy.special, name)(*inputs)

    compute.__name__ = name
    return compute


# primitive, function on arrays, names of function and methods, mint, what it computes
for _primitive, _compute, _names, _mint, _doc in (
    ("BesselI0", _special("i0"), "bessel_i0", "", "Modified Bessel function of the first kind, order 0."),
    ("BesselI0e", _special("i0e"), "bessel_i0e", "", "exp(-|x|) times the modified Bessel function of order 0."),
    ("BesselI1", _special("i1"), "bessel_i1", "", "Modified Bessel function of the first kind, order 1."),
    ("BesselI1e", _special("i1e"), "bessel_i1e", "", "exp(-|x|) times the modified Bessel function of order 1."),
    (None, _special("i0"), "i0", "", "Modified Bessel function of the first kind, order 0."),
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
    return jnp.log(values / (1 - values))


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


pointwise(
    "Igamma", _special("gammainc"), "Regularised lower incomplete gamma function P(input, other).",
    function="igamma", parameters=("input", "other"), method="igamma",
)  # fmt: skip


pointwise(
    "Igammac", _special("gammaincc"), "Regularised upper incomplete gamma function Q(input, other).",
    function="igammac", parameters=("input", "other"), method="igammac",
)  # fmt: skip


pointwise(
    "Zeta", _special("zeta"), "Hurwitz zeta function: the sum over k >= 0 of (k + other) to the power of -input.",
    function="zeta", parameters=("input", "other"),
)  # fmt: skip


pointwise(
    "Xlogy", _special("xlogy"), "input · log(other), and 0 where input is 0.",
    function="xlogy", parameters=("input", "other"), method="xlogy", mint="xlogy",
)  # fmt: skip


pointwise(
    None, jnp.logaddexp, "log(exp(input) + exp(other)), computed without overflow.",
    function="logaddexp", parameters=("input", "other"), method="logaddexp", mint="logaddexp",
)  # fmt: skip


pointwise(
    None, jnp.logaddexp2, "log2(2^input + 2^other), computed without overflow.",
    function="logaddexp2", parameters=("input", "other"), method="logaddexp2", mint="logaddexp2",
)  # fmt: skip


@operator("Betainc", function="")
def _betainc(a: Array, b: Array, x: Array) -> Array:
    """Regularised incomplete beta function of tensors of one shape."""
    check.floating("Betainc", a=a, b=b, x=x)
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
        SporaxValueError.raise_if(n < 0, "Polygamma", "n", "be >= 0", n)
        return jax.lax.digamma(values) if n == 0 else _higher_polygamma(jnp.asarray(n, jnp.int32), values)
    check.integral("Polygamma", n=n)
    if n.size != 1:
        raise SporaxValueError(f"For 'Polygamma', 'n' must have one element, but its shape is {n.shape}.")
    order = n.reshape(())
    return jnp.where(order == 0, jax.lax.digamma(values), _higher_polygamma(jnp.maximum(order, 1), values))


def _higher_polygamma(order: Array, values: Array) -> Array:
    """``(-1)^(n+1) n! zeta(n + 1, x)`` for n >= 1 (Abramowitz & Stegun 6.4.10)."""
    return jax.scipy.special.polygamma(jnp.broadcast_to(order, values.shape), values)


@operator(function="logsumexp", method="logsumexp", mint="logsumexp")
def logsumexp(input: Array, dim: int | tuple[int, ...], keepdim: bool = False) -> Array:
    """Logarithm of the sum of exponentials over `dim`, computed without overflow."""
    check.tensor("logsumexp", input=input)
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
def eps(x: Array) -> Array:
    """The distance from 1 to the next number of the dtype, in the shape of `x`."""
    check.floating("Eps", x=x)
    return jnp.full_like(x, jnp.finfo(x.dtype).eps)
