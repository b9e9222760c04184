"""Resizing images.

Resizing is separable: along each dim every output pixel is a weighted sum of input pixels, so a resize is one small
matrix a dim, made when the operator is compiled.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Shapes
from sporax.mindspore.ops._core import Array, check, operator, other_form

Sizes = int | tuple[int, ...]


def _coordinates(source: int, target: int, align_corners: bool, half_pixel: bool, scale: float | None) -> Any:
    """Where each output pixel is among the input pixels."""
    # In double precision: single precision misses pixels of wide images by one.
    steps = np.arange(target, dtype=np.float64)
    if align_corners:
        # The corners of both images coincide.
        return steps * ((source - 1) / (target - 1) if target > 1 else 0.0)
    ratio = source / target if scale is None else 1 / scale
    return (steps + 0.5) * ratio - 0.5 if half_pixel else steps * ratio


def _matrix(source: int, target: int, taps: list[tuple[Any, Any]]) -> Any:
    """The (target, source) matrix of weighted input pixels; positions outside count as the nearest one inside."""
    matrix = np.zeros((target, source))
    for position, weight in taps:
        # `add.at`, as clipped positions may coincide.
        np.add.at(matrix, (np.arange(target), np.clip(position, 0, source - 1).astype(int)), weight)
    return matrix


def _nearest(source: int, target: int, align: bool, half: bool, scale: float | None = None, exact: bool = False) -> Any:
    at = _coordinates(source, target, align, half or exact, scale)
    # Rounded half up, as MindSpore does for these modes.
    position = np.floor(at + 0.5) if align or half or exact else np.floor(at)
    return _matrix(source, target, [(position, 1.0)])


def _linear(source: int, target: int, align: bool, half: bool, scale: float | None = None) -> Any:
    # Positions left of the first pixel are at it.
    at = np.maximum(_coordinates(source, target, align, half, scale), 0)
    low = np.floor(at)
    return _matrix(source, target, [(low, 1 - (at - low)), (low + 1, at - low)])


def _cubic(source: int, target: int, align: bool, half: bool, scale: float | None = None, a: float = -0.75) -> Any:
    """Cubic convolution (Keys 1981) with the free parameter `a`."""
    at = _coordinates(source, target, align, half, scale)
    low = np.floor(at)

    def weight(distance: Any) -> Any:
        inner = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        # The kernel's two pieces: distances up to 1 and up to 2.
        return np.where(distance <= 1, inner, a * (distance**3 - 5 * distance**2 + 8 * distance - 4))

    return _matrix(source, target, [(low + tap, weight(np.abs(at - low - tap))) for tap in (-1, 0, 1, 2)])


def _area(source: int, target: int) -> Any:
    matrix = np.zeros((target, source))
    for cell in range(target):
        # The cells an output pixel touches, whole; MindSpore does not weigh them.
        first, last = cell * source // target, -(-(cell + 1) * source // target)
        matrix[cell, first:last] = 1 / (last - first)
    return matrix


def _resampled(x: Array, matrices: list[Any]) -> Array:
    """`x` with its last dims multiplied by one matrix each."""
    result = x
    for dim, matrix in zip(range(x.ndim - len(matrices), x.ndim), matrices, strict=True):
        # One dim after the other; the product puts the new dim last.
        moved = jnp.tensordot(result, jnp.asarray(matrix.T, x.dtype), ((dim,), (0,)))
        result = jnp.moveaxis(moved, -1, dim)
    return result


def checked_size(name: str, size: object, dims: int) -> tuple[int, ...]:
    """A size for each dim, from one for all.

    Raises:
        SporaxValueError: another number of sizes, or one below 1.
    """
    sizes = (size,) * dims if isinstance(size, int) else size
    if not isinstance(sizes, tuple) or len(sizes) != dims or any(number < 1 for number in sizes):
        raise SporaxValueError(f"For '{name}', 'size' must be {dims} ints >= 1, but got {size!r}.")
    return sizes


def _resize(name: str, kind: Any, x: Array, size: Any, align_corners: bool, half_pixel_centers: bool) -> Array:
    check.tensor(name, x=x)
    check.rank(name, 4, x=x)
    if align_corners and half_pixel_centers:
        raise SporaxValueError(f"For '{name}', 'align_corners' and 'half_pixel_centers' must not both be True.")
    sizes = checked_size(name, size, 2)
    pairs = zip(x.shape[2:], sizes, strict=True)
    return _resampled(x, [kind(source, target, align_corners, half_pixel_centers) for source, target in pairs])


def _resize_nearest(source: int, target: int, align: bool, half: bool) -> Any:
    if half:
        # MindSpore does not round here, unlike in `_nearest`.
        position = np.floor((np.arange(target) + 0.5) * source / target)
        return _matrix(source, target, [(position, 1.0)])
    return _nearest(source, target, align, False)


def _nearest_dims(call: Call, shapes: Shapes) -> Dims:
    """With the corners as centres, the pixel of a part depends on the whole width."""
    return Dims((("n", "c", *(("h!", "w!") if call.get("align_corners", False) else ("h", "w"))),))


def _half_pixel_cubic(source: int, target: int, align: bool, half: bool, scale: float | None = None) -> Any:
    """Cubic convolution with -0.5, whose weights outside of the image are left out: with half-pixel centres."""
    at = _coordinates(source, target, False, True, scale)
    distance = np.abs(at[:, None] - np.arange(source))
    inner = 1.5 * distance**3 - 2.5 * distance**2 + 1
    outer = -0.5 * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    weights = np.where(distance <= 1, inner, np.where(distance < 2, outer, 0))
    return weights / weights.sum(1, keepdims=True)


def _resize_cubic(source: int, target: int, align: bool, half: bool) -> Any:
    # MindSpore's kernel depends on the coordinates: -0.5 with half pixels, -0.75 otherwise.
    return (_half_pixel_cubic if half else _cubic)(source, target, align, half)


def _resize_forms(kind: Any, doc: str, size_in_constructor: str, size_in_call: str) -> None:
    """The older class, whose size is an attribute, and the newer one, whose size is an argument."""

    def older(input_x: Array, size: Sizes, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
        return _resize(size_in_constructor, kind, input_x, size, align_corners, half_pixel_centers)

    def newer(image: Array, size: Sizes, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
        return _resize(size_in_call, kind, image, size, align_corners, half_pixel_centers)

    dims = _nearest_dims if kind is _resize_nearest else "n c h! w!"
    for form, name in ((older, size_in_constructor), (newer, size_in_call)):
        form.__name__ = f"_{name.lower()}"
        form.__doc__ = (
            f"Images (n, c, h, w) resized to `size`: {doc}.\n\n"
            "    `align_corners` lets the centres of the corner pixels coincide; `half_pixel_centers` counts coordinates\n"
            "    from the edges of the pixels instead of their centres.\n"
        )
    # Bicubic resizing has the newer class only.
    if size_in_constructor:
        operator(f"{size_in_constructor}(size, align_corners, half_pixel_centers)", function="", dims=dims)(older)
    operator(f"{size_in_call}(align_corners, half_pixel_centers)", function="", dims=dims)(newer)


_resize_forms(_resize_nearest, "the nearest pixel", "ResizeNearestNeighbor", "ResizeNearestNeighborV2")
_resize_forms(_linear, "bilinear interpolation", "ResizeBilinear", "ResizeBilinearV2")
_resize_forms(_resize_cubic, "bicubic interpolation", "", "ResizeBicubic")

_MODES = {
    "nearest": (3, 4, 5), "linear": (3,), "bilinear": (4,), "trilinear": (5,), "bicubic": (4,), "area": (3, 4, 5),
    "nearest-exact": (3, 4),
}  # fmt: skip


@operator(function="")
def _interpolation(
    input: Array,
    size: Sizes | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    half_pixel_cubic: Any = _half_pixel_cubic,
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
    name, dims = "interpolate", input.ndim - 2
    check.one_of(name, mode, tuple(_MODES), "mode")
    check.rank(name, _MODES[mode], input=input)
    if (size is None) == (scale_factor is None):
        raise For(name).error("one of 'size' and 'scale_factor' must be given", f"{size}, {scale_factor}")
    # These modes do not interpolate, so corners mean nothing.
    if align_corners is not None and mode in ("nearest", "area", "nearest-exact"):
        raise SporaxValueError(f"For '{name}', 'align_corners' must be None in mode {mode!r}, but got {align_corners}.")
    factors: Any = (None,) * dims
    if size is None:
        factors = scale_factor if isinstance(scale_factor, tuple) else (scale_factor,) * dims
        # Rounded down, as in MindSpore.
        size = tuple(math.floor(length * factor) for length, factor in zip(input.shape[2:], factors, strict=True))
        # None lets the coordinates follow from the sizes.
        factors = (None,) * dims if recompute_scale_factor else factors
    align = bool(align_corners)
    matrices = []
    for source, target, factor in zip(input.shape[2:], checked_size(name, size, dims), factors, strict=True):
        if mode in ("nearest", "nearest-exact"):
            exact = mode == "nearest-exact"
            matrices.append(_nearest(source, target, False, False, factor, exact))
        elif mode == "area":
            matrices.append(_area(source, target))
        else:
            # Which of two free parameters MindSpore takes depends on `align_corners`.
            kind = _linear if mode != "bicubic" else _cubic if align else half_pixel_cubic
            matrices.append(kind(source, target, align, True, factor))
    return _resampled(input, matrices)


_interpolation.name = "interpolate"
_PLAIN = "input size scale_factor mode align_corners"
interpolate = other_form(_interpolation, None, f"{_PLAIN} recompute_scale_factor", function="interpolate")
upsample = other_form(interpolate, function="upsample")
# Torch's cubic convolution has -0.75 whatever `align_corners`.
for _name, _names in (("interpolate", f"{_PLAIN} recompute_scale_factor"), ("upsample", _PLAIN)):
    other_form(_interpolation, None, _names, mint=f"nn.functional.{_name}", half_pixel_cubic=_cubic)
