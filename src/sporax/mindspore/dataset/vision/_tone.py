"""Curves of brightness: gamma, stretched contrast, and the random versions of what `_color` does with certainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset._checks import check_int, check_number, check_probability, type_error
from sporax.mindspore.dataset._operations import Elementwise, OneToOne, RandomTransform
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._color import (
    Equalize,
    Invert,
    Posterize,
    Solarize,
    check_bytes,
    check_rgb,
    saturation,
)


class AdjustGamma(Elementwise):
    """``gain * value ** gamma``, with values taken from 0 to 1 (bytes from 0 to 255) and kept there.

    Args:
        gamma: exponent >= 0.
        gain: factor.
    """

    def __init__(self, gamma: float, gain: float = 1) -> None:
        self._gamma = check_number("AdjustGamma", "gamma", gamma, 0)
        self._gain = check_number("AdjustGamma", "gain", gain)

    def _one(self, value: Array) -> Array:
        if value.dtype.kind in "USO" or value.ndim < 2:
            raise SporaxRuntimeError(
                f"For 'AdjustGamma', an image must be numeric (…, H, W, C), but got {value.shape} {value.dtype}."
            )
        if value.dtype == np.uint8:
            # The whole range of the result is cut into 256 equal parts, as Pillow's users do it.
            # 256 - 1e-3: so that 1.0 falls into the last part.
            table = np.clip(self._curve(np.arange(256) / 255) * (256 - 1e-3), 0, 255).astype(np.uint8)
            return table[value]
        return np.clip(self._curve(value), 0, 1).astype(value.dtype)

    def _curve(self, value: Array) -> Array:
        return np.asarray(self._gain * value**self._gamma)


class AutoContrast(OneToOne):
    """Each channel's values spread over the whole range of bytes.

    Args:
        cutoff: percent of the darkest and of the lightest pixels that may saturate, in [0, 50).
        ignore: values that do not count.
    """

    def __init__(self, cutoff: float = 0.0, ignore: int | Sequence[int] | None = None) -> None:
        self._cutoff = check_number("AutoContrast", "cutoff", cutoff, 0, 50)
        # The check above includes its upper end, MindSpore's range does not.
        if self._cutoff == 50:
            raise SporaxValueError("For 'AutoContrast', the argument 'cutoff' must be in [0, 50), but got 50.")
        values = [] if ignore is None else ignore if isinstance(ignore, (list, tuple)) else [ignore]
        self._ignore = [check_int("AutoContrast", "ignore", value, 0, 255) for value in values]

    def _one(self, value: Array) -> Array:
        check_bytes("AutoContrast", value)
        channels = value[..., None] if value.ndim == 2 else value
        planes = [self._table(channels[..., c])[channels[..., c]] for c in range(channels.shape[-1])]
        return np.stack(planes, -1).reshape(value.shape)

    def _table(self, plane: Array) -> Array:
        counts = np.bincount(plane.ravel(), minlength=256)
        counts[self._ignore] = 0
        cut = int(counts.sum() * np.float32(self._cutoff) // 100)
        # From both ends: reversed, cut and reversed again.
        levels = np.flatnonzero(_without_first(_without_first(counts, cut)[::-1], cut)[::-1])
        # One value only, or none: the identity.
        if not len(levels) or levels[0] == levels[-1]:
            return np.arange(256, dtype=np.uint8)
        scale = np.float32(255.0 / (levels[-1] - levels[0]))
        return np.clip(np.arange(256, dtype=np.float32) * scale - np.float32(levels[0]) * scale, 0, 255).astype(
            np.uint8
        )


def _without_first(counts: Array, number: int) -> Array:
    """Counts of values with the first `number` of them taken away."""
    below = np.cumsum(counts) - counts
    return counts - np.clip(number - below, 0, counts)


class Sometimes(RandomTransform):
    """Base of transforms that apply another one with a probability."""

    def __init__(self, transform: OneToOne, prob: float) -> None:
        self._transform = transform
        self._prob = check_probability(self.name, "prob", prob)

    def _draw(self, value: Array, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self._prob)

    def _apply(self, value: Array, choice: bool) -> Array:
        return self._transform._one(value) if choice else value


class RandomInvert(Sometimes):
    """`Invert` with probability `prob`."""

    def __init__(self, prob: float = 0.5) -> None:
        super().__init__(Invert(), prob)


class RandomEqualize(Sometimes):
    """`Equalize` with probability `prob`."""

    def __init__(self, prob: float = 0.5) -> None:
        super().__init__(Equalize(), prob)


class RandomAutoContrast(Sometimes):
    """`AutoContrast` with probability `prob`; the other arguments are its."""

    def __init__(self, cutoff: float = 0.0, ignore: int | Sequence[int] | None = None, prob: float = 0.5) -> None:
        super().__init__(AutoContrast(cutoff, ignore), prob)


class RandomPosterize(RandomTransform):
    """`Posterize` with a random number of bits.

    Args:
        bits: (smallest, largest) number in [1, 8], or the number.
    """

    def __init__(self, bits: Any = (8, 8)) -> None:
        limits = bits if isinstance(bits, (list, tuple)) else (bits, bits)
        if len(limits) != 2:
            raise SporaxTypeError(f"For 'RandomPosterize', 'bits' must be one number or two, but got {bits!r}.")
        self._low, self._high = (check_int("RandomPosterize", "bits", limit, 1, 8) for limit in limits)
        if self._low > self._high:
            raise SporaxValueError(f"For 'RandomPosterize', 'bits' must be increasing, but got {bits!r}.")

    def _draw(self, value: Array, rng: np.random.Generator) -> int:
        return int(rng.integers(self._low, self._high + 1))

    def _apply(self, value: Array, choice: int) -> Array:
        return Posterize(choice)._one(value)


class RandomSolarize(RandomTransform):
    """`Solarize` within a random range.

    Args:
        threshold: (lowest, highest) that the ends of the range may be, in [0, 255]; equal ones make the range (lowest, 255).
    """

    def __init__(self, threshold: Sequence[int] = (0, 255)) -> None:
        if not isinstance(threshold, (list, tuple)) or len(threshold) != 2:
            raise type_error("RandomSolarize", "threshold", "(lowest, highest)", threshold)
        self._low, self._high = (check_int("RandomSolarize", "threshold", limit, 0, 255) for limit in threshold)
        if self._low > self._high:
            raise SporaxValueError(f"For 'RandomSolarize', 'threshold' must be increasing, but got {threshold!r}.")

    def _draw(self, value: Array, rng: np.random.Generator) -> list[int]:
        if self._low == self._high:
            # Equal ends mean a range up to white, as in MindSpore.
            return [self._low, 255]
        return sorted(int(end) for end in rng.integers(self._low, self._high + 1, 2))

    def _apply(self, value: Array, choice: list[int]) -> Array:
        return Solarize(choice)._one(value)


class RandomColor(RandomTransform):
    """Between the gray version of an image and the image, or beyond.

    Args:
        degrees: (smallest, largest) factor >= 0: 0 gives gray, 1 the image.
    """

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self._range = check_degrees("RandomColor", degrees)

    def _draw(self, value: Array, rng: np.random.Generator) -> float:
        return float(rng.uniform(*self._range))

    def _apply(self, value: Array, choice: float) -> Array:
        check_rgb("RandomColor", value)
        return saturation(value, choice)


class RandomLighting(RandomTransform):
    """Colour noise along the principal components of ImageNet's pixels (Krizhevsky et al. 2012, section 4.1).

    Args:
        alpha: standard deviation of the components' weights, >= 0.
    """

    # Of ImageNet's RGB values, from the paper.
    _EIGENVALUES = np.array([55.46, 4.794, 1.148])
    _EIGENVECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])

    def __init__(self, alpha: float = 0.05) -> None:
        self._alpha = check_number("RandomLighting", "alpha", alpha, 0)

    def _draw(self, value: Array, rng: np.random.Generator) -> Array:
        return np.asarray(self._EIGENVECTORS @ (self._EIGENVALUES * rng.normal(0.0, self._alpha, 3)))

    def _apply(self, value: Array, choice: Array) -> Array:
        check_rgb("RandomLighting", value)
        return np.clip(value + choice, 0, 255).astype(value.dtype)


def check_degrees(where: str, degrees: Any) -> tuple[float, float]:
    """(smallest, largest) of two numbers >= 0."""
    if not isinstance(degrees, (list, tuple)) or len(degrees) != 2:
        raise type_error(where, "degrees", "(smallest, largest)", degrees)
    low, high = (check_number(where, "degrees", degree, 0) for degree in degrees)
    if low > high:
        raise SporaxValueError(f"For '{where}', 'degrees' must be increasing, but got {degrees!r}.")
    return low, high
