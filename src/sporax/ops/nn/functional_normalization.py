"""More normalisation: functions with statistics and weights as arguments, groups of channels, and neighbouring channels."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common.parameter import Parameter
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, operator
from sporax.ops.nn.normalization import batch_norm_eval, batch_norm_train, standardized


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


@operator(function="batch_norm", composed=True)
def batch_norm(
    input_x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalisation of each channel (Ioffe & Szegedy 2015).

    Args:
        input_x: (n, channels, …).
        running_mean, running_var: (channels,): what is normalised by. In training they move towards the statistics of the
            batch, the variance towards the unbiased one; None (in training only): nothing moves.
        weight, bias: (channels,), applied afterwards; None for none.
        training: normalise by the statistics of the batch.
        momentum: share of the batch in the moving statistics.
        eps: added to the variance.
    """
    if input_x.ndim < 2:
        raise SporaxValueError(
            f"For 'batch_norm', 'input_x' must have at least 2 dimensions, but its shape is {input_x.shape}."
        )
    weight = _filled(input_x, 1) if weight is None else weight
    bias = _filled(input_x, 0) if bias is None else bias
    if not training:
        if running_mean is None or running_var is None:
            raise SporaxTypeError(
                "For 'batch_norm', 'running_mean' and 'running_var' must be Tensors unless 'training', but got None."
            )
        return batch_norm_eval(input_x, running_mean, running_var, weight, bias, 1, float(eps))
    result, batch_mean, batch_variance = batch_norm_train(input_x, weight, bias, 1, float(eps))
    for statistic, new in ((running_mean, batch_mean), (running_var, batch_variance)):
        if statistic is not None:
            statistic._replace(jax.lax.stop_gradient(_moving(statistic, new, float(momentum)).array))
    return result


@operator(function="")
def _filled(x: Array, value: int) -> Array:
    """One number for each channel of `x` (dim 1)."""
    return jnp.full((x.shape[1],), value, x.dtype)


@operator(function="layer_norm", mint="nn.functional.layer_norm")
def layer_norm(
    input: Array,
    normalized_shape: tuple[int, ...],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """Normalisation over the last dimensions (Ba et al. 2016).

    Args:
        input: any shape that ends with `normalized_shape`.
        normalized_shape: the dimensions to normalise over.
        weight, bias: of that shape, applied afterwards.
        eps: added to the variance.
    """
    check.floating("layer_norm", input=input)
    first = input.ndim - len(normalized_shape)
    if not normalized_shape or first < 0 or input.shape[first:] != normalized_shape:
        raise SporaxValueError(
            f"For 'layer_norm', the shape of 'input' must end with 'normalized_shape' (at least one size), "
            f"but got {input.shape} and {normalized_shape}."
        )
    for label, array in (("weight", weight), ("bias", bias)):
        if array is not None and array.shape != normalized_shape:
            raise SporaxValueError(
                f"For 'layer_norm', '{label}' must have shape {normalized_shape}, but got {array.shape}."
            )
    wide = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    normed = standardized(wide, tuple(range(first, input.ndim)), eps)[0]
    normed = normed if weight is None else normed * weight
    return (normed if bias is None else normed + bias).astype(input.dtype)


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
    normed = standardized(wide.reshape(n, num_groups, -1), (2,), eps)[0].reshape(input.shape)
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
