"""Transforms that crop several parts, crop and resize, or put an image on a larger canvas."""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_words
from sporax.mindspore.dataset._operations import OneToOne, Transform, Values
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._files import decode
from sporax.mindspore.dataset.vision._geometry import (
    RandomResizedCrop,
    check_border,
    check_interpolation,
    padded,
    resize,
)
from sporax.mindspore.dataset.vision._images import (
    ByPillow,
    check_fill,
    check_pixels,
    check_size,
    height_axis,
    sides,
    window,
)
from sporax.mindspore.dataset.vision.enums import Border, Inter


class FiveCrop(Transform):
    """The four corners and the middle of an image: one column in, five out.

    They come in the order upper left, upper right, lower left, lower right, middle.

    Args:
        size: (height, width) of the parts, or one int for squares.

    Raises:
        SporaxRuntimeError: (when applied) the image is smaller than a part.
    """

    only_pillow = True

    def __init__(self, size: Any) -> None:
        self._size = check_size(self.name, size)

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        return self._parts(self.only(values))

    def _parts(self, value: Array) -> Values:
        check_pixels(self.name, value)
        (tall, wide), (height, width) = self._size, sides(value)
        if tall > height or wide > width:
            raise self.fault(f"a part must not be larger than the image {height} x {width}, but it is {tall} x {wide}.")
        corners = [(0, 0), (0, width - wide), (height - tall, 0), (height - tall, width - wide)]
        # The middle is rounded as in MindSpore, half a pixel to the even side.
        corners.append((round((height - tall) / 2), round((width - wide) / 2)))
        return tuple(np.ascontiguousarray(window(value, *corner, tall, wide)) for corner in corners)


class TenCrop(FiveCrop):
    """The parts of `FiveCrop`, and those of the flipped image: one column in, ten out.

    Args:
        size: see `FiveCrop`.
        use_vertical_flip: flip up and down instead of left and right.
    """

    only_pillow = True

    def __init__(self, size: Any, use_vertical_flip: bool = False) -> None:
        super().__init__(size)
        self._vertical = check.boolean("TenCrop", "use_vertical_flip", use_vertical_flip)

    def _parts(self, value: Array) -> Values:
        # A bool adds one to the axis: the width follows the height.
        flipped = np.flip(value, height_axis(value) + (not self._vertical))
        return super()._parts(value) + super()._parts(flipped)


class ResizedCrop(ByPillow, OneToOne):
    """A part of an image, resized.

    Args:
        top, left: upper left corner of the part.
        height, width: its size.
        size: (height, width) of the result, or one int for a square.
        interpolation: see `Resize`.

    Raises:
        SporaxRuntimeError: (when applied) the part reaches beyond the image.
    """

    def __init__(
        self, top: int, left: int, height: int, width: int, size: Any, interpolation: Inter = Inter.BILINEAR
    ) -> None:
        where = "ResizedCrop"
        corner = [check.integer(where, n, v, 0) for n, v in (("top", top), ("left", left))]
        extent = [check.integer(where, n, v, 1) for n, v in (("height", height), ("width", width))]
        self._part = (*corner, *extent)
        self._size = check_size(where, size)
        self._interpolation = check_interpolation(where, interpolation)

    def _one(self, value: Array) -> Array:
        check_pixels("ResizedCrop", value)
        top, left, tall, wide = self._part
        height, width = sides(value)
        if top + tall > height or left + wide > width:
            raise self.fault(
                f"the part must lie within the image {height} x {width}, but it ends at {top + tall} x {left + wide}."
            )
        part = window(value, top, left, tall, wide)
        return resize(part, self._size, self._interpolation, by_pillow=self.by_pillow)


class RandomCropDecodeResize(RandomResizedCrop):
    """`Decode`, then `RandomResizedCrop`, whose arguments these are. Needs Pillow."""

    def _draw(self, value: Array, rng: np.random.Generator) -> Any:
        # Decoded here and again for the result, so that a choice holds no pixels.
        return super()._draw(_decoded(value), rng)

    def _apply(self, value: Array, choice: Any) -> Array:
        return super()._apply(_decoded(value), choice)


def _decoded(value: Array) -> Array:
    if value.ndim != 1 or value.dtype != np.uint8:
        raise SporaxRuntimeError(
            f"For 'RandomCropDecodeResize', the input must be a 1-D uint8 array, but got {value.shape} {value.dtype}."
        )
    return decode(value.tobytes(), "RandomCropDecodeResize")


class PadToSize(OneToOne):
    """An image on a larger canvas.

    Args:
        size: (height, width) of the canvas, or one int for a square.
        offset: pixels above and to the left of the image: one int or two; None puts it in the middle.
        fill_value: what a CONSTANT border holds: one value in [0, 255], or one per channel of an RGB image.
        padding_mode: a Border.

    Raises:
        SporaxRuntimeError: (when applied) the image does not fit on the canvas.
    """

    def __init__(
        self, size: Any, offset: Any = None, fill_value: Any = 0, padding_mode: Border = Border.CONSTANT
    ) -> None:
        self._size = _pixels("size", size, 1, (2,), "The size must be a sequence of length 2.")
        # None and empty lists both mean the middle.
        words = "The offset must be empty or a sequence of length 2."
        self._offset = None if offset is None else _pixels("offset", offset, 0, (0, 2), words) or None
        self._fill = check_fill("PadToSize", fill_value)
        self._mode = check_border("PadToSize", padding_mode)

    def _one(self, value: Array) -> Array:
        check_pixels("PadToSize", value)
        height, width = sides(value)
        down, across = self._size[0] - height, self._size[1] - width
        top, left = (down // 2, across // 2) if self._offset is None else self._offset
        # Any side that would be negative: the image is too large, or the offset moves it out.
        if min(top, left, down - top, across - left) < 0:
            raise self.fault(
                f"an image of {height} x {width} must fit on {self._size[0]} x {self._size[1]} at ({top}, {left}), but does "
                "not."
            )
        return padded(value, (left, top, across - left, down - top), self._fill, self._mode)


def _pixels(name: str, value: Any, least: int, counts: tuple[int, ...], words: str) -> tuple[int, ...]:
    """Numbers of pixels of at least `least`, from one or `counts`; `words` say that they are not as many."""
    check.instance("PadToSize", name, value, int, list, tuple)
    if isinstance(value, int):
        return (check.integer("PadToSize", name, value, least),) * 2
    if len(value) not in counts:
        raise in_words(SporaxValueError, "PadToSize", words, value)
    return tuple(check.integer("PadToSize", f"{name}{i}", number, least) for i, number in enumerate(value))
