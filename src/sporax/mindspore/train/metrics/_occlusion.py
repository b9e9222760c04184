"""Occlusion sensitivity: how much a classifier's score falls when a place of its input is covered."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train._checks import check_count
from sporax.mindspore.train.metrics._metric import Array, Metric, rearrange_inputs


class OcclusionSensitivity(Metric):
    """For every place of an image: score of the whole image minus score with that place covered.

    Args:
        pad_val: what places are covered with.
        margin: how far around a place is covered, to each side.
        n_batch: covered images per run of the model.
        b_box: ``[min, max]`` of each dimension (but the batch) to look at; None for everything.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(
        self, pad_val: float = 0.0, margin: int | list[int] = 2, n_batch: int = 128, b_box: list[int] | None = None
    ) -> None:
        name = "OcclusionSensitivity"
        check_type(name, "pad_val", pad_val, "a float", float)
        if b_box is not None and not isinstance(b_box, list):
            raise SporaxTypeError(f"For '{name}', 'b_box' must be a list or None, but got {type(b_box).__name__}.")
        for value in margin if isinstance(margin, list) else [margin]:
            check_count(name, "margin", value, minimum=0)
        self.pad_val = pad_val
        self.margin = margin
        self.n_batch = check_count(name, "n_batch", n_batch, minimum=1)
        self.b_box = b_box
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._sensitivity: Array | None = None

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take a model, one image ``[1, ...]`` and its label.

        Raises:
            SporaxTypeError: the model is no Cell.
            SporaxRuntimeError: more than one image or label.
            SporaxValueError: the box does not fit the image.
        """
        self._check_count(inputs, "model", "image", "label")
        model, image, label = inputs[0], self._convert_data(inputs[1]), np.asarray(inputs[2])
        if not isinstance(model, Cell):
            raise SporaxTypeError(
                f"For 'OcclusionSensitivity.update', the model must be a Cell, but got {type(model).__name__}."
            )
        if image.shape[0] != 1 or label.size != 1:
            raise SporaxRuntimeError(
                "For 'OcclusionSensitivity.update', there must be one image and one label, but got shapes "
                f"{image.shape} and {label.shape}."
            )
        box = self._box(image.shape[1:])
        scores: list[Array] = []
        # All places in row-major order, the order in which `reshape` puts them back.
        positions = itertools.product(*(range(low, high + 1) for low, high in box))
        while group := tuple(itertools.islice(positions, self.n_batch)):
            covered = np.concatenate([self._covered(image, place) for place in group])
            scores.append(model(Tensor(covered)).asnumpy()[:, int(label.item())])
        baseline = model(Tensor(image)).asnumpy()[0, int(label.item())]
        shape = [high - low + 1 for low, high in box]
        self._sensitivity = baseline - np.squeeze(np.concatenate(scores).reshape(shape))

    def _covered(self, image: Array, place: tuple[int, ...]) -> Array:
        margins = self.margin if isinstance(self.margin, list) else [self.margin] * len(place)
        covered = image.copy()
        region = tuple(slice(max(0, at - margin), at + margin) for at, margin in zip(place, margins, strict=True))
        covered[(slice(None), *region)] = self.pad_val
        return covered

    def _box(self, shape: tuple[int, ...]) -> list[tuple[int, int]]:
        if self.b_box is None:
            return [(0, size - 1) for size in shape]
        if len(self.b_box) != 2 * len(shape):
            raise SporaxValueError(
                f"For 'OcclusionSensitivity', 'b_box' must have {2 * len(shape)} numbers, two per dimension, "
                f"but got {len(self.b_box)}."
            )
        box = []
        for low, high, size in zip(self.b_box[::2], self.b_box[1::2], shape, strict=True):
            # A negative end stands for the whole dimension.
            low, high = max(low, 0), size - 1 if high < 0 else high
            if not low <= high < size:
                raise SporaxValueError(
                    f"For 'OcclusionSensitivity', 'b_box' must lie within the image, but [{low}, {high}] does not in {size}."
                )
            box.append((low, high))
        return box

    def eval(self) -> Array:
        """The map, without dimensions of size 1.

        Raises:
            SporaxRuntimeError: no image was seen.
        """
        self._check_seen(self._sensitivity is not None)
        return np.asarray(self._sensitivity)
