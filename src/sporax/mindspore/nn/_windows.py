"""Kernels that move a window over the last dimensions of an array: pooling in one to three dimensions.

Arrays are (N, C, spatial…). A padding is ``"SAME"``, ``"VALID"``, or a pair (before, after) for each spatial dimension.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.ops._core.operator import Array, operator

Sizes = tuple[int, ...]
Padding = str | tuple[tuple[int, int], ...]


def explicit_padding(
    shape: Sizes, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, ceil_mode: bool
) -> list[tuple[int, int, int]]:
    """Cells before, after, and (for `ceil_mode`) beyond that, so that the last window starts inside."""
    if isinstance(padding, str):
        extents = [d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)]
        pairs = jax.lax.padtype_to_pads(shape, extents, stride, padding)
        return [(before, after, 0) for before, after in pairs]
    result = []
    for size, kernel, step, (before, after), spread in zip(shape, window, stride, padding, dilation, strict=True):
        extent = spread * (kernel - 1) + 1
        room = size + before + after - extent
        count = (math.ceil(room / step) if ceil_mode else room // step) + 1
        # The last window must start inside, or it would see padding alone.
        if ceil_mode and (count - 1) * step >= size + before:
            count -= 1
        # The third number is what `ceil_mode` adds: cells that do not count as padding.
        result.append((before, after, max(0, (count - 1) * step + extent - size - before - after)))
    return result


def _reduce(x: Array, start: Any, combine: Any, window: Sizes, stride: Sizes, pads: Any, dilation: Sizes) -> Any:
    # Batch and channels have windows of size 1.
    lead = (1,) * (x.ndim - len(window))
    return jax.lax.reduce_window(
        x,
        start,
        combine,
        (*lead, *window),
        (*lead, *stride),
        [(0, 0)] * len(lead) + [(before, after + more) for before, after, more in pads],
        window_dilation=(*lead, *dilation),
    )


def _fits(layer: str, result: Array, x: Array, window: Sizes) -> Array:
    # XLA gives an empty result where a window does not fit.
    if 0 in result.shape:
        raise SporaxValueError(f"For '{layer}', the window {window} does not fit into an input of shape {x.shape}.")
    return result


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
    pads = explicit_padding(x.shape[-len(window) :], window, stride, padding, dilation, ceil_mode)
    # Padding must never be the largest value.
    lowest = np.asarray(-np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min, x.dtype)
    return _fits(layer, _reduce(x, lowest, jax.lax.max, window, stride, pads, dilation), x, window)


@operator(function="")
def max_window_positions(
    x: Array, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, ceil_mode: bool, layer: str
) -> Array:
    """Where in the flattened image the largest value of each window is (the first, among equals). int64."""
    shape = x.shape[-len(window) :]
    pads = explicit_padding(shape, window, stride, padding, dilation, ceil_mode)
    positions = jnp.broadcast_to(jnp.arange(math.prod(shape), dtype=jnp.int64).reshape(shape), x.shape)
    lead = (1,) * (x.ndim - len(window))

    def larger(left: Any, right: Any) -> Any:
        (one, here), (other, there) = left, right
        # The first of equal values, as in MindSpore.
        keep = (one > other) | ((one == other) & (here < there))
        return jnp.where(keep, one, other), jnp.where(keep, here, there)

    start = np.asarray(-np.inf, x.dtype), np.asarray(np.iinfo(np.int64).max, np.int64)
    _, winners = jax.lax.reduce_window(
        # The places are integers, through which no gradient passes.
        (jax.lax.stop_gradient(x), positions),
        start,
        larger,
        (*lead, *window),
        (*lead, *stride),
        [(0, 0)] * len(lead) + [(before, after + more) for before, after, more in pads],
        window_dilation=(*lead, *dilation),
    )
    return _fits(layer, winners, x, window)


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
    dense = (1,) * len(window)
    pads = explicit_padding(x.shape[-len(window) :], window, stride, padding, dense, ceil_mode)
    zero = np.asarray(0, x.dtype)
    total = _fits(layer, _reduce(x, zero, jax.lax.add, window, stride, pads, dense), x, window)
    if divisor is not None:
        return total / jnp.asarray(divisor, x.dtype)
    if not count_padding:
        # The number of real cells in each window.
        return total / _reduce(jnp.ones_like(x), zero, jax.lax.add, window, stride, pads, dense)
    lead = x.ndim - len(window)
    # Padding counts, but not the cells that `ceil_mode` adds.
    padded = jnp.pad(x, [(0, 0)] * lead + [(before, after) for before, after, _ in pads])
    beyond = [(0, 0, more) for _, _, more in pads]
    return total / _reduce(jnp.ones_like(padded), zero, jax.lax.add, window, stride, beyond, dense)
