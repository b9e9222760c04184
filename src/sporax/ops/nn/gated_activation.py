"""More activation functions: shrinking, saturating, gated ones, and those with learned or drawn slopes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.common import seed as seeds
from sporax.common.dtype import DType
from sporax.common.tensor import wrap
from sporax.ir.errors import SporaxValueError
from sporax.ops._core import check, extremes
from sporax.ops._core.elementwise_table import Convert, pointwise
from sporax.ops._core.operator import Array, operator

# ------------------------------------------------------------------------------------------------------ no parameters


def _floating(name: str, value: Any) -> Array:
    check.floating(name, input=value)
    return value  # type: ignore[no-any-return]  # an array by then


def _hard_sigmoid(x: Array) -> Array:
    return extremes.limited(x / 6 + 0.5, 0, 1)


def _hard_swish(x: Array) -> Array:
    return x * _hard_sigmoid(x)


def _tanh_shrink(x: Array) -> Array:
    return x - jnp.tanh(x)


def _fast_gelu(x: Array) -> Array:
    return x * jax.nn.sigmoid(1.702 * x)


_floats: Convert = _floating

# primitive, function on arrays, function's name, parameter, mint, what it computes
for _primitive, _compute, _own, _parameter, _mint, _doc in (
    ("HSigmoid", _hard_sigmoid, "hardsigmoid", "input", "nn.functional.hardsigmoid", "x / 6 + 1/2 limited to [0, 1]."),
    ("HSwish", _hard_swish, "hardswish", "input", "nn.functional.hardswish", "x times its hard sigmoid."),
    ("Mish", jax.nn.mish, "mish", "x", "nn.functional.mish(input=x)", "x · tanh(log(1 + exp(x))) (Misra 2019)."),
    ("SeLU", jax.nn.selu, "selu", "input_x", "nn.functional.selu(input=input_x)",
     "1.0507 · (x where positive, else 1.6733 · (exp(x) - 1)) (Klambauer et al. 2017)."),
    ("Softsign", jax.nn.soft_sign, "softsign", "x", "nn.functional.softsign(input=x)", "x / (1 + |x|)."),
    (None, jax.nn.log_sigmoid, "logsigmoid", "x", "nn.functional.logsigmoid(input=x)", "Logarithm of the sigmoid."),
    (None, _tanh_shrink, "tanhshrink", "input", "nn.functional.tanhshrink", "x - tanh(x)."),
    ("FastGeLU", _fast_gelu, "fast_gelu", "x", "", "x · sigmoid(1.702 · x), near to the Gaussian error linear unit."),
):  # fmt: skip
    pointwise(_primitive, _compute, _doc, function=_own, parameters=(_parameter,), convert=_floats, mint=_mint)


# ------------------------------------------------------------------------------------------------------- one threshold


def _shrunk(name: str, x: Array, lambd: float, soft: bool) -> Array:
    check.floating(name, input=x)
    limit = jnp.asarray(lambd, x.dtype)
    outside = jnp.abs(x) > limit
    return jnp.where(outside, x - jnp.sign(x) * limit if soft else x, jnp.zeros((), x.dtype))


def _shrink(name: str | None, own: str, soft: bool, method: str, mint: str) -> None:
    def kernel(input: Array, lambd: float = 0.5) -> Array:
        return _shrunk(name or own, input, lambd, soft)

    kernel.__name__ = own
    kernel.__doc__ = "Zero within [-lambd, lambd]; outside the input" + (
        " moved by `lambd` towards zero." if soft else "."
    )
    operator(name, function=own, method=method, mint=mint)(kernel)


_shrink("HShrink", "hardshrink", False, "hardshrink", "nn.functional.hardshrink")
_shrink("SoftShrink", "softshrink", True, "", "nn.functional.softshrink")
_shrink(None, "soft_shrink", True, "soft_shrink", "")


@operator("CeLU", function="celu")
def celu(x: Array, alpha: float = 1.0) -> Array:
    """The input where positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere (Barron 2017)."""
    check.floating("CeLU", x=x)
    if alpha == 0:
        raise SporaxValueError("For 'CeLU', 'alpha' must not be 0.")
    return jax.nn.celu(x, alpha)


@operator(function="hardtanh", mint="")
def hardtanh(input: Array, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """The input limited to [min_val, max_val]."""
    check.tensor("hardtanh", input=input)
    return extremes.limited(input, jnp.asarray(min_val, input.dtype), jnp.asarray(max_val, input.dtype))


@operator(function="threshold")
def threshold(input: Array, thr: float, value: float) -> Array:
    """The input where it exceeds `thr`, `value` elsewhere."""
    check.tensor("threshold", input=input)
    return jnp.where(input > thr, input, jnp.asarray(value, input.dtype))


@operator(function="softmin")
def softmin(x: Array, axis: int = -1, *, dtype: DType | None = None) -> Array:
    """Softmax of the negative input along `axis`."""
    check.floating("softmin", x=x)
    return jax.nn.softmax(-(x if dtype is None else x.astype(dtype.np_dtype)), check.axis("softmin", axis, x.ndim))


# --------------------------------------------------------------------------------------------------------------- gates


def _halves(name: str, x: Array, axis: int) -> tuple[Array, Array]:
    check.floating(name, x=x)
    where = check.axis(name, axis, x.ndim)
    if x.shape[where] % 2:
        raise SporaxValueError(f"For '{name}', the size of dim {axis} must be even, but the shape is {x.shape}.")
    first, second = jnp.split(x, 2, where)
    return first, second


@operator("GLU(axis)", function="glu", mint="nn.functional.glu(input=x, dim=axis)")
def glu(x: Array, axis: int = -1) -> Array:
    """The first half along `axis` times the sigmoid of the second (Dauphin et al. 2017)."""
    first, second = _halves("GLU", x, axis)
    return first * jax.nn.sigmoid(second)


@operator(function="swiglu")
def swiglu(input: Array, dim: int = -1) -> Array:
    """The swish of the first half along `dim` times the second (Shazeer 2020)."""
    first, second = _halves("swiglu", input, dim)
    return jax.nn.silu(first) * second


# -------------------------------------------------------------------------------------------- learned and drawn slopes


@operator("PReLU", function="prelu", mint="nn.functional.prelu")
def prelu(input: Array, weight: Array) -> Array:
    """The input where it is positive, `weight` times the input elsewhere.

    Args:
        input: (n, channels, …).
        weight: (1,), one slope for all, or (channels,).
    """
    check.floating("PReLU", input=input, weight=weight)
    check.rank("PReLU", 1, weight=weight)
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.shape[0] not in (1, channels):
        raise SporaxValueError(
            f"For 'PReLU', 'weight' must have 1 or {channels} elements, the channels of 'input' of shape {input.shape}, "
            f"but got {weight.shape}."
        )
    spread = weight.reshape([-1 if dim == 1 else 1 for dim in range(input.ndim)]) if input.ndim > 1 else weight
    return jnp.where(input > 0, input, spread * input)


@operator(function="")
def _random_leaky_relu(input: Array, key: Array, lower: float, upper: float) -> Array:
    """The input where it is positive, a random slope in [lower, upper) times the input elsewhere."""
    check.floating("rrelu", input=input)
    slope = jax.random.uniform(key, input.shape, input.dtype, lower, upper)
    return jnp.where(input >= 0, input, slope * input)


@operator(function="rrelu", composed=True)
def rrelu(input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3) -> Any:
    """The input where it is positive, a slope drawn from [lower, upper) for every element times the input elsewhere."""
    if not 0 <= lower <= upper <= 1:
        raise SporaxValueError(f"For 'rrelu', 0 <= 'lower' <= 'upper' <= 1 must hold, but got {lower} and {upper}.")
    return _random_leaky_relu(input, wrap(seeds.operators.next_key()), float(lower), float(upper))


@operator(function="")
def _gumbel(logits: Array, key: Array, tau: float, hard: bool, dim: int) -> Array:
    """Softmax of logits with Gumbel noise."""
    check.floating("gumbel_softmax", logits=logits)
    where = check.axis("gumbel_softmax", dim, logits.ndim, "dim")
    soft = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape, logits.dtype)) / tau, where)
    if not hard:
        return soft
    chosen = jax.nn.one_hot(jnp.argmax(soft, where), logits.shape[where], dtype=soft.dtype, axis=where)
    return jax.lax.stop_gradient(chosen - soft) + soft


@operator(function="gumbel_softmax", composed=True)
def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Any:
    """A random choice along `dim`, made soft so that it has a gradient (Jang et al. 2017).

    Args:
        logits: unnormalised log-probabilities.
        tau: temperature; the smaller, the nearer to one-hot.
        hard: give one-hot vectors, with the gradient of the soft ones.
        dim: the dimension.
    """
    if tau <= 0:
        raise SporaxValueError(f"For 'gumbel_softmax', 'tau' must be positive, but got {tau}.")
    return _gumbel(logits, wrap(seeds.operators.next_key()), float(tau), hard, dim)
