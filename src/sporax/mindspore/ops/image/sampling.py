"""Sampling images at given points, and cropping boxes out of them; colors (channels last, in [0, 1]).

Some operators are here in MindSpore's class forms as well, whose constructors take what the functions take as arguments.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxNotImplementedError, SporaxValueError, named
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import Array, Operand, check, extremes, known, operator, other_form
from sporax.mindspore.ops.image.resize import checked_size, interpolate


def _pixel(grid: Array, size: int, align: bool, padding: str) -> Array:
    """Coordinates in [-1, 1] as pixel numbers, brought inside as `padding` says."""
    # With `align` -1 and 1 are centers of the corner pixels, otherwise their outer edges.
    at = (grid + 1) / 2 * (size - 1) if align else ((grid + 1) * size - 1) / 2
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        # An image of one pixel mirrors onto itself.
        if span == 0:
            return jnp.zeros_like(at)
        # Folded over twice the width, as a mirror image repeats with that period.
        folded = jnp.mod(jnp.abs(at - low), 2 * span)
        at = jnp.where(folded > span, 2 * span - folded, folded) + low
    # Reflections may still end half a pixel outside.
    return at if padding == "zeros" else jnp.clip(at, 0, size - 1)


def picked(image: Array, positions: list[Array]) -> Array:
    """Pixels (c, …) of one image (c, *space) at whole numbers; zeros outside."""
    inside = jnp.ones(positions[0].shape, bool)
    index = []
    for place, size in zip(positions, image.shape[1:], strict=True):
        inside = inside & (place >= 0) & (place < size)
        # Clipped, since JAX reads something for every index; what is outside is masked below.
        index.append(jnp.clip(place, 0, size - 1).astype(jnp.int32))
    return jnp.where(inside, image[(slice(None), *index)], jnp.zeros((), image.dtype))


def _sampled(name: str, input: Array, grid: Array, mode: str, padding: str, align: bool) -> Array:
    check.floating(name, input=input, grid=grid)
    check.same_dtype(name, input=input, grid=grid)
    check.one_of(name, mode, ("bilinear", "nearest"), "mode")
    check.one_of(name, padding, ("zeros", "border", "reflection"), "padding_mode")
    dims = input.ndim - 2
    if dims not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != dims or grid.shape[0] != input.shape[0]:
        raise SporaxValueError(
            f"For '{name}', 'input' (n, c, h, w) needs a 'grid' (n, H, W, 2), and (n, c, d, h, w) one (n, D, H, W, 3), "
            f"but got shapes {input.shape} and {grid.shape}."
        )

    def one(image: Array, points: Array) -> Array:
        # The last dim of the grid is (x, y[, z]); that of the image is x.
        at = [_pixel(points[..., dims - 1 - dim], image.shape[1 + dim], align, padding) for dim in range(dims)]
        if mode == "nearest":
            return picked(image, [jnp.round(place) for place in at])
        low = [jnp.floor(place) for place in at]
        total = jnp.zeros((image.shape[0], *points.shape[:-1]), image.dtype)
        # The corners of the cell around each point: 4 in images, 8 in volumes.
        for corner in itertools.product((0, 1), repeat=dims):
            weight = jnp.ones((), image.dtype)
            for index, base, bit in zip(at, low, corner, strict=True):
                weight = weight * (index - base if bit else 1 - (index - base))
            total = total + weight * picked(image, [base + bit for base, bit in zip(low, corner, strict=True)])
        return total

    return jax.vmap(one)(input, grid)


@operator(function="grid_sample", mint="nn.functional.grid_sample")
def grid_sample(
    input: Array, grid: Array, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Array:
    """Images sampled at points.

    Args:
        input: (n, c, h, w), or volumes (n, c, d, h, w).
        grid: (n, H, W, 2) or (n, D, H, W, 3), coordinates (x, y[, z]), -1 and 1 being the ends.
        mode: ``"bilinear"`` or ``"nearest"``.
        padding_mode: what is outside: ``"zeros"``, ``"border"`` (the nearest pixel) or ``"reflection"``.
        align_corners: the ends are the centres of the corner pixels, else their outer edges.
    """
    return _sampled("grid_sample", input, grid, mode, padding_mode, bool(align_corners))


def _grid_sampler(dims: int) -> None:
    name = f"GridSampler{dims}D"

    def kernel(
        input_x: Array,
        grid: Array,
        interpolation_mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Array:
        check.rank(name, dims + 2, input_x=input_x)
        return _sampled(name, input_x, grid, interpolation_mode, padding_mode, align_corners)

    kernel.__name__, kernel.__doc__ = f"_{name.lower()}", "See `ops.grid_sample`."
    operator(f"{name}(interpolation_mode, padding_mode, align_corners)", function="")(kernel)


_grid_sampler(2)
_grid_sampler(3)


@operator(function="affine_grid")
def affine_grid(theta: check.Float, size: tuple[int, ...], align_corners: bool = False) -> Array:
    """The grid that samples an affine image of the output: `theta` (n, 2, 3) for `size` (n, c, h, w), or (n, 3, 4)."""
    dims = len(size) - 2
    if dims not in (2, 3) or theta.shape != (size[0], dims, dims + 1):
        raise SporaxValueError(
            f"For 'affine_grid', 'theta' must have shape {(size[0], dims, dims + 1)} for 'size' {size}, but got {theta.shape}."
        )

    def axis(length: int) -> Array:
        if align_corners:
            return jnp.linspace(-1, 1, length, dtype=theta.dtype) if length > 1 else jnp.zeros((1,), theta.dtype)
        # Centers of pixels between the outer edges.
        return (2 * jnp.arange(length, dtype=theta.dtype) + 1) / length - 1

    # The grid's last dim is (x, y[, z]), the reverse of the image's dims.
    grids = jnp.meshgrid(*map(axis, size[2:]), indexing="ij")[::-1]
    # A one behind the coordinates, for the shift in the matrix.
    points = jnp.stack([*grids, jnp.ones_like(grids[0])], -1)
    return jnp.einsum("...k,njk->n...j", points, theta)


other_form(affine_grid, "AffineGrid(align_corners)", "theta output_size=size align_corners")


@operator(function="crop_and_resize")
def crop_and_resize(
    image: Array,
    boxes: Array,
    box_indices: Array,
    crop_size: tuple[int, ...],
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Array:
    """Boxes cropped out of images and resized to one size.

    Args:
        image: (n, h, w, c).
        boxes: (boxes, 4): y1, x1, y2, x2 of the corners; 0 and 1 are the centres of the first and the last pixel.
        box_indices: (boxes,), the image each box is in.
        crop_size: height and width of the results.
        method: ``"bilinear"`` or ``"nearest"``.
        extrapolation_value: what is outside of the image.

    Raises:
        SporaxNotImplementedError: method ``"bilinear_v2"``.
    """
    name = "CropAndResize"
    if method == "bilinear_v2":
        raise SporaxNotImplementedError(f"For '{name}', 'method' 'bilinear_v2' is not offered; use 'bilinear'.")
    check.one_of(name, method, ("bilinear", "nearest"), "method")
    check.rank(name, 4, image=image)
    check.integral(name, box_indices=box_indices)
    if boxes.shape != (*box_indices.shape, 4):
        raise SporaxValueError(
            f"For '{name}', 'boxes' must be (n, 4) with n 'box_indices', but got shapes {boxes.shape}, {box_indices.shape}."
        )
    height, width = checked_size(name, crop_size, 2)

    def along(first: Array, last: Array, length: int, size: int) -> Array:
        if length == 1:
            # One line or column is taken from the middle of the box.
            return (first + last)[:, None] / 2 * (size - 1)
        return (first[:, None] + jnp.arange(length, dtype=boxes.dtype) / (length - 1) * (last - first)[:, None]) * (
            size - 1
        )

    rows = along(boxes[:, 0], boxes[:, 2], height, image.shape[1])
    columns = along(boxes[:, 1], boxes[:, 3], width, image.shape[2])

    def crop(number: Array, ys: Array, xs: Array) -> Array:
        pixels = jnp.moveaxis(image[number].astype(jnp.float32), -1, 0)
        y, x = jnp.meshgrid(ys, xs, indexing="ij")
        outside = (y < 0) | (y > image.shape[1] - 1) | (x < 0) | (x > image.shape[2] - 1)
        if method == "nearest":
            # Half up and not to even, as in MindSpore.
            value = picked(pixels, [jnp.floor(y + 0.5), jnp.floor(x + 0.5)])
        else:
            value = between(pixels, y, x)
        return jnp.moveaxis(jnp.where(outside, jnp.float32(extrapolation_value), value), 0, -1)

    return jax.vmap(crop)(box_indices, rows, columns)


other_form(
    crop_and_resize,
    "CropAndResize(method, extrapolation_value)",
    "x=image boxes box_index=box_indices crop_size method extrapolation_value",
    dims="n h! w! c, b four!, b",
)


def between(image: Array, y: Array, x: Array) -> Array:
    """Pixels (c, …) of one image (c, h, w) at points inside, interpolated."""
    top, left = jnp.floor(y), jnp.floor(x)
    # The neighbour of the last pixel is itself.
    bottom, right = jnp.minimum(top + 1, image.shape[1] - 1), jnp.minimum(left + 1, image.shape[2] - 1)
    down, across = y - top, x - left
    upper = picked(image, [top, left]) * (1 - across) + picked(image, [top, right]) * across
    lower = picked(image, [bottom, left]) * (1 - across) + picked(image, [bottom, right]) * across
    return upper * (1 - down) + lower * down


@operator("UpsampleNearest3D()", function="", composed=True)
def _upsample_nearest(x: Any, output_size: Any = None, scales: Any = None) -> Any:
    """Volumes (n, c, d, h, w) resized to `output_size`, or by the factors `scales`, with the nearest elements."""
    return interpolate(x, output_size, None if scales is None else tuple(scales), "nearest")


@operator("UpsampleTrilinear3D(align_corners)", function="", composed=True)
def _upsample_trilinear(x: Any, output_size: Any = None, scales: Any = None, align_corners: bool = False) -> Any:
    """Volumes (n, c, d, h, w) resized to `output_size`, or by the factors `scales`, interpolated linearly."""
    return interpolate(x, output_size, None if scales is None else tuple(scales), "trilinear", align_corners)


@operator("ResizeLinear1D(coordinate_transformation_mode)", function="", composed=True)
def _resize_linear(
    x: Any, size: Any, coordinate_transformation_mode: Literal["align_corners", "half_pixel"] = "align_corners"
) -> Any:
    """Signals (n, c, w) resized to `size`, interpolated linearly."""
    sizes = known("ResizeLinear1D", "size", size).reshape(-1).tolist() if isinstance(size, Tensor) else size
    corners = coordinate_transformation_mode == "align_corners"
    return interpolate(x, check.shape("ResizeLinear1D", sizes, "size"), None, "linear", corners)


def _pixels(name: str, **images: Array) -> None:
    check.floating(name, **images)
    for what, image in images.items():
        if not image.ndim or image.shape[-1] != 3:
            raise For(name).error(f"{named(what)} must have 3 channels in its last dim", image.shape)


@operator("RGBToHSV()", function="")
def _rgb_to_hsv(images: Array) -> Array:
    """Hue, saturation and value of red, green and blue."""
    _pixels("RGBToHSV", images=images)
    red, green, blue = (images[..., channel] for channel in range(3))
    # Extremes whose gradient does not depend on rounding.
    value = extremes.largest(images, -1)
    spread = value - extremes.smallest(images, -1)
    # A gray pixel has no hue; 1 keeps the division harmless, also in the gradient.
    safe = jnp.where(spread > 0, spread, 1)
    hue = jnp.where(
        value == red,
        (green - blue) / safe,
        jnp.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    saturation = jnp.where(value > 0, spread / jnp.where(value > 0, value, 1), 0)
    # In turns, from 0 to 1.
    return jnp.stack([jnp.where(spread > 0, hue / 6 % 1, 0), saturation, value], -1)


@operator("HSVToRGB()", function="")
def _hsv_to_rgb(x: Array) -> Array:
    """Red, green and blue of hue, saturation and value."""
    _pixels("HSVToRGB", x=x)
    hue, saturation, value = (x[..., channel] for channel in range(3))

    def channel(offset: int) -> Array:
        # How far a corner of the colour hexagon is away decides how much of the saturation is taken off.
        away = (offset + hue * 6) % 6
        return value - value * saturation * jnp.clip(jnp.minimum(away, 4 - away), 0, 1)

    return jnp.stack([channel(5), channel(3), channel(1)], -1)


@operator("AdjustHue()", function="")
def _adjust_hue(image: Array, delta: Operand) -> Array:
    """Images whose hue is turned by `delta`, in [-1, 1] turns."""
    _pixels("AdjustHue", image=image)
    hsv = _rgb_to_hsv.kernel(image)
    # A turn more is the same hue.
    turned = (hsv[..., 0] + jnp.asarray(delta, image.dtype)) % 1
    return _hsv_to_rgb.kernel(jnp.stack([turned, hsv[..., 1], hsv[..., 2]], -1))


@operator("AdjustSaturation()", function="")
def _adjust_saturation(image: Array, scale: Operand) -> Array:
    """Images whose saturation is multiplied by `scale` and limited to [0, 1]."""
    _pixels("AdjustSaturation", image=image)
    hsv = _rgb_to_hsv.kernel(image)
    scaled = jnp.clip(hsv[..., 1] * jnp.asarray(scale, image.dtype), 0, 1)
    return _hsv_to_rgb.kernel(jnp.stack([hsv[..., 0], scaled, hsv[..., 2]], -1))
