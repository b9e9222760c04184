"""Transforms that crop several parts, crop and resize, or put an image on a larger canvas; and those of an image with its boxes.

Transforms with bounding boxes take two columns: the image (H, W, C), and boxes (n, 4 or more) of float32, each (x of the left
edge, y of the upper edge, width, height, …) in pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of, optional
from sporax.mindspore.dataset._checks import refuse
from sporax.mindspore.dataset._operations import OneToOne, Operation, RandomTransform, Transform, Values, as_operation
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision import _geometry as geometry, _images as images
from sporax.mindspore.dataset.vision._files import decode
from sporax.mindspore.dataset.vision.enums import Border, Inter


class FiveCrop(Transform):
    """The four corners and the middle of an image: one column in, five out.

    They come in the order upper left, upper right, lower left, lower right, middle.

    Raises:
        SporaxRuntimeError: (when applied) the image is smaller than a part.
    """

    only_pillow = True

    size: Any = argument(images.check_size, "(height, width) of the parts, or one int for squares.")

    def on_row(self, values: Values, rng: Draws) -> Values:
        return self._parts(self.only(values))

    def _parts(self, value: Array) -> Values:
        images.check_pixels(self.name, value)
        (tall, wide), (height, width) = self.size, images.sides(value)
        if tall > height or wide > width:
            raise self.fault(f"a part must not be larger than the image {height} x {width}, but it is {tall} x {wide}.")
        corners = [(0, 0), (0, width - wide), (height - tall, 0), (height - tall, width - wide)]
        # The middle is rounded as in MindSpore, half a pixel to the even side.
        corners.append((round((height - tall) / 2), round((width - wide) / 2)))
        return tuple(np.ascontiguousarray(images.window(value, *corner, tall, wide)) for corner in corners)


class TenCrop(FiveCrop):
    """The parts of `FiveCrop`, and those of the flipped image: one column in, ten out."""

    use_vertical_flip: bool = argument(check.boolean, "flip up and down instead of left and right.", default=False)

    def _parts(self, value: Array) -> Values:
        images.check_pixels(self.name, value)
        # A bool adds one to the axis: the width follows the height.
        flipped = np.flip(value, images.height_axis(value) + (not self.use_vertical_flip))
        return super()._parts(value) + super()._parts(flipped)


class ResizedCrop(OneToOne):
    """A part of an image, resized.

    Raises:
        SporaxRuntimeError: (when applied) the part reaches beyond the image.
    """

    top: int = argument(check.integer, "upper edge of the part.", low=0)
    left: int = argument(check.integer, "left edge of the part.", low=0)
    height: int = argument(check.integer, "height of the part.", low=1)
    width: int = argument(check.integer, "width of the part.", low=1)
    size: Any = argument(images.check_size, "(height, width) of the result, or one int for a square.")
    interpolation: Inter = argument(of(Inter), "see `Resize`.", default=Inter.BILINEAR)

    def _one(self, value: Array) -> Array:
        images.check_pixels("ResizedCrop", value)
        top, left, tall, wide = self.top, self.left, self.height, self.width
        height, width = images.sides(value)
        if top + tall > height or left + wide > width:
            raise self.fault(
                f"the part must lie within the image {height} x {width}, but it ends at {top + tall} x {left + wide}."
            )
        part = images.window(value, top, left, tall, wide)
        return geometry.resize(part, self.size, self.interpolation)


class RandomCropDecodeResize(geometry.RandomResizedCrop):
    """`Decode`, then `RandomResizedCrop`, whose arguments these are. Needs Pillow."""

    def _draw(self, value: Array, rng: Draws) -> Any:
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


def _pixels(where: str, name: str, value: Any, least: int, counts: tuple[int, ...], words: str) -> tuple[int, ...]:
    """Numbers of pixels of at least `least`, from one or `counts`; `words` say that they are not as many."""
    check.instance(where, name, value, int, list, tuple)
    if isinstance(value, int):
        return (check.integer(where, name, value, least),) * 2
    refuse(len(value) not in counts, SporaxValueError, where, words, value)
    return tuple(check.integer(where, f"{name}{i}", number, least) for i, number in enumerate(value))


class PadToSize(OneToOne):
    """An image on a larger canvas.

    Raises:
        SporaxRuntimeError: (when applied) the image does not fit on the canvas.
    """

    size: Any = argument(
        _pixels, "(height, width) of the canvas, or one int for a square.", counts=(2,), least=1,
        words="The size must be a sequence of length 2.",
    )  # fmt: skip
    # None and empty lists both mean the middle.
    offset: Any = argument(
        optional(_pixels, ()),
        "pixels above and to the left of the image: one int or two; None puts it in the middle.",
        default=None, counts=(0, 2), least=0, words="The offset must be empty or a sequence of length 2.",
    )  # fmt: skip
    fill_value: Any = argument(images.check_fill, images.BORDER, default=0)
    padding_mode: Border = argument(of(Border), "a Border.", default=Border.CONSTANT)

    def _one(self, value: Array) -> Array:
        images.check_pixels("PadToSize", value)
        height, width = images.sides(value)
        down, across = self.size[0] - height, self.size[1] - width
        top, left = (down // 2, across // 2) if not self.offset else self.offset
        if min(down, across) < 0:
            raise self.fault(
                "PadToSize: the target size to pad should be no less than the original image size, but got target size "
                f"({self.size[0]}, {self.size[1]}) and original size ({height}, {width})."
            )
        if min(top, left, down - top, across - left) < 0:
            raise self.fault(
                "PadToSize: the sum of offset and original image size should be no more than the target size to pad, but got "
                f"offset ({top}, {left}) plus original size ({height}, {width}) bigger than ({self.size[0]}, {self.size[1]})."
            )
        return geometry.padded(value, (left, top, across - left, down - top), self.fill_value, self.padding_mode)


def _columns(where: str, values: Values) -> tuple[Array, Array]:
    """(image, a copy of its boxes).

    Raises:
        SporaxRuntimeError: another number of columns, boxes of another form, or boxes beyond the image.
    """
    For(where).refuse_state(len(values) != 2, "two columns, image and boxes, are needed", len(values))
    image, boxes = values
    images.check_image(where, image, (3,))
    # MindSpore's boxes are float32 and may carry more columns behind the four.
    if boxes.ndim != 2 or boxes.dtype != np.float32:
        raise SporaxRuntimeError(f"For '{where}', boxes must be (n, 4 or more) float32: {boxes.shape} {boxes.dtype}.")
    fault = ""
    if boxes.shape[1] < 4:
        fault = f"bounding boxes should be have at least 4 features, but got: {boxes.shape[1]}"
    else:
        height, width = images.sides(image)
        x, y, wide, tall = boxes[:, :4].T
        # A box that only touches the edge is valid.
        beyond, negative = (x + wide > width) | (y + tall > height), (boxes[:, :4] < 0).any(1)
        if beyond.any():
            size = f"as image width: {width} and height: {height}"
            fault = f"bounding boxes is out of bounds of the image, {size}, but got: {boxes[beyond][0, :4].tolist()}"
        elif negative.any():
            fault = f"the coordinates of the bounding boxes has negative value, got: {boxes[negative][0, :4].tolist()}"
    For(where).refuse_state(fault, f"BoundingBox: {fault}")
    # A copy: boxes are changed in place below.
    return image, boxes.copy()


def _cropped(boxes: Array, top: int, left: int, height: int, width: int) -> Array:
    """Boxes as seen from a part of the image; without those that are not in it.

    Where none is left, one of zeros stands for them, as in MindSpore.
    """
    # Corners relative to the part, clipped to it.
    low = np.maximum(boxes[:, :2] - (left, top), 0)
    high = np.minimum(boxes[:, :2] + boxes[:, 2:4] - (left, top), (width, height))
    inside = (high > low).all(1)
    if not inside.any():
        return np.zeros((1, boxes.shape[1]), np.float32)
    remaining = boxes[inside]
    remaining[:, :2], remaining[:, 2:4] = low[inside], (high - low)[inside]
    return remaining


def _scaled(boxes: Array, before: tuple[int, int], after: tuple[int, int]) -> Array:
    (height, width), (new_height, new_width) = before, after
    # float32 factors, as MindSpore computes them.
    across, down = np.float32(new_width / width), np.float32(new_height / height)
    boxes[:, :4] *= np.array([across, down, across, down], np.float32)
    return boxes


class _RandomFlipWithBBox(Transform):
    """Base of both flips."""

    draws = True
    takes = 2

    _flip: OneToOne
    _axis: int

    def __init__(self, prob: float = 0.5) -> None:
        self._prob = check.probability(self.name, "prob", prob)

    def on_row(self, values: Values, rng: Draws) -> Values:
        image, boxes = _columns(self.name, values)
        if not rng.coin(self._prob):
            return image, boxes
        # `_axis` counts x and y, which are the reverse of the image's axes.
        length = image.shape[1 - self._axis]
        # The far edge becomes the near one.
        boxes[:, self._axis] = length - boxes[:, self._axis] - boxes[:, self._axis + 2]
        return self._flip._one(image), boxes


class RandomHorizontalFlipWithBBox(_RandomFlipWithBBox):
    """Left becomes right, with probability `prob`."""

    _flip, _axis = geometry.HorizontalFlip(), 0


class RandomVerticalFlipWithBBox(_RandomFlipWithBBox):
    """Top becomes bottom, with probability `prob`."""

    _flip, _axis = geometry.VerticalFlip(), 1


class ResizeWithBBox(Transform):
    """`Resize`, whose arguments these are."""

    def __init__(self, size: Any, interpolation: Inter = Inter.BILINEAR) -> None:
        self._resize = geometry.Resize(size, interpolation)

    def on_row(self, values: Values, rng: Draws) -> Values:
        image, boxes = _columns(self.name, values)
        result = self._resize._one(image)
        return result, _scaled(boxes, images.sides(image), images.sides(result))


class _WithBBox(RandomTransform):
    """Base of random transforms that choose something, and then apply it to image and boxes."""

    def on_row(self, values: Values, rng: Draws) -> Values:
        image, boxes = _columns(self.name, values)
        choice = self._draw(image, rng)
        result = self._apply(image, choice)
        return result, self._boxes(boxes, image, result, choice)

    on_block = Operation.on_block

    def for_pillow(self) -> Transform:
        # Boxes come with arrays.
        return self

    def _boxes(self, boxes: Array, image: Array, result: Array, choice: Any) -> Array:
        raise NotImplementedError


class RandomResizeWithBBox(_WithBBox, geometry.RandomResize):
    """`RandomResize`, whose argument this is."""

    def _boxes(self, boxes: Array, image: Array, result: Array, choice: Any) -> Array:
        return _scaled(boxes, images.sides(image), images.sides(result))


class RandomCropWithBBox(_WithBBox, geometry.RandomCrop):
    """`RandomCrop`, whose arguments these are; boxes are cropped, and those outside left out."""

    def _boxes(self, boxes: Array, image: Array, result: Array, choice: Any) -> Array:
        top, left, *_ = choice
        # Boxes count from the image, the part from the image with its border.
        border_left, border_top = self.border(*images.sides(image))
        boxes[:, :2] += np.array([border_left, border_top], np.float32)
        return _cropped(boxes, top, left, *images.sides(result))


class RandomResizedCropWithBBox(_WithBBox, geometry.RandomResizedCrop):
    """`RandomResizedCrop`, whose arguments these are; boxes are cropped, and those outside left out."""

    def _boxes(self, boxes: Array, image: Array, result: Array, choice: Any) -> Array:
        # In two steps, as the image: the part, then its size.
        return _scaled(_cropped(boxes, *choice), choice[2:], images.sides(result))


class BoundingBoxAugment(Transform):
    """Another transform applied inside some of the boxes.

    Args:
        transform: a transform of one image; what has another size then is resized.
        ratio: probability with which it is applied to a box.
    """

    draws = True
    # Of the first boxes of a row.
    takes = 8

    def __init__(self, transform: Any, ratio: float = 0.3) -> None:
        self.operations = (as_operation("BoundingBoxAugment", transform),)
        self._ratio = check.probability("BoundingBoxAugment", "ratio", ratio)

    def on_row(self, values: Values, rng: Draws) -> Values:
        image, boxes = _columns("BoundingBoxAugment", values)
        result = image.copy()
        for box in boxes:
            if rng.single() >= self._ratio:
                continue
            # Pixels: fractions are truncated.
            x, y, wide, tall = (int(number) for number in box[:4])
            part = images.window(result, y, x, tall, wide)
            # A copy, since the transform may keep its argument.
            (changed,) = self.operations[0].on_row((part.copy(),), rng.inner(0, self.operations[0].takes))
            # `part` is a view into the result.
            part[...] = (
                changed if images.sides(changed) == (tall, wide) else geometry.Resize((tall, wide))._one(changed)
            )
        return result, boxes
