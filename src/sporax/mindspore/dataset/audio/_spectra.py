"""Spectra: short-time Fourier transforms, the mel scale, cosines of it, and what follows of them; stripes taken out of them
(SpecAugment: Park et al., 2019).

The mel scale is HTK's (2595 log10(1 + f / 700)) or Slaney's (linear below 1000 Hz, logarithmic above; Auditory Toolbox, 1998).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import FLOAT32_MAX, in_words, refuse
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform, Transform, Values
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio._filters import WaveTransform
from sporax.mindspore.dataset.audio.enums import BorderType, MelType, NormMode, NormType, WindowType


def melscale_fbanks(
    n_freqs: int, f_min: float, f_max: float, n_mels: int, sample_rate: int, norm: NormType = NormType.NONE,
    mel_type: MelType = MelType.HTK,
) -> Array:  # fmt: skip
    """Triangles of the mel scale over frequencies: (n_freqs, n_mels) float32.

    Args:
        n_freqs: number of frequencies, from 0 to half the sample rate.
        f_min: lowest frequency of the first triangle, in hertz.
        f_max: highest frequency of the last one.
        n_mels: number of triangles.
        sample_rate: samples per second.
        norm: SLANEY gives triangles of equal area.
        mel_type: the formula of the scale.
    """
    where = "melscale_fbanks"
    _check_banks(where, n_freqs, f_min, f_max, "n_mels", n_mels, sample_rate)
    check.instance(where, "norm", norm, NormType)
    check.instance(where, "mel_type", mel_type, MelType)
    return _mel_triangles(n_freqs, f_min, f_max, n_mels, sample_rate, norm, mel_type).astype(np.float32)


def _mel_triangles(
    n_freqs: int, f_min: float, f_max: float, n_mels: int, sample_rate: int, norm: NormType, mel_type: MelType
) -> Array:
    frequencies = np.linspace(0, sample_rate // 2, n_freqs)
    mels = np.linspace(_to_mel(f_min, mel_type), _to_mel(f_max, mel_type), n_mels + 2)
    corners = _to_hertz(mels, mel_type)
    triangles = _triangles(frequencies, corners)
    if norm is NormType.SLANEY:
        triangles *= 2.0 / (corners[2:] - corners[:-2])
    return triangles


def linear_fbanks(n_freqs: int, f_min: float, f_max: float, n_filter: int, sample_rate: int) -> Array:
    """Triangles of equal width over frequencies: (n_freqs, n_filter) float32; arguments as in `melscale_fbanks`."""
    _check_banks("linear_fbanks", n_freqs, f_min, f_max, "n_filter", n_filter, sample_rate)
    frequencies = np.linspace(0, sample_rate // 2, n_freqs)
    return _triangles(frequencies, np.linspace(f_min, f_max, n_filter + 2)).astype(np.float32)


def _check_banks(where: str, n_freqs: int, f_min: float, f_max: float, name: str, count: int, sample_rate: int) -> None:
    for what, number in (("n_freqs", n_freqs), (name, count), ("sample_rate", sample_rate)):
        check.integer(where, what, number, 1)
    if check.number(where, "f_max", f_max, 0, open_low=True) <= check.number(where, "f_min", f_min, 0):
        raise SporaxValueError(f"For '{where}', f_max must be greater than f_min, but got {f_max} and {f_min}.")


def create_dct(n_mfcc: int, n_mels: int, norm: NormMode = NormMode.NONE) -> Array:
    """The matrix (n_mels, n_mfcc) float32 of the cosine transform of type II."""
    where = "create_dct"
    for name, value, kind in (("n_mfcc", n_mfcc, int), ("n_mels", n_mels, int), ("norm", norm, NormMode)):
        if not isinstance(value, kind):
            words = f"{name} with value {value} is not of type {kind}, but got {type(value)}."
            raise in_words(SporaxTypeError, where, words)
    for name, number in (("n_mfcc", n_mfcc), ("n_mels", n_mels)):
        refuse(number <= 0, SporaxValueError, where, f"{name} must be greater than 0, but got {number}.")
    matrix = np.cos(math.pi / n_mels * np.outer(np.arange(n_mels) + 0.5, np.arange(n_mfcc)))
    if norm is NormMode.ORTHO:
        matrix[:, 0] /= math.sqrt(2)
        matrix *= math.sqrt(2 / n_mels)
    else:
        matrix *= 2
    return matrix.astype(np.float32)


def _triangles(frequencies: Array, corners: Array) -> Array:
    widths = np.diff(corners)
    slopes = corners[None, :] - frequencies[:, None]
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    return np.maximum(0.0, np.minimum(rising, falling))


_LINEAR_MEL, _KNEE_HERTZ, _LOG_STEP = 200 / 3, 1000.0, math.log(6.4) / 27


def _to_mel(frequency: float, kind: MelType) -> float:
    if kind is MelType.HTK:
        return 2595 * math.log10(1 + frequency / 700)
    if frequency < _KNEE_HERTZ:
        return frequency / _LINEAR_MEL
    return _KNEE_HERTZ / _LINEAR_MEL + math.log(frequency / _KNEE_HERTZ) / _LOG_STEP


def _to_hertz(mels: Array, kind: MelType) -> Array:
    if kind is MelType.HTK:
        return 700 * (10.0 ** (mels / 2595) - 1)
    knee = _KNEE_HERTZ / _LINEAR_MEL
    above: Array = _KNEE_HERTZ * np.exp(_LOG_STEP * (mels - knee))
    return np.where(mels >= knee, above, mels * _LINEAR_MEL)


_WINDOWS: dict[WindowType, Any] = {
    WindowType.BARTLETT: np.bartlett,
    WindowType.BLACKMAN: np.blackman,
    WindowType.HAMMING: np.hamming,
    WindowType.HANN: np.hanning,
    WindowType.KAISER: lambda size: np.kaiser(size, 12),
}


def _periodic(window: WindowType, width: int) -> Array:
    """The window without the last of n + 1 numbers, which is equal to the first."""
    return _WINDOWS[window](width + 1)[:-1] if width > 1 else np.ones(1)


class Spectrogram(WaveTransform):
    """Powers of frequencies over time: (…, time) -> (…, n_fft // 2 + 1, frames).

    Args:
        n_fft: samples of a Fourier transform.
        win_length: samples of the window; `n_fft` by default.
        hop_length: samples from frame to frame; half the window by default.
        pad: zeros before and behind the wave.
        window: its form.
        power: exponent of the magnitudes, >= 0; 0 gives the complex numbers as (…, 2).
        normalized: divide by the norm of the window.
        center: frames lie around their places, and the wave is padded by half a frame.
        pad_mode: what that padding holds.
        onesided: without the frequencies above half the sample rate.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: (when applied) the wave is shorter than a frame.
    """

    def __init__(
        self, n_fft: int = 400, win_length: int | None = None, hop_length: int | None = None, pad: int = 0,
        window: WindowType = WindowType.HANN, power: float = 2.0, normalized: bool = False, center: bool = True,
        pad_mode: BorderType = BorderType.REFLECT, onesided: bool = True,
    ) -> None:  # fmt: skip
        where = type(self).__name__
        self._size = check.integer(where, "n_fft", n_fft, 1)
        width = self._size if win_length is None else check.integer(where, "win_length", win_length, 1)
        self.hop = width // 2 if hop_length is None else check.integer(where, "hop_length", hop_length, 1)
        if width > self._size:
            raise For(where).error(
                f"Input win_length should be no more than n_fft, but got win_length: {win_length} and n_fft: {n_fft}"
            )
        self._pad = check.integer(where, "pad", pad, 0)
        check.instance(where, "window", window, WindowType)
        check.instance(where, "pad_mode", pad_mode, BorderType)
        before = (self._size - width) // 2
        self.window = np.pad(_periodic(window, width), (before, self._size - width - before))
        self._power = check.number(where, "power", power, 0, types=(int, float))
        self._normalized = check.boolean(where, "normalized", normalized)
        self.center = check.boolean(where, "center", center)
        self._pad_mode: Any = pad_mode.value
        self._onesided = check.boolean(where, "onesided", onesided)

    def _of_wave(self, wave: Array) -> Array:
        spectrum = self.transform(wave)
        if not self._power:
            return np.stack([spectrum.real, spectrum.imag], -1)
        return np.abs(spectrum) ** self._power

    def transform(self, wave: Array) -> Array:
        """Complex numbers (…, freq, frames)."""
        sides = [(0, 0)] * (wave.ndim - 1)
        wave = np.pad(wave, [*sides, (self._pad, self._pad)])
        if self.center:
            half = self._size // 2
            if self._pad_mode == "reflect" and wave.shape[-1] <= half:
                raise self.fault(f"the wave must be longer than n_fft / 2 = {half}, but has {wave.shape[-1]} samples.")
            wave = np.pad(wave, [*sides, (half, half)], mode=self._pad_mode)
        if wave.shape[-1] < self._size:
            raise self.fault(
                f"{self.name}: n_fft should be more than 0 and less than {wave.shape[-1]}, but got n_fft: {self._size}."
            )
        frames = np.lib.stride_tricks.sliding_window_view(wave, self._size, -1)[..., :: self.hop, :] * self.window
        spectrum = np.fft.rfft(frames) if self._onesided else np.fft.fft(frames)
        if self._normalized:
            spectrum = spectrum / math.sqrt((self.window**2).sum())
        return np.swapaxes(spectrum, -1, -2)


class MelScale(WaveTransform):
    """Powers of frequencies (…, n_stft, time) as powers of the mel scale (…, n_mels, time). Arguments: see `melscale_fbanks`.

    `n_stft` is the number of frequencies; the highest is half the sample rate without `f_max`.
    """

    layout = "<..., freq, time>"

    def __init__(
        self, n_mels: int = 128, sample_rate: int = 16000, f_min: float = 0.0, f_max: float | None = None,
        n_stft: int = 201, norm: NormType = NormType.NONE, mel_type: MelType = MelType.HTK,
    ) -> None:  # fmt: skip
        where = "MelScale"
        low = check.number(where, "f_min", f_min, types=(int, float))
        rate = check.integer(where, "sample_rate", sample_rate, 1)
        high = rate // 2 if f_max is None else f_max
        if check.number(where, "f_max", high, 0, open_low=f_max is not None, types=(int, float)) <= low:
            what = "sample_rate // 2 should be greater than f_min when f_max is set to None"
            what = what if f_max is None else "f_max should be greater than f_min"
            raise SporaxValueError(f"For '{where}', {where}: {what}: {high} and {f_min}.")
        stft, count = check.integer(where, "n_stft", n_stft, 1), check.integer(where, "n_mels", n_mels, 1)
        check.instance(where, "norm", norm, NormType)
        check.instance(where, "mel_type", mel_type, MelType)
        self.triangles = (
            _mel_triangles(stft, low, high, count, rate, norm, mel_type).astype(np.float32).astype(np.float64)
        )

    def _of_wave(self, wave: Array) -> Array:
        if wave.shape[-2] != len(self.triangles):
            raise self.fault(f"there must be n_stft = {len(self.triangles)} frequencies, but got {wave.shape[-2]}.")
        return np.swapaxes(np.swapaxes(wave, -1, -2) @ self.triangles, -1, -2)


class MelSpectrogram(WaveTransform):
    """`Spectrogram`, then `MelScale`: (…, time) -> (…, n_mels, frames). Arguments: see these."""

    def __init__(
        self, sample_rate: int = 16000, n_fft: int = 400, win_length: int | None = None,
        hop_length: int | None = None, f_min: float = 0.0, f_max: float | None = None, pad: int = 0,
        n_mels: int = 128, window: WindowType = WindowType.HANN, power: float = 2.0, normalized: bool = False,
        center: bool = True, pad_mode: BorderType = BorderType.REFLECT, onesided: bool = True,
        norm: NormType = NormType.NONE, mel_scale: MelType = MelType.HTK,
    ) -> None:  # fmt: skip
        where = "MelSpectrogram"
        check.number(where, "power", power, 0, open_low=True)
        check.integer(where, "sample_rate", sample_rate, 0)
        check.number(where, "f_min", f_min, types=(float,))
        if f_max is not None and check.number(where, "f_max", f_max, 0, types=(int, float)) < f_min:
            words = f"f_max should be greater than or equal to f_min, but got f_min: {f_min} and f_max: {f_max}."
            raise in_words(SporaxValueError, where, words)
        if f_max is None and f_min >= sample_rate // 2:
            words = "sample_rate // 2 should be greater than f_min when f_max is set to None"
            raise in_words(SporaxValueError, where, f"{where}: {words}, but got f_min: {f_min}.")
        shape = (n_fft, win_length, hop_length, pad, window, power, normalized, center, pad_mode, onesided)
        self._spectrogram = Spectrogram(*shape)
        count = n_fft // 2 + 1 if onesided else n_fft
        self._mel = MelScale(n_mels, sample_rate, f_min, f_max, count, norm, mel_scale)

    def _of_wave(self, wave: Array) -> Array:
        return self._mel._of_wave(self._spectrogram._of_wave(wave))


class SpectralCentroid(WaveTransform):
    """The mean frequency of each frame, weighted with magnitudes: (…, time) -> (…, 1, frames). Arguments: see Spectrogram."""

    def __init__(
        self, sample_rate: int, n_fft: int = 400, win_length: int | None = None, hop_length: int | None = None,
        pad: int = 0, window: WindowType = WindowType.HANN,
    ) -> None:  # fmt: skip
        rate = check.integer("SpectralCentroid", "sample_rate", sample_rate, 0)
        self._spectrogram = Spectrogram(n_fft, win_length, hop_length, pad, window, 1.0)
        self._frequencies = np.linspace(0, rate // 2, n_fft // 2 + 1)[:, None]

    def _of_wave(self, wave: Array) -> Array:
        magnitudes = self._spectrogram._of_wave(wave)
        return (self._frequencies * magnitudes).sum(-2, keepdims=True) / magnitudes.sum(-2, keepdims=True)


class ComplexNorm(WaveTransform):
    """Magnitudes, to the exponent `power` >= 0, of complex numbers (…, 2)."""

    layout = "<..., complex=2>"

    def __init__(self, power: float = 1.0) -> None:
        self._power = check.number("ComplexNorm", "power", power, 0, types=(int, float))

    def _of_wave(self, wave: Array) -> Array:
        return np.hypot(wave[..., 0], wave[..., 1]) ** self._power


class Angle(WaveTransform):
    """Angles of complex numbers (…, 2), in radians."""

    layout = "<..., complex=2>"

    def _of_wave(self, wave: Array) -> Array:
        return np.arctan2(wave[..., 1], wave[..., 0])


class Magphase(Transform):
    """Magnitudes, to the exponent `power` >= 0, and angles of complex numbers (…, 2): two results."""

    def __init__(self, power: float = 1.0) -> None:
        check.number("Magphase", "power", power, 0, types=(int, float))
        self._norm, self._angle = ComplexNorm(power), Angle()

    def on_row(self, values: Values, rng: Draws) -> Values:
        value = self.only(values)
        return self._norm.on_row((value,), rng) + self._angle.on_row((value,), rng)


class ComputeDeltas(WaveTransform):
    """How fast spectra (…, freq, time) change: the slope of a line through `win_length` >= 3 frames; `pad_mode` adds some."""

    layout = "<..., freq, time>"

    def __init__(self, win_length: int = 5, pad_mode: BorderType = BorderType.EDGE) -> None:
        self._half = (check.integer("ComputeDeltas", "win_length", win_length, 3) - 1) // 2
        check.instance("ComputeDeltas", "pad_mode", pad_mode, BorderType)
        self._mode: Any = pad_mode.value

    def _of_wave(self, wave: Array) -> Array:
        offsets = np.arange(-self._half, self._half + 1)
        wide = np.pad(wave, [(0, 0)] * (wave.ndim - 1) + [(self._half, self._half)], self._mode)
        frames = np.lib.stride_tricks.sliding_window_view(wide, len(offsets), -1)
        return frames @ offsets / (offsets**2).sum()


class MaskAlongAxis(OneToOne):
    """A stripe of (…, freq, time), `mask_width` >= 1 wide from `mask_start` >= 0 on, becomes `mask_value`.

    `axis` is 1 for a stripe of frequencies, 2 for one of time.

    Raises:
        SporaxRuntimeError: (when applied) the stripe is not within the spectrogram.
    """

    def __init__(self, mask_start: int, mask_width: int, mask_value: float, axis: int) -> None:
        self._start = check.integer("MaskAlongAxis", "mask_start", mask_start, 0)
        self._width = check.integer("MaskAlongAxis", "mask_width", mask_width, 1)
        self._value = check.number("MaskAlongAxis", "mask_value", mask_value, types=(int, float))
        self._dim = check.integer("MaskAlongAxis", "axis", axis, 1, 2) - 3

    def _one(self, value: Array) -> Array:
        return masked("MaskAlongAxis", value, self._dim, self._start, self._width, self._value)


def masked(where: str, value: Array, dim: int, start: int, width: int, number: float) -> Array:
    """The array with a stripe of one number."""
    size = _size(where, value, dim)
    if start + width > size:
        kind = "time" if dim == -1 else "frequency"
        what = "'mask_start' should be less than the length of the masked dimension"
        if width > size:
            what = f"'{kind}_mask_param' should be less than or equal to the length of {kind} dimension"
        raise For(where).state_error(f"{where}: {what}: the stripe is {width} wide from {start} on, of {size}")
    result = value.copy()
    np.moveaxis(result, dim, 0)[start : start + width] = number
    return result


def _size(where: str, value: Array, dim: int) -> int:
    if value.ndim < 2 or value.dtype.kind != "f":
        raise For(where).state_error(f"floats (…, freq, time) are required, but got {value.dtype} {value.shape}")
    return value.shape[dim]


class _Masking(RandomTransform):
    """Base of both directions."""

    takes = 2
    _dim: int

    def _accept(self, iid_masks: bool, width: int, mask_start: int, mask_value: float) -> None:
        where = type(self).__name__
        self._iid = check.boolean(where, "iid_masks", iid_masks)
        self._width = check.integer(where, "mask_param", width, 0, FLOAT32_MAX)
        self._start = check.integer(where, "mask_start", mask_start, 0, FLOAT32_MAX)
        self._value = check.number(where, "mask_value", mask_value, 0, types=(int, float))

    def _draw(self, value: Array, rng: Draws) -> tuple[int, int]:
        where, size = type(self).__name__, _size(type(self).__name__, value, self._dim)
        if not self._iid:
            return self._start, self._width
        For(where).refuse_state(self._width > size, f"a stripe must be at most {size} wide", self._width)
        width = rng.integer(0, self._width)
        return rng.integer(0, size - width), width

    def _apply(self, value: Array, choice: tuple[int, int]) -> Array:
        return masked(type(self).__name__, value, self._dim, *choice, self._value)


class FrequencyMasking(_Masking):
    """A stripe of frequencies of (…, freq, time), at most `freq_mask_param` >= 0 wide, becomes `mask_value` >= 0.

    With `iid_masks` its place and width are random, the same for all channels; otherwise it begins at `mask_start`.
    """

    _dim = -2

    def __init__(
        self, iid_masks: bool = False, freq_mask_param: int = 0, mask_start: int = 0, mask_value: float = 0.0
    ) -> None:
        self._accept(iid_masks, freq_mask_param, mask_start, mask_value)


class TimeMasking(_Masking):
    """A stripe of time of (…, freq, time), at most `time_mask_param` >= 0 wide, becomes `mask_value` >= 0.

    With `iid_masks` its place and width are random, the same for all channels; otherwise it begins at `mask_start`.
    """

    _dim = -1

    def __init__(
        self, iid_masks: bool = False, time_mask_param: int = 0, mask_start: int = 0, mask_value: float = 0.0
    ) -> None:
        self._accept(iid_masks, time_mask_param, mask_start, mask_value)


class MaskAlongAxisIID(_Masking):
    """A stripe of (…, freq, time) at a random place, of a random width up to `mask_param` >= 0, becomes `mask_value`.

    `axis` is 1 for a stripe of frequencies, 2 for one of time.
    """

    def __init__(self, mask_param: int, mask_value: float, axis: int) -> None:
        self._accept(True, check.integer("MaskAlongAxisIID", "mask_param", mask_param, 0), 0, 0)
        self._value = check.number("MaskAlongAxisIID", "mask_value", mask_value, types=(int, float))
        self._dim = check.integer("MaskAlongAxisIID", "axis", axis, 1, 2) - 3
