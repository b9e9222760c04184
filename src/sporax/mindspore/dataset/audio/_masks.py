"""Spectra with stripes taken out (SpecAugment: Park et al., 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._checks import FLOAT32_MAX, check_bool, check_int, check_number
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform
from sporax.mindspore.dataset._rows import Array


class MaskAlongAxis(OneToOne):
    """A stripe of (…, freq, time) becomes one number.

    Args:
        mask_start: where it begins, >= 0.
        mask_width: how wide it is, >= 1.
        mask_value: the number, >= 0.
        axis: 1 for frequencies, 2 for time.

    Raises:
        SporaxRuntimeError: (when applied) the stripe is not within the spectrogram.
    """

    def __init__(self, mask_start: int, mask_width: int, mask_value: float, axis: int) -> None:
        self._start = check_int("MaskAlongAxis", "mask_start", mask_start, 0)
        self._width = check_int("MaskAlongAxis", "mask_width", mask_width, 1)
        self._value = check_number("MaskAlongAxis", "mask_value", mask_value)
        self._dim = check_int("MaskAlongAxis", "axis", axis, 1, 2) - 3

    def _one(self, value: Array) -> Array:
        return masked("MaskAlongAxis", value, self._dim, self._start, self._width, self._value)


def masked(where: str, value: Array, dim: int, start: int, width: int, number: float) -> Array:
    """The array with a stripe of one number."""
    size = _size(where, value, dim)
    if start + width > size:
        raise SporaxRuntimeError(f"For '{where}', the stripe [{start}, {start + width}) must end within {size}.")
    result = value.copy()
    np.moveaxis(result, dim, 0)[start : start + width] = number
    return result


def _size(where: str, value: Array, dim: int) -> int:
    if value.ndim < 2 or value.dtype.kind != "f":
        raise SporaxRuntimeError(f"For '{where}', floats (…, freq, time) are required: {value.dtype} {value.shape}.")
    return value.shape[dim]


class _Masking(RandomTransform):
    """Base of both directions."""

    _dim: int

    def _accept(self, iid_masks: bool, width: int, mask_start: int, mask_value: float) -> None:
        where = type(self).__name__
        self._iid = check_bool(where, "iid_masks", iid_masks)
        self._width = check_int(where, "mask_param", width, 0, FLOAT32_MAX)
        self._start = check_int(where, "mask_start", mask_start, 0, FLOAT32_MAX)
        self._value = check_number(where, "mask_value", mask_value, 0)

    def _draw(self, value: Array, rng: np.random.Generator) -> Any:
        where, size = type(self).__name__, _size(type(self).__name__, value, self._dim)
        if not self._iid:
            return None
        if self._width > size:
            raise SporaxRuntimeError(f"For '{where}', a stripe must be at most {size} wide, but got {self._width}.")
        # Each channel has its own stripe.
        count = int(np.prod(value.shape[:-2]))
        widths = rng.uniform(0, self._width, count)
        starts = (rng.uniform(0, 1, count) * (size - widths)).astype(int)
        return list(zip(starts, starts + widths.astype(int), strict=True))

    def _apply(self, value: Array, choice: Any) -> Array:
        if choice is None:
            where = type(self).__name__
            return masked(where, value, self._dim, self._start, self._width, self._value)
        result = value.copy()
        channels = result.reshape(-1, *value.shape[-2:])
        for channel, (start, stop) in zip(channels, choice, strict=True):
            np.moveaxis(channel, self._dim, 0)[start:stop] = self._value
        return channels.reshape(value.shape)


class FrequencyMasking(_Masking):
    """A stripe of frequencies of (…, freq, time) becomes one number.

    Args:
        iid_masks: stripes of random place and width, one for each channel.
        freq_mask_param: the width, or the largest one; >= 0.
        mask_start: where the stripe begins, without `iid_masks`.
        mask_value: the number, >= 0.
    """

    _dim = -2

    def __init__(
        self, iid_masks: bool = False, freq_mask_param: int = 0, mask_start: int = 0, mask_value: float = 0.0
    ) -> None:
        self._accept(iid_masks, freq_mask_param, mask_start, mask_value)


class TimeMasking(_Masking):
    """A stripe of time of (…, freq, time) becomes one number.

    Args:
        iid_masks: stripes of random place and width, one for each channel.
        time_mask_param: the width, or the largest one; >= 0.
        mask_start: where the stripe begins, without `iid_masks`.
        mask_value: the number, >= 0.
    """

    _dim = -1

    def __init__(
        self, iid_masks: bool = False, time_mask_param: int = 0, mask_start: int = 0, mask_value: float = 0.0
    ) -> None:
        self._accept(iid_masks, time_mask_param, mask_start, mask_value)
