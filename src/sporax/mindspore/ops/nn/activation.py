"""Activation functions.

Where a function has a kink, MindSpore's choice of the slope is kept; JAX's function of the same name may choose another
one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError
from sporax.mindspore.common import DType, seed as seeds, wrap
from sporax.mindspore.ops._core import Along, channels, check, extremes, promote
from sporax.mindspore.ops._core.elementwise_table import Convert, pointwise
from sporax.mindspore.ops._core.operator import REQUIRED, Array, operator, other_form


def not_in_place(name: str, inplace: bool) -> None:
    """Raise SporaxNotImplementedError when `inplace` is requested: a value may be shared, so it never changes."""
    For(name).refuse(
        inplace, "'inplace' must be False", "True; assign the result instead", kind=SporaxNotImplementedError
    )


@operator("ReLU", function="", method="relu")
def _relu(input: Array) -> Array:
    """The input where it is positive, zero elsewhere; its gradient at 0 is 0."""
    # JAX's `relu` has gradient 0 at 0, as MindSpore's; bools stay.
    return input if input.dtype == np.bool_ else jax.nn.relu(input)


@operator(function="relu")
def relu(input: Array, inplace: bool = False) -> Array:
    """The input where it is positive, zero elsewhere; its gradient at 0 is 0.

    Raises:
        SporaxNotImplementedError: `inplace` is requested.
    """
    not_in_place("relu", inplace)
    return _relu.kernel(input)


@operator("ReLU6", function="relu6")
def relu6(x: check.Float) -> Array:
    """The input limited to [0, 6]; its gradient is 0 at 0 and 1 at 6."""
    # `where` and not `clip`: the gradient at 6 is 1 in MindSpore.
    return jnp.where(x > 6, jnp.asarray(6, x.dtype), jax.nn.relu(x))


@operator("GeLU", function="")
def _gelu_tanh(input: check.Float) -> Array:
    """Gaussian error linear unit in its tanh approximation (Hendrycks & Gimpel 2016)."""
    return jax.nn.gelu(input, approximate=True)


@operator(function="gelu", mint="nn.functional.gelu; npu_gelu")
def gelu(input: check.Float, approximate: str = "none") -> Array:
    """Gaussian error linear unit; `approximate` is ``"none"`` (by the error function) or ``"tanh"``.

    Raises:
        SporaxValueError: another `approximate`.
    """
    check.one_of("gelu", approximate, ("none", "tanh"), "approximate")
    return jax.nn.gelu(input, approximate=approximate == "tanh")


@operator("Sigmoid", method="sigmoid", mint="sigmoid; nn.functional.sigmoid")
def sigmoid(input: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(promote.inexact(input))


@operator("SiLU", function="silu")
def silu(input: check.Float) -> Array:
    """x · sigmoid(x), also called swish."""
    return jax.nn.silu(input)


@operator(function="softmax")
def softmax(input: Array, axis: int | tuple[int, ...] = -1, *, dtype: DType | None = None) -> Array:
    """Exponentials divided by their sum along `axis`, computed in `dtype` if given."""
    values = input if dtype is None else input.astype(dtype.np_dtype)
    check.floating("Softmax", input=values)
    # The empty tuple means all dims in MindSpore.
    return jax.nn.softmax(values, check.axes("Softmax", axis, input.ndim) or tuple(range(input.ndim)))


other_form(softmax, "Softmax", "input axis", dims=Along("axis", -1))
other_form(softmax, method="softmax", parameters="input axis dtype", axis=REQUIRED)
other_form(softmax, None, "input dim=axis * dtype", mint="softmax", dim=REQUIRED)


def _guessed(dim: int | None, ndim: int) -> int:
    """The dim that is meant by None: as in PyTorch, 0 for tensors of 0, 1 or 3 dimensions, else 1."""
    return (0 if ndim in (0, 1, 3) else 1) if dim is None else dim


@operator(function="", mint="nn.functional.softmax")
def _mint_softmax(input: Array, dim: int | None = None, dtype: DType | None = None) -> Array:
    """Exponentials divided by their sum along `dim`; None: dim 0 of 0, 1 or 3 dimensions, else 1."""
    return softmax.kernel(input, _guessed(dim, input.ndim), dtype=dtype)


@operator("LogSoftmax", function="log_softmax", dims=Along("axis", -1))
def log_softmax(logits: Array, axis: int = -1) -> Array:
    """Logarithm of `softmax`, computed without overflow."""
    check.floating("LogSoftmax", logits=logits)
    return jax.nn.log_softmax(logits, check.axis("LogSoftmax", axis, logits.ndim))


@operator(function="", mint="nn.functional.log_softmax")
def _mint_log_softmax(input: Array, dim: int | None = None, *, dtype: DType | None = None) -> Array:
    """Logarithm of `softmax`; `dim` None: dim 0 of 0, 1 or 3 dimensions, else 1."""
    values = input if dtype is None else input.astype(dtype.np_dtype)
    return log_softmax.kernel(values, _guessed(dim, input.ndim))


def _leaky(name: str, input: Array, slope: float) -> Array:
    """As the larger (or smaller) of two lines, which share the gradient at 0."""
    check.floating(name, input=input)
    # The larger of two lines up to slope 1, the smaller above: both share the gradient at 0.
    return (extremes.larger if slope <= 1 else extremes.smaller)(jnp.asarray(slope, input.dtype) * input, input)


@operator("LeakyReLU", function="leaky_relu")
def leaky_relu(input: Array, alpha: float = 0.2) -> Array:
    """The input where it is positive, `alpha` times the input elsewhere."""
    return _rounded_to_integers(lambda x: _leaky("LeakyReLU", x, alpha))(input)


@operator(function="", mint="nn.functional.leaky_relu")
def _mint_leaky_relu(input: Array, negative_slope: float = 0.01) -> Array:
    """The input where it is positive, `negative_slope` times the input elsewhere, as is the gradient at 0."""
    check.floating("leaky_relu", input=input)
    # Torch's gradient at 0 is the slope's.
    return jnp.where(input > 0, input, jnp.asarray(negative_slope, input.dtype) * input)


@operator("Elu", function="elu")
def elu(input_x: check.Float, alpha: float = 1.0) -> Array:
    """The input where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""
    return jax.nn.elu(input_x, alpha)


@operator("Softplus", function="")
def _softplus(input: check.Float) -> Array:
    """log(1 + exp(x)), computed without overflow."""
    return jax.nn.softplus(input)


@operator(function="softplus", mint="nn.functional.softplus")
def softplus(input: Array, beta: float = 1, threshold: float = 20) -> Array:
    """log(1 + exp(beta · x)) / beta; `input` itself where ``beta * x`` is above `threshold`.

    Raises:
        SporaxValueError: `beta` is 0.
    """
    For("softplus").refuse(beta == 0, "'beta' must not be 0")
    check.floating("softplus", input=input)
    scaled = input * jnp.asarray(beta, input.dtype)
    # Where the line is taken the curve sees a small number, so its gradient stays finite.
    curve = jax.nn.softplus(jnp.where(scaled > threshold, jnp.zeros((), input.dtype), scaled))
    return jnp.where(scaled > threshold, input, curve / jnp.asarray(beta, input.dtype))


def _floating(name: str, value: Any) -> Array:
    check.floating(name, input=value)
    return value


def _hard_sigmoid(x: Array) -> Array:
    line = x / 6 + 0.5
    # No gradient at both ends, as in MindSpore.
    return jnp.where((x > -3) & (x < 3), line, (x > 0).astype(line.dtype))


def _hard_swish(x: Array) -> Array:
    # Both ends belong to the curve, as in MindSpore.
    return jnp.where(jnp.abs(x) <= 3, x * (x / 6 + 0.5), jax.nn.relu(x))


def _tanh_shrink(x: Array) -> Array:
    return x - jnp.tanh(x)


def _fast_gelu(x: Array) -> Array:
    # The constant of the approximation by a sigmoid (Hendrycks & Gimpel 2016).
    return x * jax.nn.sigmoid(1.702 * x)


_floats: Convert = _floating


def _rounded_to_integers(compute: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`compute`, of which integers get the result rounded towards 0, as from MindSpore's kernels for the CPU."""

    def kernel(x: Array) -> Array:
        return compute(x) if jnp.issubdtype(x.dtype, jnp.inexact) else compute(x.astype(jnp.float32)).astype(x.dtype)

    return kernel


def _signed(name: str, value: Any) -> Array:
    """Floats and signed integers as they are."""
    return value if jnp.issubdtype(value.dtype, jnp.signedinteger) else _floating(name, value)


def _numbers(name: str, value: Any) -> Array:
    """Floats, and integers as float32."""
    check.numeric(name, input=value)
    return promote.inexact(value)


# primitive, function on arrays, function's name, parameter, mint, what it computes
for _primitive, _compute, _own, _parameter, _mint, _doc in (
    ("HSigmoid", _rounded_to_integers(_hard_sigmoid), "hardsigmoid", "input", "nn.functional.hardsigmoid",
     "x / 6 + 1/2 limited to [0, 1]; integers are rounded towards 0."),
    ("HSwish", _rounded_to_integers(_hard_swish), "hardswish", "input", "nn.functional.hardswish",
     "x times its hard sigmoid; integers are rounded towards 0."),
    ("Mish", jax.nn.mish, "mish", "x", "nn.functional.mish(input=x)", "x · tanh(log(1 + exp(x))) (Misra 2019)."),
    ("SeLU", jax.nn.selu, "selu", "input_x", "nn.functional.selu(input=input_x)",
     "1.0507 · (x where positive, else 1.6733 · (exp(x) - 1)) (Klambauer et al. 2017)."),
    ("Softsign", jax.nn.soft_sign, "softsign", "x", "nn.functional.softsign(input=x)", "x / (1 + |x|)."),
    (None, jax.nn.log_sigmoid, "logsigmoid", "x", "nn.functional.logsigmoid(input=x)", "Logarithm of the sigmoid."),
    (None, _tanh_shrink, "tanhshrink", "input", "nn.functional.tanhshrink", "x - tanh(x)."),
    ("FastGeLU", _fast_gelu, "fast_gelu", "x", "", "x · sigmoid(1.702 · x), near to the Gaussian error linear unit."),
):  # fmt: skip
    _convert = _signed if _primitive in ("HSigmoid", "HSwish") else _numbers if _own == "tanhshrink" else _floats
    pointwise(_primitive, _compute, _doc, function=_own, parameters=(_parameter,), convert=_convert, mint=_mint)


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
def celu(x: check.Float, alpha: float = 1.0) -> Array:
    """The input where positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere (Barron 2017)."""
    For("CeLU").refuse(alpha == 0, "'alpha' must not be 0")
    return jax.nn.celu(x, alpha)


@operator(function="hardtanh", mint="")
def hardtanh(input: check.One, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """The input limited to [min_val, max_val]."""
    if jnp.issubdtype(input.dtype, jnp.integer):
        # A limit beyond what the dtype holds is no limit.
        ends = jnp.iinfo(input.dtype)
        min_val, max_val = (min(max(value, ends.min), ends.max) for value in (min_val, max_val))
    return extremes.limited(input, jnp.asarray(min_val, input.dtype), jnp.asarray(max_val, input.dtype))


@operator(function="threshold")
def threshold(input: check.One, thr: float, value: float) -> Array:
    """The input where it exceeds `thr`, `value` elsewhere."""
    return jnp.where(input > thr, input, jnp.asarray(value, input.dtype))


@operator(function="softmin")
def softmin(x: check.Float, axis: int = -1, *, dtype: DType | None = None) -> Array:
    """Softmax of the negative input along `axis`."""
    return jax.nn.softmax(-(x if dtype is None else x.astype(dtype.np_dtype)), check.axis("softmin", axis, x.ndim))


def _halves(name: str, x: Array, axis: int) -> tuple[Array, Array]:
    check.floating(name, x=x)
    where = check.axis(name, axis, x.ndim)
    For(name).refuse(x.shape[where] % 2, f"the size of dim {axis} must be even, but the shape is {x.shape}")
    first, second = jnp.split(x, 2, where)
    return first, second


@operator("GLU(axis)", function="glu", mint="nn.functional.glu(input=x, dim=axis)")
def glu(x: Array, axis: int = -1) -> Array:
    """The first half along `axis` times the sigmoid of the second (Dauphin et al. 2017)."""
    first, second = _halves("GLU", x, axis)
    return first * jax.nn.sigmoid(second)


@operator(function="swiglu", dims=Along("dim", -1))
def swiglu(input: Array, dim: int = -1) -> Array:
    """The swish of the first half along `dim` times the second (Shazeer 2020)."""
    first, second = _halves("swiglu", input, dim)
    return jax.nn.silu(first) * second


@operator("PReLU", function="prelu", mint="nn.functional.prelu", dims=channels)
def prelu(input: check.Float, weight: check.Float1) -> Array:
    """The input where it is positive, `weight` times the input elsewhere.

    Args:
        input: (n, channels, …).
        weight: (1,), one slope for all, or (channels,).
    """
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.shape[0] not in (1, channels):
        raise For("PReLU").error(
            f"'weight' must have 1 or {channels} elements, the channels of 'input' of shape {input.shape}", weight.shape
        )
    spread = weight.reshape([-1 if dim == 1 else 1 for dim in range(input.ndim)]) if input.ndim > 1 else weight
    return jnp.where(input > 0, input, spread * input)


@operator(function="")
def _random_leaky_relu(input: Array, key: Array, lower: float, upper: float) -> Array:
    """The input where it is positive, a random slope in [lower, upper) times the input elsewhere."""
    if input.dtype not in (np.int32, np.int64):
        check.floating("rrelu", input=input)
    # One slope per element, drawn with the operator's stream.
    slope = jax.random.uniform(key, input.shape, promote.inexact(input).dtype, lower, upper)
    # For integers MindSpore rounds the slope to 0.
    return jnp.where(input >= 0, input, (slope.astype(input.dtype) * input))


@operator(function="rrelu", composed=True)
def rrelu(input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3) -> Any:
    """The input where it is positive, a slope drawn from [lower, upper) for every element times the input elsewhere."""
    For("rrelu").refuse(not 0 <= lower <= upper <= 1, "0 <= 'lower' <= 'upper' <= 1 must hold", lower, upper)
    # The key is an operand: a new one must not compile again.
    return _random_leaky_relu(input, wrap(seeds.operators.next_key()), float(lower), float(upper))


@operator(function="")
def _gumbel(logits: Array, key: Array, tau: float, hard: bool, dim: int) -> Array:
    """Softmax of logits with Gumbel noise."""
    check.floating("gumbel_softmax", logits=logits)
    where = check.axis("gumbel_softmax", dim, logits.ndim, "dim")
    soft = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape, logits.dtype)) / tau, where)
    if not hard:
        return soft
    # One-hot in the forward pass with the gradient of the soft choice (straight-through estimator).
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
    For("gumbel_softmax").refuse(tau <= 0, "'tau' must be positive", tau)
    return _gumbel(logits, wrap(seeds.operators.next_key()), float(tau), hard, dim)
