"""Resizing, with the sampling positions and rounding of OpenCV (which MindSpore uses).

Both axes are treated alike: for every output pixel a few input pixels (taps) and their weights. Bytes are blended in
fixed point, 11 bits per axis, as OpenCV does, so that linear resizing of bytes agrees bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset._checks import type_error
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._images import check_pixels, check_size, sides
from sporax.mindspore.dataset.vision._pillow import ByPillow, pillow
from sporax.mindspore.dataset.vision.enums import Inter

_ONE = 2048  # 1.0 in fixed point
# OpenCV's constant of the cubic kernel; Pillow's is -0.5.
_CUBIC_A = -0.75

Taps = tuple[NDArray[np.int64], NDArray[np.float32]]


class Resize(ByPillow, OneToOne):
    """Resize an image (H, W) or (…, H, W, C); uint8, float32 and float64 keep their dtype.

    Args:
        size: (height, width), or one int for the smaller side, keeping the aspect ratio.
        interpolation: NEAREST, LINEAR, CUBIC or AREA; of Pillow images NEAREST, LINEAR, CUBIC or ANTIALIAS.

    Raises:
        SporaxNotImplementedError: for PILCUBIC.
        SporaxTypeError: (when applied) for ANTIALIAS of an array, and AREA of a Pillow image.
    """

    def __init__(self, size: Any, interpolation: Inter = Inter.LINEAR) -> None:
        self._size = check_size("Resize", size)
        self._keep_aspect = isinstance(size, int)
        self._interpolation = check_interpolation("Resize", interpolation)
        self.only_pillow = self._interpolation is Inter.ANTIALIAS

    def _one(self, value: Array) -> Array:
        check_pixels("Resize", value)
        return resize(value, self._target(*sides(value)), self._interpolation, by_pillow=self.by_pillow)

    def _many(self, values: Array) -> Array | None:
        return None if values.ndim < 4 or self.by_pillow else self._one(values)

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if not self._keep_aspect:
            return self._size
        side = self._size[0]
        # The smaller side becomes `side`; the other one is rounded down, as in MindSpore.
        return (side, side * width // height) if height < width else (side * height // width, side)


def check_interpolation(where: str, interpolation: object) -> Inter:
    """A supported Inter."""
    if not isinstance(interpolation, Inter):
        raise type_error(where, "interpolation", "an Inter", interpolation)
    if interpolation is Inter.PILCUBIC:
        raise SporaxNotImplementedError(
            f"For '{where}', 'interpolation' must be NEAREST, LINEAR, CUBIC, AREA or ANTIALIAS, but got PILCUBIC."
        )
    return interpolation


def resize(value: Array, size: tuple[int, int], interpolation: Inter, *, by_pillow: bool = False) -> Array:
    """The image resized to (height, width).

    Raises:
        SporaxTypeError: ANTIALIAS of an array, or AREA of a Pillow image.
    """
    # Each library has a kind that the other one lacks.
    if interpolation is (Inter.AREA if by_pillow else Inter.ANTIALIAS):
        kind = "a Pillow image" if by_pillow else "an array"
        raise SporaxTypeError(f"For 'Resize', 'interpolation' must not be {interpolation.name} for {kind}.")
    if by_pillow:
        image = pillow("Resize").fromarray(value)
        # Pillow takes (width, height); its numbers of kinds are those of `Inter`.
        return np.array(image.resize((size[1], size[0]), int(interpolation)))
    if value.dtype not in (np.uint8, np.float32, np.float64):
        raise SporaxRuntimeError(f"For 'Resize', an image must be uint8, float32 or float64, but got {value.dtype}.")
    # OpenCV copies without resampling as well.
    if sides(value) == size:
        return value.copy()
    image = value[..., None] if value.ndim == 2 else value
    return _resampled(image, size, interpolation).reshape(
        (*value.shape[:-2], *size) if value.ndim == 2 else (*value.shape[:-3], *size, value.shape[-1])
    )


def _resampled(image: Array, size: tuple[int, int], interpolation: Inter) -> Array:
    height, width = image.shape[-3:-1]
    if interpolation == Inter.NEAREST:
        rows, columns = _nearest(height, size[0]), _nearest(width, size[1])
        return image[..., rows[:, None], columns, :]
    shrinks = size[0] <= height and size[1] <= width
    # OpenCV computes halves of a linear resize as means of four.
    halves = (height, width) == (2 * size[0], 2 * size[1])
    # Only a true reduction has areas; enlarging AREA is a linear variant.
    if (interpolation == Inter.AREA and shrinks) or (interpolation == Inter.LINEAR and halves):
        return _area_mean(image, size)
    kind = {Inter.AREA: _area_linear, Inter.LINEAR: _linear, Inter.CUBIC: _cubic}[interpolation]
    columns, weights = kind(width, size[1])
    if interpolation == Inter.LINEAR:
        # Beyond the left and right edge OpenCV takes one pixel whole; beyond top and bottom it blends it with itself.
        outside = columns[:, 0] == columns[:, 1]
        weights = np.where(outside[:, None], np.array([1, 0], np.float32), weights)
    return _blend(image, kind(height, size[0]), (columns, weights))


def _blend(image: Array, rows: Taps, columns: Taps) -> Array:
    if image.dtype != np.uint8:
        wide = _weighted(image, columns[0], columns[1].astype(image.dtype), -2)
        return _weighted(wide, rows[0], rows[1].astype(image.dtype), -3)
    fixed_rows, fixed_columns = _fixed(rows[1]), _fixed(columns[1])
    wide = _weighted(image.astype(np.int32), columns[0], fixed_columns, -2)
    if rows[0].shape[1] == 2:
        # Two taps: linear kinds; four taps: cubic, which has products of its own width.
        # OpenCV keeps 32-bit products in range by dropping 4 bits before and 16 bits after each of the two products.
        top, bottom = (((wide[..., rows[0][:, k], :, :] >> 4) * fixed_rows[:, k, None, None]) >> 16 for k in (0, 1))
        blended = (top + bottom + 2) >> 2
    else:
        # Half of 2**22, the product of two 11-bit weights.
        blended = (_weighted(wide, rows[0], fixed_rows, -3) + (1 << 21)) >> 22
    return np.clip(blended, 0, 255).astype(np.uint8)


def _weighted(image: Array, taps: NDArray[np.int64], weights: Array, axis: int) -> Array:
    """Sum over the taps of weight * pixels, along `axis`."""
    shape = (-1,) + (1,) * (-axis - 1)
    total = np.take(image, taps[:, 0], axis) * weights[:, 0].reshape(shape)
    for k in range(1, taps.shape[1]):
        total += np.take(image, taps[:, k], axis) * weights[:, k].reshape(shape)
    return total


def _fixed(weights: NDArray[np.float32]) -> NDArray[np.int32]:
    return np.rint(weights * np.float32(_ONE)).astype(np.int32)


def _scale(length: int, size: int) -> float:
    """Input pixels per output pixel, rounded as OpenCV rounds it."""
    # Twice inverted as in OpenCV; `length / size` may differ in the last bit.
    return 1.0 / (size / length)


def _nearest(length: int, size: int) -> NDArray[np.int64]:
    # The last position may round beyond the edge.
    return np.minimum(np.floor(np.arange(size) * _scale(length, size)).astype(np.int64), length - 1)


def _positions(length: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Input pixel left of each output pixel's centre, and how far beyond it the centre is."""
    # Centers of pixels are at .5.
    centre = ((np.arange(size) + 0.5) * _scale(length, size) - 0.5).astype(np.float32)
    left = np.floor(centre).astype(np.int64)
    return left, centre - left.astype(np.float32)


def _linear(length: int, size: int) -> Taps:
    left, beyond = _positions(length, size)
    return _two_taps(left, beyond, length)


def _area_linear(length: int, size: int) -> Taps:
    """OpenCV's enlarging variant of AREA: pixels keep their value except where an output pixel covers two of them."""
    scale = _scale(length, size)
    left = np.floor(np.arange(size) * scale).astype(np.int64)
    covered = ((np.arange(size) + 1) - (left + 1) / scale).astype(np.float32)
    beyond = np.where(covered <= 0, np.float32(0), covered - np.floor(covered)).astype(np.float32)
    return _two_taps(left, beyond, length)


def _two_taps(left: NDArray[np.int64], beyond: NDArray[np.float32], length: int) -> Taps:
    # Both taps are clipped, so that edges repeat.
    taps = np.clip(np.stack([left, left + 1], 1), 0, length - 1)
    return taps, np.stack([1 - beyond, beyond], 1).astype(np.float32)


def _cubic(length: int, size: int) -> Taps:
    left, beyond = _positions(length, size)
    x, a = beyond.astype(np.float32), np.float32(_CUBIC_A)
    first = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a
    second = ((a + 2) * x - (a + 3)) * x * x + 1
    third = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1
    # The fourth weight by difference, so that weights add up to 1.
    weights = np.stack([first, second, third, 1 - first - second - third], 1).astype(np.float32)
    return np.clip(left[:, None] + np.arange(-1, 3), 0, length - 1), weights


def _area_mean(image: Array, size: tuple[int, int]) -> Array:
    """Each output pixel is the mean of the input area it covers."""
    if image.dtype == np.uint8 and image.shape[-3:-1] == (2 * size[0], 2 * size[1]):
        # Four pixels each: OpenCV rounds a half up here, and to even elsewhere.
        total = sum(image[..., i::2, j::2, :].astype(np.uint16) for i in (0, 1) for j in (0, 1))
        return ((np.asarray(total) + 2) >> 2).astype(np.uint8)
    kind: Any = np.float64 if image.dtype == np.float64 else np.float32
    rows, columns = (_coverage(n, k).astype(kind) for n, k in zip(image.shape[-3:-1], size, strict=True))
    mean = np.einsum("ih,...hwc,jw->...ijc", rows, image.astype(kind), columns, optimize=True)
    # Rows, columns and channels in one product; `optimize` contracts the larger axis first.
    return np.clip(np.rint(mean), 0, 255).astype(np.uint8) if image.dtype == np.uint8 else mean.astype(image.dtype)


def _coverage(length: int, size: int) -> NDArray[np.float64]:
    """(size, length): the share of output pixel i that input pixel j makes up."""
    edges = np.arange(size + 1) * (length / size)
    start, stop = edges[:-1, None], edges[1:, None]
    pixel = np.arange(length)
    return np.clip(np.minimum(stop, pixel + 1) - np.maximum(start, pixel), 0, None) / (length / size)
