"""Activation functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common.dtype import DType
from sporax.ir.errors import SporaxNotImplementedError, SporaxValueError
from sporax.ops._core import check, extremes
from sporax.ops._core import promotion as promote
from sporax.ops._core.operator import Array, operator


def not_in_place(name: str, inplace: bool) -> None:
    """Raise SporaxNotImplementedError when `inplace` is asked for: a value may be shared, so it never changes."""
    if inplace:
        raise SporaxNotImplementedError(
            f"For '{name}', 'inplace' must be False, but got True; assign the result instead."
        )


@operator("ReLU", function="", method="relu")
def _relu(input: Array) -> Array:
    """The input where it is positive, zero elsewhere; its gradient at 0 is 0."""
    return input if input.dtype == np.bool_ else jax.nn.relu(input)


@operator(function="relu")
def relu(input: Array, inplace: bool = False) -> Array:
    """The input where it is positive, zero elsewhere; its gradient at 0 is 0.

    Raises:
        SporaxNotImplementedError: `inplace` is asked for.
    """
    not_in_place("relu", inplace)
    return _relu.kernel(input)


@operator("ReLU6", function="relu6")
def relu6(x: Array) -> Array:
    """The input limited to [0, 6]; its gradient is 0 at 0 and 1 at 6."""
    check.floating("ReLU6", x=x)
    return jnp.where(x > 6, jnp.asarray(6, x.dtype), jax.nn.relu(x))


@operator("GeLU", function="")
def _gelu_tanh(input: Array) -> Array:
    """Gaussian error linear unit in its tanh approximation (Hendrycks & Gimpel 2016)."""
    check.floating("GeLU", input=input)
    return jax.nn.gelu(input, approximate=True)


@operator(function="gelu", mint="nn.functional.gelu")
def gelu(input: Array, approximate: str = "none") -> Array:
    """Gaussian error linear unit; `approximate` is ``"none"`` (by the error function) or ``"tanh"``.

    Raises:
        SporaxValueError: another `approximate`.
    """
    check.floating("gelu", input=input)
    check.one_of("gelu", approximate, ("none", "tanh"), "approximate")
    return jax.nn.gelu(input, approximate=approximate == "tanh")


@operator("Sigmoid", method="sigmoid", mint="sigmoid; nn.functional.sigmoid")
def sigmoid(input: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(promote.inexact(input))


@operator("SiLU", function="silu")
def silu(input: Array) -> Array:
    """x · sigmoid(x), also called swish."""
    check.floating("SiLU", input=input)
    return jax.nn.silu(input)


def _softmax_of(input: Array, axis: int | tuple[int, ...], dtype: DType | None = None) -> Array:
    values = input if dtype is None else input.astype(dtype.np_dtype)
    check.floating("Softmax", input=values)
    return jax.nn.softmax(values, check.axes("Softmax", axis, input.ndim) or tuple(range(input.ndim)))


@operator("Softmax", function="")
def _softmax(input: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """Exponentials divided by their sum along `axis`."""
    return _softmax_of(input, axis)


@operator(function="softmax")
def softmax(input: Array, axis: int | tuple[int, ...] = -1, *, dtype: DType | None = None) -> Array:
    """Exponentials divided by their sum along `axis`, computed in `dtype` if given."""
    return _softmax_of(input, axis, dtype)


@operator(function="", method="softmax")
def _softmax_method(input: Array, axis: int | tuple[int, ...], dtype: DType | None = None) -> Array:
    """Exponentials divided by their sum along `axis`, computed in `dtype` if given."""
    return _softmax_of(input, axis, dtype)


@operator(function="", mint="softmax")
def _mint_softmax_along(input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """Exponentials divided by their sum along `dim`, computed in `dtype` if given."""
    return _softmax_of(input, dim, dtype)


def _guessed(dim: int | None, ndim: int) -> int:
    """The dim that is meant by None: as in PyTorch, 0 for tensors of 0, 1 or 3 dimensions, else 1."""
    return (0 if ndim in (0, 1, 3) else 1) if dim is None else dim


@operator(function="", mint="nn.functional.softmax")
def _mint_softmax(input: Array, dim: int | None = None, dtype: DType | None = None) -> Array:
    """Exponentials divided by their sum along `dim`; None: dim 0 of 0, 1 or 3 dimensions, else 1."""
    return _softmax_of(input, _guessed(dim, input.ndim), dtype)


@operator("LogSoftmax", function="log_softmax")
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
    return (extremes.larger if slope <= 1 else extremes.smaller)(jnp.asarray(slope, input.dtype) * input, input)


@operator("LeakyReLU", function="leaky_relu")
def leaky_relu(input: Array, alpha: float = 0.2) -> Array:
    """The input where it is positive, `alpha` times the input elsewhere."""
    return _leaky("LeakyReLU", input, alpha)


@operator(function="", mint="nn.functional.leaky_relu")
def _mint_leaky_relu(input: Array, negative_slope: float = 0.01) -> Array:
    """The input where it is positive, `negative_slope` times the input elsewhere, as is the gradient at 0."""
    check.floating("leaky_relu", input=input)
    return jnp.where(input > 0, input, jnp.asarray(negative_slope, input.dtype) * input)


@operator("Elu", function="elu")
def elu(input_x: Array, alpha: float = 1.0) -> Array:
    """The input where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""
    check.floating("Elu", input_x=input_x)
    return jax.nn.elu(input_x, alpha)


@operator("Softplus", function="")
def _softplus(input: Array) -> Array:
    """log(1 + exp(x)), computed without overflow."""
    check.floating("Softplus", input=input)
    return jax.nn.softplus(input)


@operator(function="softplus", mint="nn.functional.softplus")
def softplus(input: Array, beta: float = 1, threshold: float = 20) -> Array:
    """log(1 + exp(beta · x)) / beta; `input` itself where ``beta * x`` is above `threshold`.

    Raises:
        SporaxValueError: `beta` is 0.
    """
    if beta == 0:
        raise SporaxValueError("For 'softplus', 'beta' must not be 0.")
    check.floating("softplus", input=input)
    scaled = input * jnp.asarray(beta, input.dtype)
    # Where the line is taken the curve sees a small number, so its gradient stays finite.
    curve = jax.nn.softplus(jnp.where(scaled > threshold, jnp.zeros((), input.dtype), scaled))
    return jnp.where(scaled > threshold, input, curve / jnp.asarray(beta, input.dtype))
