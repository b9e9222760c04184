"""Rotation, affine and perspective transforms, in OpenCV's fixed-point arithmetic: each output pixel is looked up where it
comes from.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of, optional
from sporax.mindspore.dataset._checks import FLOAT32_MAX, INT32_MAX, in_words, range_error, refuse
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform, Transform
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision import _images as images
from sporax.mindspore.dataset.vision._geometry import cubic_weights
from sporax.mindspore.dataset.vision.enums import Inter

Matrix = NDArray[np.float64]
# Fractional bits of positions, OpenCV's AB_BITS.
_BITS = 10


def warp(value: Array, back: Matrix, size: tuple[int, int], interpolation: Inter, fill: tuple[int, ...]) -> Array:
    """An image of (height, width) whose pixel (x, y) is the input's at back @ (x, y, 1), or `fill` outside.

    Args:
        value: (H, W) or (H, W, C).
        back: (2, 3), output coordinates to input coordinates.
        size: of the output.
        interpolation: NEAREST, LINEAR, BICUBIC or AREA.
        fill: one value, or one per channel.
    """
    one = 1 << _BITS
    # Linear keeps 5 bits, steps of 1/32 of a pixel.
    drop = _BITS if interpolation == Inter.NEAREST else _BITS - 5
    # Half of what is dropped: rounds to nearest.
    half = 1 << (drop - 1)
    x, y = np.arange(size[1]), np.arange(size[0])[:, None]
    source = [
        # Column and row parts are rounded separately, as OpenCV does it.
        (np.rint(row[0] * x * one).astype(np.int64) + np.rint((row[1] * y + row[2]) * one).astype(np.int64) + half)
        >> drop
        for row in back
    ]
    image = value[..., None] if value.ndim == 2 else value
    blank = np.array(fill if len(fill) == image.shape[-1] else fill[:1], image.dtype)
    return _picked(image, source, blank, interpolation).reshape((*size, *value.shape[2:]))


def _picked(image: Array, source: Sequence[Array], blank: Array, interpolation: Inter) -> Array:
    if interpolation == Inter.BICUBIC and image.shape[-1] > 4:
        raise SporaxRuntimeError(
            f"For 'warp', interpolation can not be CUBIC when image channel is greater than 4, but got {image.shape[-1]}."
        )
    # AREA is LINEAR where pixels move, as in OpenCV.
    kinds = {Inter.NEAREST: look_up, Inter.BICUBIC: _curved}
    return kinds.get(interpolation, blended)(image, source[0], source[1], blank)


def look_up(image: Array, x: Array, y: Array, blank: Array) -> Array:
    """The pixels at x and y, `blank` outside the image (H, W, C)."""
    height, width = image.shape[:2]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    # Clipped first, as negative indices would wrap.
    picked = image[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    return np.where(inside[..., None], picked, blank)


def blended(image: Array, x: Array, y: Array, blank: Array) -> Array:
    """As `look_up`, between pixels: positions come in 1/32 of one."""
    left, top = x >> 5, y >> 5
    right_share, bottom_share = (x & 31)[..., None], (y & 31)[..., None]
    # Sums of four products of bytes and 10-bit shares need more than 16 bits.
    total = np.zeros((*x.shape, image.shape[-1]), np.int64 if image.dtype == np.uint8 else np.float64)
    for i, row_share in ((0, 32 - bottom_share), (1, bottom_share)):
        for j, column_share in ((0, 32 - right_share), (1, right_share)):
            total += look_up(image, left + j, top + i, blank) * (row_share * column_share)
    # 512 is half of 32 * 32.
    return ((total + 512) >> 10).astype(np.uint8) if image.dtype == np.uint8 else (total / 1024).astype(image.dtype)


def _cubic_weights(of_floats: bool) -> Array:
    """Weights (32, 32, 4, 4) of the pixels around a position, by shares of 1/32 in y and x; for bytes they add up to 2 ** 15."""
    tall = cubic_weights(np.arange(32) / 32)
    exact = tall[:, None, :, None] * tall[None, :, None, :]
    if of_floats:
        return exact
    table = np.rint(exact * np.float32(1 << 15)).astype(np.int64)
    rest = table.sum((2, 3)) - (1 << 15)
    # What rounding leaves over goes to the largest or the smallest of four weights.
    inner = table[..., 2:, 2:].reshape(32, 32, 4)
    at = np.where(rest < 0, inner.argmax(-1), inner.argmin(-1))
    y, x = np.nonzero(rest)
    table[y, x, 2 + at[y, x] // 2, 2 + at[y, x] % 2] -= rest[y, x]
    return table


def _curved(image: Array, x: Array, y: Array, blank: Array) -> Array:
    """As `blended`, by cubic curves through four pixels."""
    weights = _cubic_weights(image.dtype != np.uint8)[y & 31, x & 31]
    total = np.zeros((*x.shape, image.shape[-1]), np.int64 if image.dtype == np.uint8 else np.float64)
    for i, j in itertools.product(range(4), repeat=2):
        total += look_up(image, (x >> 5) + j - 1, (y >> 5) + i - 1, blank) * weights[..., i, j, None]
    if image.dtype != np.uint8:
        return total.astype(image.dtype)
    return np.clip((total + (1 << 14)) >> 15, 0, 255).astype(np.uint8)


def rotated(
    value: Array, degrees: float, interpolation: Inter, expand: bool, center: tuple[float, float] | None,
    fill: tuple[int, ...],
) -> Array:  # fmt: skip
    """An image turned counter-clockwise about its centre, or about `center` (x, y)."""
    if value.ndim > 3:
        frames = [rotated(frame, degrees, interpolation, expand, center, fill) for frame in value]
        return np.stack(frames)
    images.check_image("Rotate", value)
    height, width = images.sides(value)
    # The middle of pixels, not of the image's area.
    cx, cy = ((width - 1) / 2, (height - 1) / 2) if center is None else center
    angle = np.deg2rad(degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    shift = np.array([0.0, 0.0])
    size = height, width
    if expand:
        extent = np.array([height * abs(sin) + width * abs(cos), width * abs(sin) + height * abs(cos)])
        size = round(extent[1]), round(extent[0])
        shift = (extent - (width, height)) / 2
    turn = np.array([[cos, -sin], [sin, cos]])
    middle = np.array([cx, cy])
    # Backwards: where each pixel of the result comes from.
    back = np.column_stack([turn, middle - turn @ (middle + shift)])
    return warp(value, back, size, interpolation, fill)


_KINDS = "NEAREST, LINEAR, BICUBIC or AREA."


def check_warp(where: str, name: str, interpolation: Any) -> Inter:
    """NEAREST, LINEAR, BICUBIC or AREA."""
    check.instance(where, name, interpolation, Inter)
    if interpolation not in (Inter.NEAREST, Inter.LINEAR, Inter.BICUBIC, Inter.AREA):
        fault = "Current Interpolation is not supported with PIL input."
        raise in_words(SporaxTypeError, where, fault, interpolation.name)
    return interpolation


def _check_center(where: str, name: str, center: Any) -> tuple[float, float]:
    if not isinstance(center, tuple) or len(center) != 2:
        raise in_words(SporaxValueError, where, "Value center needs to be a 2-tuple.", center)
    low, high, types = -INT32_MAX - 1, INT32_MAX, (int, float)
    x, y = (check.number(where, name, number, low, high, types=types) for number in center)
    return x, y


class _Turn(Transform):
    """Base of both turns."""

    degrees: float = argument(check.number, "the angle.")
    resample: Inter = argument(check_warp, _KINDS, default=Inter.NEAREST)
    expand: bool = argument(check.boolean, "make the result large enough to hold the whole image.", default=False)
    center: Any = argument(optional(_check_center), "(x, y) of the turn; the middle by default.", default=None)
    fill_value: Any = argument(images.check_fill, images.OUTSIDE, default=0)

    def _turned(self, value: Array, degrees: float) -> Array:
        return rotated(value, degrees, self.resample, self.expand, self.center, self.fill_value)


class Rotate(_Turn, OneToOne):
    """An image turned counter-clockwise."""

    def _one(self, value: Array) -> Array:
        return self._turned(value, self.degrees)


class RandomRotation(_Turn, RandomTransform):
    """An image turned by a random angle; several columns are turned by the same angle."""

    degrees: Any = argument(images.check_turn, "(smallest, largest) angle, or one number d for [-d, d].")

    takes = 1

    def _draw(self, value: Array, rng: Draws) -> float:
        return rng.turned(*self.degrees)

    def _apply(self, value: Array, choice: float) -> Array:
        return self._turned(value, choice)


Shift = tuple[float, float]


def moved(
    value: Array, degrees: float, shift: Shift, scale: float, shear: Shift, interpolation: Inter = Inter.NEAREST,
    fill: tuple[int, ...] = (0,), center: Shift | None = None,
) -> Array:  # fmt: skip
    """An image sheared, scaled and turned about its centre, then shifted.

    Args:
        value: (H, W) or (H, W, C).
        degrees: of the turn, clockwise.
        shift: (x, y) in pixels.
        scale: factor of the size.
        shear: (x, y) in degrees.
        interpolation: NEAREST, LINEAR, BICUBIC or AREA.
        fill: what is outside the image.
        center: (x, y) that stays; the middle by default.
    """
    images.check_image("Affine", value)
    height, width = images.sides(value)
    middle = np.array(((width - 1) / 2, (height - 1) / 2) if center is None else center)
    turn, along, down = np.deg2rad(degrees), *np.deg2rad(shear)
    shape = np.array(
        # Turn after shear, written out as one matrix.
        [
            [np.cos(turn - down), -np.cos(turn - down) * np.tan(along) - np.sin(turn) * np.cos(down)],
            [np.sin(turn - down), -np.sin(turn - down) * np.tan(along) + np.cos(turn) * np.cos(down)],
        ]
    )
    # Inverted: `warp` reads where pixels come from.
    back = np.linalg.inv(scale * shape / np.cos(down))
    # Around the middle, with the shift undone first.
    inverse = np.column_stack([back, middle - back @ (middle + shift)])
    return warp(value, inverse, (height, width), interpolation, fill)


class Affine(OneToOne):
    """An image sheared, scaled, turned and shifted."""

    degrees: float = argument(check.number, "of the turn, clockwise.", low=-180, high=180, types=(int, float))
    translate: Sequence[float] = argument(of(list, tuple), "(x, y), as shares of width and height in [-1, 1].")
    scale: float = argument(None, "factor of the size, > 0.")
    shear: Any = argument(of(numbers.Number, tuple, list), "degrees in x, or (x, y).")
    resample: Inter = argument(check_warp, _KINDS, default=Inter.NEAREST)
    fill_value: Any = argument(images.check_fill, images.OUTSIDE, default=0)

    def _prepare(self) -> None:
        where, types, shear = "Affine", (int, float), self.shear
        shears = shear if isinstance(shear, (list, tuple)) else (shear, 0.0)
        for name, pair in (("translate", self.translate), ("shear", shears)):
            refuse(len(pair) != 2, SporaxTypeError, where, f"The length of {name} should be 2.", pair)
        self._shift = [
            check.number(where, f"translate[{i}]", share, -1.0, 1.0, types=types)
            for i, share in enumerate(self.translate)
        ]
        check.positive(where, "scale", self.scale)
        names = ("shear[0]", "shear[1]") if shears is shear else ("shear", "shear")
        along, down = (
            check.number(where, name, angle, -180, 180, types=types) for name, angle in zip(names, shears, strict=True)
        )
        self._shear = (along, down)

    def _one(self, value: Array) -> Array:
        images.check_image("Affine", value)
        height, width = images.sides(value)
        shift = (self._shift[0] * width, self._shift[1] * height)
        return moved(value, self.degrees, shift, self.scale, self._shear, self.resample, self.fill_value)


class RandomAffine(images.ByPillow, RandomTransform):
    """`Affine` at random; several columns are moved in the same way."""

    takes = 6

    degrees: Any = argument(images.check_turn, "(smallest, largest) turn, or one number d >= 0 for [-d, d].")
    translate: Sequence[float] | None = argument(
        None,
        "(smallest, largest) shift in x as shares in [-1, 1], and the same two for y; None for none.",
        default=None,
    )
    scale: Sequence[float] | None = argument(None, "(smallest, largest) factor; None for 1.", default=None)
    shear: Any = argument(
        None,
        "(smallest, largest) degrees in x, and the same two for y, or one number s for [-s, s] in x; None for none.",
        default=None,
    )
    resample: Inter = argument(None, "see `Affine`.", default=Inter.NEAREST)
    fill_value: Any = argument(None, "see `Affine`.", default=0)

    def _prepare(self) -> None:
        where = "RandomAffine"
        shifts = (0, 0, 0, 0) if self.translate is None else self.translate
        self._shift = _ranges("translate", shifts, (2, 4), "translate should be a list or tuple of length 2 or 4.")
        for i, share in enumerate(shifts):
            check.number(where, f"translate at {i}", share, -1.0, 1.0)
        scales = (1, 1) if self.scale is None else self.scale
        self._scale = _ranges("scale", scales, (2,), "scale should be a list or tuple of length 2.")[0]
        if not 0 <= self._scale[0] <= self._scale[1] <= FLOAT32_MAX:
            raise range_error(where, "", f"[0, {FLOAT32_MAX}]", self.scale)
        check.positive(where, "scale[1]", scales[1])
        shears = (0, 0) if self.shear is None else self.shear
        check.instance(where, "shear", shears, numbers.Number, tuple, list)
        if not isinstance(shears, (tuple, list)):
            shears = (-check.positive(where, "shear", shears), shears)
        self._shear = _ranges("shear", shears, (2, 4), "shear must be of length 2 or 4.")
        fill = 0 if self.fill_value is None else self.fill_value
        self._how = check_warp(where, "resample", self.resample), images.check_fill(where, "fill_value", fill)

    def _draw(self, value: Array, rng: Draws) -> tuple[float, list[float], float, list[float]]:
        # In MindSpore's order.
        degrees, shift = rng.single(*self.degrees), [rng.single(*limits) for limits in self._shift]
        return degrees, shift, rng.single(*self._scale), [rng.single(*limits) for limits in self._shear]

    def _apply(self, value: Array, choice: tuple[float, list[float], float, list[float]]) -> Array:
        degrees, (along, down), scale, (shear_x, shear_y) = choice
        images.check_image("RandomAffine", value)
        height, width = images.sides(value)
        shift = along * width, down * height
        if not self.by_pillow:
            return moved(value, degrees, shift, scale, (shear_x, shear_y), *self._how)
        # Whole pixels, as in MindSpore.
        rounded_shift = float(round(shift[0])), float(round(shift[1]))
        return _moved_by_pillow(value, degrees, rounded_shift, scale, (shear_x, shear_y), *self._how)


def _moved_by_pillow(
    value: Array,
    degrees: float,
    shift: tuple[float, float],
    scale: float,
    shear: tuple[float, float],
    resample: Inter,
    fill: tuple[int, ...],
) -> Array:
    """As `moved`, around a centre that is half a pixel further, as MindSpore has Pillow calculate."""
    first, second = (math.radians(degrees + angle) for angle in shear)
    size = scale * math.cos(first - second)
    rows = ((math.cos(first) / size, math.sin(first) / size), (-math.sin(second) / size, math.cos(second) / size))
    centre = [side * 0.5 + 0.5 for side in reversed(images.sides(value))]
    away = [-middle - move for middle, move in zip(centre, shift, strict=True)]
    # Each row maps to where pixels come from, with its constant last.
    matrix = [n for (a, b), c in zip(rows, centre, strict=True) for n in (a, b, a * away[0] + b * away[1] + c)]
    return _mapped_by_pillow(value, "AFFINE", matrix, resample, fill)


def _mapped_by_pillow(
    value: Array, method: str, numbers: list[float], interpolation: Inter, fill: tuple[int, ...] = (0,)
) -> Array:
    """The image whose pixels come from where `method` of `PIL.Image.Transform` says with its `numbers`."""
    image = images.pillow(method.title())
    # Pillow wants (H, W) for gray.
    source = image.fromarray(value[..., 0] if value.shape[2:] == (1,) else value)
    kind = image.Resampling[{Inter.NEAREST: "NEAREST", Inter.LINEAR: "BILINEAR"}.get(interpolation, "BICUBIC")]
    colour = fill[0] if source.mode in ("L", "I", "F") else (fill * 3)[:3]
    result = source.transform(source.size, image.Transform[method], numbers, kind, fillcolor=colour)
    return np.array(result).reshape(value.shape)


def _ranges(name: str, value: Any, counts: tuple[int, ...], words: str) -> list[tuple[float, float]]:
    """Two ranges (the second is (0, 0) unless given) from two numbers or four; `words` say that they are not as many."""
    where = "RandomAffine"
    check.instance(where, name, value, *((list, tuple) if name == "translate" else (tuple, list)))
    for i, number in enumerate(value):
        check.number(where, f"{name}[{i}]", number, -np.inf, np.inf, types=(int, float))
    refuse(len(value) not in counts, SporaxTypeError, where, words, value)
    pairs = [(value[i], value[i + 1]) for i in range(0, len(value), 2)]
    if any(first > last for first, last in pairs) and name != "translate":
        words = f"Input {name}[1] must be equal to or greater than {name}[0]"
        if len(pairs) > 1:
            words += f" and {name}[3] must be equal to or greater than {name}[2]"
        # One of three lacks its full stop in MindSpore.
        end = "" if name == "shear" and len(pairs) == 1 else "."
        raise in_words(SporaxValueError, where, words + end, value)
    # The second range is zero where only x is given.
    return [*pairs, (0.0, 0.0)][:2]


def _projection(start: Array, end: Array) -> Matrix:
    """(3, 3) that takes the four points `start` to the points `end`; the last element is 1."""
    try:
        solution = np.linalg.solve(*_equations(start, end))
    except np.linalg.LinAlgError as error:
        raise SporaxValueError(f"For 'Perspective', three points lie on a line: {start.tolist()}.") from error
    return np.append(solution, 1.0).reshape(3, 3)


def _equations(start: Array, end: Array) -> tuple[Matrix, Array]:
    """Matrix and right side of two linear equations per point, with the ninth coefficient fixed to 1."""
    rows = []
    for (x, y), (u, v) in zip(start, end, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    return np.array(rows, np.float64), end.ravel()


def _points(where: str, name: str, points: Any) -> Array:
    check.instance(where, name, points, list, tuple)
    for i, point in enumerate(points):
        check.instance(where, f"{name}[{i}]", point, list, tuple)
    sized = [(name, points, 4), *((f"{name}[{i}]", point, 2) for i, point in enumerate(points))]
    for what, items, count in sized:
        if len(items) != count:
            raise in_words(SporaxTypeError, where, f"{what} should be a list or tuple of length {count}.", items)
    rows = [
        [check.integer(where, f"{name}[{i}][{k}]", n) for k, n in enumerate(point)] for i, point in enumerate(points)
    ]
    return np.array(rows, np.float64)


class Perspective(images.ByPillow, OneToOne):
    """An image seen from another angle."""

    start_points: Any = argument(_points, "four corners (x, y) in the image.")
    end_points: Any = argument(_points, "where they are in the result.")
    interpolation: Inter = argument(check_warp, _KINDS, default=Inter.BILINEAR)

    def _prepare(self) -> None:
        # Inverted once: the points belong to the transform and not to the image.
        self._back = np.linalg.inv(_projection(self.start_points, self.end_points))

    def _one(self, value: Array) -> Array:
        images.check_image("Perspective", value)
        if self.by_pillow:
            back = np.linalg.lstsq(*_equations(self.end_points, self.start_points), rcond=None)[0]
            return _mapped_by_pillow(value, "PERSPECTIVE", back.ravel()[:8].tolist(), self.interpolation)
        height, width = images.sides(value)
        # Homogeneous coordinates of all pixels.
        grid = np.stack(np.broadcast_arrays(np.arange(width), np.arange(height)[:, None], 1.0), -1)
        x, y, depth = np.moveaxis(grid @ self._back.T, -1, 0)
        # `blended` takes positions in 1/32 of a pixel.
        unit = 1 if self.interpolation == Inter.NEAREST else 32
        # Points at infinity come from nowhere.
        scale = unit / np.where(depth == 0, np.inf, depth)
        # Clipped before the cast, which is undefined beyond int64.
        source = [np.rint(np.clip(place * scale, -(2**31), 2**31 - 1)).astype(np.int64) for place in (x, y)]
        image = value[..., None] if value.ndim == 2 else value
        blank = np.zeros(image.shape[-1], image.dtype)
        return _picked(image, source, blank, self.interpolation).reshape(value.shape)


class RandomPerspective(RandomTransform):
    """An image seen from a random angle, with a probability. Needs Pillow."""

    only_pillow = True

    distortion_scale: float = argument(
        check.probability, "how far the corners may move inwards, as a share in [0, 1] of half the image.", default=0.5
    )
    prob: float = argument(check.probability, "the probability.", default=0.5)
    interpolation: Inter = argument(of(Inter), "NEAREST, LINEAR or CUBIC.", default=Inter.BICUBIC)

    def _prepare(self) -> None:
        if self.interpolation not in (Inter.NEAREST, Inter.LINEAR, Inter.CUBIC):
            raise For(self.name).error("'interpolation' must be NEAREST, LINEAR or CUBIC", self.interpolation.name)

    def _draw(self, value: Array, rng: Draws) -> Array | None:
        images.check_image("RandomPerspective", value)
        images.check_bytes("RandomPerspective", value)
        if rng.generator.random() >= self.prob:
            return None
        height, width = images.sides(value)
        corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
        # Each corner moves towards the inside.
        inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
        reach = np.floor(self.distortion_scale * np.array([width // 2, height // 2])).astype(np.int64)
        # From moved corners to the corners: Pillow reads where pixels come from.
        return _projection(corners + inwards * rng.generator.integers(0, reach + 1, (4, 2)), corners)

    def _apply(self, value: Array, choice: Array | None) -> Array:
        if choice is None:
            return value
        return _mapped_by_pillow(value, "PERSPECTIVE", choice.ravel()[:8].tolist(), self.interpolation)
