"""Effects, whose formulas are SoX's (effects `dcshift`, `overdrive`, `phaser`, `flanger`, `dither`), as in torchaudio."""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import INT32_MAX, range_error
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio._filters import RandomWave, WaveTransform, filtered
from sporax.mindspore.dataset.audio.enums import DensityFunction, Interpolation, Modulation


class DCShift(WaveTransform):
    """Adds `shift` in [-2, 2], limited to [-1, 1]; peaks are squeezed by `limiter_gain` in place of being clipped, if given."""

    def __init__(self, shift: float, limiter_gain: float | None = None) -> None:
        self._shift = check.number("DCShift", "shift", shift, -2.0, 2.0)
        gain = None if limiter_gain is None else check.number("DCShift", "limiter_gain", limiter_gain)
        self._gain = gain or self._shift

    def _of_wave(self, wave: Array) -> Array:
        result = np.clip(wave + self._shift, -1, 1)
        if not self._shift or self._gain == self._shift:
            return result
        sign, limit = np.sign(self._shift), 1 - (abs(self._shift) - self._gain)
        # Where the limit is 1, all that is above it becomes it.
        with np.errstate(divide="ignore", invalid="ignore"):
            squeezed = (wave - sign * limit) * self._gain / (1 - limit) + limit + self._shift
        return np.where(wave * sign > limit, sign * np.minimum(sign * squeezed, limit), result)


class Overdrive(WaveTransform):
    """Distortion by `gain` decibels in [0, 100]; `color` in [0, 100] is the share of even harmonics."""

    def __init__(self, gain: float = 20.0, color: float = 20.0) -> None:
        self._ratio = 10 ** (check.number("Overdrive", "gain", gain, 0, 100) / 20)
        self._color = check.number("Overdrive", "color", color, 0, 100) / 200

    def _of_wave(self, wave: Array) -> Array:
        driven = np.clip(wave * self._ratio + self._color, -1, 1)
        steady = filtered(driven - driven**3 / 3, [1, -1], [1, -0.995], clamp=False)
        return np.clip(wave * 0.5 + steady * 0.75, -1, 1)


class Dither(RandomWave):
    """Rounds to 16 bits after adding noise, which turns steps into a hiss.

    Args:
        density_function: TPDF adds a triangle over time, RPDF a random sample of the wave, GPDF a sum of seven.
        noise_shaping: add the error of each sample to the next.
    """

    def __init__(self, density_function: DensityFunction = DensityFunction.TPDF, noise_shaping: bool = False) -> None:
        check.instance("Dither", "density_function", density_function, DensityFunction)
        self._density = density_function
        self._shaping = check.boolean("Dither", "noise_shaping", noise_shaping)

    def _of_random(self, wave: Array, rng: np.random.Generator) -> Array:
        noise: Any = np.bartlett(wave.shape[-1] + 1)[:-1]
        if self._density is not DensityFunction.TPDF:
            noise = rng.choice(wave.ravel(), 1 if self._density is DensityFunction.RPDF else 7).sum()
        level = wave * (2**15 - 2) + noise
        dithered = np.trunc(level + np.copysign(0.5, level)) / 2**15
        if self._shaping:
            dithered[..., 1:] += (dithered - wave)[..., :-1]
        return dithered


def _oscillation(modulation: Modulation, size: int, low: float, high: float, turns: float) -> Array:
    """One period, `size` samples, of a wave between two numbers; it begins after so many turns."""
    place = (np.arange(size) + int(turns * size + 0.5)) % size / size
    sine = modulation is Modulation.SINUSOIDAL
    wave = np.sin(2 * np.pi * place) / 2 + 0.5 if sine else 1 - np.abs((place + 0.25) % 1 * 2 - 1)
    return wave * (high - low) + low


class Phaser(WaveTransform):
    """An echo, at most `delay_ms` in [0, 5] milliseconds late; the delay goes up and down `mod_speed` in [0.1, 2] times a second.

    Factors: `gain_in` in [0, 1] of the wave, `decay` in [0, 0.99] of the echo, `gain_out` in [0, 1e9] of the result, which is
    then limited to [-1, 1]. The delay follows a sine if `sinusoidal`, a triangle otherwise.

    Raises:
        SporaxRuntimeError: (when applied) the delay is no sample long, or the sample rate is not positive.
    """

    def __init__(
        self, sample_rate: int, gain_in: float = 0.4, gain_out: float = 0.74, delay_ms: float = 3.0,
        decay: float = 0.4, mod_speed: float = 0.5, sinusoidal: bool = True,
    ) -> None:  # fmt: skip
        self._rate = check.integer("Phaser", "sample_rate", sample_rate)
        self._gain_in = check.number("Phaser", "gain_in", gain_in, 0, 1)
        self._gain_out = check.number("Phaser", "gain_out", gain_out, 0, 1e9)
        self._delay = int(check.number("Phaser", "delay_ms", delay_ms, 0, 5.0) * 0.001 * self._rate + 0.5)
        self._decay = check.number("Phaser", "decay", decay, 0, 0.99)
        self._period = int(self._rate / check.number("Phaser", "mod_speed", mod_speed, 0.1, 2) + 0.5)
        is_sine = check.boolean("Phaser", "sinusoidal", sinusoidal)
        self._modulation = Modulation.SINUSOIDAL if is_sine else Modulation.TRIANGULAR

    def _of_wave(self, wave: Array) -> Array:
        if self._delay < 1:
            raise self.fault(
                f"'delay_ms' must be at least a sample long, but has {self._delay} at {self._rate} samples/s."
            )
        table = _oscillation(self._modulation, self._period, 1, self._delay, 0.25)
        times = np.arange(wave.shape[-1])
        sources = times + np.trunc(table + 0.5).astype(int)[times % self._period] - 1 - self._delay
        result = np.moveaxis(wave * self._gain_in, -1, 0)
        for time in times[sources >= 0]:
            result[time] += self._decay * result[sources[time]]
        return np.clip(np.moveaxis(result, 0, -1) * self._gain_out, -1, 1)


class Flanger(WaveTransform):
    """Adds the wave (…, channel, time) with a delay that goes up and down `speed` in [0.1, 10] times a second; the dtype stays.

    The delay is `delay` in [0, 30] milliseconds and up to `depth` in [0, 10] more, `phase` percent of a period later from channel
    to channel. Of the delayed wave `width` percent are added, and `regen` percent in [-95, 95] are fed back.
    """

    layout = "<..., channel, time>"

    def __init__(
        self, sample_rate: int, delay: float = 0.0, depth: float = 2.0, regen: float = 0.0, width: float = 71.0,
        speed: float = 0.5, phase: float = 25.0, modulation: Modulation = Modulation.SINUSOIDAL,
        interpolation: Interpolation = Interpolation.LINEAR,
    ) -> None:  # fmt: skip
        where = "Flanger"
        rate = nonzero_int(where, "sample_rate", sample_rate)
        shortest = check.number(where, "delay", delay, 0, 30) / 1000
        longest = shortest + check.number(where, "depth", depth, 0, 10) / 1000
        self._feedback = check.number(where, "regen", regen, -95, 95) / 100
        share = check.number(where, "width", width, 0, 100) / 100
        period = int(rate / check.number(where, "speed", speed, 0.1, 10))
        self._phase = check.number(where, "phase", phase, 0, 100) / 100
        check.instance(where, "modulation", modulation, Modulation)
        check.instance(where, "interpolation", interpolation, Interpolation)
        self._is_linear = interpolation is Interpolation.LINEAR
        self._gain, self._echo = 1 / (1 + share), share / (1 + share) * (1 - abs(self._feedback))
        ends = np.floor(shortest * rate + 0.5), int(longest * rate + 0.5)
        self._delays = _oscillation(modulation, max(period, 0), *ends, 0.75).astype(np.float32).astype(np.float64)

    def _one(self, value: Array) -> Array:
        return super()._one(value).astype(value.dtype)

    def _of_wave(self, wave: Array) -> Array:
        (channels, length), period = wave.shape[-2:], len(self._delays)
        if not period:
            raise self.fault("the sample rate must be positive and above 'speed'.")
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


def nonzero_int(where: str, name: str, value: Any) -> int:
    """An int that is not 0."""
    # A name in MindSpore has a space behind it.
    check.instance(where, name, value, int)
    if not value or not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise range_error(where, name.strip(), f"[{-INT32_MAX - 1}, 0) and (0, {INT32_MAX}]", value)
    return int(value)
