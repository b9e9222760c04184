"""Activation functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sporax.common.dtype import DType
from sporax.ops import _check as check
from sporax.ops import _promote as promote
from sporax.ops._operator import Array, operator


@operator("ReLU", method="relu", mint="nn.functional.relu")
def relu(input: Array, inplace: bool = False) -> Array:
    """The input where it is positive, zero elsewhere. `inplace` is accepted; values here never share memory."""
    check.tensor("ReLU", input=input)
    return jax.nn.relu(input)


@operator("ReLU6", function="relu6", mint="nn.functional.relu6")
def relu6(x: Array) -> Array:
    """The input limited to [0, 6]."""
    check.floating("ReLU6", x=x)
    return jnp.clip(x, 0, 6)


@operator("GeLU", function="", mint="")
def _gelu_tanh(x: Array) -> Array:
    """Gaussian error linear unit in its tanh approximation (Hendrycks & Gimpel 2016)."""
    check.floating("GeLU", x=x)
    return jax.nn.gelu(x, approximate=True)


@operator(function="gelu", mint="nn.functional.gelu")
def gelu(input: Array, approximate: str = "none") -> Array:
    """Gaussian error linear unit; `approximate` is ``"none"`` (by the error function) or ``"tanh"``."""
    check.floating("gelu", input=input)
    check.one_of("gelu", approximate, ("none", "tanh"), "approximate")
    return jax.nn.gelu(input, approximate=approximate == "tanh")


@operator("Sigmoid", method="sigmoid", mint="sigmoid; nn.functional.sigmoid")
def sigmoid(input: Array) -> Array:
    """1 / (1 + exp(-x))."""
    check.tensor("Sigmoid", input=input)
    return jax.nn.sigmoid(promote.inexact(input))


@operator("SiLU", function="silu", mint="nn.functional.silu")
def silu(input: Array) -> Array:
    """x · sigmoid(x), also called swish."""
    check.floating("SiLU", input=input)
    return jax.nn.silu(input)


@operator("Softmax", method="softmax", mint="nn.functional.softmax(dim=axis); softmax(dim=axis)")
def softmax(input: Array, axis: int | tuple[int, ...] = -1, dtype: DType | None = None) -> Array:
    """Exponentials divided by their sum along `axis`."""
    check.floating("Softmax", input=input)
    values = input if dtype is None else input.astype(dtype.np_dtype)
    return jax.nn.softmax(values, check.axes("Softmax", axis, input.ndim) or tuple(range(input.ndim)))


@operator("LogSoftmax", method="log_softmax", mint="nn.functional.log_softmax(dim=axis)")
def log_softmax(logits: Array, axis: int = -1) -> Array:
    """Logarithm of `softmax`, computed without overflow."""
    check.floating("LogSoftmax", logits=logits)
    return jax.nn.log_softmax(logits, check.axis("LogSoftmax", axis, logits.ndim))


@operator("LeakyReLU", function="leaky_relu", mint="nn.functional.leaky_relu(negative_slope=alpha)")
def leaky_relu(input: Array, alpha: float = 0.2) -> Array:
    """The input where it is positive, `alpha` times the input elsewhere."""
    check.floating("LeakyReLU", input=input)
    return jnp.where(input > 0, input, jnp.asarray(alpha, input.dtype) * input)


@operator("Elu", function="elu", mint="nn.functional.elu")
def elu(input_x: Array, alpha: float = 1.0) -> Array:
    """The input where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""
    check.floating("Elu", input_x=input_x)
    return jax.nn.elu(input_x, alpha)


@operator("Softplus", function="softplus")
def softplus(input: Array) -> Array:
    """log(1 + exp(x)), computed without overflow."""
    check.floating("Softplus", input=input)
    return jax.nn.softplus(input)
