"""The parts that batch normalisation over several devices is made of, as `sporax.mindspore.mint` offers them.

A device computes the statistics of its own batch (`batch_norm_stats`), all devices exchange them, each joins them
(`batch_norm_gather_stats_with_counts`) and normalises (`batch_norm_elemt`). Channels are dim 1; `invstd` is one over the
standard deviation.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import Array, operator


@operator(function="", mint="batch_norm_stats")
def batch_norm_stats(input: Array, eps: float) -> tuple[Array, Array]:
    """Mean and `invstd` of each channel of `input` (n, channels, …), in float32 at least."""
    check.floating("batch_norm_stats", input=input)
    axes = (0, *range(2, input.ndim))
    # The variance of float16 numbers loses too much.
    wide = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    return jnp.mean(wide, axes), jax.lax.rsqrt(jnp.var(wide, axes) + eps)


@operator(function="", mint="batch_norm_elemt")
def batch_norm_elemt(
    input: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    mean: Array | None = None,
    invstd: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """``(input - mean) * invstd * weight + bias``, each (channels,); what is None is left out.

    `eps` has no part in it: it is in `invstd` already.
    """
    check.floating("batch_norm_elemt", input=input)
    spread = (-1, *[1] * (input.ndim - 2))
    result = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    if mean is not None:
        result = result - mean.reshape(spread)
    for factor in (invstd, weight):
        result = result if factor is None else result * factor.reshape(spread)
    return (result if bias is None else result + bias.reshape(spread)).astype(input.dtype)


@operator(function="")
def _joined(mean: Array, invstd: Array, counts: Array, eps: float) -> tuple[Array, Array, Array]:
    """Mean, `invstd` and unbiased variance over all devices; see `batch_norm_gather_stats_with_counts`."""
    # Devices with more samples count more.
    share = (counts / jnp.sum(counts)).astype(mean.dtype)[:, None]
    middle = jnp.sum(mean * share, 0)
    # `invstd` turned back into a variance.
    own = 1 / jnp.square(invstd) - eps
    # Variance within devices plus that of their means.
    variance = jnp.sum((own + jnp.square(mean - middle)) * share, 0)
    total = jnp.sum(counts).astype(mean.dtype)
    return middle, jax.lax.rsqrt(variance + eps), variance * total / (total - 1)


@operator(function="", mint="batch_norm_gather_stats_with_counts", composed=True)
def batch_norm_gather_stats_with_counts(
    input: Any,
    mean: Any,
    invstd: Any,
    running_mean: Any = None,
    running_var: Any = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
    counts: Any = None,
) -> Any:
    """Mean and `invstd` of all devices' batches from those of each.

    Args:
        input: (n, channels, …), of which only the sizes count, and only without `counts`.
        mean, invstd: (devices, channels).
        running_mean, running_var: (channels,); they move towards the joint statistics. None: nothing moves.
        momentum: share of the joint statistics in the moving ones.
        eps: what `invstd` was made with.
        counts: (devices,): elements of a channel on each device; all equal by default.
    """
    if counts is None:
        counts = jnp.full((mean.shape[0],), input.size // input.shape[1], jnp.float32)
    middle, deviation, variance = _joined(mean, invstd, counts, float(eps))
    for statistic, new in ((running_mean, middle), (running_var, variance)):
        if statistic is not None:
            moved = statistic * (1 - momentum) + new * momentum
            # Statistics are no part of the loss.
            statistic._replace(jax.lax.stop_gradient(moved.astype(statistic.dtype).array))
    return middle, deviation
