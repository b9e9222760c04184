"""Kernels that move a window over the last dimensions of an array: pooling and convolution in one to three dimensions.

Arrays are (N, C, spatial…). A padding is ``"SAME"``, ``"VALID"``, or a pair (before, after) for each spatial dimension.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.errors import SporaxValueError
from sporax.ops._operator import Array, operator

Sizes = tuple[int, ...]
Padding = str | tuple[tuple[int, int], ...]

_SPATIAL = "DHW"


def _layouts(spatial: int) -> tuple[str, str, str]:
    dims = _SPATIAL[-spatial:]
    return f"NC{dims}", f"OI{dims}", f"NC{dims}"


@operator(function="")
def convolve(
    x: Array, weight: Array, stride: Sizes, padding: Padding, dilation: Sizes, group: int, layer: str = "Conv3d"
) -> Array:
    """Cross-correlation. `weight`: (C_out, C_in / group, kernel…)."""
    if x.shape[1] != weight.shape[1] * group:
        raise SporaxValueError(
            f"For '{layer}', the input must have {weight.shape[1] * group} channels, but its shape is {x.shape}."
        )
    result = jax.lax.conv_general_dilated(
        x, weight, stride, padding, rhs_dilation=dilation, dimension_numbers=_layouts(x.ndim - 2), feature_group_count=group
    )
    if 0 in result.shape:
        raise SporaxValueError(f"For '{layer}', the kernel {weight.shape[2:]} does not fit into shape {x.shape}.")
    return result


@operator(function="")
def convolve_back(
    x: Array,
    weight: Array,
    size: Sizes,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    group: int,
    layer: str = "Conv2dTranspose",
) -> Array:
    """The transpose of the convolution that maps images of spatial shape `size` to the shape of `x`.

    `weight`: (C_in, C_out / group, kernel…), where C_in are the channels of `x`.
    """
    if x.shape[1] != weight.shape[0]:
        raise SporaxValueError(
            f"For '{layer}', the input must have {weight.shape[0]} channels, but its shape is {x.shape}."
        )

    def forward(image: Array) -> Array:
        return jax.lax.conv_general_dilated(
            image,
            weight,
            stride,
            padding,
            rhs_dilation=dilation,
            dimension_numbers=_layouts(x.ndim - 2),
            feature_group_count=group,
        )

    image: Any = jax.ShapeDtypeStruct((x.shape[0], weight.shape[1] * group, *size), x.dtype)
    (result,) = jax.linear_transpose(forward, image)(x)
    return result


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
        if ceil_mode and (count - 1) * step >= size + before:
            count -= 1
        result.append((before, after, max(0, (count - 1) * step + extent - size - before - after)))
    return result


def _reduce(x: Array, start: Any, combine: Any, window: Sizes, stride: Sizes, pads: Any, dilation: Sizes) -> Any:
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
    if 0 in result.shape:
        raise SporaxValueError(f"For '{layer}', the window {window} does not fit into an input of shape {x.shape}.")
    return result


@operator(function="")
def max_window(
    x: Array, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, ceil_mode: bool, layer: str
) -> Array:
    """Largest value in each window; padding never wins."""
    pads = explicit_padding(x.shape[-len(window) :], window, stride, padding, dilation, ceil_mode)
    lowest = np.asarray(-np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min, x.dtype)
    return _fits(layer, _reduce(x, lowest, jax.lax.max, window, stride, pads, dilation), x, window)


@operator(function="")
def max_window_places(
    x: Array, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, ceil_mode: bool
) -> Array:
    """Where in the flattened image the largest value of each window is (the first, among equals). int64."""
    shape = x.shape[-len(window) :]
    pads = explicit_padding(shape, window, stride, padding, dilation, ceil_mode)
    places = jnp.broadcast_to(jnp.arange(math.prod(shape), dtype=jnp.int64).reshape(shape), x.shape)
    lead = (1,) * (x.ndim - len(window))

    def larger(left: Any, right: Any) -> Any:
        (one, here), (other, there) = left, right
        keep = (one > other) | ((one == other) & (here < there))
        return jnp.where(keep, one, other), jnp.where(keep, here, there)

    start = np.asarray(-np.inf, x.dtype), np.asarray(np.iinfo(np.int64).max, np.int64)
    _, found = jax.lax.reduce_window(
        (jax.lax.stop_gradient(x), places),
        start,
        larger,
        (*lead, *window),
        (*lead, *stride),
        [(0, 0)] * len(lead) + [(before, after + more) for before, after, more in pads],
        window_dilation=(*lead, *dilation),
    )
    return found


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
    if not count_padding or isinstance(padding, str):
        return total / _reduce(jnp.ones_like(x), zero, jax.lax.add, window, stride, pads, dense)
    lead = x.ndim - len(window)
    padded = jnp.pad(x, [(0, 0)] * lead + [(before, after) for before, after, _ in pads])
    beyond = [(0, 0, more) for _, _, more in pads]
    return total / _reduce(jnp.ones_like(padded), zero, jax.lax.add, window, stride, beyond, dense)


def _cells(whole: int, wanted: int) -> list[tuple[int, int]]:
    """Where each of `wanted` cells begins and ends: cell i covers floor(i·n/m) up to ceil((i+1)·n/m)."""
    return [(cell * whole // wanted, -(-(cell + 1) * whole // wanted)) for cell in range(wanted)]


def _goal(x: Array, size: tuple[int | None, ...]) -> Sizes:
    return tuple(whole if wanted is None else wanted for wanted, whole in zip(size, x.shape[-len(size) :], strict=True))


@operator(function="")
def adapt_window(x: Array, size: tuple[int | None, ...], largest: bool) -> Array:
    """Means (or maxima) that bring the last dimensions to `size`; None keeps one."""
    reduce = jnp.max if largest else jnp.mean
    for axis, wanted in zip(range(-len(size), 0), _goal(x, size), strict=True):
        spans = _cells(x.shape[axis], wanted)
        parts = [jax.lax.slice_in_dim(x, first, last, axis=axis) for first, last in spans]
        x = jnp.concatenate([reduce(part, axis=axis, keepdims=True) for part in parts], axis)
    return x


@operator(function="")
def adapt_window_places(x: Array, size: tuple[int | None, ...]) -> Array:
    """Where in the flattened image the maxima of `adapt_window` are. int64."""
    spatial = x.shape[-len(size) :]
    places = jnp.arange(math.prod(spatial), dtype=jnp.int64).reshape(spatial)
    lead = x.shape[: x.ndim - len(size)]
    found = []
    for spans in itertools.product(*map(_cells, spatial, _goal(x, size))):
        box = tuple(slice(first, last) for first, last in spans)
        best = jnp.argmax(x[(..., *box)].reshape(*lead, -1), -1)
        found.append(places[box].reshape(-1)[best])
    return jnp.stack(found, -1).reshape(*lead, *_goal(x, size))


@operator(function="")
def scatter_window(x: Array, places: Array, size: Sizes) -> Array:
    """Zeros of spatial shape `size` with the values of `x` put at `places` of the flattened image."""
    lead = x.shape[: x.ndim - len(size)]
    flat, where = x.reshape(math.prod(lead), -1), places.reshape(math.prod(lead), -1)
    result = jnp.zeros((flat.shape[0], math.prod(size)), x.dtype)
    return result.at[jnp.arange(flat.shape[0])[:, None], where].set(flat).reshape(*lead, *size)


@operator(function="")
def pad_edges(x: Array, pads: tuple[tuple[int, int], ...], mode: str = "constant", value: float = 0.0) -> Array:
    """`x` with cells before and after each dimension: a constant, or as `numpy.pad` does in `mode`."""
    if mode == "constant":
        return jnp.pad(x, pads, constant_values=jnp.asarray(value, x.dtype))
    return jnp.pad(x, pads, mode=mode)
