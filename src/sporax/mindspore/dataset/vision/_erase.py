"""Transforms that take parts of images out: erased, or mixed with another image of the batch and its label.

Those that mix are for `map` after `batch`, over (images, labels).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import FLOAT32_MAX, in_words
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform, Transform, Values
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._images import check_image, check_shares
from sporax.mindspore.dataset.vision.enums import ImageBatchFormat

Box = tuple[int, int, int, int]


class Erase(OneToOne):
    """A rectangle of an image filled with one colour.

    Args:
        top, left: its upper left corner; what reaches beyond the image is left out.
        height, width: its size.
        value: number, or one for each channel, in [0, 255].
        inplace: changes nothing here: the input array is never written to.
    """

    def __init__(self, top: int, left: int, height: int, width: int, value: Any = 0.0, inplace: bool = False) -> None:
        self._top, self._left = (check.integer("Erase", n, v, 0) for n, v in (("top", top), ("left", left)))
        self._height, self._width = (check.integer("Erase", n, v, 1) for n, v in (("height", height), ("width", width)))
        # Lists come from JSON.
        value = tuple(value) if isinstance(value, list) else value
        check.instance("Erase", "value", value, float, int, tuple)
        values = value if isinstance(value, tuple) else [value] * 3
        for i, number in enumerate(values):
            check.instance("Erase", f"value[{i}]", number, float, int)
        if len(values) != 3:
            raise in_words(SporaxTypeError, "Erase", "value should be a single integer/float or a 3-tuple.", value)
        self._value = [check.number("Erase", f"value[{i}]", number, 0, 255) for i, number in enumerate(values)]
        _warn_inplace("Erase", inplace)

    def _one(self, value: Array) -> Array:
        check_image("Erase", value, (3,))
        result = value.copy()
        result[self._top : self._top + self._height, self._left : self._left + self._width] = self._value
        return result


class CutOut(RandomTransform):
    """Squares at random places of an image made black; they may be partly outside (DeVries & Taylor 2017).

    Args:
        length: side of a square in pixels.
        num_patches: how many there are.
        is_hwc: whether images are (H, W, C) or (C, H, W).

    Raises:
        SporaxRuntimeError: (when applied) the image is smaller than a square.
    """

    def __init__(self, length: int, num_patches: int = 1, is_hwc: bool = True) -> None:
        self._length = check.integer("CutOut", "length", length, 1, FLOAT32_MAX, ranged="")
        self._count = check.integer("CutOut", "num_patches", num_patches, 1, FLOAT32_MAX, ranged="")
        self._is_hwc = check.boolean("CutOut", "is_hwc", is_hwc)

    def _draw(self, value: Array, rng: np.random.Generator) -> Array:
        check_image("CutOut", value, (3,))
        height, width = value.shape[:2] if self._is_hwc else value.shape[1:]
        if self._length > min(height, width):
            raise self.fault(
                f"box size is too large for image erase: 'length' is {self._length} in an image {height} x {width}."
            )
        # `+ 1`: MindSpore's corner may be at the very edge, where nothing is visible.
        return rng.integers(0, (height + 1, width + 1), (self._count, 2))

    def _apply(self, value: Array, choice: Array) -> Array:
        check_image("CutOut", value, (3,))
        result = value.copy()
        # A view with channels last; writing to it changes `result`.
        pixels = result if self._is_hwc else result.transpose(1, 2, 0)
        for top, left in choice:
            pixels[top : top + self._length, left : left + self._length] = 0
        return result


class RandomErasing(RandomTransform):
    """A rectangle of random size, shape and place in a (C, H, W) image erased, with a probability (Zhong et al. 2017).

    Args:
        prob: the probability.
        scale: smallest and largest share of the image's area.
        ratio: smallest and largest height / width.
        value: what is put there: a number in [0, 255], one per channel, or ``"random"`` for normal noise.
        inplace: changes nothing here: the input array is never written to.
        max_attempts: draws before the image stays as it is.
    """

    only_pillow = True

    def __init__(
        self, prob: float = 0.5, scale: tuple[float, float] = (0.02, 0.33), ratio: tuple[float, float] = (0.3, 3.3),
        value: Any = 0, inplace: bool = False, max_attempts: int = 10,
    ) -> None:  # fmt: skip
        where = "RandomErasing"
        self._prob = check.probability(where, "prob", prob)
        self._scale, self._ratio = check_shares(where, scale, ratio, erases=True)
        check.instance(where, "value", value, int, list, tuple, str)
        values = value if isinstance(value, (list, tuple)) else [value]
        if value != "random" and (isinstance(value, str) or len(values) not in (1, 3)):
            words = "The value for erasing should be either a single value, or a string 'random', or a sequence of 3 elements"
            raise in_words(SporaxValueError, where, f"{words} for RGB respectively.", value)
        ranged = "value" if values is value else ""
        numbers = [] if value == "random" else values
        self._value = [check.integer(where, "value", number, 0, 255, ranged=ranged) for number in numbers] or None
        _warn_inplace(where, inplace)
        self._max_attempts = check.integer(where, "max_attempts", max_attempts, 1, FLOAT32_MAX, ranged="")

    def _draw(self, value: Array, rng: np.random.Generator) -> tuple[Box, Array] | None:
        check_image("RandomErasing", value, (3,))
        if rng.random() >= self._prob:
            return None
        channels, height, width = value.shape
        for _ in range(self._max_attempts):
            area = rng.uniform(*self._scale) * height * width
            ratio = rng.uniform(*self._ratio)
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


def _warn_inplace(where: str, inplace: object) -> None:
    if check.boolean(where, "inplace", inplace):
        # The user's line: behind this function and the constructor.
        warnings.warn(f"For '{where}', inplace=True changes nothing: the input is never written to.", stacklevel=3)


def _columns(where: str, values: Values) -> tuple[Array, Array]:
    """(images, labels) of a batch, labels (N, classes) or (N, k, classes)."""
    if len(values) != 2:
        raise SporaxRuntimeError(f"For '{where}', two columns, images and labels, are needed, but got {len(values)}.")
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

    Args:
        batch_size: number of images in a batch.
        alpha: both parameters of the distribution, > 0.
        is_single: must be True: to mix with the batch before would make rows depend on the order they are read in.

    Raises:
        SporaxRuntimeError: (when applied) a batch of another size, or labels that are not one-hot.
    """

    draws = True

    only_pillow = True

    def __init__(self, batch_size: int, alpha: float, is_single: bool = True) -> None:
        self._batch_size = check.integer("MixUp", "batch_size", batch_size, 1, FLOAT32_MAX, ranged="")
        self._alpha = check.positive("MixUp", "alpha", alpha)
        if not check.boolean("MixUp", "is_single", is_single):
            raise SporaxNotImplementedError(
                "For 'MixUp', 'is_single' must be True: a batch here does not depend on the one read before it."
            )

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        images, labels = _columns("MixUp", values)
        # The weights are drawn for a fixed number.
        if len(images) != self._batch_size:
            raise self.fault(
                f"a batch must have {self._batch_size} images, but got {len(images)}; use batch(…, drop_remainder=True)."
            )
        share = rng.beta(self._alpha, self._alpha, self._batch_size)
        return tuple(
            # Rolled by one: each image is mixed with the next, and so are labels.
            _along(share, batch) * batch + _along(1 - share, batch) * np.roll(batch, -1, 0)
            for batch in (images, labels)
        )


class MixUpBatch(Transform):
    """Each image mixed with a random one of the batch, all by one weight from a Beta distribution.

    Images keep their dtype, labels become float32.

    Args:
        alpha: both parameters of the distribution, > 0.
    """

    draws = True

    def __init__(self, alpha: float = 1.0) -> None:
        self._alpha = check.positive("MixUpBatch", "alpha", alpha)

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        images, labels = _columns("MixUpBatch", values)
        # float32: weights of double precision would promote the images.
        share = np.float32(rng.beta(self._alpha, self._alpha))
        others = rng.permutation(len(images))
        mixed, targets = (batch * share + batch[others] * (1 - share) for batch in (images, labels))
        return mixed.astype(images.dtype), targets.astype(np.float32)


class CutMixBatch(Transform):
    """Into each image a rectangle of a random other one is put, and labels are mixed by area (Yun et al. 2019).

    Images keep their dtype, labels become float32.

    Args:
        image_batch_format: an ImageBatchFormat.
        alpha: both parameters of the Beta distribution of the share that is kept, > 0.
        prob: probability of changing an image.
    """

    draws = True

    def __init__(self, image_batch_format: ImageBatchFormat, alpha: float = 1.0, prob: float = 1.0) -> None:
        check.instance("CutMixBatch", "image_batch_format", image_batch_format, ImageBatchFormat)
        self._planes_first = image_batch_format is ImageBatchFormat.NCHW
        self._alpha = check.number("CutMixBatch", "alpha", alpha, 0, open_low=True, types=(int, float), ranged="")
        self._prob = check.number("CutMixBatch", "prob", prob, 0, 1, types=(int, float))

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        images, labels = _columns("CutMixBatch", values)
        result, targets = images.copy(), labels.astype(np.float32)
        # Views with channels last; writing to `target` changes `result`.
        source, target = (batch.transpose(0, 2, 3, 1) if self._planes_first else batch for batch in (images, result))
        height, width = source.shape[1:3]
        for i, other in enumerate(rng.permutation(len(images))):
            if rng.random() >= self._prob:
                continue
            # The share of area that is replaced is 1 - lambda; its square root is the side.
            side = np.sqrt(1 - rng.beta(self._alpha, self._alpha))
            tall, wide = int(height * side), int(width * side)
            # Around a random center, so parts may reach beyond the edge.
            row, column = int(rng.integers(height)) - tall // 2, int(rng.integers(width)) - wide // 2
            box = (slice(max(row, 0), max(row + tall, 0)), slice(max(column, 0), max(column + wide, 0)))
            target[i][box] = source[other][box]
            # By the area that is really covered, after clipping at the edge.
            share = np.float32(1 - target[i][box][..., 0].size / (height * width))
            targets[i] = labels[i] * share + labels[other] * (1 - share)
        return result, targets
