"""Sound at another rate, equalization of records and compact discs, filters without delay, shifts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset._checks import check_int, check_number, check_type
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio._filters import LFilter, WaveTransform, filtered
from sporax.mindspore.dataset.audio.enums import ResampleMethod

_KAISER_BETA = 14.769656459379492
"""MindSpore's shape of the Kaiser window."""
_DEEMPHASIS = {44100: (5283, 0.4845, -9.477), 48000: (5356, 0.479, -9.62)}
"""Sample rate -> frequency in Hz, slope and gain in dB of the shelf (SoX, ``deemph``)."""
_RIAA = {
    44100: ((-0.2014898, 0.9233820), (0.7083149, 0.9924091)),
    48000: ((-0.1766069, 0.9321590), (0.7396325, 0.9931330)),
    88200: ((-0.1168735, 0.9648312), (0.8590646, 0.9964002)),
    96000: ((-0.1141486, 0.9676817), (0.8699137, 0.9966946)),
}
"""Sample rate -> zeros and poles (SoX, ``riaa``)."""


class Resample(WaveTransform):
    """A wave at another sample rate, by interpolation with windowed sinc functions.

    Reference: J. O. Smith, Digital Audio Resampling, https://ccrma.stanford.edu/~jos/resample.

    Args:
        orig_freq, new_freq: sample rates, > 0; whole numbers count.
        resample_method: the window.
        lowpass_filter_width: zeros of the sinc function on either side, > 0.
        rolloff: where the filter ends, as a share of the Nyquist frequency, in (0, 1].
        beta: shape of the Kaiser window; None for 14.77.
    """

    def __init__(
        self,
        orig_freq: float = 16000,
        new_freq: float = 16000,
        resample_method: ResampleMethod = ResampleMethod.SINC_INTERPOLATION,
        lowpass_filter_width: int = 6,
        rolloff: float = 0.99,
        beta: float | None = None,
    ) -> None:
        rates = {"orig_freq": orig_freq, "new_freq": new_freq}
        whole = [int(check_number("Resample", name, rate, open_low=True, low=0)) for name, rate in rates.items()]
        check_type("Resample", "resample_method", resample_method, ResampleMethod)
        zeros = check_int("Resample", "lowpass_filter_width", lowpass_filter_width, 1)
        share = check_number("Resample", "rolloff", rolloff, 0, 1.0, open_low=True)
        shape = _KAISER_BETA if beta is None else check_number("Resample", "beta", beta)
        if not min(whole):
            raise SporaxValueError(f"For 'Resample', sample rates must be >= 1, but got {orig_freq} and {new_freq}.")
        self._old, self._new = (rate // math.gcd(*whole) for rate in whole)
        # A row of the kernel for each new sample of a period of both rates.
        cutoff = min(self._old, self._new) * share
        self._width = math.ceil(zeros * self._old / cutoff)
        places = np.arange(-self._width, self._width + self._old) / self._old
        times = np.clip((places - np.arange(self._new)[:, None] / self._new) * cutoff, -zeros, zeros)
        window = np.cos(times * math.pi / zeros / 2) ** 2
        if resample_method is ResampleMethod.KAISER_WINDOW:
            window = np.i0(shape * np.sqrt(1 - (times / zeros) ** 2)) / np.i0(shape)
        self._kernel = np.sinc(times) * window * cutoff / self._old

    def _of_wave(self, wave: Array) -> Array:
        if self._old == self._new:
            return wave
        padded = np.pad(wave, [(0, 0)] * (wave.ndim - 1) + [(self._width, self._width + self._old)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, self._kernel.shape[1], -1)[..., :: self._old, :]
        result: Array = (windows @ self._kernel.T).reshape(*wave.shape[:-1], -1)
        return result[..., : math.ceil(self._new * wave.shape[-1] / self._old)]


class Filtfilt(LFilter):
    """`LFilter` forwards and backwards in time, so that nothing is delayed."""

    def _of_wave(self, wave: Array) -> Array:
        ahead = filtered(wave, self._b, self._a, clamp=False)
        return filtered(ahead[..., ::-1], self._b, self._a, clamp=self._clamp)[..., ::-1]


class DeemphBiquad(WaveTransform):
    """Undoes the emphasis of high frequencies on compact discs, of 44100 or 48000 Hz (ISO 908)."""

    def __init__(self, sample_rate: int) -> None:
        frequency, slope, gain = _rate(self.name, sample_rate, _DEEMPHASIS)
        level, angle = 10 ** (gain / 40), 2 * math.pi * frequency / sample_rate
        wide = 2 * math.sqrt(level) * math.sin(angle) / 2 * math.sqrt((level + 1 / level) * (1 / slope - 1) + 2)
        more, less = (level + 1), (level - 1)
        turned, back = more * math.cos(angle), less * math.cos(angle)
        self._b = [level * (more + back + wide), -2 * level * (less + turned), level * (more + back - wide)]
        self._a = [more - back + wide, 2 * (less - turned), more - back - wide]

    def _of_wave(self, wave: Array) -> Array:
        return filtered(wave, self._b, self._a, clamp=True)


class RiaaBiquad(DeemphBiquad):
    """Undoes the equalization of vinyl records (RIAA), at 44100, 48000, 88200 or 96000 Hz; 1 kHz stays as loud."""

    def __init__(self, sample_rate: int) -> None:
        zeros, poles = _rate(self.name, sample_rate, _RIAA)
        b, self._a = ([1.0, -sum(roots), math.prod(roots)] for roots in (zeros, poles))
        turn = np.exp(-2j * math.pi * 1000 / sample_rate) ** np.arange(3)
        self._b = list(np.array(b) * abs(self._a @ turn) / abs(b @ turn))


class DCShift(WaveTransform):
    """`shift` added to a wave, within [-1, 1].

    Args:
        shift: in [-2, 2].
        limiter_gain: how much of what comes near the limit is left, so that it is not cut off; None for `shift`.
    """

    def __init__(self, shift: float, limiter_gain: float | None = None) -> None:
        self._shift = check_number("DCShift", "shift", shift, -2.0, 2.0)
        self._gain = self._shift if limiter_gain is None else check_number("DCShift", "limiter_gain", limiter_gain)

    def _of_wave(self, wave: Array) -> Array:
        shifted = np.clip(wave + self._shift, -1, 1)
        limit = 1 - (abs(self._shift) - self._gain)
        if self._gain == self._shift or limit == 1:
            return shifted
        sign = math.copysign(1, self._shift)
        # As in MindSpore, `limit` is added for both signs.
        near = (wave - sign * limit) * self._gain / (1 - limit) + limit + self._shift
        return np.where(sign * wave > limit, np.clip(near, -limit, limit), shifted)


def _rate(name: str, sample_rate: object, table: Mapping[int, Any]) -> Any:
    rate = check_int(name, "sample_rate", sample_rate)
    if rate not in table:
        raise SporaxValueError(f"For '{name}', Argument sample_rate should be one of {list(table)}. Got {rate}.")
    return table[rate]
