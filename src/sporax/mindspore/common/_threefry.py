"""Random numbers by position, computed on the host without compiling anything.

Problem: JAX compiles one program per shape that is drawn, and making the layers of a network draws dozens of shapes.
Method: JAX's own generator, Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011), written in numpy: the bits of an element depend on the key and on its position alone, and are those that
`jax.random` gives. Uniform numbers are made of bits as there. Normal ones come from the inverse error function in single
precision (Giles, "Approximating the erfinv function", 2010), which XLA uses too, so they agree with `jax.random` to the last
digits. Pieces fit the processor's cache, and several threads work on large arrays. Of an array any region can be made alone, with
the bits that it has in the whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sporax.base.lazy_members import dataclass

Key = tuple[int, int]
Shape = tuple[int, ...]
Floats = np.ndarray[Any, np.dtype[np.float32]]
_Bits = np.ndarray[Any, np.dtype[np.uint32]]
_Positions = np.ndarray[Any, np.dtype[np.uint64]]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PIECE = 16384  # elements: three arrays of 64 KiB stay in the second-level cache
_MANY = 16 * _PIECE  # elements above which a second thread is worth its start
_WORD = 0xFFFFFFFF

# Coefficients of Giles' polynomials, highest power first: for w < 5, and for the rest.
_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406,
    2.83297682,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Region:
    """A block of an array.

    Attributes:
        full: shape of the array.
        start: where the block begins in each dimension.
        shape: of the block.
    """

    full: Shape
    start: Shape
    shape: Shape

    @classmethod
    def of_array(cls, shape: Shape) -> Region:
        """All of an array."""
        return cls(shape, (0,) * len(shape), shape)

    def positions(self, first: int, count: int) -> _Positions:
        """Where `count` elements of the block are in the whole array, from its element `first` on; both row by row."""
        inner = self._full_dims()
        # Elements of a run lie side by side in the whole as well.
        run = math.prod(self.shape[inner:])
        strides = [math.prod(self.full[dim + 1 :]) for dim in range(len(self.full))]
        origin = sum(start * stride for start, stride in zip(self.start, strides, strict=True))
        positions = np.arange(first, first + count, dtype=np.uint64)
        if run == math.prod(self.shape):
            positions += np.uint64(origin)
            return positions
        begun, within = np.divmod(positions, np.uint64(run))
        within += np.uint64(origin)
        for dim in reversed(range(inner)):
            begun, index = np.divmod(begun, np.uint64(self.shape[dim]))
            within += index * np.uint64(strides[dim])
        return within

    def _full_dims(self) -> int:
        """The dimension from which on a run goes: all behind it are whole."""
        dim = len(self.full)
        while dim and self.shape[dim - 1] == self.full[dim - 1]:
            dim -= 1
        return max(dim - 1, 0)


def key_of(seed: int, position: int) -> Key:
    """The key that `jax.random.fold_in(jax.random.key(seed), position)` holds."""
    # JAX folds a number in by encrypting it with the key: its high word is 0.
    return _one((seed >> 32 & _WORD, seed & _WORD), (0, position & _WORD))


def split(key: Key) -> tuple[Key, Key]:
    """Two keys, as `jax.random.split` gives them."""
    return _one(key, (0, 0)), _one(key, (0, 1))


def uniform(key: Key, of: Shape | Region, low: float = 0.0, high: float = 1.0) -> Floats:
    """Single-precision numbers in [low, high)."""
    return _filled(of, lambda positions, out: _uniform(key, positions, out, low, high))


def normal(key: Key, of: Shape | Region) -> Floats:
    """Single-precision numbers of the standard normal distribution."""
    # The open interval: the inverse error function is infinite at -1.
    low = float(np.nextafter(np.float32(-1), np.float32(0)))

    def draw(positions: _Positions, out: Floats) -> None:
        _uniform(key, positions, out, low, 1.0)
        _inverse_error_function(out)
        # erfinv gives the distribution with variance 1/2.
        out *= np.float32(math.sqrt(2))

    return _filled(of, draw)


def truncated_normal(key: Key, of: Shape | Region, low: float, high: float) -> Floats:
    """Single-precision numbers of the standard normal distribution between two bounds."""
    root = np.float32(math.sqrt(2))
    # Uniform between the distribution function at both bounds, so no sample has to be rejected.
    left, right = (np.float32(math.erf(np.float32(bound) / root)) for bound in (low, high))
    smallest = np.nextafter(np.float32(low), np.float32(np.inf))
    largest = np.nextafter(np.float32(high), np.float32(-np.inf))

    def draw(positions: _Positions, out: Floats) -> None:
        _uniform(key, positions, out, float(left), float(right))
        _inverse_error_function(out)
        out *= root
        # Rounding may pass a bound, as it may in JAX, which clips as well.
        np.clip(out, smallest, largest, out=out)

    return _filled(of, draw)


def _filled(of: Shape | Region, draw: Callable[[_Positions, Floats], None]) -> Floats:
    """An array that `draw` fills piece by piece: it is given the positions of a piece's elements, and the piece."""
    region = of if isinstance(of, Region) else Region.of_array(of)
    out = np.empty(math.prod(region.shape), np.float32)

    def fill(first: int) -> None:
        piece = out[first : first + _PIECE]
        draw(region.positions(first, piece.size), piece)

    pieces = range(0, out.size, _PIECE)
    if out.size <= _MANY:
        for first in pieces:
            fill(first)
    else:
        # Numpy releases the lock of the interpreter in these operations.
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            list(threads.map(fill, pieces))
    return out.reshape(region.shape)


def _uniform(key: Key, positions: _Positions, out: Floats, low: float, high: float) -> None:
    bits = _bits(key, positions)
    # A float32 has 23 random digits: the upper 23 bits of the word.
    bits >>= np.uint32(9)
    bits |= np.uint32(0x3F800000)  # a number in [1, 2) whose digits are random
    np.subtract(bits.view(np.float32), np.float32(1), out=out)
    smallest = np.float32(low)
    out *= np.float32(high) - smallest
    out += smallest
    # Rounding in the line before may fall below the lower end.
    np.maximum(out, smallest, out=out)


def _bits(key: Key, positions: _Positions) -> _Bits:
    """Random words of the elements at these positions."""
    high, low = (positions >> np.uint64(32)).astype(np.uint32), positions.astype(np.uint32)
    _encrypt(key, high, low)
    # JAX's 32-bit draws use one word made of both.
    high ^= low
    return high


def _encrypt(key: Key, x: _Bits, y: _Bits) -> None:
    """Threefry-2x32 of the pairs (x, y), in place."""
    # The third word of the key, with the constant of Skein's key schedule (Salmon et al., section 3).
    words = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    moved = np.empty_like(x)
    x += np.uint32(words[0])
    y += np.uint32(words[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x += y
            np.left_shift(y, np.uint32(distance), out=moved)
            y >>= np.uint32(32 - distance)
            y |= moved
            y ^= x
        x += np.uint32(words[(group + 1) % 3])
        y += np.uint32((words[(group + 2) % 3] + group + 1) & _WORD)


def _one(key: Key, pair: tuple[int, int]) -> Key:
    x, y = (np.array([word], np.uint32) for word in pair)
    _encrypt(key, x, y)
    return int(x[0]), int(y[0])


def _inverse_error_function(x: Floats) -> None:
    """Replace numbers between -1 and 1 by their inverse error functions."""
    # w = -log(1 - x*x), as Giles defines it, without the rounding of x*x near 1.
    w = np.multiply(np.float32(1) - x, np.float32(1) + x)
    np.log(w, out=w)
    np.negative(w, out=w)
    far = np.flatnonzero(w >= np.float32(5))
    factors = _polynomial(_TAIL, np.sqrt(w[far]) - np.float32(3))
    w -= np.float32(2.5)
    near = _polynomial(_CENTRE, w)
    near[far] = factors
    x *= near


def _polynomial(coefficients: tuple[float, ...], x: Floats) -> Floats:
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result *= x
        result += np.float32(coefficient)
    return result
