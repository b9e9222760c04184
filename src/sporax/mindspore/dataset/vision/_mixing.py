"""Transforms that mix the images of a batch and their labels: for `map` after `batch`, over (images, labels)."""

from __future__ import annotations

import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError
from sporax.mindspore.dataset._checks import (
    INT32_MAX,
    check_bool,
    check_int,
    check_number,
    check_probability,
    check_type,
)
from sporax.mindspore.dataset._operations import Transform, Values
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision.enums import ImageBatchFormat


def _columns(where: str, values: Values) -> tuple[Array, Array]:
    """(images, labels) of a batch, labels (N, classes) or (N, k, classes)."""
    if len(values) != 2:
        raise SporaxRuntimeError(f"For '{where}', two columns, images and labels, are needed, but got {len(values)}.")
    images, labels = values
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

    only_pillow = True

    @property
    def draws(self) -> bool:
        return True

    def __init__(self, batch_size: int, alpha: float, is_single: bool = True) -> None:
        self._batch_size = check_int("MixUp", "batch_size", batch_size, 1, INT32_MAX)
        self._alpha = check_number("MixUp", "alpha", alpha, 0, open_low=True)
        if not check_bool("MixUp", "is_single", is_single):
            raise SporaxNotImplementedError(
                "For 'MixUp', 'is_single' must be True: a batch here does not depend on the one read before it."
            )

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        images, labels = _columns("MixUp", values)
        # The weights are drawn for a fixed number.
        if len(images) != self._batch_size:
            raise SporaxRuntimeError(
                f"For 'MixUp', a batch must have {self._batch_size} images, but got {len(images)}; use "
                "batch(…, drop_remainder=True)."
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

    @property
    def draws(self) -> bool:
        return True

    def __init__(self, alpha: float = 1.0) -> None:
        self._alpha = check_number("MixUpBatch", "alpha", alpha, 0, open_low=True)

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

    @property
    def draws(self) -> bool:
        return True

    def __init__(self, image_batch_format: ImageBatchFormat, alpha: float = 1.0, prob: float = 1.0) -> None:
        check_type("CutMixBatch", "image_batch_format", image_batch_format, ImageBatchFormat)
        self._planes_first = image_batch_format is ImageBatchFormat.NCHW
        self._alpha = check_number("CutMixBatch", "alpha", alpha, 0, open_low=True)
        self._prob = check_probability("CutMixBatch", "prob", prob)

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
