"""Transforms of an image together with its bounding boxes.

They take two columns: the image (H, W, C), and boxes (n, 4 or more) of float32, each (x of the left edge, y of the upper
edge, width, height, …) in pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform, Transform, Values, as_operation
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._geometry import (
    HorizontalFlip,
    RandomCrop,
    RandomResize,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from sporax.mindspore.dataset.vision._images import check_image, sides, window
from sporax.mindspore.dataset.vision.enums import Border, Inter


def _columns(where: str, values: Values) -> tuple[Array, Array]:
    """(image, a copy of its boxes).

    Raises:
        SporaxRuntimeError: another number of columns, boxes of another form, or boxes beyond the image.
    """
    if len(values) != 2:
        raise SporaxRuntimeError(f"For '{where}', two columns, image and boxes, are needed, but got {len(values)}.")
    image, boxes = values
    check_image(where, image, (3,))
    # MindSpore's boxes are float32 and may carry more columns behind the four.
    if boxes.ndim != 2 or boxes.dtype != np.float32:
        raise SporaxRuntimeError(f"For '{where}', boxes must be (n, 4 or more) float32: {boxes.shape} {boxes.dtype}.")
    fault = ""
    if boxes.shape[1] < 4:
        fault = f"bounding boxes should be have at least 4 features, but got: {boxes.shape[1]}"
    else:
        height, width = sides(image)
        x, y, wide, tall = boxes[:, :4].T
        # A box that only touches the edge is valid.
        beyond, negative = (x + wide > width) | (y + tall > height), (boxes[:, :4] < 0).any(1)
        if beyond.any():
            size = f"as image width: {width} and height: {height}"
            fault = f"bounding boxes is out of bounds of the image, {size}, but got: {boxes[beyond][0, :4].tolist()}"
        elif negative.any():
            fault = f"the coordinates of the bounding boxes has negative value, got: {boxes[negative][0, :4].tolist()}"
    if fault:
        raise SporaxRuntimeError(f"For '{where}', BoundingBox: {fault}.")
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

    _flip: OneToOne
    _axis: int

    def __init__(self, prob: float = 0.5) -> None:
        self._prob = check.probability(self.name, "prob", prob)

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        image, boxes = _columns(self.name, values)
        if rng.random() >= self._prob:
            return image, boxes
        # `_axis` counts x and y, which are the reverse of the image's axes.
        length = image.shape[1 - self._axis]
        # The far edge becomes the near one.
        boxes[:, self._axis] = length - boxes[:, self._axis] - boxes[:, self._axis + 2]
        return self._flip._one(image), boxes


class RandomHorizontalFlipWithBBox(_RandomFlipWithBBox):
    """Left becomes right, with probability `prob`."""

    _flip, _axis = HorizontalFlip(), 0


class RandomVerticalFlipWithBBox(_RandomFlipWithBBox):
    """Top becomes bottom, with probability `prob`."""

    _flip, _axis = VerticalFlip(), 1


class ResizeWithBBox(Transform):
    """`Resize`, whose arguments these are."""

    def __init__(self, size: Any, interpolation: Inter = Inter.BILINEAR) -> None:
        self._resize = Resize(size, interpolation)

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        image, boxes = _columns(self.name, values)
        result = self._resize._one(image)
        return result, _scaled(boxes, sides(image), sides(result))


class _RandomWithBBox(Transform):
    """Base of random transforms that choose something, and then apply it to image and boxes."""

    draws = True

    _random: RandomTransform

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        image, boxes = _columns(self.name, values)
        choice = self._random._draw(image, rng)
        result = self._random._apply(image, choice)
        return result, self._boxes(boxes, image, result, choice)

    def _boxes(self, boxes: Array, image: Array, result: Array, choice: Any) -> Array:
        raise NotImplementedError


class RandomResizeWithBBox(_RandomWithBBox):
    """`RandomResize`, whose argument this is."""

    def __init__(self, size: Any) -> None:
        self._random = RandomResize(size)

    def _boxes(self, boxes: Array, image: Array, result: Array, choice: Any) -> Array:
        return _scaled(boxes, sides(image), sides(result))


class RandomCropWithBBox(_RandomWithBBox):
    """`RandomCrop`, whose arguments these are; boxes are cropped, and those outside left out."""

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill_value: Any = 0,
        padding_mode: Border = Border.CONSTANT,
    ) -> None:  # fmt: skip
        self._random: RandomCrop = RandomCrop(size, padding, pad_if_needed, fill_value, padding_mode)

    def _boxes(self, boxes: Array, image: Array, result: Array, choice: Any) -> Array:
        top, left, *_ = choice
        # Boxes count from the image, the part from the image with its border.
        border_left, border_top = self._random.border(*sides(image))
        boxes[:, :2] += np.array([border_left, border_top], np.float32)
        return _cropped(boxes, top, left, *sides(result))


class RandomResizedCropWithBBox(_RandomWithBBox):
    """`RandomResizedCrop`, whose arguments these are; boxes are cropped, and those outside left out."""

    def __init__(
        self, size: Any, scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0), interpolation: Inter = Inter.BILINEAR,
        max_attempts: int = 10,
    ) -> None:  # fmt: skip
        self._random = RandomResizedCrop(size, scale, ratio, interpolation, max_attempts)

    def _boxes(self, boxes: Array, image: Array, result: Array, choice: Any) -> Array:
        # In two steps, as the image: the part, then its size.
        return _scaled(_cropped(boxes, *choice), choice[2:], sides(result))


class BoundingBoxAugment(Transform):
    """Another transform applied inside some of the boxes.

    Args:
        transform: a transform of one image that keeps its size.
        ratio: share of the boxes it is applied to.
    """

    draws = True

    def __init__(self, transform: Any, ratio: float = 0.3) -> None:
        self.operations = (as_operation("BoundingBoxAugment", transform),)
        self._ratio = check.probability("BoundingBoxAugment", "ratio", ratio)

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        image, boxes = _columns("BoundingBoxAugment", values)
        result = image.copy()
        # Rounded up, as in MindSpore: at least one box for any positive share.
        count = int(np.ceil(len(boxes) * self._ratio))
        for index in rng.choice(len(boxes), count, replace=False):
            # Pixels: fractions are truncated.
            x, y, wide, tall = (int(number) for number in boxes[index, :4])
            part = window(result, y, x, tall, wide)
            # A copy, since the transform may keep its argument.
            (changed,) = self.operations[0].on_row((part.copy(),), rng)
            if changed.shape != part.shape:
                raise SporaxValueError(
                    f"For 'BoundingBoxAugment', the transform must keep the size of an image, but {part.shape} became "
                    f"{changed.shape}."
                )
            # `part` is a view into the result.
            part[...] = changed
        return result, boxes
