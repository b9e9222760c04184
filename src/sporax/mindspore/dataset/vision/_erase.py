"""Transforms that take parts of images out: erased, or mixed with another image of the batch and its label.

Those that mix are for `map` after `batch`, over (images, labels).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of
from sporax.mindspore.dataset._checks import FLOAT32_MAX, in_words, refuse
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform, Transform, Values
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._images import check_image, check_shares
from sporax.mindspore.dataset.vision.enums import ImageBatchFormat

Box = tuple[int, int, int, int]


_INPLACE = "changes nothing here: the input array is never written to."


def _not_inplace(where: str, name: str, value: object) -> bool:
    inplace = check.boolean(where, name, value)
    if inplace:
        # The user's line: behind this function and the constructor.
        warnings.warn(f"For '{where}', inplace=True changes nothing: the input is never written to.", stacklevel=4)
    return inplace


def _three_values(where: str, name: str, value: Any) -> list[float]:
    # Lists come from JSON.
    value = tuple(value) if isinstance(value, list) else value
    check.instance(where, name, value, float, int, tuple)
    values = value if isinstance(value, tuple) else [value] * 3
    for i, number in enumerate(values):
        check.instance(where, f"{name}[{i}]", number, float, int)
    refuse(len(values) != 3, SporaxTypeError, where, f"{name} should be a single integer/float or a 3-tuple.", value)
    return [check.number(where, f"{name}[{i}]", number, 0, 255) for i, number in enumerate(values)]


class Erase(OneToOne):
    """A rectangle of an image filled with one colour."""

    top: int = argument(check.integer, "its upper edge; what reaches beyond the image is left out.", low=0)
    left: int = argument(check.integer, "its left edge.", low=0)
    height: int = argument(check.integer, "of the rectangle.", low=1)
    width: int = argument(check.integer, "of the rectangle.", low=1)
    value: Any = argument(_three_values, "number, or one for each channel, in [0, 255].", default=0.0)
    inplace: bool = argument(_not_inplace, _INPLACE, default=False)

    def _one(self, value: Array) -> Array:
        check_image("Erase", value, (3,))
        self.refuse(value.shape[2] != 3, f"Erase: the image must have 3 channels, but got the shape {value.shape}.")
        result = value.copy()
        result[self.top : self.top + self.height, self.left : self.left + self.width] = self.value
        return result


class CutOut(RandomTransform):
    """Squares at random places of an image made black; they may be partly outside (DeVries & Taylor 2017).

    Raises:
        SporaxRuntimeError: (when applied) the image is smaller than a square.
    """

    length: int = argument(check.integer, "side of a square in pixels.", low=1, high=FLOAT32_MAX, ranged="")
    num_patches: int = argument(check.integer, "how many there are.", default=1, low=1, high=FLOAT32_MAX, ranged="")
    is_hwc: bool = argument(check.boolean, "whether images are (H, W, C) or (C, H, W).", default=True)

    def _prepare(self) -> None:
        self.takes = 2 * self.num_patches

    def _draw(self, value: Array, rng: Draws) -> Array:
        check_image("CutOut", value, (3,))
        height, width = value.shape[:2] if self.is_hwc else value.shape[1:]
        if self.length > min(height, width):
            raise self.fault(
                f"box size is too large for image erase: 'length' is {self.length} in an image {height} x {width}."
            )
        # The corner may be outside on either side.
        reach = height + self.length, width + self.length
        return np.array([[rng.integer(0, most) - self.length for most in reach] for _ in range(self.num_patches)])

    def _apply(self, value: Array, choice: Array) -> Array:
        check_image("CutOut", value, (3,))
        result = value.copy()
        # A view with channels last; writing to it changes `result`.
        pixels = result if self.is_hwc else result.transpose(1, 2, 0)
        for top, left in choice:
            pixels[max(top, 0) : max(top + self.length, 0), max(left, 0) : max(left + self.length, 0)] = 0
        return result


class RandomErasing(RandomTransform):
    """A rectangle of random size, shape and place in a (C, H, W) image erased, with a probability (Zhong et al. 2017)."""

    only_pillow = True

    prob: float = argument(check.probability, "the probability.", default=0.5)
    scale: tuple[float, float] = argument(None, "smallest and largest share of the image's area.", default=(0.02, 0.33))
    ratio: tuple[float, float] = argument(None, "smallest and largest height / width.", default=(0.3, 3.3))
    value: Any = argument(
        None, 'what is put there: a number in [0, 255], one per channel, or "random" for normal noise.', default=0
    )
    inplace: bool = argument(None, _INPLACE, default=False)
    max_attempts: int = argument(None, "draws before the image stays as it is.", default=10)

    def _prepare(self) -> None:
        where, value = "RandomErasing", self.value
        self.scale, self.ratio = check_shares(where, self.scale, self.ratio, erases=True)
        check.instance(where, "value", value, int, list, tuple, str)
        values = value if isinstance(value, (list, tuple)) else [value]
        if value != "random" and (isinstance(value, str) or len(values) not in (1, 3)):
            words = "The value for erasing should be either a single value, or a string 'random', or a sequence of 3 elements"
            raise in_words(SporaxValueError, where, f"{words} for RGB respectively.", value)
        ranged = "value" if values is value else ""
        numbers = [] if value == "random" else values
        self._value = [check.integer(where, "value", number, 0, 255, ranged=ranged) for number in numbers] or None
        _not_inplace(where, "inplace", self.inplace)
        check.integer(where, "max_attempts", self.max_attempts, 1, FLOAT32_MAX, ranged="")

    def _draw(self, value: Array, draws: Draws) -> tuple[Box, Array] | None:
        check_image("RandomErasing", value, (3,))
        rng = draws.generator
        if rng.random() >= self.prob:
            return None
        channels, height, width = value.shape
        for _ in range(self.max_attempts):
            area = rng.uniform(*self.scale) * height * width
            ratio = rng.uniform(*self.ratio)
            # From area a and ratio r = h / w: h = sqrt(a r), w = sqrt(a / r).
            tall, wide = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
            # Strictly smaller, as in the paper's code.
            if tall < height and wide < width:
                top, left = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
                shape = (channels, tall, wide)
                fill = rng.normal(size=shape) if self._value is None else np.reshape(self._value, (-1, 1, 1))
                return (top, left, tall, wide), fill
        # No fitting draw: the image stays, as in MindSpore.
        return None

    def _apply(self, value: Array, choice: tuple[Box, Array] | None) -> Array:
        if choice is None:
            return value
        (top, left, tall, wide), fill = choice
        result = value.copy()
        # Cast to the image's dtype by the assignment.
        result[:, top : top + tall, left : left + wide] = fill
        return result


def _columns(where: str, values: Values) -> tuple[Array, Array]:
    """(images, labels) of a batch, labels (N, classes) or (N, k, classes)."""
    For(where).refuse_state(len(values) != 2, "two columns, images and labels, are needed", len(values))
    images, labels = values
    if labels.dtype.kind not in "biuf":
        words = f"invalid label type, label must be in a numeric type, but got: {labels.dtype}"
        raise SporaxRuntimeError(f"For '{where}', {where}: {words}. You may need to perform OneHot first.")
    if images.ndim != 4 or labels.ndim not in (2, 3) or len(images) != len(labels):
        raise SporaxRuntimeError(
            f"For '{where}', images must be a batch of 4 dimensions with as many one-hot labels (N, classes) or "
            f"(N, k, classes), but got {images.shape} and {labels.shape}."
        )
    return images, labels


def _along(weights: Array, array: Array) -> Array:
    """Weights (N,) so that they multiply an array (N, …)."""
    # Ones for all other dimensions, so that broadcasting multiplies rows.
    return weights.reshape(-1, *[1] * (array.ndim - 1))


class MixUp(Transform):
    """Each image mixed with the next one of the batch, by weights from a Beta distribution (Zhang et al. 2017).

    Raises:
        SporaxRuntimeError: (when applied) a batch of another size, or labels that are not one-hot.
    """

    draws = True

    only_pillow = True

    batch_size: int = argument(check.integer, "number of images in a batch.", low=1, high=FLOAT32_MAX, ranged="")
    alpha: float = argument(check.positive, "both parameters of the distribution, > 0.")
    is_single: bool = argument(
        check.boolean,
        "must be True: to mix with the batch before would make rows depend on the order they are read in.",
        default=True,
    )

    def _prepare(self) -> None:
        if not self.is_single:
            raise SporaxNotImplementedError(
                "For 'MixUp', 'is_single' must be True: a batch here does not depend on the one read before it."
            )

    def on_row(self, values: Values, rng: Draws) -> Values:
        images, labels = _columns("MixUp", values)
        # The weights are drawn for a fixed number.
        if len(images) != self.batch_size:
            raise self.fault(
                f"a batch must have {self.batch_size} images, but got {len(images)}; use batch(…, drop_remainder=True)."
            )
        share = rng.generator.beta(self.alpha, self.alpha, self.batch_size)
        return tuple(
            # Rolled by one: each image is mixed with the next, and so are labels.
            _along(share, batch) * batch + _along(1 - share, batch) * np.roll(batch, -1, 0)
            for batch in (images, labels)
        )


class MixUpBatch(Transform):
    """Each image mixed with a random one of the batch, all by one weight from a Beta distribution.

    Images keep their dtype, labels become float32.
    """

    draws = True

    alpha: float = argument(check.positive, "both parameters of the distribution, > 0.", default=1.0)

    def on_row(self, values: Values, rng: Draws) -> Values:
        images, labels = _columns("MixUpBatch", values)
        # float32: weights of double precision would promote the images.
        share = np.float32(rng.generator.beta(self.alpha, self.alpha))
        others = rng.order(len(images))
        mixed, targets = (batch * share + batch[others] * (1 - share) for batch in (images, labels))
        return mixed.astype(images.dtype), targets.astype(np.float32)


class CutMixBatch(Transform):
    """Into each image a rectangle of a random other one is put, and labels are mixed by area (Yun et al. 2019).

    Images keep their dtype, labels become float32.
    """

    draws = True

    image_batch_format: ImageBatchFormat = argument(of(ImageBatchFormat), "an ImageBatchFormat.")
    alpha: float = argument(
        check.number,
        "both parameters of the Beta distribution of the share that is kept, > 0.",
        default=1.0, low=0, open_low=True, types=(int, float), ranged="",
    )  # fmt: skip
    prob: float = argument(
        check.number, "probability of changing an image.", default=1.0, low=0, high=1, types=(int, float)
    )

    def on_row(self, values: Values, draws: Draws) -> Values:
        images, labels = _columns("CutMixBatch", values)
        result, targets = images.copy(), labels.astype(np.float32)
        planes_first = self.image_batch_format is ImageBatchFormat.NCHW
        # Views with channels last; writing to `target` changes `result`.
        source, target = (batch.transpose(0, 2, 3, 1) if planes_first else batch for batch in (images, result))
        height, width = source.shape[1:3]
        for i, other in enumerate(draws.order(len(images))):
            rng = draws.generator
            if rng.random() >= self.prob:
                continue
            # The share of area that is replaced is 1 - lambda; its square root is the side.
            side = np.sqrt(1 - rng.beta(self.alpha, self.alpha))
            tall, wide = int(height * side), int(width * side)
            # Around a random center, so parts may reach beyond the edge.
            row, column = int(rng.integers(height)) - tall // 2, int(rng.integers(width)) - wide // 2
            box = (slice(max(row, 0), max(row + tall, 0)), slice(max(column, 0), max(column + wide, 0)))
            target[i][box] = source[other][box]
            # By the area that is really covered, after clipping at the edge.
            share = np.float32(1 - target[i][box][..., 0].size / (height * width))
            targets[i] = labels[i] * share + labels[other] * (1 - share)
        return result, targets
