"""What the vision transforms share: checks of sizes, images and pixels, the image axes, and Pillow's images.

An image is (H, W) or (H, W, C); transforms that move pixels also take (…, H, W, C).
"""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np

from sporax.base.errors import SporaxImportError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset._checks import INT32_MAX, check_int, check_number, check_probability, type_error
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform, Transform
from sporax.mindspore.dataset._rows import Array

# Pixels; OpenCV's limit, by which MindSpore checks sizes.
MAX_SIDE = 16777216


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


def check_size(where: str, size: object) -> tuple[int, int]:
    """(height, width) from one int (a square) or two."""
    if isinstance(size, bool) or not isinstance(size, (int, list, tuple)):
        raise SporaxTypeError(
            f"For '{where}', Size should be a single integer or a list/tuple (h, w) of length 2. Argument size with value {size} "
            f"is not of type {[int, list, tuple]}, but got {type(size)}."
        )
    if isinstance(size, int):
        side = check_int(where, "size", size, 1, MAX_SIDE)
        return side, side
    if len(size) != 2:
        raise SporaxTypeError(
            f"For '{where}', Size should be a single integer or a list/tuple (h, w) of length 2. Got {size!r}."
        )
    return check_int(where, "size at dim 0", size[0], 1, MAX_SIDE), check_int(
        where, "size at dim 1", size[1], 1, MAX_SIDE
    )


def check_padding(where: str, padding: object) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) from one int, (left-and-right, top-and-bottom), or all four."""
    if isinstance(padding, bool) or not isinstance(padding, (int, list, tuple)):
        raise type_error(where, "padding", "an int or a list of 2 or 4", padding)
    if isinstance(padding, int):
        padding = [padding] * 4
    numbers = [check_int(where, "padding", n, 0, INT32_MAX) for n in padding]
    if len(numbers) not in (2, 4):
        raise SporaxValueError(
            f"For '{where}', The size of the padding list or tuple should be 2 or 4. Got {len(numbers)}."
        )
    # Two numbers: left-and-right, top-and-bottom.
    left, top, *rest = numbers
    right, bottom = rest or (left, top)
    return left, top, right, bottom


def check_fill(where: str, fill_value: object) -> tuple[int, ...]:
    """One fill value, or one per channel of an RGB image."""
    values = fill_value if isinstance(fill_value, (list, tuple)) else [fill_value]
    if len(values) not in (1, 3):
        raise SporaxTypeError(f"For '{where}', fill_value should be a single integer or a 3-tuple. Got {fill_value!r}.")
    return tuple(check_int(where, "fill_value", value, 0, 255) for value in values)


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


def check_rgb(where: str, value: Array) -> None:
    """Refuse what is not RGB."""
    check_pixels(where, value)
    if value.ndim < 3 or value.shape[-1] != 3:
        raise SporaxRuntimeError(
            f"For '{where}', {where}: the channel of image tensor does not match the requirement of operator: RGB (…, H, W, 3), "
            f"but got the shape {value.shape}."
        )


def rounded(value: Array, dtype: Any) -> Array:
    """Back to the image's dtype; bytes are rounded and kept within [0, 255]."""
    # `rint` rounds halves to even, as OpenCV's saturating cast does.
    if dtype == np.uint8:
        return np.clip(np.rint(value), 0, 255).astype(np.uint8)
    return value.astype(dtype)


class Sometimes(RandomTransform):
    """Base of transforms that apply another one with a probability."""

    def __init__(self, transform: OneToOne, prob: float) -> None:
        self._transform = transform
        self._prob = check_probability(self.name, "prob", prob)

    def _draw(self, value: Array, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self._prob)

    def _apply(self, value: Array, choice: bool) -> Array:
        return self._transform._one(value) if choice else value


def check_degrees(where: str, degrees: object) -> tuple[float, float]:
    """(smallest, largest) of two numbers >= 0."""
    if not isinstance(degrees, (list, tuple)) or len(degrees) != 2:
        raise SporaxTypeError(
            f"For '{where}', degrees must be either a tuple or a list. It has 2 numbers (min, max), but got {degrees!r}."
        )
    low, high = (check_number(where, "degrees", degree, 0) for degree in degrees)
    if low > high:
        raise SporaxValueError(f"For '{where}', degrees should be in (min,max) format. Got (max,min): {degrees!r}.")
    return low, high


def check_interval(where: str, name: str, value: object, low: float) -> tuple[float, float]:
    """Two increasing numbers >= low."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise type_error(where, name, f"{tuple}, {list}", value)
    first, last = (check_number(where, f"{name}[{i}]", number, low) for i, number in enumerate(value))
    if first > last or last <= 0:
        raise SporaxValueError(
            f"For '{where}', {name} should be in (min,max) format. Got (max,min). It was {value!r}, which must be positive."
        )
    return first, last
