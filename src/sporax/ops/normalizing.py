"""More normalisation: batch normalisation with its statistics, groups of channels, and neighbouring channels."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common.parameter import Parameter
from sporax.ir.errors import SporaxValueError
from sporax.ops import _check as check
from sporax.ops._operator import Array, operator
from sporax.ops.normalization import batch_norm_eval, batch_norm_train


@operator(function="")
def _moving(old: Array, new: Array, momentum: float) -> Array:
    """`old` moved towards `new` by the share `momentum`."""
    return (old * (1 - momentum) + new * momentum).astype(old.dtype)


@operator("BatchNorm(is_training, epsilon, momentum, data_format)", function="", composed=True)
def _batch_norm_primitive(
    input_x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    is_training: bool = False,
    epsilon: float = 1e-5,
    momentum: float = 0.1,
    data_format: Literal["NCHW", "NHWC"] = "NCHW",
) -> Any:
    """Normalisation of each channel (Ioffe & Szegedy 2015).

    In training by the statistics of the batch, towards which the Parameters `mean` and `variance` move by `momentum`;
    otherwise by `mean` and `variance`.

    Returns:
        The result; mean and variance used (in training the variance is the unbiased one, as it is in the moving
        average); and the two once more, in the place of what MindSpore keeps for its backward pass.
    """
    check.one_of("BatchNorm", data_format, ("NCHW", "NHWC"), "data_format")
    channel = 1 if data_format == "NCHW" else input_x.ndim - 1
    if not is_training:
        result = batch_norm_eval(input_x, mean, variance, scale, bias, channel, epsilon)
        return result, mean, variance, mean, variance
    result, batch_mean, batch_variance = batch_norm_train(input_x, scale, bias, channel, epsilon)
    for parameter, new in ((mean, batch_mean), (variance, batch_variance)):
        if isinstance(parameter, Parameter):
            parameter._replace(_moving(parameter, new, momentum).array)
    return result, batch_mean, batch_variance, batch_mean, batch_variance


def _normed(values: Array, axes: tuple[int, ...], eps: float) -> Array:
    mean = jnp.mean(values, axes, keepdims=True)
    variance = jnp.var(values, axes, keepdims=True)
    return (values - mean) * jax.lax.rsqrt(variance + eps)


@operator(function="group_norm", mint="nn.functional.group_norm")
def group_norm(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Normalisation over groups of channels of each sample (Wu & He 2018).

    Args:
        input: (n, channels, …).
        num_groups: how many groups the channels are cut into.
        weight, bias: (channels,), applied afterwards.
        eps: added to the variance.
    """
    check.floating("group_norm", input=input)
    n, channels = input.shape[:2]
    if num_groups < 1 or channels % num_groups:
        raise SporaxValueError(
            f"For 'group_norm', the {channels} channels of 'input' must be divisible by 'num_groups', but got {num_groups}."
        )
    for label, array in (("weight", weight), ("bias", bias)):
        if array is not None and array.shape != (channels,):
            raise SporaxValueError(f"For 'group_norm', '{label}' must have shape {(channels,)}, but got {array.shape}.")
    wide = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    normed = _normed(wide.reshape(n, num_groups, -1), (2,), eps).reshape(input.shape)
    spread = (-1, *[1] * (input.ndim - 2))
    normed = normed if weight is None else normed * weight.reshape(spread)
    return (normed if bias is None else normed + bias.reshape(spread)).astype(input.dtype)


def _local_response(x: Array, depth_radius: int, bias: float, alpha: float, beta: float) -> Array:
    check.floating("LRN", x=x)
    check.rank("LRN", 4, x=x)
    window = (1, 2 * depth_radius + 1, 1, 1)
    edges = ((0, 0), (depth_radius, depth_radius), (0, 0), (0, 0))
    total = jax.lax.reduce_window(jnp.square(x), np.asarray(0, x.dtype), jax.lax.add, window, (1, 1, 1, 1), edges)
    return x / jnp.power(bias + alpha * total, beta)


@operator("LRN(depth_radius, bias, alpha, beta, norm_region)", function="lrn")
def lrn(
    x: Array,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    norm_region: Literal["ACROSS_CHANNELS"] = "ACROSS_CHANNELS",
) -> Array:
    """``x / (bias + alpha * sum of squares) ** beta``, the sum over the channels up to `depth_radius` away.

    `x` is (n, channels, h, w) (Krizhevsky et al. 2012).
    """
    return _local_response(x, depth_radius, bias, alpha, beta)
