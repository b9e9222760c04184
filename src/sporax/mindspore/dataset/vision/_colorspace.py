"""Images with the same pixels in another light: other colour spaces and orders of channels, sharpness and blur."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of
from sporax.mindspore.dataset._checks import FLOAT32_MAX, in_words, refuse
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._color import enhanced, gray
from sporax.mindspore.dataset.vision._images import ByPillow, Sometimes, check_degrees, check_image, check_rgb, rounded
from sporax.mindspore.dataset.vision.enums import ConvertMode

_PILLOW_GRAY = np.array([19595, 38470, 7471])  # 0.299, 0.587, 0.114 in 16-bit fixed point


def _luminance(value: Array) -> Array:
    """Gray (H, W) of bytes as Pillow rounds it."""
    if value.dtype != np.uint8:
        return gray(value)[..., 0]
    # 0x8000 is half of 2 ** 16.
    return ((value.astype(np.int64) @ _PILLOW_GRAY + 0x8000) >> 16).astype(np.uint8)


class Grayscale(OneToOne):
    """An RGB image made gray."""

    only_pillow = True

    num_output_channels: int = argument(check.integer, "1 for (H, W), 3 for three equal channels.", default=1)

    def _prepare(self) -> None:
        if self.num_output_channels not in (1, 3):
            words = "Number of channels of the output grayscale imageshould be either 1 or 3."
            raise in_words(SporaxValueError, "Grayscale", f"{words} Got {self.num_output_channels}.")

    def _one(self, value: Array) -> Array:
        check_image("Grayscale", value)
        # What is behind the colours says how opaque they are.
        value = value[..., :3] if value.shape[2:] == (4,) else value
        check_rgb("Grayscale", value, also_gray=True)
        # Gray images stay as they are.
        plane = value.reshape(value.shape[:2]) if value.size == math.prod(value.shape[:2]) else _luminance(value)
        return plane if self.num_output_channels == 1 else np.repeat(plane[..., None], 3, -1)


class RandomGrayscale(RandomTransform):
    """An RGB image made gray with probability `prob`; it keeps its three channels. Gray images stay as they are."""

    only_pillow = True

    prob: float = argument(check.probability, default=0.1)

    def _draw(self, value: Array, rng: Draws) -> bool:
        return rng.coin(self.prob)

    def _apply(self, value: Array, choice: bool) -> Array:
        check_image("RandomGrayscale", value)
        gray = value.ndim == 2 or value.shape[2] == 1
        return Grayscale(3)._one(value) if choice and not gray else value


class _OfChannels(OneToOne):
    """Base of maps from three channels to three, first or last in (…, 3, H, W) or (…, H, W, 3)."""

    only_pillow = True

    is_hwc: bool = argument(check.boolean, "whether images are (…, H, W, 3) or (…, 3, H, W).", default=False)

    def _one(self, value: Array) -> Array:
        # Both layouts have three axes, so only the size of the channel axis can show a mistake.
        axis = -1 if self.is_hwc else -3
        if value.ndim not in (3, 4) or value.shape[axis] != 3 or value.dtype.kind in "USO":
            layout = "(…, H, W, 3)" if self.is_hwc else "(…, 3, H, W)"
            raise SporaxTypeError(f"For '{self.name}', an image must be {layout}, but got {value.shape} {value.dtype}.")
        planes = np.moveaxis(value, axis, 0)
        # Integers compute in double precision; floats stay as they are.
        dtype = value.dtype if value.dtype.kind == "f" else np.float64
        return np.ascontiguousarray(np.stack(self._mapped(*planes.astype(dtype)), axis))

    def _mapped(self, first: Array, second: Array, third: Array) -> tuple[Array, Array, Array]:
        raise NotImplementedError


class RgbToHsv(_OfChannels):
    """Red, green and blue in [0, 1] to hue, saturation and value in [0, 1]."""

    def _mapped(self, first: Array, second: Array, third: Array) -> tuple[Array, Array, Array]:
        high, low = np.maximum(np.maximum(first, second), third), np.minimum(np.minimum(first, second), third)
        spread = high - low
        # Gray pixels: the sector is 0 by the first case, whatever the divisor.
        safe = np.where(spread == 0, 1, spread)
        sector = np.select(
            [spread == 0, high == first, high == second],
            [np.zeros_like(high), (second - third) / safe, 2 + (third - first) / safe],
            4 + (first - second) / safe,
        )
        return (sector / 6) % 1.0, spread / np.where(high == 0, 1, high), high


class HsvToRgb(_OfChannels):
    """Hue, saturation and value in [0, 1] to red, green and blue."""

    def _mapped(self, first: Array, second: Array, third: Array) -> tuple[Array, Array, Array]:
        # Each channel is at its peak for a third of the circle and falls off linearly on both sides.
        red, green, blue = (
            third - third * second * np.clip(np.minimum(k, 4 - k), 0, 1)
            for k in ((first * 6 + n) % 6 for n in (5, 3, 1))
        )
        return red, green, blue


class ConvertColor(OneToOne):
    """Channels in another order, with or without an alpha channel, or made gray."""

    convert_mode: ConvertMode = argument(of(ConvertMode), "a ConvertMode: from what to what.")

    def _prepare(self) -> None:
        # "COLOR_RGB2BGRA": the names of the modes say both sides.
        self._source, self._target = self.convert_mode.name.removeprefix("COLOR_").split("2")

    def _one(self, value: Array) -> Array:
        check_image("ConvertColor", value)
        channels = 1 if value.ndim == 2 else value.shape[2]
        count = 1 if self._source == "GRAY" else len(self._source)
        if channels != count:
            raise self.fault(f"a {self._source} image must have {count} channels, but got the shape {value.shape}.")
        if self._target == "GRAY":
            # By name, since BGR and RGB differ in the order only.
            return gray(value[..., [self._source.index(channel) for channel in "RGB"]])[..., 0]
        planes = value.reshape(*value.shape[:2], count)
        # Opaque alpha is the largest value of the dtype's range.
        opaque = np.full(value.shape[:2], 255 if value.dtype == np.uint8 else 1, value.dtype)
        # A gray image gives its plane to all three colors.
        named = dict.fromkeys("RGB", planes[..., 0]) if count == 1 else {}
        named |= {"A": opaque} | {channel: planes[..., i] for i, channel in enumerate(self._source) if count > 1}
        return np.stack([named[channel] for channel in self._target], -1)


_ONE = 1 << 8
"""Weights of a blur of bytes are multiples of 1/256, as in OpenCV."""


def sharpened(value: Array, factor: float) -> Array:
    """Between a softened version (factor 0) and the image (1), or beyond; the outermost pixels stay.

    Softened is the mean of the pixel, five times, and its eight neighbours.
    """
    check_image("AdjustSharpness", value)
    # No pixel has all eight neighbours.
    if min(value.shape[:2]) < 3:
        return value.copy()
    wide = value.astype(np.float32)
    height, width = value.shape[:2]
    # 4 + 1 times the middle, since the loop adds it once.
    total = 4 * wide[1:-1, 1:-1]
    for top in range(3):
        for left in range(3):
            total += wide[top : top + height - 2, left : left + width - 2]
    soft = wide.copy()
    # Rounded before mixing, as Pillow and MindSpore do it in two steps.
    soft[1:-1, 1:-1] = rounded(total / np.float32(13), value.dtype)
    return rounded(soft * np.float32(1 - factor) + wide * np.float32(factor), value.dtype)


class AdjustSharpness(OneToOne):
    """Sharpness of an image times `sharpness_factor` >= 0: 0 softens, 2 doubles it."""

    sharpness_factor: float = argument(check.number, low=0, ranged="")

    def _one(self, value: Array) -> Array:
        return sharpened(value, self.sharpness_factor)


class RandomSharpness(ByPillow, RandomTransform):
    """Sharpness times a random factor."""

    takes = 1

    degrees: Sequence[float] = argument(check_degrees, "(smallest, largest) factor >= 0.", default=(0.1, 1.9))

    def _draw(self, value: Array, rng: Draws) -> float:
        low, high = self.degrees
        return rng.turned(low, high)

    def _apply(self, value: Array, choice: float) -> Array:
        return enhanced(value, choice, "Sharpness") if self.by_pillow else sharpened(value, choice)


class RandomAdjustSharpness(Sometimes):
    """`AdjustSharpness` by `degree` >= 0, with probability `prob`."""

    degree: float = argument(check.number, low=0)
    prob: float = argument(check.probability, default=0.5)

    def _prepare(self) -> None:
        self._transform = AdjustSharpness(self.degree)


class GaussianBlur(OneToOne):
    """An image blurred by a Gaussian; beyond its edges it is mirrored."""

    kernel_size: Any = argument(of(int, list, tuple), "odd width of the kernel in pixels, or (horizontal, vertical).")
    sigma: Any = argument(
        None,
        "standard deviation in pixels, or (horizontal, vertical); ``0.15 * kernel_size + 0.35`` by default.",
        default=None,
    )

    def _prepare(self) -> None:
        where = "GaussianBlur"
        words = "Kernel size should be a single integer or a list/tuple (kernel_width, kernel_height) of length 2."
        sizes = _pair("kernel_size", self.kernel_size, words)
        self._sizes = [check.integer(where, n, size, 1, FLOAT32_MAX, ranged="kernel_size") for n, size in sizes]
        if even := [name for name, size in sizes if size % 2 == 0]:
            raise in_words(SporaxValueError, where, f"Input {even[0]} is not an odd value.", self.kernel_size)
        defaults = [0.15 * size + 0.35 for size in self._sizes]
        widths = defaults if self.sigma is None else self.sigma
        check.instance(where, "sigma", widths, numbers.Number, list, tuple)
        words = "Sigma should be a single number or a list/tuple of length 2 for width and height."
        # The words of MindSpore call a part of sigma a size.
        self._sigmas = [
            check.number(where, name.replace("sigma[", "size["), width, 0, types=(numbers.Number,), ranged="sigma")
            for name, width in _pair("sigma", widths, words)
        ]
        # A sigma of 0 means the default, as in OpenCV.
        self._sigmas = [specified or default for specified, default in zip(self._sigmas, defaults, strict=True)]

    def _one(self, value: Array) -> Array:
        check_image("GaussianBlur", value)
        across, down = (_gaussian(size, width) for size, width in zip(self._sizes, self._sigmas, strict=True))
        if value.dtype != np.uint8:
            return _convolved(_convolved(value.astype(np.float64), across, 1), down, 0).astype(value.dtype)
        # Across first, then down: each row sums to 2**16 in all.
        blurred = _convolved(_convolved(value.astype(np.int64), _fixed(across), 1), _fixed(down), 0)
        # Half of 2**16 rounds to nearest.
        return ((blurred + _ONE * _ONE // 2) // (_ONE * _ONE)).astype(np.uint8)


def _pair(name: str, value: Any, words: str) -> list[tuple[str, Any]]:
    """Two numbers with their names, from one or two."""
    if not isinstance(value, (list, tuple)):
        return [(name, value)] * 2
    refuse(len(value) != 2, SporaxTypeError, "GaussianBlur", words, value)
    return [(f"{name}[{i}]", number) for i, number in enumerate(value)]


def _gaussian(size: int, sigma: float) -> Array:
    x = np.arange(size) - (size - 1) / 2
    weights = np.exp(-(x**2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum())


def _fixed(weights: Array) -> Array:
    """Weights as whole numbers of sum 256: what one is rounded by, its neighbour nearer to the middle makes up for."""
    result, error = np.zeros(len(weights), np.int64), 0.0
    middle = len(weights) // 2
    for i in range(middle):
        exact = weights[i] * _ONE + error
        result[i] = result[-1 - i] = round(exact)
        error = exact - result[i]
    result[middle] = _ONE - result.sum()
    return result


def _convolved(image: Array, weights: Array, axis: int) -> Array:
    reach = len(weights) // 2
    around = [(0, 0)] * image.ndim
    around[axis] = (reach, reach)
    # OpenCV's BORDER_REFLECT_101; one pixel has nothing to mirror.
    wide = np.pad(image, around, mode="reflect" if image.shape[axis] > 1 else "edge")
    # Shifted copies in place of a loop over pixels.
    parts = [np.take(wide, range(i, i + image.shape[axis]), axis) * weight for i, weight in enumerate(weights)]
    return np.asarray(sum(parts))
