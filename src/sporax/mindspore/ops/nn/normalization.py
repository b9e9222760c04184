"""Layer, batch, group, RMS and local response normalization.

Half precision loses the variance of large means, so statistics are computed in float32. The deviations from the mean
serve both the variance and the result, which leaves the backward pass one array to keep.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, named
from sporax.ir.operator_dims import Call, Dims, Shapes, StrategyEntry, numbered
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.ops._core import Array, channels, check, operator, other_form


def _layer_dims(call: Call, shapes: Shapes) -> Dims:
    rank = len(shapes[0])
    begin = call.get("begin_norm_axis", -1)
    start = begin % rank if isinstance(begin, int) else rank - 1
    first = numbered(rank, range(start, rank))
    # Scale and shift have the last dimensions of the input, those that are normalized.
    return Dims((first, *(first[rank - len(shape) :] for shape in shapes[1:])), leader=0)


def _batch_dims(call: Call, shapes: Shapes) -> Dims:
    """Entries as of the primitive BatchNorm: the input, scale, shift, mean and variance."""
    dims = channels(call, shapes)
    vector = StrategyEntry(("c",), shapes[1])
    # The strategy of BatchNorm has five entries, though training needs only three inputs.
    return Dims(dims.inputs, (StrategyEntry(dims.inputs[0], shapes[0]), *[vector] * 4), leader=0)


@operator("LayerNorm", function="", dims=_layer_dims)
def _layer_norm(
    input_x: check.Float,
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
    first = check.axis("LayerNorm", begin_norm_axis, input_x.ndim, "begin_norm_axis")
    affine = input_x.shape[check.axis("LayerNorm", begin_params_axis, input_x.ndim, "begin_params_axis") :]
    if gamma.shape != affine or beta.shape != affine:
        raise For("LayerNorm").error(f"'gamma' and 'beta' must have shape {affine}", gamma.shape, beta.shape)
    axes = tuple(range(first, input_x.ndim))
    # Half precision loses the variance of large means.
    values = input_x.astype(jnp.promote_types(input_x.dtype, jnp.float32))
    normed, mean, variance = standardized(values, axes, epsilon)
    # Cast back last, so that gamma and beta act in float32.
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
def rms_norm(x: check.Float, gamma: Array, epsilon: float = 1e-6) -> tuple[Array, Array]:
    """``x / sqrt(mean(x²) + epsilon) * gamma`` over the last dimensions (Zhang & Sennrich 2019).

    Returns the result, and one over the root mean square.

    Raises:
        SporaxTypeError: `x` is not floating point.
        SporaxValueError: `x` does not end with the shape of `gamma`.
    """
    if x.shape[x.ndim - gamma.ndim :] != gamma.shape:
        raise For("RmsNorm").error("the shape of 'x' must end with that of 'gamma'", x.shape, gamma.shape)
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    values = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(values), axes, keepdims=True) + epsilon)
    # `gamma` after the cast, as MindSpore multiplies in the input's dtype.
    return (values * scale).astype(x.dtype) * gamma, scale


@operator(function="", dims=_batch_dims)
def batch_norm_train(x: Array, gamma: Array, beta: Array, channel: int, epsilon: float) -> tuple[Array, Array, Array]:
    """Normalisation by the statistics of the batch (Ioffe & Szegedy 2015).

    Returns the result, and per channel the mean and the unbiased variance, from which moving statistics are updated.
    """
    _check_channels(x, channel, gamma=gamma, beta=beta)
    axes = tuple(dim for dim in range(x.ndim) if dim != channel)
    values = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean, variance = jnp.mean(values, axes), jnp.var(values, axes)
    count = x.size // x.shape[channel]
    # Bessel's correction, with at least 1 for a single element.
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
    # One row, so that the batches of all ranks can be gathered into one tensor.
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
    # Deviations around the common mean, without a second pass over the data.
    total = jnp.sum(squares + counts * jnp.square(means - mean), 0)
    values = x.astype(moments.dtype)
    scaled = _scaled(x, values, mean, total / count, gamma, beta, channel, epsilon)
    return scaled, mean, total / jnp.maximum(count - 1, 1)


@operator(function="", dims=_batch_dims)
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

    # One factor per channel instead of two operations per element.
    scale = jax.lax.rsqrt(variance + epsilon) * gamma
    return ((values - spread(mean)) * spread(scale) + spread(beta)).astype(x.dtype)


@operator(function="")
def _moving(old: Array, new: Array, momentum: float) -> Array:
    """`old` moved towards `new` by the share `momentum`."""
    # In the dtype of the moving statistic, which may be wider or narrower.
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
        # Tensors that are no Parameters are not written; MindSpore's may be either.
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
        raise For("batch_norm").error(f"'input_x' must have at least 2 dimensions, but its shape is {input_x.shape}")
    # As Tensors, since the operator has no form without them.
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
            # No gradient flows into moving statistics.
            statistic._replace(jax.lax.stop_gradient(_moving(statistic, new, float(momentum)).array))
    return result


other_form(
    batch_norm,
    mint="nn.functional.batch_norm",
    parameters="input=input_x running_mean running_var weight bias training momentum eps",
    weight=None,
    bias=None,
)


@operator(function="")
def _filled(x: Array, value: int) -> Array:
    """One number for each channel of `x` (dim 1)."""
    return jnp.full((x.shape[1],), value, x.dtype)


@operator(function="layer_norm", mint="nn.functional.layer_norm")
def layer_norm(
    input: check.Float,
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
    first = input.ndim - len(normalized_shape)
    if not normalized_shape or first < 0 or input.shape[first:] != normalized_shape:
        raise For("layer_norm").error(
            "the shape of 'input' must end with 'normalized_shape' (at least one size)", input.shape, normalized_shape
        )
    for label, array in (("weight", weight), ("bias", bias)):
        if array is not None and array.shape != normalized_shape:
            raise For("layer_norm").error(f"{named(label)} must have shape {normalized_shape}", array.shape)
    wide = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    normed = standardized(wide, tuple(range(first, input.ndim)), eps)[0]
    normed = normed if weight is None else normed * weight
    return (normed if bias is None else normed + bias).astype(input.dtype)


@operator(function="group_norm", mint="nn.functional.group_norm")
def group_norm(
    input: check.Float, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Normalisation over groups of channels of each sample (Wu & He 2018).

    Args:
        input: (n, channels, …).
        num_groups: how many groups the channels are divided into.
        weight, bias: (channels,), applied afterwards.
        eps: added to the variance.
    """
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
    # Zeros around, so that border channels sum over fewer squares.
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
