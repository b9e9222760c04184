"""Elements moved between dimensions: space, depth and batch, images and patches, data formats; diagonals; padding.

MindSpore has three orders of padding numbers: a pair per dim, flat pairs from the last dim on, and all first numbers before all
second ones. Each is brought to pairs per dim, and one function pads.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.ir.operator_dims import Call, Dims, Shapes, numbered
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, check, operator, other_form, pair
from sporax.mindspore.ops._core.dims import with_constants


def _divisible(name: str, what: str, size: int, parts: int) -> int:
    For(name).refuse(parts < 1 or size % parts, f"{what} {size} must be divisible by {parts}")
    return size // parts


@operator("SpaceToDepth(block_size)", function="")
def _space_to_depth(x: check.Rank4, block_size: int) -> Array:
    """Blocks of pixels made into channels: (n, c, h, w) gives (n, c·b², h/b, w/b), the place in the block first."""
    n, c, height, width = x.shape
    rows = _divisible("SpaceToDepth", "the height", height, block_size)
    columns = _divisible("SpaceToDepth", "the width", width, block_size)
    blocks = x.reshape(n, c, rows, block_size, columns, block_size)
    # The place in the block becomes the leading part of the channels, as in MindSpore (TensorFlow's order for NCHW).
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(n, -1, rows, columns)


@operator("DepthToSpace(block_size)", function="")
def _depth_to_space(x: check.Rank4, block_size: int) -> Array:
    """Channels made into blocks of pixels; undoes SpaceToDepth."""
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
    # The place in the block is the last part of the channels here, as in PyTorch.
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(*lead, c, height * upscale_factor, width * upscale_factor)


@operator(function="pixel_unshuffle")
def pixel_unshuffle(input: Array, downscale_factor: int) -> Array:
    """Pixels made into channels; undoes `pixel_shuffle`."""
    *lead, c, height, width = input.shape
    rows = _divisible("pixel_unshuffle", "the height", height, downscale_factor)
    columns = _divisible("pixel_unshuffle", "the width", width, downscale_factor)
    blocks = input.reshape(-1, c, rows, downscale_factor, columns, downscale_factor)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(*lead, c * downscale_factor**2, rows, columns)


@operator(function="channel_shuffle")
def channel_shuffle(x: Array, groups: int) -> Array:
    """Channels (dim 1) dealt to `groups` groups in turn: their number is (groups, per group) transposed."""
    n, channels, *space = x.shape
    size = _divisible("channel_shuffle", "the number of channels", channels, groups)
    return x.reshape(n, groups, size, *space).swapaxes(1, 2).reshape(x.shape)


def _blocks(name: str, block: Any, edges: Any) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    sizes = block if isinstance(block, tuple) else (block,) * len(edges)
    if len(sizes) != len(edges) or min(sizes) < 1 or any(len(edge) != 2 or min(edge) < 0 for edge in edges):
        raise For(name).error(
            f"the block must be ints >= 1 with a pair of ints >= 0 for each, but got {block} and {edges}"
        )
    return sizes, edges


def _space_to_batch(name: str, x: Array, block: Any, paddings: Any) -> Array:
    sizes, edges = _blocks(name, block, paddings)
    lead = x.ndim - len(sizes)
    padded = _padded(x, (*[(0, 0)] * lead, *edges), "constant")
    cells = [_divisible(name, "the padded size", size, b) for size, b in zip(padded.shape[lead:], sizes, strict=True)]
    split = padded.reshape(*x.shape[:lead], *(length for both in zip(cells, sizes, strict=True) for length in both))
    inner = [lead + 1 + 2 * dim for dim in range(len(sizes))]
    outer = [lead + 2 * dim for dim in range(len(sizes))]
    # The places in blocks go to the front, into the batch, row-major.
    return split.transpose(*inner, *range(lead), *outer).reshape(-1, *x.shape[1:lead], *cells)


def _batch_to_space(name: str, x: Array, block: Any, crops: Any) -> Array:
    sizes, edges = _blocks(name, block, crops)
    lead, count = x.ndim - len(sizes), len(sizes)
    parts = 1
    for size in sizes:
        parts *= size
    batch = _divisible(name, "dim 0", x.shape[0], parts)
    split = x.reshape(*sizes, batch, *x.shape[1:])
    order = list(range(count, count + lead))
    for dim in range(count):
        # Each cell is followed by its place in the block.
        order += [count + lead + dim, dim]
    grown = [cell * b for cell, b in zip(x.shape[lead:], sizes, strict=True)]
    joined = split.transpose(order).reshape(batch, *x.shape[1:lead], *grown)
    # Negative padding removes the crops.
    return _padded(joined, (*[(0, 0)] * lead, *((-low, -high) for low, high in edges)), "constant")


@operator(function="space_to_batch_nd")
def space_to_batch_nd(
    input_x: Array, block_size: int | tuple[int, ...], paddings: tuple[tuple[int, ...], ...]
) -> Array:
    """The last dims, padded with zeros, divided into blocks whose cells become samples."""
    return _space_to_batch("SpaceToBatchND", input_x, block_size, paddings)


@operator("BatchToSpaceND(block_shape, crops)", function="batch_to_space_nd")
def batch_to_space_nd(input_x: Array, block_shape: int | tuple[int, ...], crops: tuple[tuple[int, ...], ...]) -> Array:
    """Samples made into the cells of blocks of the last dims, then `crops` removed; undoes SpaceToBatchND."""
    return _batch_to_space("BatchToSpaceND", input_x, block_shape, crops)


def _patches(name: str, x: Array, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Array:
    """(n, c, h, w) as (n, c, kernel cells, places)."""
    check.rank(name, 4, x=x)
    size, step = pair(name, kernel_size, "kernel_size"), pair(name, stride, "stride")
    gap, edge = pair(name, dilation, "dilation"), pair(name, padding, "padding", 0)
    n, c = x.shape[:2]
    # Channels become samples, so that patches of each are separate.
    patches = jax.lax.conv_general_dilated_patches(
        x.reshape(n * c, 1, *x.shape[2:]), size, step, [(cells, cells) for cells in edge], rhs_dilation=gap
    )
    For(name).refuse(0 in patches.shape, f"the kernel {size} does not fit into 'input' of shape {x.shape}")
    return patches.reshape(n, c, size[0] * size[1], -1)


@operator(function="unfold", method="unfold", mint="nn.functional.unfold")
def unfold(
    input: Array,
    kernel_size: int | tuple[int, ...],
    dilation: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    stride: int | tuple[int, ...] = 1,
) -> Array:
    """Patches of images as columns: (n, c, h, w) gives (n, c · kernel cells, places)."""
    patches = _patches("unfold", input, kernel_size, dilation, padding, stride)
    return patches.reshape(input.shape[0], -1, patches.shape[-1])


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
    """Patches added up to images, by the transpose of extracting them."""
    size = pair("fold", kernel_size, "kernel_size")
    cells = size[0] * size[1]
    n, columns, num_positions = input.shape
    c = _divisible("fold", "dim 1 of 'input'", columns, cells)
    image = jax.ShapeDtypeStruct((n, c, *pair("fold", output_size, "output_size")), input.dtype)

    # Folding is the transpose of extracting patches; its gradient rules come with it.
    def patches_of(x: Array) -> Array:
        return _patches("fold", x, kernel_size, dilation, padding, stride)

    expected = jax.eval_shape(patches_of, image).shape[-1]
    if expected != num_positions:
        raise For("fold").error(f"the last dim of 'input' must be the {expected} places", num_positions)
    # Overlapping patches add up in the transpose.
    return jax.linear_transpose(patches_of, image)(input.reshape(n, c, cells, num_positions))[0]


@operator(function="fold", method="fold", mint="nn.functional.fold", composed=True)
def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Patches added up to images: (n, c · kernel cells, places) gives (n, c, *output_size); see `unfold`."""
    check.rank("fold", 3, input=input)
    return _fold(input, _ints(output_size), kernel_size, dilation, padding, stride)


@operator("SpaceToBatch(block_size, paddings)", function="")
def _space_to_batch_class(input_x: check.Rank4, block_size: int, paddings: tuple[tuple[int, ...], ...]) -> Array:
    """Height and width of (n, c, h, w), padded with zeros, divided into blocks whose cells become samples."""
    return _space_to_batch("SpaceToBatch", input_x, (block_size, block_size), paddings)


@operator("BatchToSpace(block_size, crops)", function="")
def _batch_to_space_class(input_x: check.Rank4, block_size: int, crops: tuple[tuple[int, ...], ...]) -> Array:
    """Samples of (n, c, h, w) made into the cells of blocks, then `crops` removed; undoes SpaceToBatch."""
    return _batch_to_space("BatchToSpace", input_x, (block_size, block_size), crops)


Setting = int | tuple[int, ...]


@operator(function="col2im", method="col2im", composed=True)
def col2im(
    input_x: Any, output_size: Any, kernel_size: Setting, dilation: Setting, padding_value: Setting, stride: Setting
) -> Any:
    """Patches (n, c, kernel cells, places) added up to images (n, c, *output_size); see `fold`."""
    For("Col2Im").refuse(input_x.ndim != 4, f"'input_x' must have 4 dimensions, but its shape is {input_x.shape}")
    n, c, cells, num_positions = input_x.shape
    return fold(
        input_x.reshape((n, c * cells, num_positions)), output_size, kernel_size, dilation, padding_value, stride
    )


def _layouts(name: str, source: str, target: str) -> list[int]:
    """For each letter of the target where it is in the source."""
    if sorted(source) != sorted(target) or len(set(source)) < len(source):
        raise For(name).error(
            f"'src_format' and 'dst_format' must have the same letters, but got {source} and {target}"
        )
    return [source.index(letter) for letter in target]


@operator("DataFormatDimMap(src_format, dst_format)", function="")
def _format_dim_map(input_x: check.Int, src_format: str = "NHWC", dst_format: str = "NCHW") -> Array:
    """Numbers of dims in one layout as numbers of the same dims in the other."""
    order = _layouts("DataFormatDimMap", dst_format, src_format)
    # `%`, as negative numbers count from the end.
    return jnp.asarray(order, input_x.dtype)[input_x % len(order)]


@operator("DataFormatVecPermute(src_format, dst_format)", function="")
def _format_permute(input_x: Array, src_format: str = "NHWC", dst_format: str = "NCHW") -> Array:
    """A vector (4,) with a number for each dim, or (4, 2), in the order of the other layout."""
    order = _layouts("DataFormatVecPermute", src_format, dst_format)
    check.rank("DataFormatVecPermute", (1, 2), input_x=input_x)
    For("DataFormatVecPermute").refuse(
        input_x.shape[0] != len(order), f"'input_x' must have {len(order)} rows, but its shape is {input_x.shape}"
    )
    return input_x[jnp.asarray(order)]


@operator("Diag", function="diag")
def diag(input: check.One) -> Array:
    """A tensor of twice as many dims with `input` on its diagonal, zeros elsewhere."""
    # As a vector: `jnp.diag` knows matrices only.
    return jnp.diag(input.reshape(-1)).reshape(input.shape * 2)


@operator("DiagPart", function="")
def _diag_part(input_x: Array) -> Array:
    """The diagonal of a tensor whose shape is one shape twice; undoes `diag`."""
    half = input_x.ndim // 2
    if input_x.ndim % 2 or input_x.shape[:half] != input_x.shape[half:]:
        raise For("DiagPart").error("the shape of 'input_x' must be one shape twice", input_x.shape)
    size = math.prod(input_x.shape[:half])
    return jnp.diagonal(input_x.reshape(size, size)).reshape(input_x.shape[:half])


@operator(function="", method="diag", mint="diag")
def _mint_diag(input: Array, diagonal: int = 0) -> Array:
    """A matrix with a vector as diagonal, or the diagonal of a matrix."""
    check.rank("diag", (1, 2), input=input)
    return jnp.diag(input, diagonal)


@operator(function="diagflat", method="diagflat")
def diagflat(input: Array, offset: int = 0) -> Array:
    """A matrix with the flattened input as diagonal."""
    return jnp.diagflat(input, offset)


@operator(function="diagonal", method="diagonal(axis1=dim1, axis2=dim2)")
def diagonal(input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The diagonals in the plane of two dims, along a last dimension of their own."""
    return jnp.diagonal(
        input,
        offset,
        check.axis("diagonal", dim1, input.ndim, "dim1"),
        check.axis("diagonal", dim2, input.ndim, "dim2"),
    )


@operator(function="diag_embed")
def diag_embed(input: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Matrices with the vectors of the last dim as diagonals, in the plane of the new dims `dim1` and `dim2`."""
    size = input.shape[-1] + abs(offset)
    steps = np.arange(input.shape[-1])
    matrices = jnp.zeros((*input.shape[:-1], size, size), input.dtype)
    matrices = matrices.at[..., steps + max(-offset, 0), steps + max(offset, 0)].set(input)
    # Only now: the new dims count in the result's number of dims.
    first = check.axis("diag_embed", dim1, input.ndim + 1, "dim1")
    second = check.axis("diag_embed", dim2, input.ndim + 1, "dim2")
    For("diag_embed").refuse(first == second, "'dim1' and 'dim2' must differ", f"{dim1} and {dim2}")
    return jnp.moveaxis(matrices, (-2, -1), (first, second))


@operator("FillDiagonal(fill_value, wrap)", function="")
def _fill_diagonal(input_x: Array, fill_value: float, wrap: bool = False) -> Array:
    """The tensor with one value on its diagonal; `wrap` goes on in tall matrices, a row below each corner."""
    name = "FillDiagonal"
    check.rank(name, range(2, 9), input_x=input_x)
    if input_x.ndim > 2 and len(set(input_x.shape)) > 1:
        raise For(name).error(f"more than 2 dims must have one size, but the shape is {input_x.shape}")
    if input_x.ndim > 2:
        at = jnp.arange(input_x.shape[0])
        return input_x.at[(at,) * input_x.ndim].set(jnp.asarray(fill_value, input_x.dtype))
    rows, columns = input_x.shape
    # In the flat tensor a diagonal is every (columns + 1)-th element; without wrap it ends at the square part.
    positions = np.arange(0, rows * columns if wrap else min(rows, columns) * columns, columns + 1)
    filled = input_x.reshape(-1).at[positions].set(jnp.asarray(fill_value, input_x.dtype))
    return filled.reshape(input_x.shape)


@operator("Tril", function="tril", method="tril", mint="tril")
def tril(input: Array, diagonal: int = 0) -> Array:
    """The lower triangle of the last two dimensions; zeros above `diagonal`."""
    return jnp.tril(input, diagonal)


@operator("Triu", function="triu", method="triu", mint="triu")
def triu(input: Array, diagonal: int = 0) -> Array:
    """The upper triangle of the last two dimensions; zeros below `diagonal`."""
    return jnp.triu(input, diagonal)


other_form(channel_shuffle, "ChannelShuffle(group)", "x group=groups")
other_form(space_to_batch_nd, "SpaceToBatchND(block_shape, paddings)", "input_x block_shape=block_size paddings")
other_form(
    col2im,
    "Col2Im(kernel_size, dilation, padding, stride)",
    "x=input_x output_size kernel_size dilation padding=padding_value stride",
    dilation=1,
    padding=0,
    stride=1,
)

Pads = tuple[tuple[int, int], ...]


def _padded(x: Array, pads: Pads, mode: str, value: Any = 0) -> Array:
    """`x` with cells added at both ends of each dim; negative numbers take cells away (mode "constant")."""
    if mode == "constant":
        fill = jnp.asarray(value, x.dtype)
        # XLA's pad takes negative numbers as cropping.
        return jax.lax.pad(x, fill, [(low, high, 0) for low, high in pads])
    # Cells that are left out of the mirror: the edge itself for "reflect".
    limits = {"reflect": 1, "symmetric": 0, "circular": 0, "wrap": 0}
    for (low, high), size in zip(pads, x.shape, strict=True):
        if mode in limits and max(low, high) > size - limits[mode]:
            raise For("pad").error(
                f"mode {mode!r} takes at most {size - limits[mode]} cells from a dim of size {size}, but got {(low, high)}"
            )
        For("pad").refuse(min(low, high) < 0, "cells can be taken away only in mode 'constant'", (low, high))
    return jnp.pad(x, pads, {"replicate": "edge", "circular": "wrap"}.get(mode, mode))


def _from_last(name: str, flat: tuple[int, ...], ndim: int) -> Pads:
    """Pads given as (left, right, top, bottom, …), the last dim first, as pairs for all dims."""
    if len(flat) % 2 or len(flat) > 2 * ndim:
        raise For(name).error(f"'padding' must have two numbers a dim, at most {2 * ndim}", flat)
    pairs = [(flat[at], flat[at + 1]) for at in range(0, len(flat), 2)]
    # MindSpore counts from the last dim.
    return tuple([(0, 0)] * (ndim - len(pairs)) + pairs[::-1])


def _ints(padding: Any) -> tuple[int, ...]:
    values = padding.asnumpy().reshape(-1).tolist() if isinstance(padding, Tensor) else padding
    return (values,) * 2 if isinstance(values, int) else tuple(values)


def _pad_dims(call: Call, shapes: Shapes) -> Dims:
    """Dims to which cells are added are never sharded; the first pair of numbers is of the last dim."""
    rank, numbers = len(shapes[0]), call.get("padding", ())
    pairs = enumerate(zip(numbers[::2], numbers[1::2], strict=True)) if isinstance(numbers, tuple) else ()
    names = numbered(rank, [rank - 1 - place for place, pair in pairs if any(pair)])
    return with_constants(names, shapes[0], (len(numbers),) if isinstance(numbers, tuple) else (), ())


@operator(function="", dims=_pad_dims)
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
    # In front of the conversion, which needs values: a mistake should not depend on them.
    check.one_of("pad", mode, ("constant", "reflect", "replicate", "circular"), "mode")
    return _pad(input_x, _ints(padding), mode, value)


@operator("Pad(paddings)", function="")
def _pad_primitive(input_x: Array, paddings: tuple[tuple[int, int], ...]) -> Array:
    """Zeros added: ``paddings[i]`` are the numbers of cells before and after dim i."""
    if len(paddings) != input_x.ndim or any(len(pair) != 2 for pair in paddings):
        raise For("Pad").error(f"'paddings' must hold a pair for each of the {input_x.ndim} dims", paddings)
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


@operator(function="mirror_pad", composed=True)
def mirror_pad(input_x: Any, paddings: Any, mode: str) -> Any:
    """Mirror images added at the ends: ``"REFLECT"`` without the edge, ``"SYMMETRIC"`` with it.

    `paddings` has a row (before, after) for each dim.
    """
    check.one_of("MirrorPad", mode, ("REFLECT", "SYMMETRIC"), "mode")
    # Rows of a tensor must be known: they decide the shape.
    rows = paddings.asnumpy().tolist() if isinstance(paddings, Tensor) else paddings
    return _mirrored(input_x, tuple(map(tuple, rows)), mode.lower())


other_form(mirror_pad, "MirrorPad(mode)", mode="REFLECT")


@operator(function="")
def _mirrored(x: Array, pads: tuple[tuple[int, int], ...], mode: str) -> Array:
    """`x` with its mirror images around."""
    return _padded(x, pads, mode)


@operator("Padding(pad_dim_size)", function="padding")
def padding(x: Array, pad_dim_size: int = 8) -> Array:
    """Zeros added to the last dim, which must be of size 1, until it has `pad_dim_size` elements."""
    if not x.ndim or x.shape[-1] != 1:
        raise For("Padding").error(f"the last dim of 'x' must be of size 1, but the shape is {x.shape}")
    return _padded(x, (*[(0, 0)] * (x.ndim - 1), (0, pad_dim_size - 1)), "constant")
