"""Waves of spectra, and waves and spectra that last another time or sound higher.

The inverse short-time Fourier transform and the iteration to phases: Griffin and Lim, 1984; its momentum: Perraudin, Balazs and
Søndergaard, 2013. The phase vocoder: Flanagan and Golden, 1966, in the discrete form of D. Ellis.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import type_error
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio._effects import nonzero_int
from sporax.mindspore.dataset.audio._filters import RandomWave, WaveTransform, resampled
from sporax.mindspore.dataset.audio._spectra import MelScale, Spectrogram
from sporax.mindspore.dataset.audio.enums import BorderType, MelType, NormType, WindowType

_NUMBER = (int, float)


def wave_of(where: str, frames: Spectrogram, spectrum: Array, length: int = 0) -> Array:
    """The wave (…, length) of complex numbers (…, freq, frames), as long as these say if the length is 0."""
    window, hop, size = frames.window, frames.hop, len(frames.window)
    if spectrum.shape[-2] != size // 2 + 1 or size % 2:
        raise SporaxRuntimeError(
            f"For '{where}', map operation: [{where}] failed. {where}: the frequency of the input should equal to n_fft / 2 + 1, "
            f"but n_fft is {size}, and there are {spectrum.shape[-2]}."
        )
    half = size // 2 if frames.center else 0
    if length:
        spectrum = spectrum[..., : math.ceil((length + 2 * half) / hop)]
    pieces = np.fft.irfft(np.swapaxes(spectrum, -1, -2), size) * window
    count = pieces.shape[-2]
    wave, weight = np.zeros((*pieces.shape[:-2], size + hop * (count - 1))), np.zeros(size + hop * (count - 1))
    for i in range(count):
        wave[..., i * hop : i * hop + size] += pieces[..., i, :]
        weight[i * hop : i * hop + size] += window**2
    wave = wave / np.where(weight > np.finfo(np.float32).tiny, weight, 1)
    if not length and frames.center:
        return wave[..., half : wave.shape[-1] - half]
    wave = wave[..., half : half + length]
    return np.pad(wave, [(0, 0)] * (wave.ndim - 1) + [(0, length - wave.shape[-1])])


def stretched(spectrum: Array, rate: float, advance: Array) -> Array:
    """Complex numbers (…, freq, frames) at `rate` times the speed; phases (freq, 1) advance by so much from frame to frame."""
    count = spectrum.shape[-1]
    steps = (np.arange(math.ceil(count / rate) + 1) * np.float32(rate)).astype(np.float64)
    steps = steps[steps < count]
    at = steps.astype(int)
    padded = np.pad(spectrum, [(0, 0)] * (spectrum.ndim - 1) + [(0, 2)])
    now, then = padded[..., at], padded[..., at + 1]
    turn = np.angle(then) - np.angle(now) - advance
    turn += advance - 2 * np.pi * np.round(turn / (2 * np.pi))
    phase = np.concatenate([np.angle(spectrum[..., :1]), turn[..., :-1]], -1).cumsum(-1)
    size = (steps - at) * np.abs(then) + (1 - (steps - at)) * np.abs(now)
    return size * np.exp(1j * phase)


def _as_complex(pairs: Array) -> Array:
    return pairs[..., 0] + 1j * pairs[..., 1]


def _as_pairs(numbers: Array) -> Array:
    return np.stack([numbers.real, numbers.imag], -1)


class InverseSpectrogram(WaveTransform):
    """The wave of a spectrogram: (…, freq, frames, 2) -> (…, length). Arguments, but for `length`: see `Spectrogram`."""

    layout = "<..., freq, time, complex=2>"

    def __init__(
        self, length: int | None = None, n_fft: int = 400, win_length: int | None = None,
        hop_length: int | None = None, pad: int = 0, window: WindowType = WindowType.HANN, normalized: bool = False,
        center: bool = True, pad_mode: BorderType = BorderType.REFLECT, onesided: bool = True,
    ) -> None:  # fmt: skip
        self._length = 0 if length is None else check.integer("InverseSpectrogram", "length", length, 0)
        shape = (n_fft, win_length, hop_length, pad, window, 0, normalized, center, pad_mode, onesided)
        self._frames, self._pad, self._normalized = Spectrogram(*shape), pad, normalized

    def _of_wave(self, wave: Array) -> Array:
        spectrum, window = _as_complex(wave), self._frames.window
        spectrum = spectrum[..., : len(window) // 2 + 1, :]
        if self._normalized:
            spectrum = spectrum * math.sqrt((window**2).sum())
        length = self._length + 2 * self._pad if self._length else (spectrum.shape[-1] - 1) * self._frames.hop
        result = wave_of(self.name, self._frames, spectrum, length)
        return result[..., self._pad : result.shape[-1] - self._pad]


class GriffinLim(RandomWave):
    """A wave of powers (…, freq, frames) -> (…, length), by `n_iter` iterations to phases that fit.

    `power` > 0 is the exponent of the magnitudes; each step goes on by `momentum` in [0, 1) where the last one went, from random
    phases with `rand_init`. Without `length` the frames say it; other arguments: see `Spectrogram`.

    Raises:
        SporaxRuntimeError: the momentum is 1 or more; (when applied) frequencies do not fit `n_fft`, or frames not `length`.
    """

    layout = "<..., freq, time>"

    def __init__(
        self, n_fft: int = 400, n_iter: int = 32, win_length: int | None = None, hop_length: int | None = None,
        window_type: WindowType = WindowType.HANN, power: float = 2.0, momentum: float = 0.99,
        length: int | None = None, rand_init: bool = True,
    ) -> None:  # fmt: skip
        where = "GriffinLim"
        check.integer(where, "n_fft", n_fft, 1)
        self._count = check.integer(where, "n_iter", n_iter, 1)
        sizes = {"win_length": win_length, "hop_length": hop_length, "length": length}
        width, hop, self._length = (
            0 if size is None else check.integer(where, name, size, 0) for name, size in sizes.items()
        )
        check.instance(where, "window_type", window_type, WindowType)
        self._power = check.number(where, "power", power, 0, open_low=True, types=_NUMBER)
        self._momentum = check.number(where, "momentum", momentum, 0, types=_NUMBER)
        self._random = check.boolean(where, "rand_init", rand_init)
        self._frames = Spectrogram(n_fft, width or None, hop or None, window=window_type, power=0)
        if self._momentum >= 1:
            raise SporaxRuntimeError(
                f"For '{where}', {where}: momentum equal to or greater than 1 can be unstable, but got: {momentum:.6f}."
            )

    def _of_random(self, wave: Array, rng: np.random.Generator) -> Array:
        sizes = wave ** (1 / self._power)
        phases: Any = np.ones(wave.shape)
        if self._random:
            phases = rng.random(wave.shape) + 1j * rng.random(wave.shape)
        last: Array = np.zeros(wave.shape)
        for _ in range(self._count):
            found = self._frames.transform(wave_of(self.name, self._frames, sizes * phases, self._length))
            if found.shape != wave.shape:
                raise self.fault(f"'length' must be that of {wave.shape[-1]} frames, but has {found.shape[-1]}.")
            phases = found - last * (self._momentum / (1 + 2 * self._momentum))
            phases = phases / (np.abs(phases) + 1e-16)
            last = found
        return wave_of(self.name, self._frames, sizes * phases, self._length)


class PhaseVocoder(WaveTransform):
    """A spectrogram (…, freq, frames, 2) at `rate` > 0 times the speed, without another pitch.

    `phase_advance` (freq, 1), of its dtype, is how far phases go from frame to frame.

    Raises:
        SporaxRuntimeError: (when applied) the array is not this.
    """

    layout = "<..., freq, num_frame, complex=2>"

    def __init__(self, rate: float, phase_advance: Array) -> None:
        self._rate = check.number("PhaseVocoder", "rate", rate, 0, open_low=True, types=_NUMBER)
        check.instance("PhaseVocoder", "phase_advance", phase_advance, np.ndarray)
        self._advance = phase_advance

    def _one(self, value: Array) -> Array:
        shape, faults = self._advance.shape, "PhaseVocoder: invalid parameter, "
        if len(shape) != 2 or shape[1] != 1:
            faults += "'phase_advance' should be in shape of <freq, 1>."
        elif value.ndim > 2 and shape[0] != value.shape[-3]:
            faults += "'first dimension of 'phase_advance'' should be equal to the frequencies of the input."
        elif self._advance.dtype != value.dtype:
            faults += "data type of phase_advance should be equal to data type of input tensor."
        else:
            return super()._one(value)
        raise self.fault(f"{faults} It is {self._advance.dtype} {shape}, the input {value.dtype} {value.shape}.")

    def _of_wave(self, wave: Array) -> Array:
        return _as_pairs(stretched(_as_complex(wave), self._rate, self._advance))


class TimeStretch(WaveTransform):
    """A spectrogram (…, freq, frames, 2), `fixed_rate` times as fast, without another pitch.

    It has `n_freq` frequencies, and `hop_length` samples (`n_freq` - 1 by default) from frame to frame.
    """

    layout = "<..., freq, num_frame, complex=2>"

    def __init__(self, hop_length: int | None = None, n_freq: int = 201, fixed_rate: float | None = None) -> None:
        hop = None if hop_length is None else check.integer("TimeStretch", "hop_length", hop_length, 1)
        count = check.integer("TimeStretch", "n_freq", n_freq, 1)
        rate = 1 if fixed_rate is None else fixed_rate
        self._rate = check.number("TimeStretch", "fixed_rate", rate, 0, open_low=True, types=_NUMBER)
        self._advance = np.linspace(0, np.pi * (count - 1 if hop is None else hop), count)[:, None]

    def _of_wave(self, wave: Array) -> Array:
        if self._rate == 1:
            return wave
        if wave.shape[-3] != len(self._advance):
            raise self.fault(f"there must be n_freq = {len(self._advance)} frequencies, but got {wave.shape[-3]}.")
        return _as_pairs(stretched(_as_complex(wave), self._rate, self._advance))


class PitchShift(WaveTransform):
    """A wave (…, time) that sounds higher by `n_steps` of `bins_per_octave`, and lasts as long.

    Other arguments: see `Spectrogram`; frames are a quarter of the window apart by default.
    """

    def __init__(
        self, sample_rate: int, n_steps: int, bins_per_octave: int = 12, n_fft: int = 512,
        win_length: int | None = None, hop_length: int | None = None, window: WindowType = WindowType.HANN,
    ) -> None:  # fmt: skip
        self._sample_rate = check.integer("PitchShift", "sample_rate", sample_rate, 0)
        steps = check.integer("PitchShift", "n_steps", n_steps)
        octave = nonzero_int("PitchShift", "bins_per_octave ", bins_per_octave)
        self._rate = float(np.float32(2 ** (-steps / octave)))
        self._frames = Spectrogram(n_fft, win_length, hop_length, window=window, power=0)
        if hop_length is None:
            self._frames.hop = max((n_fft if win_length is None else win_length) // 4, 1)

    def _of_wave(self, wave: Array) -> Array:
        length = wave.shape[-1]
        spectrum = self._frames.transform(wave)
        advance = np.linspace(0, np.pi * self._frames.hop, spectrum.shape[-2])[:, None]
        slow = stretched(spectrum, self._rate, advance) if self._rate != 1 else spectrum
        result = wave_of(self.name, self._frames, slow, math.floor(length / self._rate + 0.5))
        old, new = int(self._sample_rate / self._rate), self._sample_rate
        self.refuse(not min(old, new), f"'sample_rate' must be positive, but got {self._sample_rate}.")
        common = math.gcd(old, new)
        old, new = old // common, new // common
        result = resampled(result, old, new, min(old, new) * 0.99, 6, None)[..., :length]
        return np.pad(result, [(0, 0)] * (wave.ndim - 1) + [(0, length - result.shape[-1])])


class InverseMelScale(RandomWave):
    """Powers of frequencies that have these powers of the mel scale: (…, n_mels, time) -> (…, n_stft, time), by descent.

    It begins with random numbers and ends after `max_iter` steps, or when the mean square of the differences is below
    `tolerance_loss` or changes by less than `tolerance_change`; `sgdargs` has its 'sgd_lr' and 'sgd_momentum'. Other arguments:
    see `MelScale`. A spectrogram of two dimensions gets a leading one, as in MindSpore.
    """

    layout = "<..., freq, time>"

    def __init__(
        self, n_stft: int, n_mels: int = 128, sample_rate: int = 16000, f_min: float = 0.0,
        f_max: float | None = None, max_iter: int = 100000, tolerance_loss: float = 1e-5,
        tolerance_change: float = 1e-8, sgdargs: dict[str, Any] | None = None, norm: NormType = NormType.NONE,
        mel_type: MelType = MelType.HTK,
    ) -> None:  # fmt: skip
        where = "InverseMelScale"
        self._triangles = MelScale(n_mels, sample_rate, f_min, f_max, n_stft, norm, mel_type).triangles
        self._count = check.integer(where, "max_iter", max_iter, 1)
        self._least = check.number(where, "tolerance_loss", tolerance_loss, 0, open_low=True, types=_NUMBER)
        self._change = check.number(where, "tolerance_change", tolerance_change, 0, open_low=True, types=_NUMBER)
        options = {"sgd_lr": 0.1, "sgd_momentum": 0.9} if sgdargs is None else sgdargs
        if not isinstance(options, dict) or options.keys() != {"sgd_lr", "sgd_momentum"}:
            raise type_error(where, "sgdargs", "a dict of 'sgd_lr' and 'sgd_momentum'", sgdargs)
        self._lr, self._momentum = (
            check.number(where, name, options[name], 0, types=_NUMBER) for name in ("sgd_lr", "sgd_momentum")
        )

    def _of_random(self, wave: Array, rng: np.random.Generator) -> Array:
        if wave.shape[-2] != self._triangles.shape[1]:
            raise self.fault(
                f"{self.name}: n_mels must be equal to the penultimate dimension of input, but they are "
                f"{self._triangles.shape[1]} and {wave.shape[-2]}."
            )
        mels = wave.reshape(-1, *wave.shape[-2:])
        found = np.stack([self._solved(channel, rng) for channel in mels])
        return found if wave.ndim == 2 else found.reshape(*wave.shape[:-2], *found.shape[-2:])

    def _solved(self, mels: Array, rng: np.random.Generator) -> Array:
        result = rng.random((len(self._triangles), mels.shape[1]))
        speed, loss = np.zeros_like(result), math.inf
        for _ in range(self._count):
            rest = mels - self._triangles.T @ result
            before, loss = loss, float((rest**2).mean())
            if loss < self._least or abs(before - loss) < self._change:
                break
            speed = self._momentum * speed + self._triangles @ rest / mels.shape[1]
            result += self._lr * speed
        return np.maximum(result, 0)
