"""Resampling images: resizing, sampling at given points, and the boxes of object detection.

Resizing is separable: along each dim every output pixel is a weighted sum of input pixels, so a resize is one small
matrix a dim, made when the operator is compiled.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.ops import _check as check
from sporax.ops._operator import Array, operator

Sizes = int | tuple[int, ...]

# ------------------------------------------------------------------------------------------------------------ resizing


def _coordinates(source: int, target: int, align_corners: bool, half_pixel: bool, scale: float | None) -> Any:
    """Where each output pixel lies among the input pixels."""
    steps = np.arange(target, dtype=np.float64)
    if align_corners:
        return steps * ((source - 1) / (target - 1) if target > 1 else 0.0)
    ratio = source / target if scale is None else 1 / scale
    return (steps + 0.5) * ratio - 0.5 if half_pixel else steps * ratio


def _matrix(source: int, target: int, taps: list[tuple[Any, Any]]) -> Any:
    """The (target, source) matrix of weighted input pixels; positions outside count as the nearest one inside."""
    matrix = np.zeros((target, source))
    for position, weight in taps:
        np.add.at(matrix, (np.arange(target), np.clip(position, 0, source - 1).astype(int)), weight)
    return matrix


def _nearest(source: int, target: int, align: bool, half: bool, scale: float | None = None, exact: bool = False) -> Any:
    at = _coordinates(source, target, align, half or exact, scale)
    position = np.floor(at + 0.5) if align or half or exact else np.floor(at)
    return _matrix(source, target, [(position, 1.0)])


def _linear(source: int, target: int, align: bool, half: bool, scale: float | None = None) -> Any:
    at = np.maximum(_coordinates(source, target, align, half, scale), 0)
    low = np.floor(at)
    return _matrix(source, target, [(low, 1 - (at - low)), (low + 1, at - low)])


def _cubic(source: int, target: int, align: bool, half: bool, scale: float | None = None, a: float = -0.75) -> Any:
    """Cubic convolution (Keys 1981) with the free parameter `a`."""
    at = _coordinates(source, target, align, half, scale)
    low = np.floor(at)

    def weight(distance: Any) -> Any:
        inner = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        return np.where(distance <= 1, inner, a * (distance**3 - 5 * distance**2 + 8 * distance - 4))

    return _matrix(source, target, [(low + tap, weight(np.abs(at - low - tap))) for tap in (-1, 0, 1, 2)])


def _area(source: int, target: int) -> Any:
    matrix = np.zeros((target, source))
    for cell in range(target):
        first, last = cell * source // target, -(-(cell + 1) * source // target)
        matrix[cell, first:last] = 1 / (last - first)
    return matrix


def _resampled(x: Array, matrices: list[Any]) -> Array:
    """`x` with its last dims multiplied by one matrix each."""
    result = x
    for dim, matrix in zip(range(x.ndim - len(matrices), x.ndim), matrices, strict=True):
        moved = jnp.tensordot(result, jnp.asarray(matrix.T, x.dtype), ((dim,), (0,)))
        result = jnp.moveaxis(moved, -1, dim)
    return result


def _checked_size(name: str, size: Any, dims: int) -> tuple[int, ...]:
    sizes = (size,) * dims if isinstance(size, int) else size
    if not isinstance(sizes, tuple) or len(sizes) != dims or any(each < 1 for each in sizes):
        raise SporaxValueError(f"For '{name}', 'size' must be {dims} ints >= 1, but got {size!r}.")
    return sizes


def _resize(name: str, kind: Any, x: Array, size: Any, align_corners: bool, half_pixel_centers: bool) -> Array:
    check.tensor(name, x=x)
    check.rank(name, 4, x=x)
    if align_corners and half_pixel_centers:
        raise SporaxValueError(f"For '{name}', 'align_corners' and 'half_pixel_centers' must not both be True.")
    sizes = _checked_size(name, size, 2)
    pairs = zip(x.shape[2:], sizes, strict=True)
    return _resampled(x, [kind(source, target, align_corners, half_pixel_centers) for source, target in pairs])


def _resize_nearest(source: int, target: int, align: bool, half: bool) -> Any:
    if half:
        position = np.floor((np.arange(target) + 0.5) * source / target)
        return _matrix(source, target, [(position, 1.0)])
    return _nearest(source, target, align, False)


def _half_pixel_cubic(source: int, target: int, align: bool, half: bool, scale: float | None = None) -> Any:
    """Cubic convolution with -0.5, whose weights outside of the image are left out: with half-pixel centres."""
    at = _coordinates(source, target, False, True, scale)
    distance = np.abs(at[:, None] - np.arange(source))
    inner = 1.5 * distance**3 - 2.5 * distance**2 + 1
    outer = -0.5 * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    weights = np.where(distance <= 1, inner, np.where(distance < 2, outer, 0))
    return weights / weights.sum(1, keepdims=True)


def _resize_cubic(source: int, target: int, align: bool, half: bool) -> Any:
    return (_half_pixel_cubic if half else _cubic)(source, target, align, half)


def _resize_forms(kind: Any, doc: str, size_in_constructor: str, size_in_call: str) -> None:
    """The older class, whose size is an attribute, and the newer one, whose size is an argument."""

    def older(input_x: Array, size: Sizes, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
        return _resize(size_in_constructor, kind, input_x, size, align_corners, half_pixel_centers)

    def newer(image: Array, size: Sizes, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
        return _resize(size_in_call, kind, image, size, align_corners, half_pixel_centers)

    for each, name in ((older, size_in_constructor), (newer, size_in_call)):
        each.__name__ = f"_{name.lower()}"
        each.__doc__ = (
            f"Images (n, c, h, w) resized to `size`: {doc}.\n\n"
            "    `align_corners` lets the centres of the corner pixels coincide; `half_pixel_centers` counts coordinates\n"
            "    from the edges of the pixels instead of their centres.\n"
        )
    if size_in_constructor:
        operator(f"{size_in_constructor}(size, align_corners, half_pixel_centers)", function="")(older)
    operator(f"{size_in_call}(align_corners, half_pixel_centers)", function="")(newer)


_resize_forms(_resize_nearest, "the nearest pixel", "ResizeNearestNeighbor", "ResizeNearestNeighborV2")
_resize_forms(_linear, "bilinear interpolation", "ResizeBilinear", "ResizeBilinearV2")
_resize_forms(_resize_cubic, "bicubic interpolation", "", "ResizeBicubic")

_MODES = {
    "nearest": (3, 4, 5), "linear": (3,), "bilinear": (4,), "trilinear": (5,), "bicubic": (4,), "area": (3, 4, 5),
    "nearest-exact": (3, 4),
}  # fmt: skip


def _interpolated(
    input: Array, size: Any, scale_factor: Any, mode: str, align_corners: bool | None, recompute: bool | None
) -> Array:
    name, dims = "interpolate", input.ndim - 2
    check.one_of(name, mode, tuple(_MODES), "mode")
    check.rank(name, _MODES[mode], input=input)
    if (size is None) == (scale_factor is None):
        raise SporaxValueError(
            f"For '{name}', one of 'size' and 'scale_factor' must be given, but got {size}, {scale_factor}."
        )
    if align_corners is not None and mode in ("nearest", "area", "nearest-exact"):
        raise SporaxValueError(f"For '{name}', 'align_corners' must be None in mode {mode!r}, but got {align_corners}.")
    factors: Any = (None,) * dims
    if size is None:
        factors = scale_factor if isinstance(scale_factor, tuple) else (scale_factor,) * dims
        size = tuple(math.floor(given * factor) for given, factor in zip(input.shape[2:], factors, strict=True))
        factors = (None,) * dims if recompute else factors
    align = bool(align_corners)
    matrices = []
    for source, target, factor in zip(input.shape[2:], _checked_size(name, size, dims), factors, strict=True):
        if mode in ("nearest", "nearest-exact"):
            exact = mode == "nearest-exact"
            matrices.append(_nearest(source, target, False, False, factor, exact))
        elif mode == "area":
            matrices.append(_area(source, target))
        else:
            kind = _linear if mode != "bicubic" else _cubic if align else _half_pixel_cubic
            matrices.append(kind(source, target, align, True, factor))
    return _resampled(input, matrices)


@operator(function="interpolate", mint="nn.functional.interpolate")
def interpolate(
    input: Array,
    size: Sizes | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Array:
    """Tensors (n, c, …) resized in their spatial dims.

    Args:
        input: one, two or three spatial dims.
        size: what to resize them to.
        scale_factor: what to multiply their sizes by, instead of `size`.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"area"``, ``"linear"`` (one dim), ``"bilinear"`` and ``"bicubic"``
            (two), ``"trilinear"`` (three).
        align_corners: let the centres of the corner pixels coincide; only where there is interpolation.
        recompute_scale_factor: derive the factor from the resulting sizes again, instead of using it as given.
    """
    return _interpolated(input, size, scale_factor, mode, align_corners, recompute_scale_factor)


@operator(function="upsample")
def upsample(
    input: Array,
    size: Sizes | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Array:
    """Same as `interpolate`."""
    return _interpolated(input, size, scale_factor, mode, align_corners, recompute_scale_factor)


@operator(function="", mint="nn.functional.upsample")
def _mint_upsample(
    input: Array,
    size: Sizes | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Array:
    """Same as `interpolate`."""
    return _interpolated(input, size, scale_factor, mode, align_corners, None)


# --------------------------------------------------------------------------------------------------- sampling at points


def _pixel(grid: Array, size: int, align: bool, padding: str) -> Array:
    """Coordinates in [-1, 1] as pixel numbers, brought inside as `padding` says."""
    at = (grid + 1) / 2 * (size - 1) if align else ((grid + 1) * size - 1) / 2
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return jnp.zeros_like(at)
        folded = jnp.mod(jnp.abs(at - low), 2 * span)
        at = jnp.where(folded > span, 2 * span - folded, folded) + low
    return at if padding == "zeros" else jnp.clip(at, 0, size - 1)


def _picked(image: Array, places: list[Array]) -> Array:
    """Pixels (c, …) of one image (c, *space) at whole numbers; zeros outside."""
    inside = jnp.ones(places[0].shape, bool)
    index = []
    for place, size in zip(places, image.shape[1:], strict=True):
        inside = inside & (place >= 0) & (place < size)
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
            return _picked(image, [jnp.round(each) for each in at])
        low = [jnp.floor(each) for each in at]
        total = jnp.zeros((image.shape[0], *points.shape[:-1]), image.dtype)
        for corner in itertools.product((0, 1), repeat=dims):
            weight = jnp.ones((), image.dtype)
            for each, base, bit in zip(at, low, corner, strict=True):
                weight = weight * (each - base if bit else 1 - (each - base))
            total = total + weight * _picked(image, [base + bit for base, bit in zip(low, corner, strict=True)])
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
        padding_mode: what lies outside: ``"zeros"``, ``"border"`` (the nearest pixel) or ``"reflection"``.
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
def affine_grid(theta: Array, size: tuple[int, ...], align_corners: bool = False) -> Array:
    """The grid that samples an affine image of the output: `theta` (n, 2, 3) for `size` (n, c, h, w), or (n, 3, 4)."""
    check.floating("affine_grid", theta=theta)
    dims = len(size) - 2
    if dims not in (2, 3) or theta.shape != (size[0], dims, dims + 1):
        raise SporaxValueError(
            f"For 'affine_grid', 'theta' must have shape {(size[0], dims, dims + 1)} for 'size' {size}, but got {theta.shape}."
        )

    def axis(length: int) -> Array:
        if align_corners:
            return jnp.linspace(-1, 1, length, dtype=theta.dtype) if length > 1 else jnp.zeros((1,), theta.dtype)
        return (2 * jnp.arange(length, dtype=theta.dtype) + 1) / length - 1

    grids = jnp.meshgrid(*map(axis, size[2:]), indexing="ij")[::-1]
    points = jnp.stack([*grids, jnp.ones_like(grids[0])], -1)
    return jnp.einsum("...k,njk->n...j", points, theta)


@operator("CropAndResize(method, extrapolation_value)", function="")
def _crop_and_resize_primitive(
    x: Array,
    boxes: Array,
    box_index: Array,
    crop_size: tuple[int, ...],
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Array:
    """Boxes cut out of images and resized; see `ops.crop_and_resize`."""
    return crop_and_resize.kernel(x, boxes, box_index, crop_size, method, extrapolation_value)


@operator(function="crop_and_resize")
def crop_and_resize(
    image: Array,
    boxes: Array,
    box_indices: Array,
    crop_size: tuple[int, ...],
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Array:
    """Boxes cut out of images and resized to one size.

    Args:
        image: (n, h, w, c).
        boxes: (boxes, 4): y1, x1, y2, x2 of the corners; 0 and 1 are the centres of the first and the last pixel.
        box_indices: (boxes,), the image each box lies in.
        crop_size: height and width of the results.
        method: ``"bilinear"`` or ``"nearest"``.
        extrapolation_value: what lies outside of the image.

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
    height, width = _checked_size(name, crop_size, 2)

    def along(first: Array, last: Array, length: int, size: int) -> Array:
        if length == 1:
            return (first + last)[:, None] / 2 * (size - 1)
        return (first[:, None] + jnp.arange(length, dtype=boxes.dtype) / (length - 1) * (last - first)[:, None]) * (
            size - 1
        )

    rows = along(boxes[:, 0], boxes[:, 2], height, image.shape[1])
    columns = along(boxes[:, 1], boxes[:, 3], width, image.shape[2])

    def cut(number: Array, ys: Array, xs: Array) -> Array:
        pixels = jnp.moveaxis(image[number].astype(jnp.float32), -1, 0)
        y, x = jnp.meshgrid(ys, xs, indexing="ij")
        outside = (y < 0) | (y > image.shape[1] - 1) | (x < 0) | (x > image.shape[2] - 1)
        if method == "nearest":
            value = _picked(pixels, [jnp.floor(y + 0.5), jnp.floor(x + 0.5)])
        else:
            value = _between(pixels, y, x)
        return jnp.moveaxis(jnp.where(outside, jnp.float32(extrapolation_value), value), 0, -1)

    return jax.vmap(cut)(box_indices, rows, columns)


def _between(image: Array, y: Array, x: Array) -> Array:
    """Pixels (c, …) of one image (c, h, w) at points inside, interpolated."""
    top, left = jnp.floor(y), jnp.floor(x)
    bottom, right = jnp.minimum(top + 1, image.shape[1] - 1), jnp.minimum(left + 1, image.shape[2] - 1)
    down, across = y - top, x - left
    upper = _picked(image, [top, left]) * (1 - across) + _picked(image, [top, right]) * across
    lower = _picked(image, [bottom, left]) * (1 - across) + _picked(image, [bottom, right]) * across
    return upper * (1 - down) + lower * down


# ---------------------------------------------------------------------------------------------------------------- boxes


@operator("ROIAlign(pooled_height, pooled_width, spatial_scale, sample_num, roi_end_mode)", function="")
def _roi_align(
    features: Array,
    rois: Array,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sample_num: int = 2,
    roi_end_mode: int = 1,
) -> Array:
    """Features of regions, averaged over the cells of a grid (He et al. 2017).

    Args:
        features: (n, c, h, w).
        rois: (regions, 5): number of the image, then x1, y1, x2, y2 in pixels of the original image.
        pooled_height, pooled_width: the grid.
        spatial_scale: size of the features over size of the original image.
        sample_num: points a cell in each direction, > 0.
        roi_end_mode: 1: the region ends a pixel further (at x2 + 1, y2 + 1); 0: at x2, y2.

    Raises:
        SporaxNotImplementedError: `sample_num` 0, a number of points that depends on the size of the region.
    """
    check.rank("ROIAlign", 4, features=features)
    check.same_dtype("ROIAlign", features=features, rois=rois)
    check.one_of("ROIAlign", roi_end_mode, (0, 1), "roi_end_mode")
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise SporaxValueError(f"For 'ROIAlign', 'rois' must have shape (n, 5), but got {rois.shape}.")
    if sample_num < 1:
        raise SporaxNotImplementedError(
            f"For 'ROIAlign', 'sample_num' must be >= 1, but got {sample_num}: a number of points that depends on the "
            "size of the region is not offered."
        )
    height, width = features.shape[2:]

    def points(first: Array, last: Array, cells: int) -> Array:
        start = first * spatial_scale
        extent = (last + roi_end_mode) * spatial_scale - start
        extent = jnp.maximum(extent, 1.0) if roi_end_mode == 0 else extent
        inner = (jnp.arange(cells * sample_num, dtype=rois.dtype) + 0.5) / sample_num
        return start + inner * extent / cells

    def one(roi: Array) -> Array:
        image = features[roi[0].astype(jnp.int32)]
        y, x = jnp.meshgrid(points(roi[2], roi[4], pooled_height), points(roi[1], roi[3], pooled_width), indexing="ij")
        outside = (y < -1) | (y > height) | (x < -1) | (x > width)
        values = _between(image, jnp.clip(y, 0, height - 1), jnp.clip(x, 0, width - 1))
        values = jnp.where(outside, jnp.zeros((), features.dtype), values)
        return values.reshape(-1, pooled_height, sample_num, pooled_width, sample_num).mean((2, 4))

    return jax.vmap(one)(rois)


def _corners(name: str, **boxes: Array) -> None:
    check.floating(name, **boxes)
    for label, array in boxes.items():
        if array.ndim != 2 or array.shape[1] != 4:
            raise SporaxValueError(f"For '{name}', '{label}' must have shape (n, 4), but got {array.shape}.")


def _overlaps(name: str, anchor_boxes: Array, gt_boxes: Array, mode: str) -> Array:
    """Overlap of every box of `gt_boxes` (rows) with every one of `anchor_boxes`; both (n, 4): x1, y1, x2, y2.

    The sides include both ends. `mode` ``"iou"`` divides by the union, ``"iof"`` by the area of the true box.
    """
    _corners(name, anchor_boxes=anchor_boxes, gt_boxes=gt_boxes)
    check.one_of(name, mode, ("iou", "iof"), "mode")
    anchors, truth = anchor_boxes[None], gt_boxes[:, None]
    sides = jnp.maximum(
        jnp.minimum(anchors[..., 2:], truth[..., 2:]) - jnp.maximum(anchors[..., :2], truth[..., :2]) + 1, 0
    )
    common = sides[..., 0] * sides[..., 1]

    def area(boxes: Array) -> Array:
        return (boxes[..., 2] - boxes[..., 0] + 1) * (boxes[..., 3] - boxes[..., 1] + 1)

    return common / (area(truth) if mode == "iof" else area(anchors) + area(truth) - common)


@operator("IOU(mode)", function="iou")
def iou(anchor_boxes: Array, gt_boxes: Array, mode: str = "iou") -> Array:
    """Intersection over union of boxes (n, 4) and (m, 4), as (m, n); ``"iof"``: over the area of the true box."""
    return _overlaps("IOU", anchor_boxes, gt_boxes, mode)


Four = tuple[float, ...]
_NO_SHIFT, _NO_SCALE = (0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0)


def _centres(boxes: Array) -> tuple[Array, Array]:
    """Middles and sides (n, 2) of boxes whose sides include both ends."""
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2] + 1


@operator("BoundingBoxEncode(means, stds)", function="bounding_box_encode")
def bounding_box_encode(
    anchor_box: Array, groundtruth_box: Array, means: Four = _NO_SHIFT, stds: Four = _NO_SCALE
) -> Array:
    """What moves and scales anchors (n, 4) to the true boxes: shifts over sides, logarithms of ratios; normalised."""
    _corners("BoundingBoxEncode", anchor_box=anchor_box, groundtruth_box=groundtruth_box)
    middle, sides = _centres(anchor_box)
    true_middle, true_sides = _centres(groundtruth_box)
    deltas = jnp.concatenate([(true_middle - middle) / sides, jnp.log(true_sides / sides)], 1)
    return (deltas - jnp.asarray(means, deltas.dtype)) / jnp.asarray(stds, deltas.dtype)


@operator("BoundingBoxDecode(max_shape, means, stds, wh_ratio_clip)", function="bounding_box_decode")
def bounding_box_decode(
    anchor_box: Array,
    deltas: Array,
    max_shape: tuple[int, ...],
    means: Four = _NO_SHIFT,
    stds: Four = _NO_SCALE,
    wh_ratio_clip: float = 0.016,
) -> Array:
    """Anchors (n, 4) moved and scaled by `deltas` and cut at the image; undoes BoundingBoxEncode.

    `max_shape` is the image's height and width; sides grow or shrink at most by ``1 / wh_ratio_clip``.
    """
    _corners("BoundingBoxDecode", anchor_box=anchor_box, deltas=deltas)
    if len(max_shape) < 2:
        raise SporaxTypeError(f"For 'BoundingBoxDecode', 'max_shape' must be height and width, but got {max_shape}.")
    plain = deltas * jnp.asarray(stds, deltas.dtype) + jnp.asarray(means, deltas.dtype)
    limit = abs(math.log(wh_ratio_clip))
    middle, sides = _centres(anchor_box)
    middle = middle + sides * plain[:, :2]
    half = sides * jnp.exp(jnp.clip(plain[:, 2:], -limit, limit)) / 2
    highest = jnp.asarray((max_shape[1] - 1, max_shape[0] - 1), deltas.dtype)
    corners = (middle - half + 0.5, middle + half - 0.5)
    return jnp.concatenate([jnp.clip(each, 0, highest) for each in corners], 1)


@operator("CheckValid", function="check_valid")
def check_valid(bboxes: Array, img_metas: Array) -> Array:
    """Whether boxes (n, 4) lie inside the image of `img_metas`: height, width and ratio."""
    _corners("CheckValid", bboxes=bboxes)
    height, width, ratio = img_metas
    return (
        (bboxes[:, 0] >= 0)
        & (bboxes[:, 1] >= 0)
        & (bboxes[:, 2] <= width * ratio - 1)
        & (bboxes[:, 3] <= height * ratio - 1)
    )


@operator("NMSWithMask(iou_threshold)", function="")
def _nms_with_mask(bboxes: Array, iou_threshold: float = 0.5) -> tuple[Array, Array, Array]:
    """Boxes in descending order of score, of which those that overlap a kept one too much are marked as dropped.

    `bboxes` is (n, 5): x1, y1, x2, y2, score. Returns the boxes in order, where each came from (int32), and whether it
    is kept.
    """
    check.floating("NMSWithMask", bboxes=bboxes)
    if bboxes.ndim != 2 or bboxes.shape[1] != 5:
        raise SporaxValueError(f"For 'NMSWithMask', 'bboxes' must have shape (n, 5), but got {bboxes.shape}.")
    order = jnp.argsort(bboxes[:, 4], descending=True, stable=True)
    ranked = bboxes[order]
    sides = jnp.minimum(ranked[:, None, 2:4], ranked[None, :, 2:4]) - jnp.maximum(
        ranked[:, None, :2], ranked[None, :, :2]
    )
    common = jnp.prod(jnp.maximum(sides, 0), -1)
    area = jnp.prod(ranked[:, 2:4] - ranked[:, :2], -1)
    too_near = common / (area[:, None] + area[None, :] - common) > iou_threshold
    number = jnp.arange(len(order))

    def drop(index: Array, kept: Array) -> Array:
        return kept & ~(kept[index] & too_near[index] & (number > index))

    kept = jax.lax.fori_loop(0, len(order), drop, jnp.ones(len(order), bool))
    return ranked, order.astype(jnp.int32), kept
