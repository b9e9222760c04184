"""Padding, and moving elements between dimensions: between space and depth, space and batch, images and patches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, operator
from sporax.ops.nn.convolution import pair

Pads = tuple[tuple[int, int], ...]

# ------------------------------------------------------------------------------------------------------------ padding


def _padded(x: Array, pads: Pads, mode: str, value: Any = 0) -> Array:
    """`x` with cells added at both ends of each dim; negative numbers take cells away (mode "constant")."""
    if mode == "constant":
        fill = jnp.asarray(value, x.dtype)
        return jax.lax.pad(x, fill, [(low, high, 0) for low, high in pads])
    limits = {"reflect": 1, "symmetric": 0, "circular": 0, "wrap": 0}
    for (low, high), size in zip(pads, x.shape, strict=True):
        if mode in limits and max(low, high) > size - limits[mode]:
            raise SporaxValueError(
                f"For 'pad', mode {mode!r} takes at most {size - limits[mode]} cells from a dim of size {size}, "
                f"but got {(low, high)}."
            )
        if min(low, high) < 0:
            raise SporaxValueError(
                f"For 'pad', cells can be taken away only in mode 'constant', but got {(low, high)}."
            )
    return jnp.pad(x, pads, {"replicate": "edge", "circular": "wrap"}.get(mode, mode))


def _from_last(name: str, flat: tuple[int, ...], ndim: int) -> Pads:
    """Pads given as (left, right, top, bottom, …), the last dim first, as pairs for all dims."""
    if len(flat) % 2 or len(flat) > 2 * ndim:
        raise SporaxValueError(
            f"For '{name}', 'padding' must have two numbers a dim, at most {2 * ndim}, but got {flat}."
        )
    pairs = [(flat[at], flat[at + 1]) for at in range(0, len(flat), 2)]
    return tuple([(0, 0)] * (ndim - len(pairs)) + pairs[::-1])


def _ints(padding: Any) -> tuple[int, ...]:
    values = padding.asnumpy().reshape(-1).tolist() if isinstance(padding, Tensor) else padding
    return (values,) * 2 if isinstance(values, int) else tuple(values)


@operator(function="")
def _pad(x: Array, padding: tuple[int, ...], mode: str, value: float | None) -> Array:
    """`x` with cells added around."""
    return _padded(x, _from_last("pad", padding, x.ndim), mode, 0 if value is None else value)


@operator(function="pad", mint="nn.functional.pad(input=input_x, pad=padding)", composed=True)
def pad(input_x: Any, padding: Any, mode: str = "constant", value: float | None = None) -> Any:
    """Cells added at the ends of the last dims.

    Args:
        input_x: tensor.
        padding: (left, right, top, bottom, …), two numbers for each dim, the last dim first; negative numbers take
            cells away (``"constant"`` only).
        mode: ``"constant"``; ``"reflect"`` (mirrored without the edge); ``"replicate"`` (the edge repeated);
            ``"circular"`` (from the other end).
        value: what the cells hold in mode ``"constant"``; 0 by default.
    """
    check.one_of("pad", mode, ("constant", "reflect", "replicate", "circular"), "mode")
    return _pad(input_x, _ints(padding), mode, value)


@operator("Pad(paddings)", function="")
def _pad_primitive(input_x: Array, paddings: tuple[tuple[int, int], ...]) -> Array:
    """Zeros added: ``paddings[i]`` are the numbers of cells before and after dim i."""
    if len(paddings) != input_x.ndim or any(len(each) != 2 for each in paddings):
        raise SporaxValueError(
            f"For 'Pad', 'paddings' must hold a pair for each of the {input_x.ndim} dims, but got {paddings}."
        )
    return _padded(input_x, paddings, "constant")


@operator("PadV3(mode, paddings_contiguous)", function="", composed=True)
def _pad_v3(
    x: Any, paddings: Any, constant_value: Any = None, mode: str = "constant", paddings_contiguous: bool = True
) -> Any:
    """Cells added around; ``"constant"``, ``"reflect"``, ``"edge"`` or ``"circular"``.

    `paddings` are two numbers a dim, the last dim first; not contiguous: all the first ones, then all the second ones.
    """
    check.one_of("PadV3", mode, ("constant", "reflect", "edge", "circular"), "mode")
    flat = _ints(paddings)
    if not paddings_contiguous:
        half = len(flat) // 2
        flat = tuple(number for both in zip(flat[:half], flat[half:], strict=True) for number in both)
    value = constant_value.item() if isinstance(constant_value, Tensor) else constant_value
    return _pad(x, flat, "replicate" if mode == "edge" else mode, value)


@operator("MirrorPad(mode)", function="", composed=True)
def _mirror_pad_primitive(input_x: Any, paddings: Any, mode: str = "REFLECT") -> Any:
    """Mirror images added at the ends; see `ops.mirror_pad`."""
    return mirror_pad(input_x, paddings, mode)


@operator(function="mirror_pad", composed=True)
def mirror_pad(input_x: Any, paddings: Any, mode: str) -> Any:
    """Mirror images added at the ends: ``"REFLECT"`` without the edge, ``"SYMMETRIC"`` with it.

    `paddings` has a row (before, after) for each dim.
    """
    check.one_of("MirrorPad", mode, ("REFLECT", "SYMMETRIC"), "mode")
    rows = paddings.asnumpy().tolist() if isinstance(paddings, Tensor) else paddings
    return _mirrored(input_x, tuple(map(tuple, rows)), mode.lower())


@operator(function="")
def _mirrored(x: Array, pads: tuple[tuple[int, int], ...], mode: str) -> Array:
    """`x` with its mirror images around."""
    return _padded(x, pads, mode)


@operator("Padding(pad_dim_size)", function="padding")
def padding(x: Array, pad_dim_size: int = 8) -> Array:
    """Zeros added to the last dim, which must be of size 1, until it has `pad_dim_size` elements."""
    if not x.ndim or x.shape[-1] != 1:
        raise SporaxValueError(f"For 'Padding', the last dim of 'x' must be of size 1, but the shape is {x.shape}.")
    return _padded(x, (*[(0, 0)] * (x.ndim - 1), (0, pad_dim_size - 1)), "constant")


# ------------------------------------------------------------------------------------------------ space, depth, batch


def _divisible(name: str, what: str, size: int, parts: int) -> int:
    if parts < 1 or size % parts:
        raise SporaxValueError(f"For '{name}', {what} {size} must be divisible by {parts}.")
    return size // parts


@operator("SpaceToDepth(block_size)", function="")
def _space_to_depth(x: Array, block_size: int) -> Array:
    """Blocks of pixels made into channels: (n, c, h, w) gives (n, c·b², h/b, w/b), the place in the block first."""
    check.rank("SpaceToDepth", 4, x=x)
    n, c, height, width = x.shape
    rows = _divisible("SpaceToDepth", "the height", height, block_size)
    columns = _divisible("SpaceToDepth", "the width", width, block_size)
    blocks = x.reshape(n, c, rows, block_size, columns, block_size)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(n, -1, rows, columns)


@operator("DepthToSpace(block_size)", function="")
def _depth_to_space(x: Array, block_size: int) -> Array:
    """Channels made into blocks of pixels; undoes SpaceToDepth."""
    check.rank("DepthToSpace", 4, x=x)
    n, channels, height, width = x.shape
    c = _divisible("DepthToSpace", "the number of channels", channels, block_size**2)
    blocks = x.reshape(n, block_size, block_size, c, height, width)
    return blocks.transpose(0, 3, 4, 1, 5, 2).reshape(n, c, height * block_size, width * block_size)


@operator(function="pixel_shuffle", mint="nn.functional.pixel_shuffle")
def pixel_shuffle(input: Array, upscale_factor: int) -> Array:
    """Channels made into pixels: (…, c·r², h, w) gives (…, c, h·r, w·r) (Shi et al. 2016)."""
    *lead, channels, height, width = input.shape
    c = _divisible("pixel_shuffle", "the number of channels", channels, upscale_factor**2)
    blocks = input.reshape(-1, c, upscale_factor, upscale_factor, height, width)
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(*lead, c, height * upscale_factor, width * upscale_factor)


@operator(function="pixel_unshuffle")
def pixel_unshuffle(input: Array, downscale_factor: int) -> Array:
    """Pixels made into channels; undoes `pixel_shuffle`."""
    *lead, c, height, width = input.shape
    rows = _divisible("pixel_unshuffle", "the height", height, downscale_factor)
    columns = _divisible("pixel_unshuffle", "the width", width, downscale_factor)
    blocks = input.reshape(-1, c, rows, downscale_factor, columns, downscale_factor)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(*lead, c * downscale_factor**2, rows, columns)


@operator("ChannelShuffle(group)", function="")
def _channel_shuffle_primitive(x: Array, group: int) -> Array:
    """Channels dealt to `group` groups in turn."""
    return channel_shuffle.kernel(x, group)


@operator(function="channel_shuffle")
def channel_shuffle(x: Array, groups: int) -> Array:
    """Channels (dim 1) dealt to `groups` groups in turn: their number is (groups, per group) transposed."""
    n, channels, *space = x.shape
    each = _divisible("channel_shuffle", "the number of channels", channels, groups)
    return x.reshape(n, groups, each, *space).swapaxes(1, 2).reshape(x.shape)


def _blocks(name: str, block: Any, edges: Any) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    sizes = block if isinstance(block, tuple) else (block,) * len(edges)
    if len(sizes) != len(edges) or min(sizes) < 1 or any(len(edge) != 2 or min(edge) < 0 for edge in edges):
        raise SporaxValueError(
            f"For '{name}', the block must be ints >= 1 with a pair of ints >= 0 for each, but got {block} and {edges}."
        )
    return sizes, edges


def _space_to_batch(name: str, x: Array, block: Any, paddings: Any) -> Array:
    sizes, edges = _blocks(name, block, paddings)
    lead = x.ndim - len(sizes)
    padded = _padded(x, (*[(0, 0)] * lead, *edges), "constant")
    cells = [_divisible(name, "the padded size", size, b) for size, b in zip(padded.shape[lead:], sizes, strict=True)]
    split = padded.reshape(*x.shape[:lead], *(each for both in zip(cells, sizes, strict=True) for each in both))
    inner = [lead + 1 + 2 * dim for dim in range(len(sizes))]
    outer = [lead + 2 * dim for dim in range(len(sizes))]
    return split.transpose(*inner, *range(lead), *outer).reshape(-1, *x.shape[1:lead], *cells)


def _batch_to_space(name: str, x: Array, block: Any, crops: Any) -> Array:
    sizes, edges = _blocks(name, block, crops)
    lead, count = x.ndim - len(sizes), len(sizes)
    parts = 1
    for each in sizes:
        parts *= each
    batch = _divisible(name, "dim 0", x.shape[0], parts)
    split = x.reshape(*sizes, batch, *x.shape[1:])
    order = list(range(count, count + lead))
    for dim in range(count):
        order += [count + lead + dim, dim]
    whole = [cell * b for cell, b in zip(x.shape[lead:], sizes, strict=True)]
    joined = split.transpose(order).reshape(batch, *x.shape[1:lead], *whole)
    return _padded(joined, (*[(0, 0)] * lead, *((-low, -high) for low, high in edges)), "constant")


@operator("SpaceToBatchND(block_shape, paddings)", function="")
def _space_to_batch_primitive(
    input_x: Array, block_shape: int | tuple[int, ...], paddings: tuple[tuple[int, ...], ...]
) -> Array:
    """The last dims, padded with zeros, cut into blocks whose cells become samples."""
    return _space_to_batch("SpaceToBatchND", input_x, block_shape, paddings)


@operator(function="space_to_batch_nd")
def space_to_batch_nd(
    input_x: Array, block_size: int | tuple[int, ...], paddings: tuple[tuple[int, ...], ...]
) -> Array:
    """The last dims, padded with zeros, cut into blocks whose cells become samples."""
    return _space_to_batch("SpaceToBatchND", input_x, block_size, paddings)


@operator("BatchToSpaceND(block_shape, crops)", function="batch_to_space_nd")
def batch_to_space_nd(input_x: Array, block_shape: int | tuple[int, ...], crops: tuple[tuple[int, ...], ...]) -> Array:
    """Samples made into the cells of blocks of the last dims, then `crops` cut off; undoes SpaceToBatchND."""
    return _batch_to_space("BatchToSpaceND", input_x, block_shape, crops)


# -------------------------------------------------------------------------------------------------- images and patches


def _patches(name: str, x: Array, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Array:
    """(n, c, h, w) as (n, c, kernel cells, places)."""
    check.rank(name, 4, x=x)
    size, step = pair(name, kernel_size, "kernel_size"), pair(name, stride, "stride")
    gap, edge = pair(name, dilation, "dilation"), pair(name, padding, "padding", 0)
    n, c = x.shape[:2]
    cut = jax.lax.conv_general_dilated_patches(
        x.reshape(n * c, 1, *x.shape[2:]), size, step, [(each, each) for each in edge], rhs_dilation=gap
    )
    if 0 in cut.shape:
        raise SporaxValueError(f"For '{name}', the kernel {size} does not fit into 'input' of shape {x.shape}.")
    return cut.reshape(n, c, size[0] * size[1], -1)


@operator(function="unfold", method="unfold", mint="nn.functional.unfold")
def unfold(
    input: Array,
    kernel_size: int | tuple[int, ...],
    dilation: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    stride: int | tuple[int, ...] = 1,
) -> Array:
    """Patches of images as columns: (n, c, h, w) gives (n, c · kernel cells, places)."""
    cut = _patches("unfold", input, kernel_size, dilation, padding, stride)
    return cut.reshape(input.shape[0], -1, cut.shape[-1])


@operator("Im2Col(ksizes, strides, dilations, pads)", function="")
def _im2col(
    x: Array,
    ksizes: int | tuple[int, ...],
    strides: int | tuple[int, ...] = 1,
    dilations: int | tuple[int, ...] = 1,
    pads: int | tuple[int, ...] = 0,
) -> Array:
    """Patches of images as columns: (n, c, h, w) gives (n, c, kernel cells, places)."""
    return _patches("Im2Col", x, ksizes, dilations, pads, strides)


@operator(function="")
def _fold(input: Array, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Array:
    """Patches added up to images, by the transpose of cutting them."""
    size = pair("fold", kernel_size, "kernel_size")
    cells = size[0] * size[1]
    n, columns, places = input.shape
    c = _divisible("fold", "dim 1 of 'input'", columns, cells)
    image = jax.ShapeDtypeStruct((n, c, *pair("fold", output_size, "output_size")), input.dtype)

    def cut(whole: Array) -> Array:
        return _patches("fold", whole, kernel_size, dilation, padding, stride)

    expected = jax.eval_shape(cut, image).shape[-1]
    if expected != places:
        raise SporaxValueError(f"For 'fold', the last dim of 'input' must be the {expected} places, but got {places}.")
    return jax.linear_transpose(cut, image)(input.reshape(n, c, cells, places))[0]


@operator(function="fold", method="fold", mint="nn.functional.fold", composed=True)
def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Patches added up to images: (n, c · kernel cells, places) gives (n, c, *output_size); see `unfold`."""
    check.rank("fold", 3, input=input)
    return _fold(input, _ints(output_size), kernel_size, dilation, padding, stride)
