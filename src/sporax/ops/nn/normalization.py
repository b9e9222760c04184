"""Normalisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sporax.ir.errors import SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, operator


@operator("LayerNorm", function="")
def _layer_norm(
    input_x: Array,
    gamma: Array,
    beta: Array,
    begin_norm_axis: int = 1,
    begin_params_axis: int = 1,
    epsilon: float = 1e-7,
) -> tuple[Array, Array, Array]:
    """``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` over the dimensions from `begin_norm_axis` on.

    Statistics are computed in float32. Returns the result, the mean and the variance (Ba et al. 2016).

    Args:
        input_x: any shape.
        gamma, beta: the shape of `input_x` from dim `begin_params_axis` on.
        begin_norm_axis: first dim that is normalised over.
        begin_params_axis: first dim of `gamma` and `beta`.
        epsilon: added to the variance.

    Raises:
        SporaxTypeError: `input_x` is not floating point.
        SporaxValueError: `gamma` or `beta` has another shape.
    """
    check.floating("LayerNorm", input_x=input_x)
    first = check.axis("LayerNorm", begin_norm_axis, input_x.ndim, "begin_norm_axis")
    affine = input_x.shape[check.axis("LayerNorm", begin_params_axis, input_x.ndim, "begin_params_axis") :]
    if gamma.shape != affine or beta.shape != affine:
        raise SporaxValueError(
            f"For 'LayerNorm', 'gamma' and 'beta' must have shape {affine}, but got {gamma.shape} and {beta.shape}."
        )
    axes = tuple(range(first, input_x.ndim))
    values = input_x.astype(jnp.promote_types(input_x.dtype, jnp.float32))
    normed, mean, variance = standardized(values, axes, epsilon)
    return (normed * gamma + beta).astype(input_x.dtype), mean, variance


def standardized(values: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """``(values - mean) / sqrt(variance + epsilon)`` over `axes`, the mean and the variance, which keep these dims.

    The deviations are computed once for result and variance, so the backward pass has one path through them: with
    `jnp.var`, which computes its own, it would keep another array of the size of `values`.
    """
    mean = jnp.mean(values, axes, keepdims=True)
    deviations = values - mean
    variance = jnp.mean(jnp.square(deviations), axes, keepdims=True)
    return deviations * jax.lax.rsqrt(variance + epsilon), mean, variance


@operator("RmsNorm", function="rms_norm")
def rms_norm(x: Array, gamma: Array, epsilon: float = 1e-6) -> tuple[Array, Array]:
    """``x / sqrt(mean(x²) + epsilon) * gamma`` over the last dimensions (Zhang & Sennrich 2019).

    Returns the result, and one over the root mean square.

    Raises:
        SporaxTypeError: `x` is not floating point.
        SporaxValueError: `x` does not end with the shape of `gamma`.
    """
    check.floating("RmsNorm", x=x)
    if x.shape[x.ndim - gamma.ndim :] != gamma.shape:
        raise SporaxValueError(
            f"For 'RmsNorm', the shape of 'x' must end with that of 'gamma', but got {x.shape} and {gamma.shape}."
        )
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    values = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(values), axes, keepdims=True) + epsilon)
    return (values * scale).astype(x.dtype) * gamma, scale


@operator(function="")
def batch_norm_train(x: Array, gamma: Array, beta: Array, channel: int, epsilon: float) -> tuple[Array, Array, Array]:
    """Normalisation by the statistics of the batch (Ioffe & Szegedy 2015).

    Returns the result, and per channel the mean and the unbiased variance, from which moving statistics are updated.
    """
    _check_channels(x, channel, gamma=gamma, beta=beta)
    axes = tuple(dim for dim in range(x.ndim) if dim != channel)
    values = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean, variance = jnp.mean(values, axes), jnp.var(values, axes)
    count = x.size // x.shape[channel]
    unbiased = variance * (count / max(count - 1, 1))
    return _scaled(x, values, mean, variance, gamma, beta, channel, epsilon), mean, unbiased


@operator(function="")
def batch_moments(x: Array, channel: int) -> Array:
    """What `batch_norm_shared` has to know of a batch: per channel the mean and the sum of squared deviations from it, and
    how many elements these are of; shape (1, 2·C + 1).
    """
    check.floating("SyncBatchNorm", x=x)
    axes = tuple(dim for dim in range(x.ndim) if dim != channel)
    values = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    count = x.size // x.shape[channel]
    return jnp.concatenate([jnp.mean(values, axes), jnp.var(values, axes) * count, jnp.full(1, count, values.dtype)])[
        None
    ]


@operator(function="")
def batch_norm_shared(
    x: Array, moments: Array, gamma: Array, beta: Array, channel: int, epsilon: float
) -> tuple[Array, Array, Array]:
    """`batch_norm_train` by the statistics of several batches together (Chan et al. 1979).

    Args:
        x: one of the batches.
        moments: (batches, 2·C + 1), from `batch_moments`.
        gamma, beta, channel, epsilon: as in `batch_norm_train`.
    """
    _check_channels(x, channel, gamma=gamma, beta=beta)
    means, squares, counts = jnp.split(moments, (gamma.shape[0], 2 * gamma.shape[0]), 1)
    count = jnp.sum(counts)
    mean = jnp.sum(counts * means, 0) / count
    total = jnp.sum(squares + counts * jnp.square(means - mean), 0)
    values = x.astype(moments.dtype)
    scaled = _scaled(x, values, mean, total / count, gamma, beta, channel, epsilon)
    return scaled, mean, total / jnp.maximum(count - 1, 1)


@operator(function="")
def batch_norm_eval(
    x: Array, mean: Array, variance: Array, gamma: Array, beta: Array, channel: int, epsilon: float
) -> Array:
    """Normalisation by moving statistics."""
    _check_channels(x, channel, gamma=gamma, beta=beta, mean=mean, variance=variance)
    return _scaled(x, x.astype(jnp.promote_types(x.dtype, jnp.float32)), mean, variance, gamma, beta, channel, epsilon)


def _check_channels(x: Array, channel: int, **per_channel: Array) -> None:
    check.floating("BatchNorm", x=x)
    for name, array in per_channel.items():
        if array.shape != (x.shape[channel],):
            raise SporaxValueError(
                f"For 'BatchNorm', '{name}' must have one element for each of the {x.shape[channel]} channels of 'x' "
                f"(shape {x.shape}), but its shape is {array.shape}."
            )


def _scaled(
    x: Array, values: Array, mean: Array, variance: Array, gamma: Array, beta: Array, channel: int, epsilon: float
) -> Array:
    def spread(array: Array) -> Array:
        return array.reshape([-1 if dim == channel else 1 for dim in range(x.ndim)])

    scale = jax.lax.rsqrt(variance + epsilon) * gamma
    return ((values - spread(mean)) * spread(scale) + spread(beta)).astype(x.dtype)
