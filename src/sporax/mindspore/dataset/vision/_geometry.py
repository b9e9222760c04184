"""Transforms that move pixels: resizing, flips, crops, padding.

Resizing has the sampling positions and rounding of OpenCV (which MindSpore uses). Both axes are treated the same way: for every
output pixel a few input pixels (taps) and their weights. Bytes are blended in fixed point, 11 bits per axis, as OpenCV does,
so that linear resizing of bytes agrees bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import For, SporaxKeyError, SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of, optional
from sporax.mindspore.dataset._checks import refuse
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision import _images
from sporax.mindspore.dataset.vision.enums import Border, Inter

Padding = tuple[int, int, int, int]
_MOST_TIMES = 1000  # to which an image is enlarged at most, as in MindSpore


def padded(value: Array, padding: Padding, fill: tuple[int, ...], mode: Border) -> Array:
    """An image with borders of (left, top, right, bottom) pixels."""
    left, top, right, bottom = padding
    if not any(padding):
        return value
    around = [(0, 0)] * value.ndim
    # Batches and stacks keep their leading dimensions.
    axis = _images.height_axis(value)
    around[axis], around[axis + 1] = (top, bottom), (left, right)
    if mode is not Border.CONSTANT:
        return np.pad(value, around, mode=cast(Any, mode.value))
    result = np.pad(value, around, constant_values=fill[0])
    # Colored borders: first one value, then the three where the border is.
    if len(fill) == 3 and value.ndim > 2 and value.shape[-1] == 3:
        # True inside, so that the mask covers any leading dimensions.
        inside = np.pad(np.ones(_images.sides(value), bool), [(top, bottom), (left, right)])
        result[..., ~inside, :] = np.array(fill, value.dtype)
    return result


def _check_growth(where: str, what: str, pixels: Sequence[int], most: Sequence[int]) -> None:
    """Refuse what would make an image huge, as MindSpore does.

    Raises:
        SporaxRuntimeError: more pixels in a direction than `most`.
    """
    if any(count > limit for count, limit in zip(pixels, most, strict=True)):
        raise SporaxRuntimeError(f"For '{where}', {what}: at most {most[0]} x {most[1]}. Got {pixels[0]} x {pixels[1]}")


def _most_border(value: Array) -> tuple[int, int]:
    """Less than three times the image."""
    height, width = _images.sides(value)
    return 3 * height - 1, 3 * width - 1


class HorizontalFlip(OneToOne):
    """Left becomes right."""

    def _one(self, value: Array) -> Array:
        _images.check_pixels("HorizontalFlip", value)
        # Contiguous: later copies of views with negative strides are slow.
        return np.ascontiguousarray(np.flip(value, _images.height_axis(value) + 1))


class VerticalFlip(OneToOne):
    """Top becomes bottom."""

    def _one(self, value: Array) -> Array:
        _images.check_pixels("VerticalFlip", value)
        return np.ascontiguousarray(np.flip(value, _images.height_axis(value)))


class _RandomFlip(RandomTransform):
    """Base of both random flips."""

    takes = 2

    _flip: ClassVar[OneToOne]
    _axis: ClassVar[int]  # behind the height
    _has_many = True

    prob: float = argument(check.probability, "the probability.", default=0.5)

    def _draw(self, value: Array, rng: Draws) -> bool:
        return rng.coin(self.prob)

    def _apply(self, value: Array, choice: bool) -> Array:
        _images.check_pixels(self.name, value)
        return self._flip._one(value) if choice else value

    def _apply_many(self, values: Array, choices: list[bool]) -> Array | None:
        # All of a block have one shape, so one check does.
        _images.check_pixels(self.name, values[0])
        chosen = np.array(choices, bool)
        result = values.copy()
        result[chosen] = np.flip(values[chosen], _images.height_axis(values[0]) + self._axis)
        return result


class RandomHorizontalFlip(_RandomFlip):
    """Left becomes right, with a probability."""

    _flip, _axis = HorizontalFlip(), 1


class RandomVerticalFlip(_RandomFlip):
    """Top becomes bottom, with a probability."""

    _flip, _axis = VerticalFlip(), 0


def _corner(where: str, name: str, value: Any) -> tuple[int, ...]:
    check.instance(where, name, value, list, tuple)
    refuse(len(value) != 2, SporaxTypeError, where, "Coordinates should be a list/tuple (y, x) of length 2.", value)
    return tuple(check.integer(where, f"{name}[{i}]", number, 0) for i, number in enumerate(value))


class Crop(OneToOne):
    """A part of an image.

    Raises:
        SporaxRuntimeError: (when applied) the part reaches beyond the image.
    """

    coordinates: tuple[int, int] = argument(_corner, "(top, left) of the part.")
    size: Any = argument(_images.check_size, _images.SQUARE)

    def _one(self, value: Array) -> Array:
        _images.check_pixels("Crop", value)
        (height, width), (top, left) = _images.sides(value), self.coordinates
        if top + self.size[0] > height or left + self.size[1] > width:
            raise self.fault(
                f"the part must lie within the image {height} x {width}, but it ends at {top + self.size[0]} x "
                f"{left + self.size[1]}."
            )
        return np.ascontiguousarray(_images.window(value, top, left, *self.size))


class CenterCrop(_images.ByPillow, OneToOne):
    """The middle of an image, with a black border where the image is smaller."""

    size: Any = argument(_images.check_size, _images.SQUARE)

    def _one(self, value: Array) -> Array:
        _images.check_pixels("CenterCrop", value)
        missing = [max(want - have, 0) for want, have in zip(self.size, _images.sides(value), strict=True)]
        fault = "Padding size cannot be more than 3 times of the original image size"
        _check_growth("CenterCrop", fault, missing, _most_border(value))
        # The odd pixel goes to the upper left, as in MindSpore; with Pillow half a pixel is rounded to an even number.
        top, left = (round(side / 2) if self.by_pillow else (side + 1) // 2 for side in missing)
        enlarged = padded(value, (left, top, missing[1] - left, missing[0] - top), (0,), Border.CONSTANT)
        height, width = _images.sides(enlarged)
        # Rounded down, as OpenCV's integer division does.
        start = (height - self.size[0]) // 2, (width - self.size[1]) // 2
        if self.by_pillow:  # rounded, a half to an even number
            start = round((height - self.size[0]) / 2), round((width - self.size[1]) / 2)
        return np.ascontiguousarray(_images.window(enlarged, *start, *self.size))


class Pad(OneToOne):
    """A border around an image."""

    padding: Any = argument(
        _images.check_padding, "pixels: one int, (left-and-right, top-and-bottom) or (left, top, right, bottom)."
    )
    fill_value: Any = argument(_images.check_fill, _images.BORDER, default=0)
    padding_mode: Border = argument(of(Border), "a Border.", default=Border.CONSTANT)

    def _one(self, value: Array) -> Array:
        _images.check_pixels("Pad", value)
        return padded(value, self.padding, self.fill_value, self.padding_mode)


class RandomCrop(RandomTransform):
    """A part of an image at a random place; several columns are cropped at the same place.

    Raises:
        SporaxRuntimeError: (when applied) the image is smaller than the part, or columns differ in size.
    """

    size: Any = argument(_images.check_size, _images.SQUARE)
    padding: Any = argument(
        optional(_images.check_padding, (0, 0, 0, 0)), "border added first, see `Pad`; None for none.", default=None
    )
    pad_if_needed: bool = argument(check.boolean, "add as much border as the image is too small.", default=False)
    fill_value: Any = argument(optional(_images.check_fill, (0,)), "see `Pad`.", default=0)
    padding_mode: Border = argument(optional(of(Border), Border.CONSTANT), "see `Pad`.", default=Border.CONSTANT)

    takes = 2
    _has_many = True

    def _draw(self, value: Array, rng: Draws) -> tuple[int, int, int, int]:
        _images.check_pixels("RandomCrop", value)
        left, top, right, bottom = self.padding
        borders = max(top, bottom), max(left, right)
        _check_growth(
            "RandomCrop", "padding size is three times bigger than the image size", borders, _most_border(value)
        )
        # With borders, since the part may begin in them.
        height, width = self._bordered_size(*_images.sides(value))
        if height < self.size[0] or width < self.size[1]:
            raise self.fault(
                f"Shape is incorrect. Crop size {self.size[0]} x {self.size[1]}: crop size is bigger than the image "
                f"dimensions {height} x {width}; pass padding or pad_if_needed=True."
            )
        left = rng.integer(0, width - self.size[1])
        return rng.integer(0, height - self.size[0]), left, height, width

    def _apply(self, value: Array, choice: tuple[int, int, int, int]) -> Array:
        _images.check_pixels("RandomCrop", value)
        top, left, height, width = choice
        # Masks must have the image's size, or the same place would show something else.
        if self._bordered_size(*_images.sides(value)) != (height, width):
            raise self.fault(
                f"all columns must be of one size, but got {(height, width)} and {self._bordered_size(*_images.sides(value))}."
            )
        return np.ascontiguousarray(_images.window(self._with_border(value), top, left, *self.size))

    def _apply_many(self, values: Array, choices: list[tuple[int, int, int, int]]) -> Array | None:
        """With a plain border, only the part is copied, not the whole image with its border."""
        height, width = _images.sides(values[0])
        # Other borders depend on the image's edge, so they need the whole.
        if (
            self.padding_mode is not Border.CONSTANT
            or values.ndim > 4
            or self._bordered_size(height, width) != choices[0][2:]
        ):
            return None
        border_left, border_top = self.border(height, width)
        tall, wide = self.size
        # Three values are colors only for RGB.
        fill = self.fill_value if values.shape[-1:] == (3,) and values.ndim == 4 else self.fill_value[:1]
        result = np.empty((len(values), tall, wide, *values.shape[3:]), values.dtype)
        result[...] = np.array(fill, values.dtype)
        # The part of each image that is visible is copied to its place; the rest keeps the fill.
        for value, part, (top, left, *_) in zip(values, result, choices, strict=True):
            # In coordinates of the image without borders.
            row, column = top - border_top, left - border_left
            first_row, first_column = max(row, 0), max(column, 0)
            region = value[first_row : max(row + tall, 0), first_column : max(column + wide, 0)]
            down, across = first_row - row, first_column - column
            part[down : down + region.shape[0], across : across + region.shape[1]] = region
        return result

    def _with_border(self, value: Array) -> Array:
        bordered = padded(value, self.padding, self.fill_value, self.padding_mode)
        height, width = self._missing(*_images.sides(value))
        # The same on both sides, as in MindSpore.
        return padded(bordered, (width, height, width, height), self.fill_value, self.padding_mode)

    def _missing(self, height: int, width: int) -> tuple[int, int]:
        """How many pixels an image of that size is still too small in each direction, with the border it gets anyway."""
        if not self.pad_if_needed:
            return 0, 0
        left, top, right, bottom = self.padding
        return max(self.size[0] - height - top - bottom, 0), max(self.size[1] - width - left - right, 0)

    def _bordered_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) with all borders of an image of that size."""
        left, top, right, bottom = self.padding
        more_height, more_width = self._missing(height, width)
        return height + top + bottom + 2 * more_height, width + left + right + 2 * more_width

    def border(self, height: int, width: int) -> tuple[int, int]:
        """How many pixels are added at the (left, top) of an image of that size."""
        more_height, more_width = self._missing(height, width)
        return self.padding[0] + more_width, self.padding[1] + more_height


class RandomResizedCrop(_images.ByPillow, RandomTransform):
    """A part of random size, shape and place, resized; several columns are cropped at the same place."""

    # Of the first part that is drawn; nearly always it fits.
    takes = 4

    size: Any = argument(_images.check_size, "(height, width) of the result, or one int for a square.")
    # None means the default, as in MindSpore.
    scale: tuple[float, float] | None = argument(
        None, "smallest and largest share of the image's area.", default=(0.08, 1.0)
    )
    ratio: tuple[float, float] | None = argument(
        None, "smallest and largest width / height of the part.", default=(3.0 / 4.0, 4.0 / 3.0)
    )
    interpolation: Inter | None = argument(optional(of(Inter)), "see `Resize`.", default=Inter.BILINEAR)
    max_attempts: int | None = argument(
        optional(check.integer), "draws before the middle of the image is taken instead.", default=10, low=1
    )

    def _prepare(self) -> None:
        scale = (0.08, 1.0) if self.scale is None else self.scale
        ratio = (3.0 / 4.0, 4.0 / 3.0) if self.ratio is None else self.ratio
        self._scale, self._ratio = _images.check_shares(self.name, scale, ratio, erases=False)
        self._interpolation = Inter.BILINEAR if self.interpolation is None else self.interpolation
        self._max_attempts = 10 if self.max_attempts is None else self.max_attempts

    def _draw(self, value: Array, rng: Draws) -> tuple[int, int, int, int]:
        _images.check_pixels(self.name, value)
        height, width = _images.sides(value)
        for _ in range(self._max_attempts):
            area = height * width * rng.single(*self._scale)
            # Uniform in the logarithm, so that 3:4 and 4:3 are equally likely.
            ratio = math.exp(rng.single(*map(math.log, self._ratio)))
            # Rounded, halves up.
            part_width = max(1, int(math.sqrt(area * ratio) + 0.5))
            part_height = max(1, int(part_width / ratio + 0.5))
            if part_width <= width and part_height <= height:
                left = rng.integer(0, width - part_width)
                return rng.integer(0, height - part_height), left, part_height, part_width
        # MindSpore's fallback: the largest part of a valid ratio in the middle.
        ratio = min(max(width / height, self._ratio[0]), self._ratio[1])
        part_width = min(width, max(1, int(height * ratio + 0.5)))
        part_height = min(height, max(1, int(part_width / ratio + 0.5)))
        return (height - part_height + 1) // 2, (width - part_width + 1) // 2, part_height, part_width

    def _apply(self, value: Array, choice: tuple[int, int, int, int]) -> Array:
        return resize(_images.window(value, *choice), self.size, self._interpolation, by_pillow=self.by_pillow)


class RandomResize(RandomTransform):
    """`Resize` with a random interpolation: LINEAR, NEAREST, CUBIC or AREA."""

    takes = 1

    # The kinds that MindSpore draws from.
    _KINDS = (Inter.LINEAR, Inter.NEAREST, Inter.CUBIC, Inter.AREA)

    size: Any = argument(None, "see `Resize`.")

    def _prepare(self) -> None:
        # Made once: checks of arguments are not repeated per row.
        self._ways = [Resize(self.size, kind) for kind in self._KINDS]

    def _draw(self, value: Array, rng: Draws) -> int:
        return rng.integer(0, len(self._ways) - 1)

    def _apply(self, value: Array, choice: int) -> Array:
        return self._ways[choice]._one(value)


_ONE = 2048  # 1.0 in fixed point
# OpenCV's constant of the cubic kernel; Pillow's is -0.5.
_CUBIC_A = -0.75

Taps = tuple[NDArray[np.int64], NDArray[np.float32]]


class Resize(_images.ByPillow, OneToOne):
    """Resize an image (H, W) or (…, H, W, C); uint8, float32 and float64 keep their dtype.

    Raises:
        SporaxTypeError: (when applied) for ANTIALIAS of an array, and AREA or PILCUBIC of a Pillow image.
    """

    size: Any = argument(None, "(height, width), or one int for the smaller side, keeping the aspect ratio.")
    interpolation: Inter = argument(
        None,
        "NEAREST, LINEAR, CUBIC, AREA or, for bytes (H, W, 3), PILCUBIC (Pillow's CUBIC, and needs it); of Pillow images "
        "NEAREST, LINEAR, CUBIC or ANTIALIAS.",
        default=Inter.LINEAR,
    )

    def _prepare(self) -> None:
        refuse(self.interpolation is None, SporaxKeyError, "Resize", "Interpolation should not be None")
        self._keep_aspect = isinstance(self.size, int)
        self.size = _images.check_size("Resize", "size", self.size, resizes=True)
        check.instance("Resize", "interpolation", self.interpolation, Inter)
        self.only_pillow = self.interpolation is Inter.ANTIALIAS

    def _one(self, value: Array) -> Array:
        _images.check_pixels("Resize", value)
        return resize(value, self._target(*_images.sides(value)), self.interpolation, by_pillow=self.by_pillow)

    def _many(self, values: Array) -> Array | None:
        return None if values.ndim < 4 or self.by_pillow else self._one(values)

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if not self._keep_aspect:
            return self.size
        side = self.size[0]
        # The smaller side becomes `side`; the other one is rounded down, as in MindSpore.
        return (side, side * width // height) if height < width else (side * height // width, side)


def resize(value: Array, size: tuple[int, int], interpolation: Inter, *, by_pillow: bool = False) -> Array:
    """The image resized to (height, width).

    Raises:
        SporaxTypeError: ANTIALIAS of an array, or AREA or PILCUBIC of a Pillow image.
    """
    # Each library has kinds that the other one lacks.
    if interpolation in ((Inter.AREA, Inter.PILCUBIC) if by_pillow else (Inter.ANTIALIAS,)):
        fault = f"img should be PIL image. Got {np.ndarray}"
        fault = "Current Interpolation is not supported with PIL input" if by_pillow else fault
        raise SporaxTypeError(f"For 'Resize', {fault}. 'interpolation' is {interpolation.name}.")
    if by_pillow or interpolation is Inter.PILCUBIC:
        return _resized_by_pillow(value, size, interpolation)
    if value.dtype in (bool, np.int16, np.uint16):
        # OpenCV calculates bools in bytes and 16 bits in float32.
        inner = resize(value.astype(np.uint8 if value.dtype == bool else np.float32), size, interpolation)
        # Means of four are rounded half up.
        means = interpolation in (Inter.AREA, Inter.LINEAR) and _images.sides(value) == (2 * size[0], 2 * size[1])
        return _images.rounded(np.floor(inner + 0.5) if means else inner, value.dtype)
    if value.dtype not in (np.uint8, np.float32, np.float64):
        raise For("Resize").state_error("an image must be bool, uint8, int16, uint16, float32 or float64", value.dtype)
    fault = f"the resizing width or height is too big, it's up to {_MOST_TIMES} times the original image"
    _check_growth("Resize", fault, size, [_MOST_TIMES * side for side in _images.sides(value)])
    # OpenCV copies without resampling as well.
    if _images.sides(value) == size:
        return value.copy()
    image = value[..., None] if value.ndim == 2 else value
    shape = (*value.shape[:-2], *size) if value.ndim == 2 else (*value.shape[:-3], *size, value.shape[-1])
    return np.ascontiguousarray(_resampled(image, size, interpolation).reshape(shape))


def _resized_by_pillow(value: Array, size: tuple[int, int], interpolation: Inter) -> Array:
    if value.ndim > 3:
        images = [_resized_by_pillow(image, size, interpolation) for image in value.reshape(-1, *value.shape[-3:])]
        return np.stack(images).reshape(*value.shape[:-3], *images[0].shape)
    if interpolation is Inter.PILCUBIC and (value.shape[2:] != (3,) or value.dtype != np.uint8):
        fault = "Interpolation mode PILCUBIC only supports image with 3 channels"
        raise SporaxRuntimeError(f"For 'Resize', {fault} of bytes, but got: {value.shape} {value.dtype}.")
    # Pillow takes (width, height); its numbers of kinds are those of `Inter`.
    kind = Inter.CUBIC if interpolation is Inter.PILCUBIC else interpolation
    return np.array(_images.pillow("Resize").fromarray(value).resize((size[1], size[0]), int(kind)))


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
    # Only rows that are used, of which a reduction has few.
    used, numbers = np.unique(rows[0], return_inverse=True)
    image = image[..., used, :, :]
    rows = numbers.astype(np.int64).reshape(-1, rows[0].shape[-1]), rows[1]
    if image.dtype != np.uint8:
        wide = _weighted(image, columns[0], columns[1].astype(image.dtype), -2)
        return _weighted(wide, rows[0], rows[1].astype(image.dtype), -3)
    fixed_rows, fixed_columns = _fixed(rows[1]), _fixed(columns[1])
    wide = _weighted(image, columns[0], fixed_columns, -2)
    if rows[0].shape[1] == 2:
        # Two taps: linear kinds; four taps: cubic, which has products of its own width.
        # OpenCV keeps 32-bit products in range by dropping 4 bits before and 16 bits after each of the two products.
        top, bottom = (((wide[..., rows[0][:, k], :, :] >> 4) * fixed_rows[:, k, None, None]) >> 16 for k in (0, 1))
        blended = (top + bottom + 2) >> 2
    else:
        # In single precision, from the last tap to the first, with products that are not rounded before they are added.
        shares = (fixed_rows * np.float32(1 / _ONE**2)).astype(np.float64)[..., None, None]
        total: Any = np.float32(0)
        for k in (3, 2, 1, 0):
            tap = wide[..., rows[0][:, k], :, :].astype(np.float32)
            total = (tap * shares[:, k] + total).astype(np.float32)
        blended = np.rint(total)
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
    return np.clip(left[:, None] + np.arange(-1, 3), 0, length - 1), cubic_weights(beyond)


def cubic_weights(shares: Array) -> NDArray[np.float32]:
    """Weights (n, 4) of the pixels around positions that lie so far behind the second."""
    x, a = shares.astype(np.float32), np.float32(_CUBIC_A)
    first = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a
    second = ((a + 2) * x - (a + 3)) * x * x + 1
    third = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1
    # The fourth weight by difference, so that weights add up to 1.
    return np.stack([first, second, third, 1 - first - second - third], 1).astype(np.float32)


def _area_mean(image: Array, size: tuple[int, int]) -> Array:
    """Each output pixel is the mean of the input area it covers."""
    (tall, rest), (wide, other_rest) = (divmod(side, n) for side, n in zip(image.shape[-3:-1], size, strict=True))
    if image.dtype == np.uint8 and not rest and not other_rest:
        total = image.reshape(*image.shape[:-3], size[0], tall, size[1], wide, -1).sum((-4, -2), np.int32)
        # Of four pixels OpenCV rounds a half up, elsewhere to even.
        even = np.rint(total.astype(np.float32) * np.float32(1 / (tall * wide)))
        return ((total + 2) >> 2 if tall == wide == 2 else even).astype(np.uint8)
    kind: Any = np.float64 if image.dtype == np.float64 else np.float32
    rows, columns = (_areas(length, n) for length, n in zip(image.shape[-3:-1], size, strict=True))
    narrow = _weighted(image.astype(kind), columns[0], columns[1].astype(kind), -2)
    mean = _weighted(narrow, rows[0], rows[1].astype(kind), -3)
    return np.clip(np.rint(mean), 0, 255).astype(np.uint8) if image.dtype == np.uint8 else mean.astype(image.dtype)


def _areas(length: int, size: int) -> Taps:
    """The pixels that each output pixel covers, one before and one behind included, and their shares in it."""
    scale = _scale(length, size)
    start = np.arange(size)[:, None] * scale
    stop, covered = start + scale, np.minimum(scale, length - start)
    last = np.minimum(np.floor(stop).astype(np.int64), length - 1)
    first = np.minimum(np.ceil(start).astype(np.int64), last)
    taps = first - 1 + np.arange((last - first).max() + 2)
    shares = np.where(taps < first, first - start, np.where(taps < last, 1.0, np.minimum(stop - last, 1.0)))
    # OpenCV leaves out the least parts.
    shares[((taps < first) | (taps == last)) & (shares <= 1e-3) | (taps > last)] = 0
    return np.clip(taps, 0, length - 1), (np.minimum(shares, covered) / covered).astype(np.float32)
