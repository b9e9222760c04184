"""What is speech in a wave, how high it is, and how its cepstra are normalized."""

from __future__ import annotations

import math

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio._effects import nonzero_int
from sporax.mindspore.dataset.audio._filters import WaveTransform

_NUMBER = (int, float)


class DetectPitchFrequency(WaveTransform):
    """The pitch in hertz: (…, time) -> (…, frames) float32, by normalized cross-correlation and medians (torchaudio's formula).

    Frames last `frame_time` > 0 seconds, medians `win_length` >= 1 frames; `freq_low` and `freq_high` bound the pitch.

    Raises:
        SporaxRuntimeError: (when applied) there are too few frames for a median, or no pitches between the two.
    """

    sample_rate: int = argument(nonzero_int)
    frame_time: float = argument(check.number, default=0.01, low=0, open_low=True)
    win_length: int = argument(check.integer, default=30, low=1)
    freq_low: int = argument(check.number, default=85, low=0, open_low=True, types=_NUMBER)
    freq_high: int = argument(check.number, default=3400, low=0, open_low=True, types=_NUMBER)

    def _prepare(self) -> None:
        self._size = math.ceil(np.float32(self.sample_rate) * np.float32(self.frame_time))
        self._lags, self._first = (
            math.ceil(self.sample_rate / max(int(pitch), 1)) for pitch in (self.freq_low, self.freq_high)
        )

    def _one(self, value: Array) -> Array:
        return super()._one(value).astype(np.float32)

    def _of_wave(self, wave: Array) -> Array:
        frames, sides = math.ceil(wave.shape[-1] / max(self._size, 1)), [(0, 0)] * (wave.ndim - 1)
        before = (self.win_length - 1) // 2
        if not 0 <= self._first < self._lags or frames + before < self.win_length:
            raise self.fault(
                f"'freq_high' must be above 'freq_low', and the wave at least {self.win_length - before} frames of {self._size} "
                f"samples long, but has shape {wave.shape}."
            )
        total = frames * self._size
        padded = np.pad(wave, [*sides, (0, self._lags + total - wave.shape[-1])])
        blocks = [
            padded[..., lag : lag + total].reshape(*wave.shape[:-1], frames, self._size)
            for lag in range(self._lags + 1)
        ]
        products = np.stack([(blocks[0] * block).sum(-1) for block in blocks[1:]], -1)
        norms = np.stack([(block**2).sum(-1) for block in blocks], -1)
        norms = norms[..., :1] * norms[..., 1:]
        scores = np.divide(products, norms, out=np.zeros_like(products), where=norms != 0)
        # A peak among short lags counts if it is nearly as high, so that no octave is lost.
        best = scores[..., self._first :].argmax(-1) + self._first
        short = scores[..., self._first : max(self._lags // 2, self._first + 1)].argmax(-1) + self._first
        heights = (np.take_along_axis(scores, lag[..., None], -1)[..., 0] for lag in (short, best))
        lags = np.where(next(heights) > 0.99 * next(heights), short, best) + 1
        smooth = np.lib.stride_tricks.sliding_window_view(
            np.pad(lags, [*sides, (before, 0)], "edge"), self.win_length, -1
        )
        return self.sample_rate / (1e-9 + np.sort(smooth, -1)[..., before])


class SlidingWindowCmn(WaveTransform):
    """Subtracts means over `cmn_window` frames of (…, frame, feature), as Kaldi does (Povey et al., 2011).

    The frames lie around the one that is normalized with `center`, before it otherwise, then at least `min_cmn_window`. With
    `norm_vars` it is also divided by the standard deviation.
    """

    layout = "<..., freq, time>"

    cmn_window: int = argument(check.integer, default=600, low=0)
    min_cmn_window: int = argument(check.integer, default=100, low=0)
    center: bool = argument(check.boolean, default=False)
    norm_vars: bool = argument(check.boolean, default=False)

    def _of_wave(self, wave: Array) -> Array:
        frames = wave.shape[-2]
        times = np.arange(frames)
        first = times - (self.cmn_window // 2 if self.center else self.cmn_window)
        stop = first + self.cmn_window if self.center else times + 1
        stop, first = np.where(first < 0, stop - first, stop), np.maximum(first, 0)
        if not self.center:
            stop = np.where(stop > times, np.maximum(times + 1, self.min_cmn_window), stop)
        first, stop = np.maximum(first - np.maximum(stop - frames, 0), 0), np.minimum(stop, frames)
        count = (stop - first)[:, None]

        def means(values: Array) -> Array:
            sums = np.concatenate([np.zeros_like(values[..., :1, :]), values.cumsum(-2)], -2)
            return (sums[..., stop, :] - sums[..., first, :]) / count

        # Windows of no frames, and features that do not vary, give what they give in MindSpore: no numbers.
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = means(wave)
            result = wave - mean
            if self.norm_vars:
                result = np.where(count == 1, 0, result / np.sqrt(means(wave**2) - mean**2))
        return result


class Vad(WaveTransform):
    """Trims what is before the first speech: (…, time) -> (…, less time). The detector is SoX's effect `vad`.

    Times are seconds >= 0, frequencies hertz > 0. There is speech once the average over `trigger_time` of cepstral measures,
    which `hp_lifter_freq` and `lp_lifter_freq` bound, is `trigger_level`; `measure_freq` of them per second, each of
    `measure_duration` (two periods by default). Spectra from `hp_filter_freq` to `lp_filter_freq` are smoothed over
    `measure_smooth_time`; noise, estimated in `boot_time`, follows by `noise_up_time` and `noise_down_time` and is subtracted
    `noise_reduction_amount` times. `search_time` and `pre_trigger_time` of what is before speech stay; `allowed_gap` changes
    nothing, as in MindSpore.

    Raises:
        SporaxRuntimeError: (when applied) no frequencies lie between two of these, or `search_time` has no measure.
    """

    def __init__(
        self, sample_rate: int, trigger_level: float = 7.0, trigger_time: float = 0.25, search_time: float = 1.0,
        allowed_gap: float = 0.25, pre_trigger_time: float = 0.0, boot_time: float = 0.35,
        noise_up_time: float = 0.1, noise_down_time: float = 0.01, noise_reduction_amount: float = 1.35,
        measure_freq: float = 20.0, measure_duration: float | None = None, measure_smooth_time: float = 0.4,
        hp_filter_freq: float = 50.0, lp_filter_freq: float = 6000.0, hp_lifter_freq: float = 150.0,
        lp_lifter_freq: float = 2000.0,
    ) -> None:  # fmt: skip
        numbers = dict(vars(), measure_duration=measure_duration or 0)
        del numbers["self"]
        self._rate = check.integer("Vad", "sample_rate", numbers.pop("sample_rate"), 1)
        self._trigger = check.number("Vad", "trigger_level", numbers.pop("trigger_level"), types=_NUMBER)
        self._of = {
            name: check.number("Vad", name, value, 0, open_low=name.endswith("_freq"), types=_NUMBER)
            for name, value in numbers.items()
        }
        if noise_up_time < noise_down_time:
            raise SporaxValueError(
                f"For 'Vad', Input noise_up_time should be greater than noise_down_time, but got noise_up_time: {noise_up_time} "
                f"and noise_down_time: {noise_down_time}."
            )
        self._size = int(self._rate * (measure_duration or 2.0 / measure_freq) + 0.5)
        self._period = int(self._rate / measure_freq + 0.5)

    def _of_wave(self, wave: Array) -> Array:
        length, count = wave.shape[-1], math.ceil(self._of["search_time"] * self._of["measure_freq"])
        self.refuse(not count, "'search_time' must be at least the time of a measure.")
        before = int(self._of["pre_trigger_time"] * self._rate + 0.5) + self._size
        stop = self._triggered(wave.reshape(-1, length))
        start = length - before - count * self._period if stop is None else stop - before
        return wave[..., max(start, -length) :]

    def _triggered(self, waves: Array) -> int | None:
        """The number of samples after which there is speech."""
        bins, size = max(16, 1 << (self._size - 1).bit_length()), self._size
        low, high = (int(self._of[f"{side}_filter_freq"] / self._rate * bins + 0.5) for side in ("hp", "lp"))
        last, first = (self._rate * 0.5 / self._of[f"{side}_lifter_freq"] for side in ("hp", "lp"))
        low, high, start, stop = max(low, 1), min(high, bins // 2), math.ceil(first), min(math.floor(last), bins // 4)
        if low >= high or start >= stop:
            raise self.fault(
                f"there must be frequencies between high-pass and low-pass, but at {self._rate} samples/s there are none "
                f"between those of {self._of}."
            )
        window, lifter = (2 / math.sqrt(n) * np.hanning(n + 1)[:-1] for n in (size, high - low))
        up, down, smooth, slow = map(self._share, ("noise_up", "noise_down", "measure_smooth", "trigger"))
        boots = int(self._of["boot_time"] * self._of["measure_freq"] - 0.5)
        spectrum = noise = np.zeros((len(waves), high - low))
        level = np.zeros(len(waves))
        # The first measure begins a sample before the wave.
        padded = np.pad(waves, [(0, 0), (size, 0)])
        for step, end in enumerate(range(size - 1, waves.shape[1], self._period)):
            boot = step % (boots + 2)
            booting = boot <= boots
            share = boot / (1 + boot) if booting else smooth
            magnitudes = np.abs(np.fft.rfft(padded[:, end : end + size] * window, bins))[:, low:high]
            spectrum = spectrum * share + magnitudes * (1 - share)
            power = spectrum**2
            keep = 0.0 if booting else np.where(power > noise, up, down)
            noise = noise * keep + power * (1 - keep)
            cepstrum = np.zeros((len(waves), bins // 2))
            cepstrum[:, low:high] = np.sqrt(np.maximum(power - self._of["noise_reduction_amount"] * noise, 0)) * lifter
            strength = (np.abs(np.fft.rfft(cepstrum)[:, start:stop]) ** 2).mean(-1)
            measure = np.maximum(21 + np.log(np.maximum(strength, 1e-30)), 0)
            level = level * slow + measure * (1 - slow)
            if (level >= self._trigger).any():
                return end + 1
        return None

    def _share(self, name: str) -> float:
        """What stays of an average from measure to measure."""
        time = self._of[f"{name}_time"] * self._of["measure_freq"]
        return math.exp(-1 / time) if time else 0.0
