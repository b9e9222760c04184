"""Filters of two poles and two zeros, and general ones.

Formulas: R. Bristow-Johnson, Cookbook formulae for audio EQ biquad filter coefficients; those that are not in it are SoX's
(effects `band`, `deemph`, `riaa`), of which MindSpore's and torchaudio's are copies.

Base of the transforms of sound: arrays (…, time) of samples, float32 unless they are float64.
"""

# ruff: noqa: N803  # `Q` is the name of the argument in MindSpore
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import FLOAT32_MAX, INT32_MAX, in_words, range_error
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio.enums import ResampleMethod


def factor(decibels: float) -> float:
    """What multiplies an amplitude, 10 ** (`decibels` / 20); infinite, as in MindSpore, where no float is so large."""
    with np.errstate(over="ignore"):
        return float(np.power(10.0, decibels / 20))


class WaveTransform(OneToOne):
    """A transform of one wave, or of what became of one."""

    layout = "<..., time>"
    """The dimensions of what it takes, in MindSpore's words."""

    refusal = "Input should be NumPy audio, got {}."
    only_floats = False
    """Whether it is for float32 and float64 alone."""

    def _one(self, value: Array) -> Array:
        return self._applied(value, self._of_wave)

    def _applied(self, value: Array, function: Callable[[Array], Array]) -> Array:
        """What a function makes of the samples, of which the operator can be applied to."""
        kinds = ["float", "double"] if self.only_floats else ["int", "float", "double"]
        if value.dtype.kind not in ("f" if self.only_floats else "iuf"):
            raise self._mismatch("data type", f"in type of [{', '.join(kinds)}], but got type {value.dtype}")
        is_complex = self.layout.endswith("complex=2>")
        if value.ndim < self.layout.count(",") or (is_complex and value.shape[-1:] != (2,)):
            raise self._mismatch("shape", f"in shape of {self.layout}, but got tensor with shape {value.shape}")
        dtype = np.dtype(np.float64 if value.dtype == np.float64 else np.float32)
        return np.asarray(function(value.astype(np.float64))).astype(dtype)

    def _mismatch(self, what: str, expected: str) -> SporaxRuntimeError:
        return SporaxRuntimeError(
            f"For '{self.name}', {self.name}: the {what} of input tensor does not match the requirement of operator. Expecting "
            f"tensor {expected}."
        )

    def _of_wave(self, wave: Array) -> Array:
        """The result for float64 samples; it is rounded afterwards."""
        raise NotImplementedError


class RandomWave(RandomTransform, WaveTransform):
    """A random transform of one wave."""

    def _draw(self, value: Array, rng: Draws) -> Any:
        return rng.generator

    def _apply(self, value: Array, choice: Any) -> Array:
        return self._applied(value, lambda wave: self._of_random(wave, choice))

    def _of_random(self, wave: Array, rng: np.random.Generator) -> Array:
        """The result for float64 samples."""
        raise NotImplementedError


class LFilter(WaveTransform):
    """The difference equation a0 y[t] = b0 x[t] + b1 x[t-1] + … - a1 y[t-1] - ….

    Args:
        a_coeffs: a0, a1, …, lower delays first; a0 is not 0.
        b_coeffs: b0, b1, …, as many.
        clamp: limit the result to [-1, 1].

    Raises:
        SporaxTypeError, SporaxValueError: not two lists of numbers, equally long.
    """

    only_floats = True

    def __init__(self, a_coeffs: Sequence[float], b_coeffs: Sequence[float], clamp: bool = True) -> None:
        self._a = _coefficients(self.name, "a_coeffs", a_coeffs)
        self._b = _coefficients(self.name, "b_coeffs", b_coeffs)
        self._clamp = check.boolean(self.name, "clamp", clamp)
        if len(self._a) != len(self._b):
            words = "The size of a_coeffs should be the same as that of b_coeffs."
            raise in_words(SporaxValueError, self.name, words, (a_coeffs, b_coeffs))
        if not self._a or not self._a[0]:
            raise For(self.name).error("'a_coeffs' must begin with another number than 0", a_coeffs)

    def _of_wave(self, wave: Array) -> Array:
        return filtered(wave, self._b, self._a, clamp=self._clamp)


def filtered(wave: Array, b: Sequence[float], a: Sequence[float], *, clamp: bool) -> Array:
    """A wave through a filter."""
    import scipy.signal  # slow to import, and few pipelines need it

    result: Array = scipy.signal.lfilter(b, a, wave)
    return np.clip(result, -1, 1) if clamp else result


def _coefficients(where: str, name: str, value: Any) -> list[float]:
    check.instance(where, name, value, list, tuple)
    return [check.number(where, f"{name}[{i}]", item) for i, item in enumerate(value)]


class _Biquad(WaveTransform):
    """Base of filters with two poles; `_b` and `_a` have their coefficients."""

    only_floats = True

    _b: tuple[float, float, float]
    _a: tuple[float, float, float]

    def _of_wave(self, wave: Array) -> Array:
        return filtered(wave, self._b, self._a, clamp=True)

    def _angle(self, sample_rate: Any, name: str, frequency: Any, quality: Any) -> tuple[float, float]:
        """The angle of a frequency, and alpha = sin / (2 Q), of checked arguments; `_a` becomes that of most filters."""
        check.instance(self.name, "sample_rate", sample_rate, int)
        rate = int(sample_rate)
        if not rate or not -INT32_MAX - 1 <= rate <= INT32_MAX:
            raise range_error(self.name, "sample_rate", f"[{-INT32_MAX - 1}, 0) and (0, {INT32_MAX}]", rate)
        place = check.number(self.name, name, frequency)
        width = check.number(self.name, "Q", quality, 0, 1, open_low=True)
        angle = 2 * math.pi * place / rate
        alpha = math.sin(angle) / (2 * width)
        self._a = (1 + alpha, -2 * math.cos(angle), 1 - alpha)
        return angle, alpha


class Biquad(_Biquad):
    """A filter of given coefficients: b0, b1, b2 of the samples, a0, a1, a2 of the results; a0 is not 0."""

    def __init__(self, b0: float, b1: float, b2: float, a0: float, a1: float, a2: float) -> None:
        values = {"b0": b0, "b1": b1, "b2": b2, "a0": a0, "a1": a1, "a2": a2}
        numbers = [check.number("Biquad", name, value) for name, value in values.items() if name != "a0"]
        check.instance("Biquad", "a0", a0, float, int)
        if not a0 or abs(a0) > FLOAT32_MAX:
            raise range_error("Biquad", "a0", f"[-{FLOAT32_MAX}, 0) and (0, {FLOAT32_MAX}]", a0)
        self._b = (numbers[0], numbers[1], numbers[2])
        self._a = (float(a0), numbers[3], numbers[4])


class AllpassBiquad(_Biquad):
    """Changes phases only; `central_freq` in hertz is where they turn by half, over a width that `Q` in (0, 1] says."""

    def __init__(self, sample_rate: int, central_freq: float, Q: float = 0.707) -> None:
        angle, alpha = self._angle(sample_rate, "central_freq", central_freq, Q)
        self._b = (1 - alpha, -2 * math.cos(angle), 1 + alpha)


class BandrejectBiquad(_Biquad):
    """Takes frequencies around `central_freq` (hertz) away, over a width that `Q` in (0, 1] says."""

    def __init__(self, sample_rate: int, central_freq: float, Q: float = 0.707) -> None:
        angle, _ = self._angle(sample_rate, "central_freq", central_freq, Q)
        self._b = (1, -2 * math.cos(angle), 1)


class BandpassBiquad(_Biquad):
    """Leaves frequencies around `central_freq` (hertz); with `const_skirt_gain` the peak is Q, else 1."""

    def __init__(self, sample_rate: int, central_freq: float, Q: float = 0.707, const_skirt_gain: bool = False) -> None:
        angle, alpha = self._angle(sample_rate, "central_freq", central_freq, Q)
        skirt = check.boolean(self.name, "const_skirt_gain", const_skirt_gain)
        peak = math.sin(angle) / 2 if skirt else alpha
        self._b = (peak, 0, -peak)


class LowpassBiquad(_Biquad):
    """Leaves frequencies below `cutoff_freq` (hertz)."""

    def __init__(self, sample_rate: int, cutoff_freq: float, Q: float = 0.707) -> None:
        angle, _ = self._angle(sample_rate, "cutoff_freq", cutoff_freq, Q)
        rest = 1 - math.cos(angle)
        self._b = (rest / 2, rest, rest / 2)


class HighpassBiquad(_Biquad):
    """Leaves frequencies above `cutoff_freq` (hertz)."""

    def __init__(self, sample_rate: int, cutoff_freq: float, Q: float = 0.707) -> None:
        angle, _ = self._angle(sample_rate, "cutoff_freq", cutoff_freq, Q)
        rest = 1 + math.cos(angle)
        self._b = (rest / 2, -rest, rest / 2)


class EqualizerBiquad(_Biquad):
    """Makes frequencies around `center_freq` (hertz) louder by `gain` decibels."""

    def __init__(self, sample_rate: int, center_freq: float, gain: float, Q: float = 0.707) -> None:
        angle, alpha = self._angle(sample_rate, "central_freq", center_freq, Q)
        level = np.float64(factor(check.number(self.name, "gain", gain) / 2))
        self._b = (1 + alpha * level, -2 * math.cos(angle), 1 - alpha * level)
        self._a = (1 + alpha / level, -2 * math.cos(angle), 1 - alpha / level)


class _Shelf(_Biquad):
    """Base of filters that change all frequencies on one side; `_sign` is 1 for those below."""

    _sign: int

    def _shelve(self, sample_rate: int, gain: float, central_freq: float, quality: float) -> None:
        angle, alpha = self._angle(sample_rate, "central_freq", central_freq, quality)
        self._set(angle, alpha, check.number(self.name, "gain", gain))

    def _set(self, angle: float, alpha: float, gain: float) -> None:
        level = factor(gain / 2)
        slope = 2 * math.sqrt(level) * alpha
        turn, plus, minus = self._sign * math.cos(angle), level + 1, level - 1
        self._b = (
            level * (plus - minus * turn + slope),
            self._sign * 2 * level * (minus - plus * turn),
            level * (plus - minus * turn - slope),
        )
        self._a = (plus + minus * turn + slope, self._sign * -2 * (minus + plus * turn), plus + minus * turn - slope)


class BassBiquad(_Shelf):
    """Makes frequencies below `central_freq` (hertz) louder by `gain` decibels."""

    _sign = 1

    def __init__(self, sample_rate: int, gain: float, central_freq: float = 100.0, Q: float = 0.707) -> None:
        self._shelve(sample_rate, gain, central_freq, Q)


class TrebleBiquad(_Shelf):
    """Makes frequencies above `central_freq` (hertz) louder by `gain` decibels."""

    _sign = -1

    def __init__(self, sample_rate: int, gain: float, central_freq: float = 3000, Q: float = 0.707) -> None:
        self._shelve(sample_rate, gain, central_freq, Q)


class DeemphBiquad(_Shelf):
    """The de-emphasis of compact discs (IEC 60908), at `sample_rate` 44100 or 48000."""

    _sign = -1
    _CURVES: ClassVar = {44100: (5283, 0.4845, -9.477), 48000: (5356, 0.479, -9.62)}
    """Central frequency, slope and gain in decibels of the shelf that comes near it: SoX's."""

    def __init__(self, sample_rate: int) -> None:
        check.instance(self.name, "sample_rate", sample_rate, int)
        if sample_rate not in self._CURVES:
            words = f"Argument sample_rate should be 44100 or 48000, but got {sample_rate}."
            raise in_words(SporaxValueError, self.name, words)
        frequency, slope, gain = self._CURVES[sample_rate]
        angle, level = 2 * math.pi * frequency / sample_rate, factor(gain / 2)
        self._set(angle, math.sin(angle) / 2 * math.sqrt((level + 1 / level) * (1 / slope - 1) + 2), gain)


class RiaaBiquad(_Biquad):
    """The equalization of records that are played (RIAA), at `sample_rate` 44100, 48000, 88200 or 96000."""

    _ROOTS: ClassVar = {
        44100: ((-0.2014898, 0.9233820), (0.7083149, 0.9924091)),
        48000: ((-0.1766069, 0.9321590), (0.7396325, 0.9931330)),
        88200: ((-0.1168735, 0.9648312), (0.8590646, 0.9964002)),
        96000: ((-0.1141486, 0.9676817), (0.8699137, 0.9966946)),
    }
    """Zeros and poles: SoX's."""

    def __init__(self, sample_rate: int) -> None:
        check.instance(self.name, "sample_rate", sample_rate, int)
        if sample_rate not in self._ROOTS:
            words = f"sample_rate should be one of {[*self._ROOTS]}, but got {sample_rate}."
            raise in_words(SporaxValueError, self.name, words)
        b, a = (np.poly(roots) for roots in self._ROOTS[sample_rate])
        # 1000 hertz are as loud as before.
        turn = np.exp(2j * math.pi * 1000 / sample_rate)
        self._a = tuple(a)
        self._b = tuple(b * abs(np.polyval(a, turn) / np.polyval(b, turn)))


class BandBiquad(_Biquad):
    """A band around `central_freq` (hertz) with slow slopes; with `noise` for sounds without pitch."""

    def __init__(self, sample_rate: int, central_freq: float, Q: float = 0.707, noise: bool = False) -> None:
        angle, _ = self._angle(sample_rate, "central_freq", central_freq, Q)
        width = 2 * math.pi * (central_freq / Q) / sample_rate
        a2 = math.exp(-width)
        if not np.float32(a2):
            words = "zero division error, 'central_freq / Q / sample_rate' got a big negative value."
            raise in_words(SporaxRuntimeError, self.name, words)
        a1 = -4 * a2 / (1 + a2) * math.cos(angle)
        b0 = math.sqrt(1 - a1 * a1 / (4 * a2)) * (1 - a2)
        if check.boolean(self.name, "noise", noise):
            b0 *= math.sqrt(((1 + a2) ** 2 - a1 * a1) * (1 - a2) / (1 + a2)) / b0
        self._b = (b0, 0, 0)
        self._a = (1, a1, a2)


class Resample(WaveTransform):
    """A wave at another sample rate, by windowed sinc functions (J. O. Smith, Digital Audio Resampling, CCRMA).

    Args:
        orig_freq, new_freq: sample rates, >= 1; integer parts count.
        resample_method: the window.
        lowpass_filter_width: zeros of the sinc function on either side, > 0.
        rolloff: where the filter ends, as a share of the Nyquist frequency, in (0, 1].
        beta: shape of the Kaiser window; None for MindSpore's.
    """

    def __init__(
        self, orig_freq: float = 16000, new_freq: float = 16000,
        resample_method: ResampleMethod = ResampleMethod.SINC_INTERPOLATION, lowpass_filter_width: int = 6,
        rolloff: float = 0.99, beta: float | None = None,
    ) -> None:  # fmt: skip
        settings = {"orig_freq": orig_freq, "new_freq": new_freq}
        rates = [int(check.number("Resample", name, rate, 0, open_low=True)) for name, rate in settings.items()]
        check.instance("Resample", "resample_method", resample_method, ResampleMethod)
        zeros = check.integer("Resample", "lowpass_filter_width", lowpass_filter_width, 1)
        share = check.number("Resample", "rolloff", rolloff, 0, 1.0, open_low=True)
        shape = 14.769656459379492 if beta is None else check.number("Resample", "beta", beta)
        For("Resample").refuse(not min(rates), "sample rates must be >= 1", orig_freq, new_freq)
        self._old, self._new = (rate // math.gcd(*rates) for rate in rates)
        self._cutoff, self._zeros = min(self._old, self._new) * share, zeros
        self._shape = shape if resample_method is ResampleMethod.KAISER_WINDOW else None

    def _of_wave(self, wave: Array) -> Array:
        if self._old == self._new:
            return wave
        return resampled(wave, self._old, self._new, self._cutoff, self._zeros, self._shape)


def resampled(wave: Array, old: int, new: int, cutoff: float, zeros: int, beta: float | None) -> Array:
    """A wave at another sample rate; arguments as of `Resample`, the rates without common factors, no `beta` for its window."""
    width = math.ceil(zeros * old / cutoff)
    middles = np.arange(math.ceil(new * wave.shape[-1] / old)) * old / new
    taps = np.floor(middles).astype(int)[:, None] + np.arange(-width, width + 1)
    times = np.clip((taps - middles[:, None]) * cutoff / old, -zeros, zeros)
    if beta is None:
        window = np.cos(times * math.pi / zeros / 2) ** 2
    else:
        window = np.i0(beta * np.sqrt(1 - (times / zeros) ** 2)) / np.i0(beta)
    padded = np.pad(wave, [(0, 0)] * (wave.ndim - 1) + [(width, width + 1)])
    return (padded[..., taps + width] * (np.sinc(times) * window * cutoff / old)).sum(-1)


class Filtfilt(LFilter):
    """`LFilter` forwards and backwards in time, so that nothing is delayed."""

    def _of_wave(self, wave: Array) -> Array:
        ahead = filtered(wave, self._b, self._a, clamp=False)
        return filtered(ahead[..., ::-1], self._b, self._a, clamp=self._clamp)[..., ::-1]
