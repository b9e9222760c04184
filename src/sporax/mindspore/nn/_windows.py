"""Kernels that move a window over the last dimensions of an array: pooling in one to three dimensions.

Arrays are (N, C, spatial…). A padding is ``"SAME"``, ``"VALID"``, or a pair (before, after) for each spatial dimension.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.mindspore.ops._core.operator import Array, operator
from sporax.mindspore.ops.nn.convolution import Edges
from sporax.mindspore.ops.nn.pooling import fits, mean_of_windows, with_ceil

Sizes = tuple[int, ...]
Padding = str | Edges


def _edges(shape: Sizes, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, ceil_mode: bool) -> Edges:
    """Cells before and after, with those that `ceil_mode` adds; a padding that is a name has no more."""
    extents = [spread * (size - 1) + 1 for size, spread in zip(window, dilation, strict=True)]
    if isinstance(padding, str):
        return tuple(jax.lax.padtype_to_pads(shape, extents, stride, padding))
    return with_ceil(shape, extents, stride, padding) if ceil_mode else padding


def _reduce(x: Any, start: Any, combine: Any, window: Sizes, stride: Sizes, around: Edges, dilation: Sizes) -> Any:
    # Batch and channels have windows of size 1.
    lead = (1,) * (jax.tree.leaves(x)[0].ndim - len(window))
    padding = [(0, 0)] * len(lead) + list(around)
    spread = (*lead, *dilation)
    return jax.lax.reduce_window(x, start, combine, (*lead, *window), (*lead, *stride), padding, window_dilation=spread)


@operator(function="")
def max_window(
    x: Array, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, ceil_mode: bool, layer: str
) -> Array:
    """Largest value in each window; padding never wins."""
    if max(dilation) > 1:  # XLA has no gradient for windows with gaps, so the places are found first
        positions = max_window_positions.kernel(x, window, stride, padding, dilation, ceil_mode, layer)
        lead = x.shape[: x.ndim - len(window)]
        flat = jnp.take_along_axis(x.reshape(*lead, -1), positions.reshape(*lead, -1), -1)
        return flat.reshape(positions.shape)
    around = _edges(x.shape[-len(window) :], window, stride, padding, dilation, ceil_mode)
    # Padding must never be the largest value.
    lowest = np.asarray(-np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min, x.dtype)
    return fits(layer, _reduce(x, lowest, jax.lax.max, window, stride, around, dilation), x, window)


@operator(function="")
def max_window_positions(
    x: Array, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, ceil_mode: bool, layer: str
) -> Array:
    """Where in the flattened image the largest value of each window is (the first, among equals). int64."""
    shape = x.shape[-len(window) :]
    around = _edges(shape, window, stride, padding, dilation, ceil_mode)
    positions = jnp.broadcast_to(jnp.arange(math.prod(shape), dtype=jnp.int64).reshape(shape), x.shape)

    def larger(left: Any, right: Any) -> Any:
        (one, here), (other, there) = left, right
        # The first of equal values, as in MindSpore.
        keep = (one > other) | ((one == other) & (here < there))
        return jnp.where(keep, one, other), jnp.where(keep, here, there)

    start = np.asarray(-np.inf, x.dtype), np.asarray(np.iinfo(np.int64).max, np.int64)
    # The places are integers, through which no gradient passes.
    operands = (jax.lax.stop_gradient(x), positions)
    winners = _reduce(operands, start, larger, window, stride, around, dilation)[1]
    return fits(layer, winners, x, window)


@operator(function="")
def mean_window(
    x: Array,
    window: Sizes,
    stride: Sizes,
    padding: Padding,
    ceil_mode: bool,
    count_padding: bool,
    divisor: int | None,
    layer: str,
) -> Array:
    """Mean of each window over real cells, or with `count_padding` over padded ones too, or sum over `divisor`."""
    around = _edges(x.shape[-len(window) :], window, stride, padding, (1,) * len(window), False)
    return mean_of_windows(layer, x, window, stride, around, ceil_mode, count_padding, divisor)
