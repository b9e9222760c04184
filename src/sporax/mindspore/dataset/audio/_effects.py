"""Effects, whose formulas are SoX's (effects `dcshift`, `overdrive`, `phaser`, `flanger`, `dither`), as in torchaudio; levels and
cepstra of sound: decibels, gain, contrast; coefficients of mel and linear spectra.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of, optional
from sporax.mindspore.dataset._checks import FLOAT32_MAX, INT32_MAX, in_words, range_error, type_error
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio import enums
from sporax.mindspore.dataset.audio._filters import RandomWave, WaveTransform, factor, filtered
from sporax.mindspore.dataset.audio._spectra import MelSpectrogram, Spectrogram, create_dct, linear_fbanks


def nonzero_int(where: str, name: str, value: Any) -> int:
    """An int that is not 0."""
    # A name in MindSpore has a space behind it.
    check.instance(where, name, value, int)
    if not value or not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise range_error(where, name.strip(), f"[{-INT32_MAX - 1}, 0) and (0, {INT32_MAX}]", value)
    return int(value)


class DCShift(WaveTransform):
    """Adds `shift` in [-2, 2], limited to [-1, 1]; peaks are squeezed by `limiter_gain` in place of being clipped, if given."""

    shift: float = argument(check.number, low=-2.0, high=2.0)
    limiter_gain: float | None = argument(optional(check.number), default=None)

    def _of_wave(self, wave: Array) -> Array:
        result = np.clip(wave + self.shift, -1, 1)
        gain = self.limiter_gain or self.shift
        if not self.shift or gain == self.shift:
            return result
        sign, limit = np.sign(self.shift), 1 - (abs(self.shift) - gain)
        # Where the limit is 1, all that is above it becomes it.
        with np.errstate(divide="ignore", invalid="ignore"):
            squeezed = (wave - sign * limit) * gain / (1 - limit) + limit + self.shift
        return np.where(wave * sign > limit, sign * np.minimum(sign * squeezed, limit), result)


class Overdrive(WaveTransform):
    """Distortion by `gain` decibels in [0, 100]; `color` in [0, 100] is the share of even harmonics."""

    gain: float = argument(check.number, default=20.0, low=0, high=100)
    color: float = argument(check.number, default=20.0, low=0, high=100)

    def _of_wave(self, wave: Array) -> Array:
        driven = np.clip(wave * factor(self.gain) + self.color / 200, -1, 1)
        steady = filtered(driven - driven**3 / 3, [1, -1], [1, -0.995], clamp=False)
        return np.clip(wave * 0.5 + steady * 0.75, -1, 1)


class Dither(RandomWave):
    """Rounds to 16 bits after adding noise, which turns steps into a hiss."""

    density_function: enums.DensityFunction = argument(
        of(enums.DensityFunction),
        "TPDF adds a triangle over time, RPDF a random sample of the wave, GPDF a sum of seven.",
        default=enums.DensityFunction.TPDF,
    )
    noise_shaping: bool = argument(check.boolean, "add the error of each sample to the next.", default=False)

    def _of_random(self, wave: Array, rng: np.random.Generator) -> Array:
        noise: Any = np.bartlett(wave.shape[-1] + 1)[:-1]
        if self.density_function is not enums.DensityFunction.TPDF:
            noise = rng.choice(wave.ravel(), 1 if self.density_function is enums.DensityFunction.RPDF else 7).sum()
        level = wave * (2**15 - 2) + noise
        dithered = np.trunc(level + np.copysign(0.5, level)) / 2**15
        if self.noise_shaping:
            dithered[..., 1:] += (dithered - wave)[..., :-1]
        return dithered


def _oscillation(modulation: enums.Modulation, size: int, low: float, high: float, turns: float) -> Array:
    """One period, `size` samples, of a wave between two numbers; it begins after so many turns."""
    place = (np.arange(size) + int(turns * size + 0.5)) % size / size
    sine = modulation is enums.Modulation.SINUSOIDAL
    wave = np.sin(2 * np.pi * place) / 2 + 0.5 if sine else 1 - np.abs((place + 0.25) % 1 * 2 - 1)
    return wave * (high - low) + low


class Phaser(WaveTransform):
    """An echo, at most `delay_ms` in [0, 5] milliseconds late; the delay goes up and down `mod_speed` in [0.1, 2] times a second.

    Factors: `gain_in` in [0, 1] of the wave, `decay` in [0, 0.99] of the echo, `gain_out` in [0, 1e9] of the result, which is
    then limited to [-1, 1]. The delay follows a sine if `sinusoidal`, a triangle otherwise.

    Raises:
        SporaxRuntimeError: (when applied) the delay is no sample long, or the sample rate is not positive.
    """

    sample_rate: int = argument(check.integer)
    gain_in: float = argument(check.number, default=0.4, low=0, high=1)
    gain_out: float = argument(check.number, default=0.74, low=0, high=1e9)
    delay_ms: float = argument(check.number, default=3.0, low=0, high=5.0)
    decay: float = argument(check.number, default=0.4, low=0, high=0.99)
    mod_speed: float = argument(check.number, default=0.5, low=0.1, high=2)
    sinusoidal: bool = argument(check.boolean, default=True)

    def _prepare(self) -> None:
        self._delay = int(self.delay_ms * 0.001 * self.sample_rate + 0.5)
        self._period = int(self.sample_rate / self.mod_speed + 0.5)
        self._modulation = enums.Modulation.SINUSOIDAL if self.sinusoidal else enums.Modulation.TRIANGULAR

    def _of_wave(self, wave: Array) -> Array:
        if self._delay < 1:
            raise self.fault(
                f"'delay_ms' must be at least a sample long, but has {self._delay} at {self.sample_rate} samples/s."
            )
        table = _oscillation(self._modulation, self._period, 1, self._delay, 0.25)
        times = np.arange(wave.shape[-1])
        sources = times + np.trunc(table + 0.5).astype(int)[times % self._period] - 1 - self._delay
        result = np.moveaxis(wave * self.gain_in, -1, 0)
        for time in times[sources >= 0]:
            result[time] += self.decay * result[sources[time]]
        return np.clip(np.moveaxis(result, 0, -1) * self.gain_out, -1, 1)


class Flanger(WaveTransform):
    """Adds the wave (…, channel, time) with a delay that goes up and down `speed` in [0.1, 10] times a second; the dtype stays.

    The delay is `delay` in [0, 30] milliseconds and up to `depth` in [0, 10] more, `phase` percent of a period later from channel
    to channel. Of the delayed wave `width` percent are added, and `regen` percent in [-95, 95] are fed back.
    """

    layout = "<..., channel, time>"

    sample_rate: int = argument(nonzero_int)
    delay: float = argument(check.number, default=0.0, low=0, high=30)
    depth: float = argument(check.number, default=2.0, low=0, high=10)
    regen: float = argument(check.number, default=0.0, low=-95, high=95)
    width: float = argument(check.number, default=71.0, low=0, high=100)
    speed: float = argument(check.number, default=0.5, low=0.1, high=10)
    phase: float = argument(check.number, default=25.0, low=0, high=100)
    modulation: enums.Modulation = argument(of(enums.Modulation), default=enums.Modulation.SINUSOIDAL)
    interpolation: enums.Interpolation = argument(of(enums.Interpolation), default=enums.Interpolation.LINEAR)

    def _prepare(self) -> None:
        rate, shortest, share = self.sample_rate, self.delay / 1000, self.width / 100
        longest, period = shortest + self.depth / 1000, int(rate / self.speed)
        self._feedback, self._phase = self.regen / 100, self.phase / 100
        self._is_linear = self.interpolation is enums.Interpolation.LINEAR
        self._gain, self._echo = 1 / (1 + share), share / (1 + share) * (1 - abs(self._feedback))
        ends = np.floor(shortest * rate + 0.5), int(longest * rate + 0.5)
        self._delays = _oscillation(self.modulation, max(period, 0), *ends, 0.75).astype(np.float32).astype(np.float64)

    def _one(self, value: Array) -> Array:
        return super()._one(value).astype(value.dtype)

    def _of_wave(self, wave: Array) -> Array:
        (channels, length), period = wave.shape[-2:], len(self._delays)
        self.refuse(not period, "the sample rate must be positive and above 'speed'.")
        rows = np.arange(channels)[:, None]
        turns = np.arange(length) + (rows * period * self._phase + 0.5).astype(int)
        delays = self._delays[turns % period]
        steps = delays.astype(int)
        reach = int(self._delays.max()) + 2
        # Before its beginning the line is silent.
        line = np.pad(wave, [(0, 0)] * (wave.ndim - 1) + [(reach, 0)])
        spots, part = np.arange(reach, reach + length) - steps, delays - steps

        def echo(at: Any) -> Array:
            now, one, two = (line[..., rows, spots[:, at] - back] for back in range(3))
            if self._is_linear:
                return now + (one - now) * part[:, at]
            curve = (two - now) / 2 - (one - now)
            return now + (curve * part[:, at] + (one - now) - curve) * part[:, at]

        if self._feedback:
            for time in range(length - 1):
                line[..., reach + time + 1] += self._feedback * echo([time])[..., 0]
        return np.clip(wave * self._gain + echo(slice(None)) * self._echo, -1, 1)


_positive = functools.partial(check.number, low=0, open_low=True, types=(int, float))


class AmplitudeToDB(WaveTransform):
    """Decibels of powers or magnitudes (…, freq, time)."""

    layout = "<..., freq, time>"

    stype: enums.ScaleType = argument(of(enums.ScaleType), "what the numbers are.", default=enums.ScaleType.POWER)
    ref_value: float = argument(_positive, "the number that is 0 dB, > 0.", default=1.0)
    amin: float = argument(_positive, "smaller numbers count as this one, > 0.", default=1e-10)
    top_db: float = argument(_positive, "how far below the loudest the result is limited, > 0.", default=80.0)

    def _prepare(self) -> None:
        self._factor = 10.0 if self.stype is enums.ScaleType.POWER else 20.0
        self._offset = self._factor * math.log10(max(self.amin, self.ref_value))

    def _of_wave(self, wave: Array) -> Array:
        decibels = self._factor * np.log10(np.maximum(wave, self.amin)) - self._offset
        # Each spectrogram of several channels has its own loudest number.
        channels = wave.shape[-3] if wave.ndim > 2 else 1
        groups = decibels.reshape(-1, channels, *wave.shape[-2:])
        floor = groups.max(axis=(1, 2, 3), keepdims=True) - self.top_db
        return np.maximum(groups, floor).reshape(wave.shape)


class DBToAmplitude(WaveTransform):
    """`ref` * (10 ** (x / 10)) ** `power`: powers (`power` 1) or magnitudes (0.5) of decibels."""

    ref: float = argument(check.number)
    power: float = argument(check.number)

    def _of_wave(self, wave: Array) -> Array:
        return self.ref * np.power(10.0 ** (0.1 * wave), self.power)


class Gain(WaveTransform):
    """Louder by `gain_db` decibels."""

    gain_db: float = argument(check.number, default=1.0)

    def _of_wave(self, wave: Array) -> Array:
        return wave * factor(self.gain_db)


class Vol(WaveTransform):
    """A volume, limited to [-1, 1]."""

    gain: float = argument(None, "a factor of the amplitude (>= 0) or of the power (> 0), or decibels.")
    gain_type: enums.GainType = argument(of(enums.GainType), "which of them.", default=enums.GainType.AMPLITUDE)

    def _prepare(self) -> None:
        kind = self.gain_type
        low = -FLOAT32_MAX if kind is enums.GainType.DB else 0
        number = check.number("Vol", "gain", self.gain, low, open_low=kind is enums.GainType.POWER, types=(int, float))
        self._ratio = (
            factor(number) if kind is enums.GainType.DB else number ** (0.5 if kind is enums.GainType.POWER else 1)
        )

    def _of_wave(self, wave: Array) -> Array:
        return np.clip(wave * self._ratio, -1, 1)


class Contrast(WaveTransform):
    """Makes quiet sounds louder, like compression; `enhancement_amount` is in [0, 100]."""

    enhancement_amount: float = argument(check.number, default=75.0, low=0, high=100)

    def _of_wave(self, wave: Array) -> Array:
        angle = wave * (math.pi / 2)
        return np.sin(angle + self.enhancement_amount / 750 * np.sin(angle * 4))


class Fade(WaveTransform):
    """Comes in `fade_in_len` >= 0 samples and goes in `fade_out_len`, along `fade_shape`.

    Raises:
        SporaxRuntimeError: (when applied) the wave is shorter than one of them.
    """

    fade_in_len: int = argument(check.integer, default=0, low=0)
    fade_out_len: int = argument(check.integer, default=0, low=0)
    fade_shape: enums.FadeShape = argument(of(enums.FadeShape), default=enums.FadeShape.LINEAR)

    def _of_wave(self, wave: Array) -> Array:
        length = wave.shape[-1]
        if max(self.fade_in_len, self.fade_out_len) > length:
            raise self.fault(
                f"'fade_in_len' and 'fade_out_len' must be at most {length}, the length of the wave, but got "
                f"{self.fade_in_len} and {self.fade_out_len}."
            )
        rise = np.concatenate([self._curve(np.linspace(0, 1, self.fade_in_len)), np.ones(length - self.fade_in_len)])
        fall = np.concatenate([np.ones(length - self.fade_out_len), self._curve(np.linspace(1, 0, self.fade_out_len))])
        return wave * rise * fall

    def _curve(self, part: Array) -> Array:
        """The volume where this part of the fade in has passed."""
        curves: dict[enums.FadeShape, Any] = {
            enums.FadeShape.LINEAR: lambda: part,
            enums.FadeShape.EXPONENTIAL: lambda: np.power(2.0, part - 1) * part,
            enums.FadeShape.LOGARITHMIC: lambda: np.log10(0.1 + part) + 1,
            enums.FadeShape.QUARTER_SINE: lambda: np.sin(part * math.pi / 2),
            enums.FadeShape.HALF_SINE: lambda: np.sin(part * math.pi - math.pi / 2) / 2 + 0.5,
        }
        # As in MindSpore, the logarithm reaches 1.04 at the full volume.
        return np.maximum(curves[self.fade_shape](), 0)


class MuLawEncoding(OneToOne):
    """Samples in [-1, 1] as int32 in [0, `quantization_channels`), finer where they are small."""

    quantization_channels: int = argument(check.integer, default=256, low=1)

    def _one(self, value: Array) -> Array:
        wave, mu = value.astype(np.float64), self.quantization_channels - 1
        squeezed = np.sign(wave) * np.log1p(mu * np.abs(wave)) / np.log1p(mu)
        return ((squeezed + 1) / 2 * mu + 0.5).astype(np.int32)


class MuLawDecoding(OneToOne):
    """The samples in [-1, 1] that `MuLawEncoding` made whole numbers of."""

    quantization_channels: int = argument(check.integer, default=256, low=1)

    def _one(self, value: Array) -> Array:
        dtype: Any = np.float64 if value.dtype == np.float64 else np.float32
        scale = dtype(self.quantization_channels - 1)
        squeezed = (value.astype(dtype) / scale * 2 - 1.0).astype(dtype)
        return (np.sign(squeezed) * np.expm1(np.abs(squeezed) * np.log1p(scale)) / scale).astype(dtype)


_LOG_OFFSET = 1e-6
"""Added before the logarithm, so that silence has one: MindSpore's number."""


class _Cepstrum(WaveTransform):
    """Base of cepstra: the cosine transform of logarithms or decibels of powers (…, band, frames)."""

    _cosines: Array
    _log: bool

    def _accept(self, dct_type: int, norm: enums.NormMode, log: tuple[str, bool], count: int, bands: int) -> None:
        if check.integer(self.name, "dct_type", dct_type) != 2:
            raise in_words(SporaxValueError, self.name, f"Input dct_type must be 2, but got : {dct_type}.")
        self._log = check.boolean(self.name, *log)
        check.instance(self.name, "norm", norm, enums.NormMode)
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
        self, sample_rate: int = 16000, n_mfcc: int = 40, dct_type: int = 2, norm: enums.NormMode = enums.NormMode.ORTHO,
        log_mels: bool = False, melkwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        if melkwargs is not None and not isinstance(melkwargs, dict):
            raise type_error("MFCC", "melkwargs", "a dict", melkwargs)
        options = dict(melkwargs or {})
        count, triangles = check.integer("MFCC", "n_mfcc", n_mfcc, 1), options.get("n_mels", 128)
        self._spectrogram = MelSpectrogram(sample_rate, **options)
        if count > triangles:
            raise For("MFCC").error(
                f"Input n_mels should be greater than or equal to n_mfcc, but got n_mfcc: {n_mfcc} and n_mels: {triangles}"
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
        f_max: float | None = None, dct_type: int = 2, norm: enums.NormMode = enums.NormMode.ORTHO, log_lf: bool = False,
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
        For("LFCC").refuse(count > size, "n_fft should be greater than or equal to n_lfcc", size, count)
        if (width := options.get("win_length") or 0) > size:
            raise For("LFCC").error(f"win_length must be less than or equal to n_fft, but got {width} and {size}")
        self._accept(dct_type, norm, ("log_lf", log_lf), count, bands)
        self._spectrogram = Spectrogram(**options)
        self._bands = linear_fbanks(size // 2 + 1, low, high, bands, rate).astype(np.float64)

    def _of_wave(self, wave: Array) -> Array:
        powers = np.swapaxes(self._spectrogram._of_wave(wave), -1, -2) @ self._bands
        return self._of_powers(np.swapaxes(powers, -1, -2))
