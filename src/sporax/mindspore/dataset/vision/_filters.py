"""Transforms that look at the neighbours of a pixel: sharpness and Gaussian blur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset._checks import check_int, check_number, type_error
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._images import Sometimes, check_degrees, check_image, rounded

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

    def __init__(self, sharpness_factor: float) -> None:
        self._factor = check_number("AdjustSharpness", "sharpness_factor", sharpness_factor, 0)

    def _one(self, value: Array) -> Array:
        return sharpened(value, self._factor)


class RandomSharpness(RandomTransform):
    """Sharpness times a random factor.

    Args:
        degrees: (smallest, largest) factor >= 0.
    """

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self._range = check_degrees("RandomSharpness", degrees)

    def _draw(self, value: Array, rng: np.random.Generator) -> float:
        return float(rng.uniform(*self._range))

    def _apply(self, value: Array, choice: float) -> Array:
        return sharpened(value, choice)


class RandomAdjustSharpness(Sometimes):
    """`AdjustSharpness` by `degree` >= 0, with probability `prob`."""

    def __init__(self, degree: float, prob: float = 0.5) -> None:
        check_number("RandomAdjustSharpness", "degree", degree, 0)
        super().__init__(AdjustSharpness(degree), prob)


class GaussianBlur(OneToOne):
    """An image blurred by a Gaussian; beyond its edges it is mirrored.

    Args:
        kernel_size: odd width of the kernel in pixels, or (horizontal, vertical).
        sigma: standard deviation in pixels, or (horizontal, vertical); ``0.15 * kernel_size + 0.35`` by default.
    """

    def __init__(self, kernel_size: Any, sigma: Any = None) -> None:
        sizes = _pair("kernel_size", kernel_size)
        self._sizes = [check_int("GaussianBlur", "kernel_size", size, 1) for size in sizes]
        if any(size % 2 == 0 for size in self._sizes):
            raise SporaxValueError(f"For 'GaussianBlur', 'kernel_size' must be odd, but got {kernel_size!r}.")
        defaults = [0.15 * size + 0.35 for size in self._sizes]
        widths = defaults if sigma is None else _pair("sigma", sigma)
        self._sigmas = [check_number("GaussianBlur", "sigma", width, 0) for width in widths]
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


def _pair(name: str, value: Any) -> Sequence[Any]:
    values = value if isinstance(value, (list, tuple)) else (value, value)
    if len(values) != 2:
        raise SporaxTypeError(f"For 'GaussianBlur', '{name}' must be one number or two, but got {value!r}.")
    if any(isinstance(value, bool) for value in values):
        raise type_error("GaussianBlur", name, "a number", value)
    return values


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
