"""Convolution and pooling over images in NCHW (or NHWC) order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops._core import check, extremes
from sporax.ops._core.operator import Array, operator

Pair = tuple[int, int]
ImageFormat = Literal["NCHW", "NHWC"]
Padding = Literal["same", "valid", "pad", "SAME", "VALID", "PAD"]
PoolPadding = Literal["same", "valid", "SAME", "VALID"]
_LARGEST_TILE = 8
"""Edge of the largest window for which `_tile_maxima` compares slice by slice."""


def pair(operator_name: str, value: Any, name: str, least: int = 1) -> Pair:
    """A setting for height and width: one int for both, two ints, or four as in ``(1, 1, h, w)``.

    Raises:
        SporaxTypeError: not ints.
        SporaxValueError: another number of them, or one below `least`.
    """
    values = (value,) * 2 if isinstance(value, int) else value
    if isinstance(value, bool) or not isinstance(values, tuple) or any(not isinstance(each, int) for each in values):
        raise SporaxTypeError(f"For '{operator_name}', '{name}' must be an int or a tuple of ints, but got {value!r}.")
    if len(values) == 4:
        values = values[2:]
    if len(values) != 2 or min(values) < least:
        raise SporaxValueError(f"For '{operator_name}', '{name}' must be one or two ints >= {least}, but got {value}.")
    return values[0], values[1]


def _padding(name: str, pad_mode: str, pad: Any) -> Any:
    """What `lax` wants: "SAME", "VALID", or ((top, bottom), (left, right))."""
    if pad_mode.lower() != "pad":
        return pad_mode.upper()
    sides = (pad,) * 4 if isinstance(pad, int) else tuple(pad)
    if len(sides) == 2:
        sides = (sides[0], sides[0], sides[1], sides[1])
    if len(sides) != 4 or min(sides) < 0:
        raise SporaxValueError(f"For '{name}', 'pad' must be one, two or four ints >= 0, but got {pad}.")
    return (sides[0], sides[1]), (sides[2], sides[3])


@operator("Conv2D(out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group, data_format)", function="")
def _conv2d(
    x: Array,
    weight: Array,
    out_channel: int,
    kernel_size: int | Pair,
    mode: int = 1,
    pad_mode: Padding = "valid",
    pad: int | tuple[int, ...] = 0,
    stride: int | tuple[int, ...] = 1,
    dilation: int | tuple[int, ...] = 1,
    group: int = 1,
    data_format: ImageFormat = "NCHW",
) -> Array:
    """Cross-correlation of images with `out_channel` kernels.

    Args:
        x: (N, C_in, H, W), or (N, H, W, C_in) for NHWC.
        weight: (out_channel, C_in / group, kernel height, kernel width), or (…, kernel height, kernel width, C_in / group).
        out_channel: number of kernels.
        kernel_size: height and width of the kernels.
        mode: 1, cross-correlation; nothing else exists.
        pad_mode: ``"same"`` (output size is input size / stride), ``"valid"`` (no padding) or ``"pad"`` (`pad` cells).
        pad: cells on all sides, or (top, bottom, left, right); only with ``"pad"``.
        stride: step of the kernel.
        dilation: distance between the cells the kernel looks at.
        group: the channels are cut into so many independent groups.
        data_format: NCHW or NHWC.

    Raises:
        SporaxTypeError: the dtypes differ.
        SporaxValueError: channels, kernel or sizes do not fit together.
    """
    name = "Conv2D"
    check.one_of(name, mode, (1,), "mode")
    check.rank(name, 4, x=x, weight=weight)
    check.same_dtype(name, x=x, weight=weight)
    kernel_layout = "OIHW" if data_format == "NCHW" else "OHWI"
    size = pair(name, kernel_size, "kernel_size")
    channels, expected = x.shape[data_format.index("C")], weight.shape[kernel_layout.index("I")] * group
    if channels != expected:
        raise SporaxValueError(
            f"For 'Conv2D', the channels of 'x' must be the channels of 'weight' times 'group', "
            f"but got {channels} and {expected} (x.shape {x.shape}, weight.shape {weight.shape}, group {group})."
        )
    got = weight.shape[0], *(weight.shape[kernel_layout.index(dim)] for dim in "HW")
    if got != (out_channel, *size):
        raise SporaxValueError(
            f"For 'Conv2D', 'weight' must have out_channel {out_channel} and kernel_size {size}, but its shape is {weight.shape}."
        )
    result = jax.lax.conv_general_dilated(
        x,
        weight,
        window_strides=pair(name, stride, "stride"),
        padding=_padding(name, pad_mode, pad),
        rhs_dilation=pair(name, dilation, "dilation"),
        dimension_numbers=(data_format, kernel_layout, data_format),
        feature_group_count=group,
    )
    if 0 in result.shape:
        raise SporaxValueError(f"For 'Conv2D', the kernel {size} does not fit into 'x' of shape {x.shape}.")
    return result


def _window(
    name: str, x: Array, kernel_size: Any, strides: Any, data_format: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    check.rank(name, 4, x=x)
    size, step = pair(name, kernel_size, "kernel_size"), pair(name, strides, "strides")
    if data_format == "NCHW":
        return (1, 1, *size), (1, 1, *step)
    return (1, *size, 1), (1, *step, 1)


def _fits(name: str, result: Array, x: Array, kernel_size: Any) -> Array:
    if 0 in result.shape:
        raise SporaxValueError(f"For '{name}', the window {kernel_size} does not fit into 'x' of shape {x.shape}.")
    return result


@operator("MaxPool", function="")
def _max_pool(
    x: Array,
    kernel_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    pad_mode: PoolPadding = "valid",
    data_format: ImageFormat = "NCHW",
) -> Array:
    """Largest value in each window. `x` is (N, C, H, W), or (N, H, W, C) for NHWC."""
    window, step = _window("MaxPool", x, kernel_size, strides, data_format)
    divides = all(whole % size == 0 for whole, size in zip(x.shape, window, strict=True))
    if window == step and max(window) <= _LARGEST_TILE and (divides or pad_mode.upper() == "VALID"):
        return _fits("MaxPool", _tile_maxima(x, window), x, kernel_size)
    lowest = np.asarray(-np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min, x.dtype)
    result = jax.lax.reduce_window(x, lowest, jax.lax.max, window, step, pad_mode.upper())
    return _fits("MaxPool", result, x, kernel_size)


def _tile_maxima(x: Array, window: tuple[int, ...]) -> Array:
    """Largest value in each of the tiles that `x` is cut into; a rest at the edges that fills no tile is left out.

    Comparing slices is 2 to 8 times faster on CPUs than `reduce_window`, and its derivative, which needs no scatter, 5 to
    16 times. Columns are compared before rows, so that of equal values the first in memory gets the derivative.
    """
    for dim in reversed(range(x.ndim)):
        size, count = window[dim], x.shape[dim] // window[dim]
        if size > 1:
            cut = jax.lax.slice_in_dim(x, 0, count * size, axis=dim)
            tiles = cut.reshape(*x.shape[:dim], count, size, *x.shape[dim + 1 :])
            x, *others = (jax.lax.index_in_dim(tiles, place, dim + 1, keepdims=False) for place in range(size))
            for other in others:
                x = jnp.where((other > x) | (other != other), other, x)  # NaN wins, as everywhere
    return x


@operator("AvgPool", function="")
def _avg_pool(
    x: Array,
    kernel_size: int | tuple[int, ...] = 1,
    strides: int | tuple[int, ...] = 1,
    pad_mode: PoolPadding = "VALID",
    data_format: ImageFormat = "NCHW",
) -> Array:
    """Mean of each window, counting only cells inside the image. `x` is (N, C, H, W), or (N, H, W, C) for NHWC."""
    window, step = _window("AvgPool", x, kernel_size, strides, data_format)

    def total(values: Array) -> Array:
        return jax.lax.reduce_window(values, np.asarray(0, x.dtype), jax.lax.add, window, step, pad_mode.upper())

    return _fits("AvgPool", total(x) / total(jnp.ones_like(x)), x, kernel_size)


def _adaptive(name: str, reduce: Callable[..., Array]) -> Callable[[Array, Any], Array]:
    """Pooling to a given output size: cell i covers rows floor(i·H/h) up to ceil((i+1)·H/h)."""

    def pool(x: Array, output_size: Any) -> Array:
        check.rank(name, (3, 4), x=x)
        sizes = (output_size,) * 2 if isinstance(output_size, int) or output_size is None else output_size
        if len(sizes) != 2 or min(size for size in (*sizes, 1) if size is not None) < 1:
            raise SporaxValueError(f"For '{name}', 'output_size' must be one or two sizes >= 1, but got {output_size}.")
        goal = [whole if wanted is None else wanted for wanted, whole in zip(sizes, x.shape[-2:], strict=True)]
        for axis, wanted in zip((-2, -1), goal, strict=True):
            x = jnp.concatenate(list(_cells(x, axis, wanted, reduce)), axis)
        return x

    return pool


def _cells(x: Array, axis: int, wanted: int, reduce: Callable[..., Array]) -> Any:
    whole = x.shape[axis]
    for cell in range(wanted):
        first, last = cell * whole // wanted, -(-(cell + 1) * whole // wanted)
        yield reduce(jax.lax.slice_in_dim(x, first, last, axis=axis), axis=axis, keepdims=True)


@operator(function="adaptive_avg_pool2d", mint="nn.functional.adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Array, output_size: int | tuple[int | None, ...] | None) -> Array:
    """Means that bring height and width to `output_size`; None keeps a size."""
    return _adaptive("adaptive_avg_pool2d", jnp.mean)(input, output_size)


@operator(function="adaptive_max_pool2d")
def adaptive_max_pool2d(
    input: Array, output_size: int | tuple[int | None, ...] | None, return_indices: bool = False
) -> Any:
    """Maxima that bring height and width to `output_size`; None keeps a size.

    With `return_indices` also where they are: int64 positions in the flattened image.
    """
    values = _adaptive("adaptive_max_pool2d", extremes.largest)(input, output_size)
    if not return_indices:
        return values
    height, width = input.shape[-2:]
    positions = jnp.broadcast_to(jnp.arange(height * width).reshape(height, width), input.shape)
    sizes = values.shape[-2:]
    rows = [
        jnp.stack([_place_of_largest(input, positions, (row, column), sizes) for column in range(sizes[1])], -1)
        for row in range(sizes[0])
    ]
    return values, jnp.stack(rows, -2)


def _place_of_largest(x: Array, positions: Array, cell: Pair, sizes: Pair) -> Array:
    """Of cell (row, column) of a pooling to `sizes`: the position of its first largest element."""
    (top, bottom), (left, right) = (
        (each * whole // wanted, -(-(each + 1) * whole // wanted))
        for each, wanted, whole in zip(cell, sizes, x.shape[-2:], strict=True)
    )
    flat = (*x.shape[:-2], (bottom - top) * (right - left))
    values, places = (array[..., top:bottom, left:right].reshape(flat) for array in (x, positions))
    return jnp.take_along_axis(places, jnp.argmax(values, -1, keepdims=True), -1)[..., 0]
