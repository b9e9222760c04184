"""Augmentation policies: AutoAugment, RandAugment, TrivialAugment and the like.

The operations, their strengths and the learnt policies are those of the papers (Cubuk et al. 2018 and 2019, Müller & Hutter
2021). Each operation has a space of strengths: an array with one for each bin, and whether its sign is drawn.

The policies of AutoAugment (Cubuk et al. 2018, appendix): pairs of (operation, probability, bin of the strength).

The bin of an operation without strength is 0.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of
from sporax.mindspore.dataset._checks import FLOAT32_MAX, in_words, range_error, refuse
from sporax.mindspore.dataset._operations import Operation, RandomTransform, Transform, Values, as_transform
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._color import (
    AutoContrast,
    Equalize,
    Invert,
    Posterize,
    Solarize,
    brightness,
    contrast,
    saturation,
)
from sporax.mindspore.dataset.vision._colorspace import sharpened
from sporax.mindspore.dataset.vision._images import OUTSIDE, check_bytes, check_fill, check_rgb, sides
from sporax.mindspore.dataset.vision._rotate import check_warp, moved, rotated
from sporax.mindspore.dataset.vision.enums import AutoAugmentPolicy, Inter

Entry = tuple[str, float, int]


def _pairs(table: str) -> tuple[tuple[Entry, Entry], ...]:
    words = iter(table.replace("|", " ").split())
    entries = [(name, float(prob), int(bin)) for name, prob, bin in zip(words, words, words, strict=True)]
    return tuple(zip(entries[::2], entries[1::2], strict=True))


LEARNT: dict[AutoAugmentPolicy, tuple[tuple[Entry, Entry], ...]] = {
    AutoAugmentPolicy.IMAGENET: _pairs(
        """
        Posterize 0.4 8 Rotate 0.6 9 | Solarize 0.6 5 AutoContrast 0.6 0 | Equalize 0.8 0 Equalize 0.6 0
        | Posterize 0.6 7 Posterize 0.6 6 | Equalize 0.4 0 Solarize 0.2 4 | Equalize 0.4 0 Rotate 0.8 8
        | Solarize 0.6 3 Equalize 0.6 0 | Posterize 0.8 5 Equalize 1.0 0 | Rotate 0.2 3 Solarize 0.6 8
        | Equalize 0.6 0 Posterize 0.4 6 | Rotate 0.8 8 Color 0.4 0 | Rotate 0.4 9 Equalize 0.6 0
        | Equalize 0.0 0 Equalize 0.8 0 | Invert 0.6 0 Equalize 1.0 0 | Color 0.6 4 Contrast 1.0 8
        | Rotate 0.8 8 Color 1.0 2 | Color 0.8 8 Solarize 0.8 7 | Sharpness 0.4 7 Invert 0.6 0
        | ShearX 0.6 5 Equalize 1.0 0 | Color 0.4 0 Equalize 0.6 0 | Equalize 0.4 0 Solarize 0.2 4
        | Solarize 0.6 5 AutoContrast 0.6 0 | Invert 0.6 0 Equalize 1.0 0 | Color 0.6 4 Contrast 1.0 8
        | Equalize 0.8 0 Equalize 0.6 0
        """
    ),
    AutoAugmentPolicy.CIFAR10: _pairs(
        """
        Invert 0.1 0 Contrast 0.2 6 | Rotate 0.7 2 TranslateX 0.3 9 | Sharpness 0.8 1 Sharpness 0.9 3
        | ShearY 0.5 8 TranslateY 0.7 9 | AutoContrast 0.5 0 Equalize 0.9 0 | ShearY 0.2 7 Posterize 0.3 7
        | Color 0.4 3 Brightness 0.6 7 | Sharpness 0.3 9 Brightness 0.7 9 | Equalize 0.6 0 Equalize 0.5 0
        | Contrast 0.6 7 Sharpness 0.6 5 | Color 0.7 7 TranslateX 0.5 8 | Equalize 0.3 0 AutoContrast 0.4 0
        | TranslateY 0.4 3 Sharpness 0.2 6 | Brightness 0.9 6 Color 0.2 8 | Solarize 0.5 2 Invert 0.0 0
        | Equalize 0.2 0 AutoContrast 0.6 0 | Equalize 0.2 0 Equalize 0.6 0 | Color 0.9 9 Equalize 0.6 0
        | AutoContrast 0.8 0 Solarize 0.2 8 | Brightness 0.1 3 Color 0.7 0 | Solarize 0.4 5 AutoContrast 0.9 0
        | TranslateY 0.9 9 TranslateY 0.7 9 | AutoContrast 0.9 0 Solarize 0.8 3 | Equalize 0.8 0 Invert 0.1 0
        | TranslateY 0.7 9 AutoContrast 0.9 0
        """
    ),
    AutoAugmentPolicy.SVHN: _pairs(
        """
        ShearX 0.9 4 Invert 0.2 0 | ShearY 0.9 8 Invert 0.7 0 | Equalize 0.6 0 Solarize 0.6 6
        | Invert 0.9 0 Equalize 0.6 0 | Equalize 0.6 0 Rotate 0.9 3 | ShearX 0.9 4 AutoContrast 0.8 0
        | ShearY 0.9 8 Invert 0.4 0 | ShearY 0.9 5 Solarize 0.2 6 | Invert 0.9 0 AutoContrast 0.8 0
        | Equalize 0.6 0 Rotate 0.9 3 | ShearX 0.9 4 Solarize 0.3 3 | ShearY 0.8 8 Invert 0.7 0
        | Equalize 0.9 0 TranslateY 0.6 6 | Invert 0.9 0 Equalize 0.6 0 | Contrast 0.3 3 Rotate 0.8 4
        | Invert 0.8 0 TranslateY 0.0 2 | ShearY 0.7 6 Solarize 0.4 8 | Invert 0.6 0 Rotate 0.8 4
        | ShearY 0.3 7 TranslateX 0.9 3 | ShearX 0.1 6 Invert 0.6 0 | Solarize 0.7 2 TranslateY 0.6 7
        | ShearY 0.8 4 Invert 0.8 0 | ShearX 0.7 9 TranslateY 0.8 3 | ShearY 0.8 5 AutoContrast 0.7 0
        | ShearX 0.7 2 Invert 0.1 0
        """
    ),
}


Space = Mapping[str, tuple[Array, bool]]
Step = tuple[str, float]
"""An operation and its strength."""

_NOTHING = (np.zeros(1), False)


def _space(
    bins: int, shear: float, shift: tuple[float, float], turn: float, change: float, fewer_bits: int
) -> dict[str, tuple[Array, bool]]:
    """Strengths from none to the given ones: shear, shift in pixels (x, y), degrees, change of a factor, bits lost."""
    up_to = {"ShearX": shear, "ShearY": shear, "TranslateX": shift[0], "TranslateY": shift[1], "Rotate": turn}
    up_to |= dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), change)
    space = {name: (np.linspace(0.0, top, bins), True) for name, top in up_to.items()}
    # Bits that are kept: 8 less those that are lost.
    space["Posterize"] = (8 - np.rint(np.linspace(0, fewer_bits, bins)), False)
    # A lower threshold is the stronger effect.
    space["Solarize"] = (np.linspace(255.0, 0.0, bins), False)
    return space | dict.fromkeys(("AutoContrast", "Equalize"), _NOTHING)


def _sheared(value: Array, x: float, y: float, inter: Inter, fill: tuple[int, ...]) -> Array:
    # The shear as an angle in radians, as in MindSpore.
    return moved(value, 0.0, (0.0, 0.0), 1.0, (math.degrees(x), math.degrees(y)), inter, fill)


def _shifted(value: Array, x: float, y: float, inter: Inter, fill: tuple[int, ...]) -> Array:
    # Whole pixels, as in the papers.
    return moved(value, 0.0, (float(int(x)), float(int(y))), 1.0, (0.0, 0.0), inter, fill)


_OPERATIONS: dict[str, Callable[[Array, float, Inter, tuple[int, ...]], Array]] = {
    "Identity": lambda value, m, inter, fill: value,
    "ShearX": lambda value, m, inter, fill: _sheared(value, m, 0.0, inter, fill),
    "ShearY": lambda value, m, inter, fill: _sheared(value, 0.0, m, inter, fill),
    "TranslateX": lambda value, m, inter, fill: _shifted(value, m, 0.0, inter, fill),
    "TranslateY": lambda value, m, inter, fill: _shifted(value, 0.0, m, inter, fill),
    "Rotate": lambda value, m, inter, fill: rotated(value, m, inter, False, None, fill),
    "Brightness": lambda value, m, inter, fill: brightness(value, 1 + m),
    "Color": lambda value, m, inter, fill: saturation(value, 1 + m),
    "Contrast": lambda value, m, inter, fill: contrast(value, 1 + m),
    "Sharpness": lambda value, m, inter, fill: sharpened(value, 1 + m),
    "Posterize": lambda value, m, inter, fill: Posterize(int(m))._one(value),
    "Solarize": lambda value, m, inter, fill: Solarize(m)._one(value),
    "AutoContrast": lambda value, m, inter, fill: AutoContrast()._one(value),
    "Equalize": lambda value, m, inter, fill: Equalize()._one(value),
    "Invert": lambda value, m, inter, fill: Invert()._one(value),
}


_MOVES = "NEAREST, LINEAR, BICUBIC or AREA, for operations that move pixels."


class _Policy(RandomTransform):
    """Base of the policies: a random list of steps for each image (H, W, 3) of bytes."""

    interpolation, fill_value = Inter.NEAREST, (0,)

    def _draw(self, value: Array, rng: Draws) -> list[Step]:
        if value.ndim != 3:
            fault = "the dimension of image tensor does not match the requirement of operator"
            raise self.fault(f"{self.name}: {fault}: (H, W, 3), but got {value.shape}.")
        check_rgb(self.name, value)
        # Strengths are tuned on bytes.
        check_bytes(self.name, value)
        return self._steps(sides(value), rng)

    @abc.abstractmethod
    def _steps(self, size: tuple[int, int], rng: Draws) -> list[Step]:
        """The operations for an image of (height, width)."""

    def _apply(self, value: Array, choice: list[Step]) -> Array:
        for name, strength in choice:
            value = _OPERATIONS[name](value, strength, self.interpolation, self.fill_value)
        return value


def _signed(space: Space, name: str, index: int, negative: bool) -> Step:
    strengths, signed = space[name]
    strength = float(strengths[min(index, len(strengths) - 1)])
    return name, -strength if signed and negative else strength


def _below(count: int, rng: Draws) -> int:
    # MindSpore's way, by which 0 is twice as likely.
    return rng.integer(0, count) % count


class AutoAugment(_Policy):
    """One of the pairs of operations that were learnt for a kind of data."""

    takes = 5

    policy: AutoAugmentPolicy = argument(of(AutoAugmentPolicy), "whose.", default=AutoAugmentPolicy.IMAGENET)
    interpolation: Inter = argument(check_warp, _MOVES, default=Inter.NEAREST)
    fill_value: Any = argument(check_fill, OUTSIDE, default=0)

    def _steps(self, size: tuple[int, int], rng: Draws) -> list[Step]:
        height, width = size
        # The policies were learnt on images of 331 pixels with shifts of up to 150.
        space = _space(10, 0.3, (150 / 331 * width, 150 / 331 * height), 30.0, 0.9, 4) | {"Invert": _NOTHING}
        pairs = LEARNT[self.policy]
        pair = pairs[rng.integer(0, len(pairs) - 1)]
        shares, signs = [rng.single() for _ in pair], [rng.integer(0, 1) for _ in pair]
        return [
            _signed(space, name, index, not sign)
            for (name, prob, index), share, sign in zip(pair, shares, signs, strict=True)
            if share <= prob
        ]


class RandAugment(_Policy):
    """Some random operations of one strength."""

    num_ops: int = argument(None, "how many operations.", default=2)
    magnitude: int = argument(None, "bin of the strength.", default=9)
    num_magnitude_bins: int = argument(None, "number of bins, > `magnitude`.", default=31)
    interpolation: Inter = argument(check_warp, _MOVES, default=Inter.NEAREST)
    fill_value: Any = argument(check_fill, OUTSIDE, default=0)

    def _prepare(self) -> None:
        check.integer(self.name, "num_ops", self.num_ops, 0, FLOAT32_MAX)
        check.integer(self.name, "num_magnitude_bins", self.num_magnitude_bins, 2, FLOAT32_MAX)
        check.integer(self.name, "magnitude", self.magnitude)
        self.takes = 2 * self.num_ops
        if not 0 <= self.magnitude < self.num_magnitude_bins:
            raise range_error(self.name, "magnitude", f"[0, {self.num_magnitude_bins})", self.magnitude)

    def _steps(self, size: tuple[int, int], rng: Draws) -> list[Step]:
        height, width = size
        space = _space(self.num_magnitude_bins, 0.3, (150 / 331 * width, 150 / 331 * height), 30.0, 0.9, 4) | {
            "Identity": _NOTHING
        }
        names = sorted(space)
        return [
            _signed(space, names[_below(len(names), rng)], self.magnitude, bool(_below(2, rng)))
            for _ in range(self.num_ops)
        ]


class TrivialAugmentWide(_Policy):
    """One random operation of random strength, out of wide ranges."""

    takes = 3

    num_magnitude_bins: int = argument(None, "number of strengths.", default=31)
    interpolation: Inter = argument(check_warp, _MOVES, default=Inter.NEAREST)
    fill_value: Any = argument(check_fill, OUTSIDE, default=0)

    def _prepare(self) -> None:
        bins = check.integer(self.name, "num_magnitude_bins", self.num_magnitude_bins, 2, FLOAT32_MAX)
        self._space = _space(bins, 0.99, (32.0, 32.0), 135.0, 0.99, 6) | {"Identity": _NOTHING}

    def _steps(self, size: tuple[int, int], rng: Draws) -> list[Step]:
        name = sorted(self._space)[_below(len(self._space), rng)]
        count = len(self._space[name][0])
        index = _below(count, rng) if count > 1 else 0
        return [_signed(self._space, name, index, bool(_below(2, rng)))]


class UniformAugment(Transform):
    """Some of several transforms in their order, each of them applied or not."""

    draws = True

    transforms: Sequence[Any] = argument(None, "at least `num_ops` transforms or functions.")
    num_ops: int = argument(of(int), "how many are chosen.", default=2)

    def _prepare(self) -> None:
        where, transforms = "UniformAugment", self.transforms
        check.positive(where, "num_ops", self.num_ops)
        if self.num_ops > len(transforms):
            raise in_words(SporaxValueError, where, "num_ops is greater than transforms list size.", self.num_ops)
        check.instance(where, "transforms list", transforms, list, tuple)
        self.operations = tuple(as_transform(where, f"transforms[{i}]", item) for i, item in enumerate(transforms))
        self.takes = (len(transforms) + 1) // 2 + self.num_ops

    def on_row(self, values: Values, rng: Draws) -> Values:
        for index in rng.sample(len(self.operations), self.num_ops):
            if not rng.integer(0, 1):
                values = self.operations[index].on_row(values, rng.inner(index, self.operations[index].takes))
        return values


class RandomSelectSubpolicy(Transform):
    """One of several lists of transforms, each of them applied with its own probability."""

    draws = True

    policy: Sequence[Sequence[tuple[Any, float]]] = argument(of(list), "lists of (transform, probability).")

    def _prepare(self) -> None:
        policy = self.policy
        for name, entries in (("policy", policy), *((f"policy[{i}]", entries) for i, entries in enumerate(policy))):
            check.instance(self.name, name.replace("[", "[[").replace("]", "]]"), entries, list)
            refuse(not entries, SporaxValueError, self.name, f"{name} can not be empty.")
        self._policy = [[_entry(f"[{i}][{k}]", op) for k, op in enumerate(ops)] for i, ops in enumerate(policy)]
        self.operations = tuple(operation for sub_policy in self._policy for operation, _ in sub_policy)
        self.takes = 1 + 2 * max(map(len, policy))

    def on_row(self, values: Values, rng: Draws) -> Values:
        chosen = rng.integer(0, len(self._policy) - 1)
        for number, (operation, prob) in enumerate(self._policy[chosen]):
            if rng.double() <= prob:
                values = operation.on_row(values, rng.inner(number, operation.takes))
        return values


def _entry(place: str, entry: Any) -> tuple[Operation, float]:
    where = "RandomSelectSubpolicy"
    if not isinstance(entry, tuple) or len(entry) != 2:
        raise in_words(SporaxValueError, where, f"Value policy{place} needs to be a 2-tuple.", entry)
    operation = as_transform(where, f"op of (op, prob) in policy{place}", entry[0])
    return operation, check.number(where, f"prob of (op, prob) policy{place}", entry[1], 0, 1)
