"""Transforms that take the image for numbers in a row: with a padding channel, or times a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset._checks import check_choice, type_error
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._images import check_image
from sporax.mindspore.dataset.vision._pixels import Normalize


class NormalizePad(OneToOne):
    """`Normalize`, with one more channel of zeros.

    Args:
        mean, std: see `Normalize`.
        dtype: of the result, ``"float32"`` or ``"float16"``.
        is_hwc: whether images are (H, W, C) or (C, H, W).
    """

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], dtype: str = "float32", is_hwc: bool = True
    ) -> None:
        self._normalize = Normalize(mean, std, is_hwc)
        self._channels = len(mean)
        self._dtype = check_choice("NormalizePad", "dtype", dtype, ("float32", "float16"))
        # One channel of zeros behind the colors makes four, which Ascend's convolutions want.
        self._axis = 2 if is_hwc else 0

    def _one(self, value: Array) -> Array:
        check_image("NormalizePad", value, (3,))
        if value.shape[self._axis] != 3:
            raise SporaxRuntimeError(f"For 'NormalizePad', an image must have 3 channels, but got {value.shape}.")
        around = [(0, 0)] * 3
        around[self._axis] = (0, 1)
        return np.pad(self._normalize._one(value), around).astype(self._dtype)


class LinearTransformation(OneToOne):
    """``(image - mean_vector) @ transformation_matrix``, with the image as one vector of length D (whitening, say).

    Args:
        transformation_matrix: (D, D).
        mean_vector: (D,).

    Raises:
        SporaxValueError: sizes do not fit together; for the image when applied.
    """

    only_pillow = True

    def __init__(self, transformation_matrix: Any, mean_vector: Any) -> None:
        for name, value, dims in (("transformation_matrix", transformation_matrix, 2), ("mean_vector", mean_vector, 1)):
            if not isinstance(value, np.ndarray) or value.ndim != dims:
                raise type_error("LinearTransformation", name, f"a numpy array of {dims} dimensions", value)
        size = len(mean_vector)
        if transformation_matrix.shape != (size, size):
            raise SporaxValueError(
                "For 'LinearTransformation', 'transformation_matrix' must be square and as large as 'mean_vector', but got "
                f"{transformation_matrix.shape} and {mean_vector.shape}."
            )
        self._matrix, self._mean = transformation_matrix, mean_vector

    def _one(self, value: Array) -> Array:
        if value.size != len(self._mean):
            raise SporaxValueError(
                f"For 'LinearTransformation', an image must have {len(self._mean)} values, but got the shape {value.shape}."
            )
        return np.asarray((value.reshape(-1) - self._mean) @ self._matrix).reshape(value.shape)
