"""Levels and cepstra of sound: decibels, gain, contrast; coefficients of mel and linear spectra."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import FLOAT32_MAX, in_words, type_error
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio._filters import WaveTransform
from sporax.mindspore.dataset.audio._spectra import MelSpectrogram, Spectrogram, create_dct, linear_fbanks
from sporax.mindspore.dataset.audio.enums import FadeShape, GainType, NormMode, ScaleType


class AmplitudeToDB(WaveTransform):
    """Decibels of powers or magnitudes (…, freq, time).

    Args:
        stype: what the numbers are.
        ref_value: the number that is 0 dB, > 0.
        amin: smaller numbers count as this one, > 0.
        top_db: how far below the loudest the result is limited, > 0.
    """

    layout = "<..., freq, time>"

    def __init__(
        self, stype: ScaleType = ScaleType.POWER, ref_value: float = 1.0, amin: float = 1e-10, top_db: float = 80.0
    ) -> None:
        check.instance("AmplitudeToDB", "stype", stype, ScaleType)
        self._factor = 10.0 if stype is ScaleType.POWER else 20.0
        self._amin = check.number("AmplitudeToDB", "amin", amin, 0, open_low=True, types=(int, float))
        reference = check.number("AmplitudeToDB", "ref_value", ref_value, 0, open_low=True, types=(int, float))
        self._offset = self._factor * math.log10(max(self._amin, reference))
        self._top_db = check.number("AmplitudeToDB", "top_db", top_db, 0, open_low=True, types=(int, float))

    def _of_wave(self, wave: Array) -> Array:
        decibels = self._factor * np.log10(np.maximum(wave, self._amin)) - self._offset
        # Each spectrogram of several channels has its own loudest number.
        channels = wave.shape[-3] if wave.ndim > 2 else 1
        groups = decibels.reshape(-1, channels, *wave.shape[-2:])
        floor = groups.max(axis=(1, 2, 3), keepdims=True) - self._top_db
        return np.maximum(groups, floor).reshape(wave.shape)


class DBToAmplitude(WaveTransform):
    """`ref` * (10 ** (x / 10)) ** `power`: powers (`power` 1) or magnitudes (0.5) of decibels."""

    def __init__(self, ref: float, power: float) -> None:
        self._ref = check.number("DBToAmplitude", "ref", ref)
        self._power = check.number("DBToAmplitude", "power", power)

    def _of_wave(self, wave: Array) -> Array:
        return self._ref * np.power(10.0 ** (0.1 * wave), self._power)


class Gain(WaveTransform):
    """Louder by `gain_db` decibels."""

    def __init__(self, gain_db: float = 1.0) -> None:
        self._ratio = 10 ** (check.number("Gain", "gain_db", gain_db) / 20)

    def _of_wave(self, wave: Array) -> Array:
        return wave * self._ratio


class Vol(WaveTransform):
    """A volume, limited to [-1, 1].

    Args:
        gain: a factor of the amplitude (>= 0) or of the power (> 0), or decibels.
        gain_type: which of them.
    """

    def __init__(self, gain: float, gain_type: GainType = GainType.AMPLITUDE) -> None:
        check.instance("Vol", "gain_type", gain_type, GainType)
        low = -FLOAT32_MAX if gain_type is GainType.DB else 0
        number = check.number("Vol", "gain", gain, low, open_low=gain_type is GainType.POWER, types=(int, float))
        decibels = number if gain_type is GainType.DB else 10 * math.log10(number) if gain_type is GainType.POWER else 0
        self._ratio = number if gain_type is GainType.AMPLITUDE else 10 ** (decibels / 20)

    def _of_wave(self, wave: Array) -> Array:
        return np.clip(wave * self._ratio, -1, 1)


class Contrast(WaveTransform):
    """Makes quiet sounds louder, like compression; `enhancement_amount` is in [0, 100]."""

    def __init__(self, enhancement_amount: float = 75.0) -> None:
        self._amount = check.number("Contrast", "enhancement_amount", enhancement_amount, 0, 100) / 750

    def _of_wave(self, wave: Array) -> Array:
        angle = wave * (math.pi / 2)
        return np.sin(angle + self._amount * np.sin(angle * 4))


class Fade(WaveTransform):
    """Comes in `fade_in_len` >= 0 samples and goes in `fade_out_len`, along `fade_shape`.

    Raises:
        SporaxRuntimeError: (when applied) the wave is shorter than one of them.
    """

    def __init__(self, fade_in_len: int = 0, fade_out_len: int = 0, fade_shape: FadeShape = FadeShape.LINEAR) -> None:
        self._in = check.integer("Fade", "fade_in_len", fade_in_len, 0)
        self._out = check.integer("Fade", "fade_out_len", fade_out_len, 0)
        check.instance("Fade", "fade_shape", fade_shape, FadeShape)
        self._shape = fade_shape

    def _of_wave(self, wave: Array) -> Array:
        length = wave.shape[-1]
        if max(self._in, self._out) > length:
            raise self.fault(
                f"'fade_in_len' and 'fade_out_len' must be at most {length}, the length of the wave, but got {self._in} and "
                f"{self._out}."
            )
        rise = np.concatenate([self._curve(np.linspace(0, 1, self._in)), np.ones(length - self._in)])
        fall = np.concatenate([np.ones(length - self._out), self._curve(np.linspace(1, 0, self._out))])
        return wave * rise * fall

    def _curve(self, part: Array) -> Array:
        """The volume where this part of the fade in has passed."""
        curves: dict[FadeShape, Any] = {
            FadeShape.LINEAR: lambda: part,
            FadeShape.EXPONENTIAL: lambda: np.power(2.0, part - 1) * part,
            FadeShape.LOGARITHMIC: lambda: np.log10(0.1 + part) + 1,
            FadeShape.QUARTER_SINE: lambda: np.sin(part * math.pi / 2),
            FadeShape.HALF_SINE: lambda: np.sin(part * math.pi - math.pi / 2) / 2 + 0.5,
        }
        # As in MindSpore, the logarithm reaches 1.04 at the full volume.
        return np.maximum(curves[self._shape](), 0)


class MuLawEncoding(OneToOne):
    """Samples in [-1, 1] as int32 in [0, `quantization_channels`), finer where they are small."""

    def __init__(self, quantization_channels: int = 256) -> None:
        self._mu = check.integer("MuLawEncoding", "quantization_channels", quantization_channels, 1) - 1

    def _one(self, value: Array) -> Array:
        wave = value.astype(np.float64)
        squeezed = np.sign(wave) * np.log1p(self._mu * np.abs(wave)) / np.log1p(self._mu)
        return ((squeezed + 1) / 2 * self._mu + 0.5).astype(np.int32)


class MuLawDecoding(OneToOne):
    """The samples in [-1, 1] that `MuLawEncoding` made whole numbers of."""

    def __init__(self, quantization_channels: int = 256) -> None:
        self._mu = check.integer("MuLawDecoding", "quantization_channels", quantization_channels, 1) - 1

    def _one(self, value: Array) -> Array:
        dtype: Any = np.float64 if value.dtype == np.float64 else np.float32
        scale = dtype(self._mu)
        squeezed = (value.astype(dtype) / scale * 2 - 1.0).astype(dtype)
        return (np.sign(squeezed) * np.expm1(np.abs(squeezed) * np.log1p(scale)) / scale).astype(dtype)


_LOG_OFFSET = 1e-6
"""Added before the logarithm, so that silence has one: MindSpore's number."""


class _Cepstrum(WaveTransform):
    """Base of cepstra: the cosine transform of logarithms or decibels of powers (…, band, frames)."""

    _cosines: Array
    _log: bool

    def _accept(self, dct_type: int, norm: NormMode, log: tuple[str, bool], count: int, bands: int) -> None:
        if check.integer(self.name, "dct_type", dct_type) != 2:
            raise in_words(SporaxValueError, self.name, f"Input dct_type must be 2, but got : {dct_type}.")
        self._log = check.boolean(self.name, *log)
        check.instance(self.name, "norm", norm, NormMode)
        self._cosines = create_dct(count, bands, norm).astype(np.float64)

    def _of_powers(self, powers: Array) -> Array:
        levels = np.log(powers + _LOG_OFFSET) if self._log else AmplitudeToDB()._of_wave(powers)
        return np.swapaxes(np.swapaxes(levels, -1, -2) @ self._cosines, -1, -2)


class MFCC(_Cepstrum):
    """Mel frequency cepstral coefficients: (…, time) -> (…, n_mfcc, frames).

    Args:
        sample_rate: samples per second.
        n_mfcc: how many coefficients; at most as many as there are triangles of the mel scale.
        dct_type: only 2.
        norm: how the cosine transform is normalized.
        log_mels: logarithms of the powers instead of decibels within 80 of the loudest.
        melkwargs: arguments of `MelSpectrogram` but for `sample_rate`.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(
        self, sample_rate: int = 16000, n_mfcc: int = 40, dct_type: int = 2, norm: NormMode = NormMode.ORTHO,
        log_mels: bool = False, melkwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        if melkwargs is not None and not isinstance(melkwargs, dict):
            raise type_error("MFCC", "melkwargs", "a dict", melkwargs)
        options = dict(melkwargs or {})
        count, triangles = check.integer("MFCC", "n_mfcc", n_mfcc, 1), options.get("n_mels", 128)
        self._spectrogram = MelSpectrogram(sample_rate, **options)
        if count > triangles:
            raise SporaxValueError(
                f"For 'MFCC', Input n_mels should be greater than or equal to n_mfcc, but got n_mfcc: {n_mfcc} and n_mels: "
                f"{triangles}."
            )
        self._accept(dct_type, norm, ("log_mels", log_mels), count, triangles)

    def _of_wave(self, wave: Array) -> Array:
        return self._of_powers(self._spectrogram._of_wave(wave))


class LFCC(_Cepstrum):
    """Linear frequency cepstral coefficients: (…, time) -> (…, n_lfcc, frames).

    As `MFCC`, of `n_filter` triangles of equal width from `f_min` to `f_max` (half the sample rate by default); `speckwargs` are
    arguments of `Spectrogram`.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(
        self, sample_rate: int = 16000, n_filter: int = 128, n_lfcc: int = 40, f_min: float = 0.0,
        f_max: float | None = None, dct_type: int = 2, norm: NormMode = NormMode.ORTHO, log_lf: bool = False,
        speckwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        rate = check.integer("LFCC", "sample_rate", sample_rate, 0)
        low = check.number("LFCC", "f_min", f_min, 0, types=(int, float))
        high = rate // 2 if f_max is None else check.number("LFCC", "f_max", f_max, 0, types=(int, float))
        if low > high or (f_max is None and low == high):
            what = "Input sample_rate // 2 should be greater than f_min when f_max is set to None"
            what = what if f_max is None else "f_max should be greater than or equal to f_min"
            raise SporaxValueError(f"For 'LFCC', {what}, but got f_min: {f_min} and {high}.")
        options = {} if speckwargs is None else speckwargs
        check.instance("LFCC", "speckwargs", options, dict)
        count, bands = check.integer("LFCC", "n_lfcc", n_lfcc, 1), check.integer("LFCC", "n_filter", n_filter, 1)
        check.instance("LFCC", "power", options.get("power", 2.0), float)
        size = options.get("n_fft", 400)
        if count > size:
            raise SporaxValueError(
                f"For 'LFCC', n_fft should be greater than or equal to n_lfcc, but got {size} and {count}."
            )
        if (width := options.get("win_length") or 0) > size:
            raise SporaxValueError(
                f"For 'LFCC', win_length must be less than or equal to n_fft, but got {width} and {size}."
            )
        self._accept(dct_type, norm, ("log_lf", log_lf), count, bands)
        self._spectrogram = Spectrogram(**options)
        self._bands = linear_fbanks(size // 2 + 1, low, high, bands, rate).astype(np.float64)

    def _of_wave(self, wave: Array) -> Array:
        powers = np.swapaxes(self._spectrogram._of_wave(wave), -1, -2) @ self._bands
        return self._of_powers(np.swapaxes(powers, -1, -2))
