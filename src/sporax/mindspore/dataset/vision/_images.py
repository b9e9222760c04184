"""What the vision transforms share: checks of sizes, images and pixels, the image axes, and Pillow's images.

An image is (H, W) or (H, W, C); transforms that move pixels also take (…, H, W, C).
"""

from __future__ import annotations

import copy
import importlib
import numbers
from typing import Any

import numpy as np

from sporax.base.errors import SporaxImportError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import FLOAT32_MAX, in_words, refuse
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform, Transform
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array

# Pixels; OpenCV's limit, by which MindSpore checks sizes.
MAX_SIDE = FLOAT32_MAX
SQUARE = "(height, width), or one int for a square."
"""The documentation of sizes that `check_size` takes."""
OUTSIDE = "what is outside the image: one value in [0, 255], or one per channel of an RGB image."
BORDER = "what a CONSTANT border holds: one value in [0, 255], or one per channel of an RGB image."
"""The documentation of values that `check_fill` takes."""


def check_image(where: str, value: Array, dims: tuple[int, ...] = (2, 3)) -> None:
    """Refuse arrays that are not images.

    Raises:
        SporaxRuntimeError: the number of dimensions is not in `dims`, or the array holds strings.
    """
    if value.ndim not in dims or value.dtype.kind in "USO":
        raise SporaxRuntimeError(
            f"For '{where}', {_fault(where, value)} An image must be a numeric array of {' or '.join(map(str, dims))} "
            f"dimensions (H, W[, C]), but got the shape {value.shape} and {value.dtype}."
        )


def check_pixels(where: str, value: Array) -> None:
    """Refuse arrays that are neither images nor stacks (…, H, W, C) of them."""
    if value.ndim < 2 or value.dtype.kind in "USO":
        raise SporaxRuntimeError(
            f"For '{where}', {_fault(where, value)} An image must be a numeric array (H, W) or (…, H, W, C), "
            f"but got the shape {value.shape} and {value.dtype}."
        )


def _fault(where: str, value: Array) -> str:
    """What is wrong, in MindSpore's words."""
    if value.dtype.kind in "USO" and value.ndim > 1:
        return (
            f"{where}: the data type of image tensor does not match the requirement of operator. Currently unsupported data "
            "type: [uint32, int64, uint64, string]."
        )
    if value.ndim < 2:
        return f"{where}: the image tensor should have at least two dimensions. You may need to perform Decode first."
    return f"{where}: shape is invalid. input tensor is not in shape of <H,W> or <H,W,C>."


def height_axis(value: Array) -> int:
    """The axis of H, counted from the end; W follows."""
    # From the end, so that stacks of images need no other code.
    return -2 if value.ndim == 2 else -3


def sides(value: Array) -> tuple[int, int]:
    """(H, W) of an image."""
    axis = height_axis(value)
    return value.shape[axis], value.shape[axis + 1]


def window(value: Array, top: int, left: int, height: int, width: int) -> Array:
    """A part of an image, as a view."""
    rows, columns = slice(top, top + height), slice(left, left + width)
    return value[rows, columns] if value.ndim == 2 else value[..., rows, columns, :]


def check_size(where: str, name: str, size: object, *, resizes: bool = False) -> tuple[int, int]:
    """(height, width) from one int (a square) or two; MindSpore has other words where a whole image is resized."""
    if not resizes:
        check.instance(where, name, size, int, list, tuple)
    if isinstance(size, int):
        side = check.integer(where, name, size, 1, MAX_SIDE, ranged="")
        return side, side
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        words = "Size should be a single integer or a list/tuple (h, w) of length 2."
        raise in_words(SporaxTypeError, where, words, size)
    if resizes:
        return check.integer(where, "size at dim 0", size[0], 1), check.integer(where, "size at dim 1", size[1], 1)
    height, width = (check.integer(where, f"size[{i}]", side, 1, MAX_SIDE, ranged="") for i, side in enumerate(size))
    return height, width


def check_padding(where: str, name: str, padding: object) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) from one int, (left-and-right, top-and-bottom), or all four."""
    check.instance(where, name, padding, tuple, list, numbers.Number)
    if not isinstance(padding, (tuple, list)):
        return (check.integer(where, name, padding, 0),) * 4
    if len(padding) not in (2, 4):
        raise in_words(SporaxValueError, where, "The size of the padding list or tuple should be 2 or 4.", padding)
    # Two numbers: left-and-right, top-and-bottom.
    left, top, *rest = (check.integer(where, f"padding[{i}]", n, 0, ranged="pad_value") for i, n in enumerate(padding))
    right, bottom = rest or (left, top)
    return left, top, right, bottom


def check_fill(where: str, name: str, fill_value: object) -> tuple[int, ...]:
    """One fill value, or one per channel of an RGB image."""
    if isinstance(fill_value, (list, tuple)) and len(fill_value) == 3:
        return tuple(check.integer(where, f"{name}[{i}]", value, 0, 255) for i, value in enumerate(fill_value))
    if not isinstance(fill_value, (int, np.integer)):
        raise in_words(SporaxTypeError, where, "fill_value should be a single integer or a 3-tuple.", fill_value)
    return (check.integer(where, name, fill_value, 0, 255),)


def pillow(where: str) -> Any:
    """The module `PIL.Image`.

    Args:
        where: name of the API, for the message.

    Raises:
        SporaxImportError: Pillow is not installed.
    """
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise SporaxImportError(
            f"For '{where}', decoding and encoding images needs Pillow, which is not installed: pip install pillow"
        ) from error


class ByPillow(Transform):
    """A transform that has Pillow calculate where images are Pillow's, as MindSpore does."""

    by_pillow = False

    def for_pillow(self) -> Transform:
        # A copy: the same transform may be applied to arrays at the same time.
        other = copy.copy(self)
        other.by_pillow = True
        return other


def check_bytes(where: str, value: Array) -> None:
    """Refuse what is not an image of bytes."""
    check_pixels(where, value)
    if value.dtype != np.uint8:
        raise SporaxRuntimeError(
            f"For '{where}', {where}: the data type of image tensor does not match the requirement of operator. "
            f"Expecting tensor in type of (uint8), but got {value.dtype}."
        )


def check_rgb(where: str, value: Array, also_gray: bool = False) -> None:
    """Refuse what is not RGB, nor (`also_gray`) of one channel."""
    check_pixels(where, value)
    channels = value.shape[-1] if value.ndim > 2 else 1
    if channels != 3 and not (also_gray and channels == 1):
        raise SporaxRuntimeError(
            f"For '{where}', {where}: the channel of image tensor does not match the requirement of operator. Expecting "
            f"tensor in channel of ({'1, 3' if also_gray else '3'}), but got the shape {value.shape}."
        )


def check_inverted(where: str, value: Array) -> None:
    """Refuse what OpenCV has no pixels of."""
    check_pixels(where, value)
    if value.dtype not in (bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64):
        raise SporaxRuntimeError(
            f"For '{where}', {where}: the data type of image tensor does not match the requirement of operator. Currently "
            f"unsupported data type: [uint32, int64, uint64, float16], but got {value.dtype}."
        )


def rounded(value: Array, dtype: Any) -> Array:
    """Back to the image's dtype; integers are rounded and kept within what it holds."""
    # `rint` rounds halves to even, as OpenCV's saturating cast does.
    if np.issubdtype(dtype, np.integer):
        return np.clip(np.rint(value), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
    return value.astype(dtype)


class Sometimes(RandomTransform):
    """Base of transforms that apply another one with a probability."""

    takes = 2
    _transform: OneToOne
    prob = 0.5

    def _draw(self, value: Array, rng: Draws) -> bool:
        return rng.coin(self.prob)

    def _apply(self, value: Array, choice: bool) -> Array:
        return self._transform._one(value) if choice else value


def check_degrees(where: str, name: str, degrees: object) -> tuple[float, float]:
    """(smallest, largest) of two numbers >= 0."""
    degrees = (0.1, 1.9) if degrees is None else degrees
    if not isinstance(degrees, (list, tuple)):
        raise in_words(SporaxTypeError, where, "degrees must be either a tuple or a list.", degrees)
    refuse(len(degrees) != 2, SporaxValueError, where, "degrees must be a sequence with length 2.", degrees)
    return check_ordered(where, name, degrees, low=0)


def check_ordered(
    where: str, name: str, pair: Any, low: float = -FLOAT32_MAX, ranged: str = "", types: Any = (int, float)
) -> tuple[float, float]:
    """(smallest, largest) of two numbers >= low; see `check.number` for `ranged` and `types`."""
    for i, number in enumerate(pair):
        check.number(where, f"{name}[{i}]", number, -np.inf, np.inf, types=types)
    refuse(pair[0] > pair[1], SporaxValueError, where, f"{name} should be in (min,max) format. Got (max,min).", pair)
    first, last = (check.number(where, name, number, low, ranged=ranged) for number in pair)
    return first, last


def check_turn(where: str, name: str, degrees: Any) -> tuple[float, float]:
    """(smallest, largest) angle, from one number d >= 0 for [-d, d] or two."""
    check.instance(where, name, degrees, int, float, list, tuple)
    if not isinstance(degrees, (list, tuple)):
        most = check.number(where, name, degrees, 0)
        return -most, most
    refuse(len(degrees) != 2, SporaxTypeError, where, "If degrees is a sequence, the length must be 2.", degrees)
    return check_ordered(where, name, degrees, ranged=name)


def check_shares(where: str, scale: Any, ratio: Any, erases: bool) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ranges of the area and of the shape of a part; MindSpore has other words where it is erased."""
    kinds, words = ((list, tuple), "list or tuple") if erases else ((tuple, list), "list/tuple")
    types = (float, int)
    for name, value in (("scale", scale), ("ratio", ratio)):
        check.instance(where, name, value, *kinds)
        refuse(len(value) != 2, SporaxTypeError, where, f"{name} should be a {words} of length 2.", value)
    area = check_ordered(where, "scale", scale, low=0, types=types)
    check.positive(where, "scale[1]", scale[1])
    for i, number in enumerate(ratio):
        check.number(where, f"ratio[{i}]", number, 0, open_low=True, ranged="" if erases else None)
    return area, check_ordered(where, "ratio", ratio, types=types)
