"""Transforms that move pixels: flips, crops, padding."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset._checks import (
    INT32_MAX,
    check_bool,
    check_int,
    check_number,
    check_probability,
    type_error,
)
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._images import (
    check_fill,
    check_padding,
    check_pixels,
    check_size,
    height_axis,
    sides,
    window,
)
from sporax.mindspore.dataset.vision._pillow import ByPillow
from sporax.mindspore.dataset.vision._resize import check_interpolation, resize
from sporax.mindspore.dataset.vision.enums import Border, Inter

Padding = tuple[int, int, int, int]


def padded(value: Array, padding: Padding, fill: tuple[int, ...], mode: Border) -> Array:
    """An image with borders of (left, top, right, bottom) pixels."""
    left, top, right, bottom = padding
    if not any(padding):
        return value
    around = [(0, 0)] * value.ndim
    # Batches and stacks keep their leading dimensions.
    axis = height_axis(value)
    around[axis], around[axis + 1] = (top, bottom), (left, right)
    if mode is not Border.CONSTANT:
        return np.pad(value, around, mode=cast(Any, mode.value))
    result = np.pad(value, around, constant_values=fill[0])
    # Colored borders: first one value, then the three where the border is.
    if len(fill) == 3 and value.ndim > 2 and value.shape[-1] == 3:
        # True inside, so that the mask covers any leading dimensions.
        inside = np.pad(np.ones(sides(value), bool), [(top, bottom), (left, right)])
        result[..., ~inside, :] = np.array(fill, value.dtype)
    return result


def check_border(where: str, padding_mode: object) -> Border:
    """A Border."""
    if not isinstance(padding_mode, Border):
        raise type_error(where, "padding_mode", "a Border", padding_mode)
    return padding_mode


class HorizontalFlip(OneToOne):
    """Left becomes right."""

    def _one(self, value: Array) -> Array:
        check_pixels("HorizontalFlip", value)
        # Contiguous: later copies of views with negative strides are slow.
        return np.ascontiguousarray(np.flip(value, height_axis(value) + 1))


class VerticalFlip(OneToOne):
    """Top becomes bottom."""

    def _one(self, value: Array) -> Array:
        check_pixels("VerticalFlip", value)
        return np.ascontiguousarray(np.flip(value, height_axis(value)))


class _RandomFlip(RandomTransform):
    """Base of both random flips."""

    _flip: OneToOne
    _axis: int  # behind the height
    _has_many = True

    def __init__(self, prob: float = 0.5) -> None:
        self._prob = check_probability(self.name, "prob", prob)

    def _draw(self, value: Array, rng: np.random.Generator) -> bool:
        return rng.random() < self._prob

    def _apply(self, value: Array, choice: bool) -> Array:
        check_pixels(self.name, value)
        return self._flip._one(value) if choice else value

    def _apply_many(self, values: Array, choices: list[bool]) -> Array | None:
        # All of a block have one shape, so one check does.
        check_pixels(self.name, values[0])
        chosen = np.array(choices, bool)
        result = values.copy()
        result[chosen] = np.flip(values[chosen], height_axis(values[0]) + self._axis)
        return result


class RandomHorizontalFlip(_RandomFlip):
    """Left becomes right, with a probability.

    Args:
        prob: the probability.
    """

    _flip, _axis = HorizontalFlip(), 1


class RandomVerticalFlip(_RandomFlip):
    """Top becomes bottom, with a probability.

    Args:
        prob: the probability.
    """

    _flip, _axis = VerticalFlip(), 0


class Crop(OneToOne):
    """A part of an image.

    Args:
        coordinates: (top, left) of the part.
        size: (height, width), or one int for a square.

    Raises:
        SporaxRuntimeError: (when applied) the part reaches beyond the image.
    """

    def __init__(self, coordinates: tuple[int, int], size: Any) -> None:
        if not isinstance(coordinates, (list, tuple)) or len(coordinates) != 2:
            raise SporaxTypeError(
                f"For 'Crop', the argument 'coordinates' must be (top, left), but got {coordinates!r}."
            )
        self._top, self._left = (
            check_int("Crop", f"coordinates[{i}]", n, 0, INT32_MAX) for i, n in enumerate(coordinates)
        )
        self._size = check_size("Crop", size)

    def _one(self, value: Array) -> Array:
        check_pixels("Crop", value)
        height, width = sides(value)
        if self._top + self._size[0] > height or self._left + self._size[1] > width:
            raise SporaxRuntimeError(
                f"For 'Crop', the part must lie within the image {height} x {width}, but it ends at "
                f"{self._top + self._size[0]} x {self._left + self._size[1]}."
            )
        return np.ascontiguousarray(window(value, self._top, self._left, *self._size))


class CenterCrop(ByPillow, OneToOne):
    """The middle of an image, with a black border where the image is smaller.

    Args:
        size: (height, width), or one int for a square.
    """

    def __init__(self, size: Any) -> None:
        self._size = check_size("CenterCrop", size)

    def _one(self, value: Array) -> Array:
        check_pixels("CenterCrop", value)
        missing = [max(want - have, 0) for want, have in zip(self._size, sides(value), strict=True)]
        # The odd pixel goes to the upper left, as in MindSpore.
        top, left = (missing[0] + 1) // 2, (missing[1] + 1) // 2
        whole = padded(value, (left, top, missing[1] - left, missing[0] - top), (0,), Border.CONSTANT)
        height, width = sides(whole)
        # Rounded down, as OpenCV's integer division does.
        start = (height - self._size[0]) // 2, (width - self._size[1]) // 2
        if self.by_pillow:  # rounded, a half to an even number
            start = round((height - self._size[0]) / 2), round((width - self._size[1]) / 2)
        return np.ascontiguousarray(window(whole, *start, *self._size))


class Pad(OneToOne):
    """A border around an image.

    Args:
        padding: pixels: one int, (left-and-right, top-and-bottom) or (left, top, right, bottom).
        fill_value: what a CONSTANT border holds: one value in [0, 255], or one per channel of an RGB image.
        padding_mode: a Border.
    """

    def __init__(self, padding: Any, fill_value: Any = 0, padding_mode: Border = Border.CONSTANT) -> None:
        self._padding = check_padding("Pad", padding)
        self._fill = check_fill("Pad", fill_value)
        self._mode = check_border("Pad", padding_mode)

    def _one(self, value: Array) -> Array:
        check_pixels("Pad", value)
        return padded(value, self._padding, self._fill, self._mode)


class RandomCrop(RandomTransform):
    """A part of an image at a random place; several columns are cut at the same place.

    Args:
        size: (height, width), or one int for a square.
        padding: border added first, see `Pad`; None for none.
        pad_if_needed: add as much border as the image is too small.
        fill_value: see `Pad`.
        padding_mode: see `Pad`.

    Raises:
        SporaxRuntimeError: (when applied) the image is smaller than the part, or columns differ in size.
    """

    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill_value: Any = 0,
        padding_mode: Border = Border.CONSTANT,
    ) -> None:
        self._size = check_size("RandomCrop", size)
        self._padding = (0, 0, 0, 0) if padding is None else check_padding("RandomCrop", padding)
        self._pad_if_needed = check_bool("RandomCrop", "pad_if_needed", pad_if_needed)
        self._fill = check_fill("RandomCrop", fill_value)
        self._mode = check_border("RandomCrop", padding_mode)

    _has_many = True

    def _draw(self, value: Array, rng: np.random.Generator) -> tuple[int, int, int, int]:
        check_pixels("RandomCrop", value)
        # With borders, since the part may begin in them.
        height, width = self._whole_size(*sides(value))
        if height < self._size[0] or width < self._size[1]:
            raise SporaxRuntimeError(
                f"For 'RandomCrop', the part must not be larger than the image {height} x {width}, but it is "
                f"{self._size[0]} x {self._size[1]}; pass padding or pad_if_needed=True."
            )
        # A float times the number of places costs a tenth of `rng.integers`.
        top = int(rng.random() * (height - self._size[0] + 1))
        left = int(rng.random() * (width - self._size[1] + 1))
        return top, left, height, width

    def _apply(self, value: Array, choice: tuple[int, int, int, int]) -> Array:
        check_pixels("RandomCrop", value)
        top, left, height, width = choice
        # Masks must have the image's size, or the same place would show something else.
        if self._whole_size(*sides(value)) != (height, width):
            raise SporaxRuntimeError(
                f"For 'RandomCrop', all columns must be of one size, but got {(height, width)} and "
                f"{self._whole_size(*sides(value))}."
            )
        return np.ascontiguousarray(window(self._with_border(value), top, left, *self._size))

    def _apply_many(self, values: Array, choices: list[tuple[int, int, int, int]]) -> Array | None:
        """With a plain border, only the part is copied, not the whole image with its border."""
        height, width = sides(values[0])
        # Other borders depend on the image's edge, so they need the whole.
        if self._mode is not Border.CONSTANT or values.ndim > 4 or self._whole_size(height, width) != choices[0][2:]:
            return None
        border_left, border_top = self.border(height, width)
        tall, wide = self._size
        # Three values are colors only for RGB.
        fill = self._fill if values.shape[-1:] == (3,) and values.ndim == 4 else self._fill[:1]
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
        whole = padded(value, self._padding, self._fill, self._mode)
        height, width = self._missing(*sides(value))
        # The same on both sides, as in MindSpore.
        return padded(whole, (width, height, width, height), self._fill, self._mode)

    def _missing(self, height: int, width: int) -> tuple[int, int]:
        """How many pixels an image of that size is still too small in each direction, with the border it gets anyway."""
        if not self._pad_if_needed:
            return 0, 0
        left, top, right, bottom = self._padding
        return max(self._size[0] - height - top - bottom, 0), max(self._size[1] - width - left - right, 0)

    def _whole_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) with all borders of an image of that size."""
        left, top, right, bottom = self._padding
        more_height, more_width = self._missing(height, width)
        return height + top + bottom + 2 * more_height, width + left + right + 2 * more_width

    def border(self, height: int, width: int) -> tuple[int, int]:
        """How many pixels are added at the (left, top) of an image of that size."""
        more_height, more_width = self._missing(height, width)
        return self._padding[0] + more_width, self._padding[1] + more_height


class RandomResizedCrop(ByPillow, RandomTransform):
    """A part of random size, shape and place, resized; several columns are cut alike.

    Args:
        size: (height, width) of the result, or one int for a square.
        scale: smallest and largest share of the image's area.
        ratio: smallest and largest width / height of the part.
        interpolation: see `Resize`.
        max_attempts: draws before the middle of the image is taken instead.
    """

    def __init__(
        self,
        size: Any,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Inter = Inter.BILINEAR,
        max_attempts: int = 10,
    ) -> None:
        where = "RandomResizedCrop"
        self._size = check_size(where, size)
        self._scale = check_interval(where, "scale", scale, 0)
        self._ratio = check_interval(where, "ratio", ratio, 1e-12)
        self._interpolation = check_interpolation(where, interpolation)
        self._max_attempts = check_int(where, "max_attempts", max_attempts, 1, INT32_MAX)

    def _draw(self, value: Array, rng: np.random.Generator) -> tuple[int, int, int, int]:
        check_pixels(self.name, value)
        height, width = sides(value)
        for _ in range(self._max_attempts):
            area = rng.uniform(*self._scale) * height * width
            # Uniform in the logarithm, so that 3:4 and 4:3 are equally likely.
            ratio = np.exp(rng.uniform(*np.log(self._ratio)))
            part_width, part_height = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
            if 0 < part_width <= width and 0 < part_height <= height:
                top, left = rng.integers(height - part_height + 1), rng.integers(width - part_width + 1)
                return int(top), int(left), part_height, part_width
        # MindSpore's fallback: the largest part of a valid ratio in the middle.
        ratio = np.clip(width / height, *self._ratio)
        part_width = min(width, max(1, round(height * ratio)))
        part_height = min(height, max(1, round(part_width / ratio)))
        return (height - part_height) // 2, (width - part_width) // 2, part_height, part_width

    def _apply(self, value: Array, choice: tuple[int, int, int, int]) -> Array:
        return resize(window(value, *choice), self._size, self._interpolation, by_pillow=self.by_pillow)


def check_interval(where: str, name: str, value: Any, low: float) -> tuple[float, float]:
    """Two increasing numbers >= low."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise SporaxTypeError(f"For '{where}', the argument '{name}' must be two numbers, but got {value!r}.")
    first, last = (check_number(where, f"{name}[{i}]", number, low) for i, number in enumerate(value))
    if first > last or last <= 0:
        raise SporaxValueError(
            f"For '{where}', the argument '{name}' must be increasing and positive, but got {value!r}."
        )
    return first, last
