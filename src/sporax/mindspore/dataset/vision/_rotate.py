"""Rotation, by looking up for every output pixel where it comes from, in OpenCV's fixed-point arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset._checks import check_bool, check_number, type_error
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._images import check_fill, check_image, sides
from sporax.mindspore.dataset.vision.enums import Inter

Matrix = NDArray[np.float64]
# Fractional bits of positions, OpenCV's AB_BITS.
_BITS = 10


def warp(value: Array, back: Matrix, size: tuple[int, int], interpolation: Inter, fill: tuple[int, ...]) -> Array:
    """An image of (height, width) whose pixel (x, y) is the input's at back @ (x, y, 1), or `fill` outside.

    Args:
        value: (H, W) or (H, W, C).
        back: (2, 3), output coordinates to input coordinates.
        size: of the output.
        interpolation: NEAREST or LINEAR.
        fill: one value, or one per channel.
    """
    one = 1 << _BITS
    # Linear keeps 5 bits, steps of 1/32 of a pixel.
    drop = _BITS if interpolation == Inter.NEAREST else _BITS - 5
    # Half of what is dropped: rounds to nearest.
    half = 1 << (drop - 1)
    x, y = np.arange(size[1]), np.arange(size[0])[:, None]
    source = [
        # Column and row parts are rounded separately, as OpenCV does it.
        (np.rint(row[0] * x * one).astype(np.int64) + np.rint((row[1] * y + row[2]) * one).astype(np.int64) + half)
        >> drop
        for row in back
    ]
    image = value[..., None] if value.ndim == 2 else value
    blank = np.array(fill if len(fill) == image.shape[-1] else fill[:1], image.dtype)
    if interpolation == Inter.NEAREST:
        result = look_up(image, source[0], source[1], blank)
    else:
        result = blended(image, source[0], source[1], blank)
    return result.reshape((*size, *value.shape[2:]))


def look_up(image: Array, x: Array, y: Array, blank: Array) -> Array:
    """The pixels at x and y, `blank` outside the image (H, W, C)."""
    height, width = image.shape[:2]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    # Clipped first, as negative indices would wrap.
    picked = image[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    return np.where(inside[..., None], picked, blank)


def blended(image: Array, x: Array, y: Array, blank: Array) -> Array:
    """As `look_up`, between pixels: positions come in 1/32 of one."""
    left, top = x >> 5, y >> 5
    right_share, bottom_share = (x & 31)[..., None], (y & 31)[..., None]
    # Sums of four products of bytes and 10-bit shares need more than 16 bits.
    total = np.zeros((*x.shape, image.shape[-1]), np.int64 if image.dtype == np.uint8 else np.float64)
    for i, row_share in ((0, 32 - bottom_share), (1, bottom_share)):
        for j, column_share in ((0, 32 - right_share), (1, right_share)):
            total += look_up(image, left + j, top + i, blank) * (row_share * column_share)
    # 512 is half of 32 * 32.
    return ((total + 512) >> 10).astype(np.uint8) if image.dtype == np.uint8 else (total / 1024).astype(image.dtype)


def rotated(
    value: Array,
    degrees: float,
    interpolation: Inter,
    expand: bool,
    center: tuple[float, float] | None,
    fill: tuple[int, ...],
) -> Array:
    """An image turned counter-clockwise about its centre, or about `center` (x, y)."""
    check_image("Rotate", value)
    height, width = sides(value)
    # The middle of pixels, not of the image's area.
    cx, cy = ((width - 1) / 2, (height - 1) / 2) if center is None else center
    angle = np.deg2rad(degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    shift = np.array([0.0, 0.0])
    size = height, width
    if expand:
        extent = np.array([height * abs(sin) + width * abs(cos), width * abs(sin) + height * abs(cos)])
        size = round(extent[1]), round(extent[0])
        shift = (extent - (width, height)) / 2
    turn = np.array([[cos, -sin], [sin, cos]])
    middle = np.array([cx, cy])
    # Backwards: where each pixel of the result comes from.
    back = np.column_stack([turn, middle - turn @ (middle + shift)])
    return warp(value, back, size, interpolation, fill)


def check_warp(where: str, interpolation: object, name: str = "resample") -> Inter:
    """NEAREST or LINEAR."""
    if not isinstance(interpolation, Inter):
        raise type_error(where, name, "an Inter", interpolation)
    if interpolation not in (Inter.NEAREST, Inter.LINEAR):
        raise SporaxNotImplementedError(
            f"For '{where}', '{name}' must be NEAREST or LINEAR, but got {interpolation.name}."
        )
    return interpolation


def _check_center(where: str, center: Any) -> tuple[float, float] | None:
    if center is None:
        return None
    if not isinstance(center, (list, tuple)) or len(center) != 2:
        raise SporaxTypeError(f"For '{where}', the argument 'center' must be (x, y), but got {center!r}.")
    return check_number(where, "center[0]", center[0]), check_number(where, "center[1]", center[1])


class Rotate(OneToOne):
    """An image turned counter-clockwise.

    Args:
        degrees: the angle.
        resample: NEAREST or LINEAR.
        expand: make the result large enough to hold the whole image.
        center: (x, y) of the turn; the middle by default.
        fill_value: what is outside the image: one value in [0, 255], or one per channel of an RGB image.
    """

    def __init__(
        self,
        degrees: float,
        resample: Inter = Inter.NEAREST,
        expand: bool = False,
        center: Any = None,
        fill_value: Any = 0,
    ) -> None:
        self._degrees = check_number("Rotate", "degrees", degrees)
        self._how = (
            check_warp("Rotate", resample),
            check_bool("Rotate", "expand", expand),
            _check_center("Rotate", center),
            check_fill("Rotate", fill_value),
        )

    def _one(self, value: Array) -> Array:
        return rotated(value, self._degrees, *self._how)


class RandomRotation(RandomTransform):
    """An image turned by a random angle; several columns are turned alike.

    Args:
        degrees: (smallest, largest) angle, or one number d for [-d, d].
        resample: see `Rotate`, like all further arguments.
        expand: see `Rotate`.
        center: see `Rotate`.
        fill_value: see `Rotate`.
    """

    def __init__(
        self,
        degrees: Any,
        resample: Inter = Inter.NEAREST,
        expand: bool = False,
        center: Any = None,
        fill_value: Any = 0,
    ) -> None:
        where = "RandomRotation"
        if isinstance(degrees, (list, tuple)):
            if len(degrees) != 2:
                raise SporaxTypeError(f"For '{where}', 'degrees' must be one number or two, but got {degrees!r}.")
            self._low, self._high = (check_number(where, "degrees", number) for number in degrees)
        else:
            self._high = check_number(where, "degrees", degrees, 0)
            self._low = -self._high
        if self._low > self._high:
            raise SporaxValueError(f"For '{where}', 'degrees' must be increasing, but got {degrees!r}.")
        self._how = (
            check_warp(where, resample),
            check_bool(where, "expand", expand),
            _check_center(where, center),
            check_fill(where, fill_value),
        )

    def _draw(self, value: Array, rng: np.random.Generator) -> float:
        return float(rng.uniform(self._low, self._high))

    def _apply(self, value: Array, choice: float) -> Array:
        return rotated(value, choice, *self._how)
