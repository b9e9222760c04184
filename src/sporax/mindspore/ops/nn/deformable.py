"""Deformable convolution: each tap of the kernel reads at a place that the network computes.

Method: the input is sampled bilinearly at the shifted places, zero outside, into an image in which each output pixel has its
own kernel window; an ordinary convolution whose stride is the kernel's size follows. Reference: Zhu et al., "Deformable
ConvNets v2" (2018).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.ops._core import FUNCTIONS, Array, check, operator


@operator("DeformableOffsets(strides, pads, ksize, dilations, data_format, deformable_groups, modulated)", function="")
def deformable_offsets(
    x: Array,
    offsets: Array,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    ksize: tuple[int, ...],
    dilations: tuple[int, ...] = (1, 1, 1, 1),
    data_format: str = "NCHW",
    deformable_groups: int = 1,
    modulated: bool = True,
) -> Array:
    """The input at the places that the taps of a deformable kernel read, (n, c, rows * kernel rows, columns * kernel columns).

    Args:
        x: (n, c, h, w).
        offsets: (n, 3 * groups * kernel rows * kernel columns, rows, columns): shifts along w, along h, and factors.
        strides: (1, 1, along h, along w).
        pads: top, bottom, left, right.
        ksize: kernel rows and columns.
        dilations: (1, 1, along h, along w).
        data_format: ``"NCHW"``.
        deformable_groups: groups of channels with offsets of their own.
        modulated: must be True: there are factors.
    """
    name = "DeformableOffsets"
    check.only(name, data_format=(data_format, "NCHW"), modulated=(modulated, True))
    check.rank(name, 4, x=x, offsets=offsets)
    check.floating(name, x=x, offsets=offsets)
    for what, value, length in (
        ("strides", strides, 4),
        ("pads", pads, 4),
        ("ksize", ksize, 2),
        ("dilations", dilations, 4),
    ):
        For(name).refuse(len(value) != length, f"'{what}' must have {length} elements", value)
    # MindSpore has the dims of sample and channel in front.
    if tuple(strides[:2]) != (1, 1) or tuple(dilations[:2]) != (1, 1):
        raise For(name).error(f"'strides' and 'dilations' must begin with (1, 1), but got {strides} and {dilations}")
    (batch, channels, height, width), (rows, columns) = x.shape, offsets.shape[2:]
    taps = ksize[0] * ksize[1]
    sizes = [
        (size + low + high - (kernel - 1) * dilation - 1) // stride + 1
        for size, low, high, kernel, dilation, stride in (
            (height, pads[0], pads[1], ksize[0], dilations[2], strides[2]),
            (width, pads[2], pads[3], ksize[1], dilations[3], strides[3]),
        )
    ]
    expected = (batch, 3 * deformable_groups * taps, *sizes)
    if offsets.shape != expected or channels % deformable_groups:
        raise SporaxValueError(
            f"For '{name}', 'offsets' must have shape {expected} and the channels divide into {deformable_groups} groups, "
            f"but got {offsets.shape} and {channels} channels."
        )
    # Shifts along w come first, then those along h, then factors.
    shifts = offsets.reshape(batch, 3, deformable_groups, *ksize, rows, columns)
    tap_rows = (jnp.arange(ksize[0]) * dilations[2])[:, None, None, None]
    tap_columns = (jnp.arange(ksize[1]) * dilations[3])[:, None, None]
    # Where each tap would read without shifts, plus the shift.
    down = shifts[:, 1] + tap_rows + (jnp.arange(rows) * strides[2] - pads[0])[:, None]
    across = shifts[:, 0] + tap_columns + (jnp.arange(columns) * strides[3] - pads[2])
    sampled = _bilinear(x.reshape(batch, deformable_groups, -1, height, width), down, across) * shifts[:, 2][:, :, None]
    # (batch, group, channel, kernel row, kernel column, row, column): a kernel window for each output pixel
    windows = sampled.reshape(batch, channels, *ksize, rows, columns).transpose(0, 1, 4, 2, 5, 3)
    return windows.reshape(batch, channels, rows * ksize[0], columns * ksize[1])


def _bilinear(x: Array, down: Array, across: Array) -> Array:
    """`x` (batch, group, channel, h, w) at places (batch, group, …), zero outside; (batch, group, channel, …)."""
    height, width = x.shape[-2:]
    top, left = jnp.floor(down), jnp.floor(across)
    flat = x.reshape(*x.shape[:3], height * width)
    total: Any = 0
    for step_down in (0, 1):
        for step_across in (0, 1):
            row, column = top + step_down, left + step_across
            weight = (1 - jnp.abs(down - row)) * (1 - jnp.abs(across - column))
            # Outside counts as zero; clipped places only keep the index valid.
            is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = jnp.clip(row, 0, height - 1) * width + jnp.clip(column, 0, width - 1)
            index = place.astype(jnp.int32).reshape(*place.shape[:2], 1, -1)
            values = jnp.take_along_axis(flat, index, -1).reshape(*flat.shape[:3], *place.shape[2:])
            total = total + values * jnp.where(is_inside, weight, 0)[:, :, None].astype(x.dtype)
    return total


def deformable_conv2d(
    x: Any,
    weight: Any,
    offsets: Any,
    kernel_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    bias: Any = None,
    dilations: tuple[int, ...] = (1, 1, 1, 1),
    groups: int = 1,
    deformable_groups: int = 1,
    modulated: bool = True,
) -> Any:
    """Deformable convolution, version 2: taps with offsets and factors.

    Args:
        x: (n, c, h, w).
        weight: (channels out, c / groups, kernel rows, kernel columns).
        offsets: (n, 3 * deformable groups * kernel rows * kernel columns, rows, columns): shifts along w, along h, and
            factors.
        kernel_size: kernel rows and columns.
        strides: (1, 1, along h, along w).
        padding: top, bottom, left, right.
        bias: (channels out,), or None.
        dilations: (1, 1, along h, along w).
        groups: groups of channels of the convolution.
        deformable_groups: groups of channels with offsets of their own.
        modulated: must be True.

    Raises:
        SporaxValueError, SporaxTypeError: shapes or settings do not fit.
    """
    for what, value in (
        ("strides", strides),
        ("padding", padding),
        ("kernel_size", kernel_size),
        ("dilations", dilations),
    ):
        For("deformable_conv2d").typed(what, value, "a tuple", tuple)
    windows = deformable_offsets(
        x, offsets, strides, padding, kernel_size, dilations, "NCHW", deformable_groups, modulated
    )
    # Each window is read once: the stride is the kernel's size by the layout above.
    return FUNCTIONS["conv2d"](windows, weight, bias, kernel_size, groups=groups)


FUNCTIONS["deformable_conv2d"] = deformable_conv2d
