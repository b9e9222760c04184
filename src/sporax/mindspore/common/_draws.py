"""Where initializers get their numbers from: numpy, or a program of JAX's.

Problem: one recipe for values must give them on the host, in a compiled program, and for one block of an array alone. Method:
recipes read arrays of the whole shape from a `Draw`; a `HostDraw` of a block gives the block, whose bits depend on positions
in the whole array only (`_threefry`).

Fan in, fan out and gain: how far initial weights spread, and numbers that follow numpy's seed.

References: X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010; K. He et
al., "Delving deep into rectifiers", 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.common import _threefry as threefry

Shape = tuple[int, ...]


class Draw(Protocol):
    """Where an initializer gets its numbers from: numpy or a program."""

    @property
    def xp(self) -> Any:
        """The module of array functions."""
        ...

    def normal(self, shape: Shape) -> Any:
        """Of the standard normal distribution, float32."""
        ...

    def uniform(self, shape: Shape, bound: float) -> Any:
        """Between -bound and bound, float32."""
        ...

    def truncated_normal(self, shape: Shape, low: float, high: float) -> Any:
        """Of the standard normal distribution between two bounds, float32."""
        ...

    def full(self, shape: Shape, value: Any, dtype: Any) -> Any:
        """One value everywhere."""
        ...

    def without_row(self, values: Any, row: int) -> Any:
        """These values, with zeros in one row of the whole."""
        ...

    def split(self) -> tuple[Draw, Draw]:
        """Two independent sources."""
        ...


class HostDraw:
    """Numbers made by numpy: of a whole array, or of one block of it. Both get the whole shape."""

    xp = np

    def __init__(self, key: threefry.Key, region: threefry.Region | None = None) -> None:
        self.key = key
        self.region = region

    def normal(self, shape: Shape) -> Any:
        return threefry.normal(self.key, self._block(shape))

    def uniform(self, shape: Shape, bound: float) -> Any:
        return threefry.uniform(self.key, self._block(shape), -bound, bound)

    def truncated_normal(self, shape: Shape, low: float, high: float) -> Any:
        return threefry.truncated_normal(self.key, self._block(shape), low, high)

    def full(self, shape: Shape, value: Any, dtype: Any) -> Any:
        return np.full(self._block(shape).shape, value, dtype)

    def without_row(self, values: Any, row: int) -> Any:
        own = row if self.region is None else row - self.region.start[0]
        if self.region is None or 0 <= own < self.region.shape[0]:
            values[own] = 0
        return values

    def split(self) -> tuple[Draw, Draw]:
        first, second = threefry.split(self.key)
        return HostDraw(first, self.region), HostDraw(second, self.region)

    def _block(self, shape: Shape) -> threefry.Region:
        if self.region is None:
            return threefry.Region.of_array(shape)
        assert shape == self.region.full, "recipes by position draw the whole shape"
        return self.region


class ProgramDraw:
    """Numbers made by a program of JAX's."""

    xp = jnp

    def __init__(self, key: jax.Array) -> None:
        self.key = key

    def normal(self, shape: Shape) -> Any:
        return jax.random.normal(self.key, shape, jnp.float32)

    def uniform(self, shape: Shape, bound: float) -> Any:
        return jax.random.uniform(self.key, shape, jnp.float32, -bound, bound)

    def truncated_normal(self, shape: Shape, low: float, high: float) -> Any:
        return jax.random.truncated_normal(self.key, low, high, shape, jnp.float32)

    def full(self, shape: Shape, value: Any, dtype: Any) -> Any:
        return jnp.full(shape, value, dtype)

    def without_row(self, values: Any, row: int) -> Any:
        return values.at[row].set(0)

    def split(self) -> tuple[Draw, Draw]:
        first, second = jax.random.split(self.key)
        return ProgramDraw(first), ProgramDraw(second)


def by_position(values: Callable[..., Any]) -> Callable[..., Any]:
    """Mark `Initializer.values`: an element depends on the key and its position alone, and draws are of the whole shape.

    The mark is on the function, so a subclass with other `values` does not inherit it.
    """
    values.by_position = True  # type: ignore[attr-defined]  # functions take attributes
    return values


def fans(shape: Shape) -> tuple[int, int]:
    """Inputs and outputs one element of the result connects: (dim 1, dim 0) times the rest."""
    For("initializer").refuse(len(shape) < 2, f"fan in and fan out need at least 2 dimensions, but got shape {shape}")
    # Size of the receptive field: 1 for a matrix.
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


LEAKY_SLOPE = 0.01
"""Of MindSpore's leaky ReLU, where no slope is given."""


def gain(nonlinearity: str, slope: float) -> float:
    """What initial weights are multiplied by before a nonlinearity.

    Args:
        nonlinearity: its name.
        slope: of ``"leaky_relu"`` below zero; others have none.

    Raises:
        SporaxValueError: an unknown name.
    """
    # The gain of tanh is an empirical number, that of ReLU makes up for the half that it sets to zero.
    fixed = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0)}
    if nonlinearity in fixed:
        return fixed[nonlinearity]
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity in ("sigmoid", "linear") or nonlinearity.startswith("conv"):
        return 1.0
    raise SporaxValueError(f"For 'initializer', the 'nonlinearity' is not known: '{nonlinearity}'.")


def fan_in_and_fan_out(shape: Shape) -> tuple[int, int]:
    """Inputs and outputs that one element of a weight of this shape connects."""
    return fans(tuple(shape))


def fan_of_mode(shape: Shape, mode: str) -> int:
    """One of both: ``mode`` is ``"fan_in"`` or ``"fan_out"``.

    Raises:
        SporaxValueError: another mode.
    """
    if mode.lower() not in ("fan_in", "fan_out"):
        raise SporaxValueError(f"For 'initializer', 'mode' must be 'fan_in' or 'fan_out', but got {mode!r}.")
    fan_in, fan_out = fans(tuple(shape))
    return fan_in if mode.lower() == "fan_in" else fan_out


def gain_of(nonlinearity: str, param: float | None = None) -> float:
    """What initial weights are multiplied by before a nonlinearity; `param` is the slope of ``"leaky_relu"``."""
    return gain(nonlinearity, LEAKY_SLOPE if param is None else param)


def filled_with(arr: np.ndarray[Any, Any], num: Any) -> np.ndarray[Any, Any]:
    """Fill a numpy array, in place where it has dimensions, and return it."""
    # A scalar cannot be filled by a slice, so it is filled as an array of one.
    filled = arr.reshape(1) if arr.shape == () else arr
    filled[:] = num
    return filled.reshape(arr.shape)


def fans_of_array(arr: Any) -> tuple[int, int]:
    """Inputs and outputs that one element of this array connects."""
    return fans(tuple(arr.shape))


def _numpy_seed() -> int:
    """A number that depends on numpy's seed alone."""
    # Drawn from numpy's stream, so that `np.random.seed` decides.
    return int(np.random.randint(low=1, high=1 << 63, dtype=np.int64))


def normal_numbers(mean: float, sigma: float, shape: Any) -> np.ndarray[Any, Any]:
    """Normal numbers, float32, that depend on numpy's seed alone.

    Raises:
        SporaxValueError: `sigma` is negative.
    """
    For("initializer").refuse(sigma < 0, "'sigma' must not be negative", sigma)
    return np.random.default_rng(_numpy_seed()).normal(mean, sigma, shape).astype(np.float32)


def uniform_numbers(a: float, b: float, shape: Any) -> np.ndarray[Any, Any]:
    """Uniform numbers between `a` and `b`, float32, that depend on numpy's seed alone."""
    return np.random.default_rng(_numpy_seed()).uniform(a, b, shape).astype(np.float32)
