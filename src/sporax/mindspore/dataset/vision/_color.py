"""Transforms of colour: brightness, contrast, saturation, hue and the like, rounded as OpenCV rounds bytes.

Images are RGB (…, H, W, 3); transforms that look at one value at a time take any image of bytes.
"""

from __future__ import annotations

import functools
import importlib
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of, optional
from sporax.mindspore.dataset._checks import FLOAT32_MAX, in_words, range_error, refuse
from sporax.mindspore.dataset._operations import Elementwise, OneToOne, RandomTransform
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision import _images as images

# ITU-R BT.601, in the order RGB.
_RGB_TO_GRAY = np.array([0.299, 0.587, 0.114])
# OpenCV works in fixed point for bytes, which rounds differently from floats.
_IN_FIXED_POINT = np.array([9798, 19235, 3735])  # the same times 2 ** 15


def gray(value: Array) -> Array:
    """Luminance (…, H, W, 1) of an RGB image."""
    if value.dtype != np.uint8:
        return value @ _RGB_TO_GRAY.astype(value.dtype)[:, None]
    # 16384 is half of 2 ** 15: rounds to nearest.
    return (((value.astype(np.int32) @ _IN_FIXED_POINT) + 16384) >> 15).astype(np.uint8)[..., None]


def brightness(value: Array, factor: float) -> Array:
    """Every value times `factor`."""
    # float32: OpenCV scales bytes in single precision.
    return images.rounded(value * np.float32(factor), value.dtype)


def contrast(value: Array, factor: float) -> Array:
    """Between a plain gray (factor 0) and the image (1), or beyond."""
    # The mean is rounded half up to a whole level.
    level = np.floor(gray(value).mean((-3, -2, -1), keepdims=True) + 0.5)
    return images.rounded(value * np.float64(factor) + (1 - factor) * level, value.dtype)


def saturation(value: Array, factor: float) -> Array:
    """Between its gray version (factor 0) and the image (1), or beyond."""
    share = np.float32(factor)
    # The second product is not rounded before it is added, as in OpenCV.
    return images.rounded(
        (value * share + gray(value) * np.float64(np.float32(1 - float(share)))).astype(np.float32), value.dtype
    )


# OpenCV's tables: what turns differences of bytes into 256 hues and 255 depths of colour, with 12 bits behind the point.
_HUES, _DEPTHS = (
    np.concatenate([[0], np.rint((most << 12) / (parts * np.arange(1, 256)))]).astype(np.int64)
    for most, parts in ((256, 6.0), (255, 1.0))
)
# Of each sixth of the circle, which levels red, green and blue have: full, least, falling or rising.
_SECTORS = np.array([[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]])
# Pixels that OpenCV converts together.
_GROUP = 32


def hue(value: Array, turn: float) -> Array:
    """Colours turned by `turn` of the colour circle; those of bytes by way of bytes for hue and depth, as in OpenCV."""
    of_bytes = value.dtype == np.uint8
    red, green, blue = np.moveaxis(value.astype(np.int64 if of_bytes else np.float64), -1, 0)
    high = np.maximum(np.maximum(red, green), blue)
    spread = high - np.minimum(np.minimum(red, green), blue)
    # Place on the circle in sixths, times the spread. Gray pixels have no hue; any does.
    sixths = np.where(high == green, blue - red + 2 * spread, red - green + 4 * spread)
    sixths = np.where(high == red, green - blue, sixths)
    if of_bytes:
        hues = ((sixths * _HUES[spread] + (1 << 11) >> 12) + int(np.float32(turn) * np.float32(255))) % 256
        depth, light = (
            part.astype(np.float32) * np.float32(1 / 255) for part in (spread * _DEPTHS[high] + (1 << 11) >> 12, high)
        )
        position = hues.astype(np.float32) * np.float32(6 / 255)
    else:
        position = (sixths / np.where(spread == 0, 1, spread) / 6 + turn) % 1.0 * 6
        depth, light = spread / np.where(high == 0, 1, high), high
    sector = np.floor(position)
    part = position - sector
    # Products are not rounded before they are subtracted, as in OpenCV.
    rest = ((1 - depth.astype(np.float64) * share).astype(depth.dtype) for share in (part, 1 - part))
    levels = np.stack([light, light * (1 - depth), *(light * share for share in rest)])
    chosen = np.moveaxis(_SECTORS[sector.astype(np.int64) % 6], -1, 0)
    colors = np.stack([np.take_along_axis(levels, level[None], 0)[0] for level in chosen], -1)
    if not of_bytes:
        return colors.astype(value.dtype)
    colors *= 255
    # OpenCV rounds groups of pixels down and single ones behind them to the nearest.
    grouped = np.arange(value.shape[-2])[:, None] < value.shape[-2] // _GROUP * _GROUP
    return np.where(grouped, np.trunc(colors), np.rint(colors)).astype(np.uint8)


def enhanced(value: Array, factor: float, name: str) -> Array:
    """What Pillow's class `name` of `PIL.ImageEnhance` makes of an image; it rounds down where OpenCV rounds to the nearest."""
    enhancer = getattr(importlib.import_module("PIL.ImageEnhance"), name)
    return np.array(enhancer(images.pillow(name).fromarray(value)).enhance(factor))


def _hue_by_pillow(value: Array, turn: float) -> Array:
    """As `hue`, by 256 hues; gray has none."""
    module = images.pillow("AdjustHue")
    image = module.fromarray(value)
    if image.mode in ("L", "1", "I", "F"):
        return value
    circle, colour, light = image.convert("HSV").split()
    turned = module.fromarray(np.array(circle) + np.uint8(int(turn * 255) % 256))
    return np.array(module.merge("HSV", (turned, colour, light)).convert(image.mode))


class AdjustBrightness(images.ByPillow, OneToOne):
    """Brightness of an image times `brightness_factor` >= 0."""

    brightness_factor: float = argument(check.number, low=0)

    def _one(self, value: Array) -> Array:
        if self.by_pillow:
            return enhanced(value, self.brightness_factor, "Brightness")
        images.check_rgb("AdjustBrightness", value, also_gray=True)
        return brightness(value, self.brightness_factor)


class AdjustContrast(images.ByPillow, OneToOne):
    """Contrast of an image times `contrast_factor` >= 0."""

    contrast_factor: float = argument(check.number, low=0)

    def _one(self, value: Array) -> Array:
        if self.by_pillow:
            return enhanced(value, self.contrast_factor, "Contrast")
        images.check_rgb("AdjustContrast", value)
        return contrast(value, self.contrast_factor)


class AdjustSaturation(images.ByPillow, OneToOne):
    """Saturation of an image times `saturation_factor` >= 0."""

    saturation_factor: float = argument(check.number, low=0, ranged="")

    def _one(self, value: Array) -> Array:
        if self.by_pillow:
            return enhanced(value, self.saturation_factor, "Color")
        images.check_rgb("AdjustSaturation", value)
        return saturation(value, self.saturation_factor)


class AdjustHue(images.ByPillow, OneToOne):
    """Hue of an image turned by `hue_factor` in [-0.5, 0.5] of the colour circle."""

    hue_factor: float = argument(check.number, low=-0.5, high=0.5)

    def _one(self, value: Array) -> Array:
        if self.by_pillow:
            return _hue_by_pillow(value, self.hue_factor)
        images.check_rgb("AdjustHue", value)
        return hue(value, self.hue_factor)


def _range(
    where: str, name: str, value: Any, center: float = 1, low: float = 0, high: float = FLOAT32_MAX
) -> tuple[float, float]:
    """Two numbers within [low, high], or those that lie up to one number away from `center`."""
    check.instance(where, name, value, numbers.Number, list, tuple)
    if not isinstance(value, (list, tuple)):
        refuse(value < 0, SporaxValueError, where, f"The input value of {name} cannot be negative.", value)
        # A width of more than 1 must not make a factor negative.
        value = max(low, center - value), center + value
    refuse(len(value) != 2, SporaxTypeError, where, f"If {name} is a sequence, the length must be 2.", value)
    first, last = (check.number(where, name, number, -np.inf, np.inf) for number in value)
    if first > last:
        words = f"{name} value should be in (min,max) format. Got ({value[0]}, {value[1]})."
        raise in_words(SporaxValueError, where, words)
    if first < low or last > high:
        raise range_error(where, "", f"[{low}, {high}]", value)
    return first, last


class RandomColorAdjust(images.ByPillow, RandomTransform):
    """Brightness, contrast, saturation and hue changed at random (known elsewhere as colour jitter)."""

    brightness: Any = argument(
        _range, "(smallest, largest) factor, or one number b for [1 - b, 1 + b].", default=(1, 1)
    )
    contrast: Any = argument(_range, "likewise.", default=(1, 1))
    saturation: Any = argument(_range, "likewise.", default=(1, 1))
    hue: Any = argument(
        _range,
        "(smallest, largest) turn within [-0.5, 0.5], or one number h for [-h, h].",
        default=(0, 0), center=0, low=-0.5, high=0.5,
    )  # fmt: skip

    def _prepare(self) -> None:
        self._ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        # A neutral range is skipped: even factor 1 would round.
        self._steps = [step for step in range(4) if self._ranges[step] != (_NEUTRAL[step],) * 2]
        self.takes = 2 + len(self._steps)

    def _draw(self, value: Array, rng: Draws) -> list[tuple[int, float]]:
        # The order of the four is drawn as well.
        order = [step for step in rng.order(4) if self.by_pillow or step in self._steps]
        return [(step, rng.single(*self._ranges[step])) for step in order]

    def _apply(self, value: Array, choice: list[tuple[int, float]]) -> Array:
        if self.by_pillow:
            for step, factor in choice:
                value = _STEPS_BY_PILLOW[step](value, factor)
            return value
        images.check_rgb("RandomColorAdjust", value)
        for step, factor in choice:
            value = _STEPS[step](value, factor)
        return value


_STEPS = (brightness, contrast, saturation, hue)
_STEPS_BY_PILLOW: tuple[Callable[[Array, float], Array], ...] = (
    *(functools.partial(enhanced, name=name) for name in ("Brightness", "Contrast", "Color")),
    _hue_by_pillow,
)
_NEUTRAL = (1.0, 1.0, 1.0, 0.0)


def _inverted(value: Array) -> Array:
    """255 minus every value, as far as the dtype goes; of bools nothing is left but True."""
    return images.rounded(255 - value.astype(np.float64), value.dtype)


class Invert(Elementwise):
    """255 minus every value."""

    def _one(self, value: Array) -> Array:
        images.check_inverted("Invert", value)
        return _inverted(value)


class Posterize(Elementwise):
    """Only the highest `bits` (0 to 8) of every byte are kept."""

    bits: int = argument(check.integer, low=0, high=8)

    def _one(self, value: Array) -> Array:
        images.check_bytes("Posterize", value)
        # 0xFF00 shifted leaves the highest bits of a byte.
        return value & np.uint8(0xFF00 >> self.bits & 0xFF)


class Solarize(Elementwise):
    """Values within a range are inverted."""

    threshold: Any = argument(
        of(float, int, list, tuple), "(lowest, highest) of the range, or its lowest with 255 as the highest."
    )

    def _prepare(self) -> None:
        limits = self.threshold if isinstance(self.threshold, (list, tuple)) else (self.threshold, 255)
        if len(limits) != 2:
            words = "threshold must be a single number or sequence of two numbers."
            raise in_words(SporaxTypeError, "Solarize", words, self.threshold)
        ends = (check.number("Solarize", f"threshold[{i}]", limit, 0, 255) for i, limit in enumerate(limits))
        self._low, self._high = ends
        if self._low > self._high:
            raise in_words(SporaxValueError, "Solarize", "threshold must be in order of (min, max).", self.threshold)

    def _one(self, value: Array) -> Array:
        images.check_inverted("Solarize", value)
        return np.where((value >= self._low) & (value <= self._high), _inverted(value), value)


class Equalize(images.ByPillow, OneToOne):
    """Bytes spread so that each channel's histogram becomes flat."""

    def _one(self, value: Array) -> Array:
        images.check_bytes("Equalize", value)
        # Pillow's own rounding differs in the last bit from OpenCV's.
        if self.by_pillow:
            equalize = importlib.import_module("PIL.ImageOps").equalize
            return np.array(equalize(images.pillow("Equalize").fromarray(value)))
        channels = value[..., None] if value.ndim == 2 else value
        planes = [_equalized(channels[..., c]) for c in range(channels.shape[-1])]
        return np.stack(planes, -1).reshape(value.shape)


def _equalized(plane: Array) -> Array:
    counts = np.bincount(plane.ravel(), minlength=256)
    # The darkest value maps to 0, so its count does not take part.
    first = int(np.flatnonzero(counts)[0])
    rest = plane.size - int(counts[first])
    if not rest:
        return plane.copy()
    counts[first] = 0
    # float32 as in OpenCV; halves to even.
    table = np.rint(np.cumsum(counts).astype(np.float32) * np.float32(255.0 / rest)).astype(np.uint8)
    return np.asarray(table[plane])


class AdjustGamma(Elementwise):
    """``gain * value ** gamma``, with values taken from 0 to 1 (bytes from 0 to 255) and kept there."""

    gamma: float = argument(check.number, "exponent >= 0.", low=0, ranged="")
    gain: float = argument(check.number, "factor.", default=1, ranged="")

    def _one(self, value: Array) -> Array:
        if value.dtype.kind in "USO" or value.ndim < 2:
            raise self.fault(f"an image must be numeric (…, H, W, C), but got {value.shape} {value.dtype}.")
        if value.dtype == np.uint8:
            # The whole range of the result is divided into 256 equal parts, as Pillow's users do it.
            # 256 - 1e-3: so that 1.0 falls into the last part.
            table = np.clip(self._curve(np.arange(256) / 255) * (256 - 1e-3), 0, 255).astype(np.uint8)
            return table[value]
        return np.clip(self._curve(value), 0, 1).astype(value.dtype)

    def _curve(self, value: Array) -> Array:
        return np.asarray(self.gain * value**self.gamma)


class AutoContrast(images.ByPillow, OneToOne):
    """Each channel's values spread over the whole range of bytes."""

    cutoff: float = argument(
        check.number,
        "percent of the darkest and of the lightest pixels that may saturate, in [0, 50).",
        default=0.0, low=0, high=50, open_high=True, types=(int, float),
    )  # fmt: skip
    ignore: int | Sequence[int] | None = argument(
        optional(of(list, tuple, int)), "values that do not count.", default=None
    )

    def _prepare(self) -> None:
        values = [] if self.ignore is None else [self.ignore] if isinstance(self.ignore, int) else self.ignore
        self._ignore = [check.integer("AutoContrast", "item", value, 0, 255, ranged="ignore") for value in values]

    def _one(self, value: Array) -> Array:
        images.check_bytes("AutoContrast", value)
        if self.by_pillow:
            spread = importlib.import_module("PIL.ImageOps").autocontrast
            return np.array(spread(images.pillow("AutoContrast").fromarray(value), self.cutoff, self._ignore or None))
        channels = value[..., None] if value.ndim == 2 else value
        planes = [self._table(channels[..., c])[channels[..., c]] for c in range(channels.shape[-1])]
        return np.stack(planes, -1).reshape(value.shape)

    def _table(self, plane: Array) -> Array:
        counts = np.bincount(plane.ravel(), minlength=256)
        counts[self._ignore] = 0
        excess = int(counts.sum() * np.float32(self.cutoff) // 100)
        # From both ends: reversed, truncated and reversed again.
        levels = np.flatnonzero(_without_first(_without_first(counts, excess)[::-1], excess)[::-1])
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


class RandomInvert(images.Sometimes):
    """`Invert` with probability `prob`."""

    _transform = Invert()
    prob: float = argument(check.probability, default=0.5)


class RandomEqualize(images.Sometimes):
    """`Equalize` with probability `prob`."""

    _transform = Equalize()
    prob: float = argument(check.probability, default=0.5)


class RandomAutoContrast(images.Sometimes):
    """`AutoContrast` with probability `prob`; the other arguments are its."""

    cutoff: float = argument(None, default=0.0)
    ignore: int | Sequence[int] | None = argument(None, default=None)
    prob: float = argument(check.probability, default=0.5)

    def _prepare(self) -> None:
        self._transform = AutoContrast(self.cutoff, self.ignore)


class RandomPosterize(RandomTransform):
    """`Posterize` with a random number of bits."""

    bits: Any = argument(of(list, tuple, int), "(smallest, largest) number in [1, 8], or the number.", default=(8, 8))

    def _prepare(self) -> None:
        where, bits = "RandomPosterize", self.bits
        limits = bits if isinstance(bits, (list, tuple)) else (bits, bits)
        if len(limits) != 2:
            words = "Size of bits should be a single integer or a list/tuple (min, max) of length 2."
            raise in_words(SporaxTypeError, where, words, bits)
        low = 0 if limits is bits else -FLOAT32_MAX
        self._low, self._high = (check.integer(where, "bits", limit, low, 255) for limit in limits)
        self.takes = int(self._low < self._high)
        if not 1 <= self._low <= self._high <= 8:
            raise range_error(where, "", "[1, 8]", bits)

    def _draw(self, value: Array, rng: Draws) -> int:
        return rng.integer(self._low, self._high)

    def _apply(self, value: Array, choice: int) -> Array:
        return Posterize(choice)._one(value)


class RandomSolarize(RandomTransform):
    """`Solarize` within a random range."""

    takes = 2

    threshold: Sequence[int] = argument(
        of(tuple),
        "(lowest, highest) that the ends of the range may be, in [0, 255]; equal ones make the range (lowest, 255).",
        default=(0, 255),
    )

    def _prepare(self) -> None:
        where, threshold = "RandomSolarize", self.threshold
        refuse(len(threshold) != 2, SporaxValueError, where, "threshold must be a sequence of two numbers.", threshold)
        ends = (check.integer(where, f"threshold[{i}]", end, 0, 255, ranged="") for i, end in enumerate(threshold))
        self._low, self._high = ends
        if self._low > self._high:
            raise in_words(SporaxValueError, where, "threshold must be in min max format numbers.", threshold)

    def _draw(self, value: Array, rng: Draws) -> list[int]:
        if self._low == self._high:
            # Equal ends mean a range up to white, as in MindSpore.
            return [self._low, 255]
        return sorted(rng.integer(self._low, self._high) for _ in range(2))

    def _apply(self, value: Array, choice: list[int]) -> Array:
        return Solarize(choice)._one(value)


class RandomColor(images.ByPillow, RandomTransform):
    """Between the gray version of an image and the image, or beyond."""

    takes = 1

    degrees: Sequence[float] = argument(
        images.check_degrees, "(smallest, largest) factor >= 0: 0 gives gray, 1 the image.", default=(0.1, 1.9)
    )

    def _draw(self, value: Array, rng: Draws) -> float:
        return rng.single(*self.degrees)

    def _apply(self, value: Array, choice: float) -> Array:
        if self.by_pillow:
            return enhanced(value, choice, "Color")
        images.check_rgb("RandomColor", value)
        return saturation(value, choice)


class RandomLighting(RandomTransform):
    """Colour noise along the principal components of ImageNet's pixels (Krizhevsky et al. 2012, section 4.1)."""

    # Of ImageNet's RGB values, from the paper.
    _EIGENVALUES = np.array([55.46, 4.794, 1.148])
    _EIGENVECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])

    alpha: float = argument(check.number, "standard deviation of the components' weights, >= 0.", default=0.05, low=0)

    def _draw(self, value: Array, rng: Draws) -> Array:
        return np.asarray(self._EIGENVECTORS @ (self._EIGENVALUES * rng.generator.normal(0.0, self.alpha, 3)))

    def _apply(self, value: Array, choice: Array) -> Array:
        images.check_rgb("RandomLighting", value)
        return np.clip(value + choice, 0, 255).astype(value.dtype)
