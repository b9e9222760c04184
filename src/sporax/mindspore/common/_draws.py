"""Where initializers get their numbers from: numpy, or a program of JAX's.

Problem: one recipe for values must give them on the host, in a compiled program, and for one block of an array alone. Method:
recipes ask a `Draw` for arrays of the whole shape; a `RegionDraw` answers with the block, whose bits depend on positions in the
whole array only (`sporax.runtime.random.threefry`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sporax.runtime.random import threefry

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
    """Numbers made by numpy."""

    xp = np

    def __init__(self, key: threefry.Key) -> None:
        self.key = key

    def normal(self, shape: Shape) -> Any:
        return threefry.normal(self.key, shape)

    def uniform(self, shape: Shape, bound: float) -> Any:
        return threefry.uniform(self.key, shape, -bound, bound)

    def truncated_normal(self, shape: Shape, low: float, high: float) -> Any:
        return threefry.truncated_normal(self.key, shape, low, high)

    def full(self, shape: Shape, value: Any, dtype: Any) -> Any:
        return np.full(shape, value, dtype)

    def without_row(self, values: Any, row: int) -> Any:
        values[row] = 0
        return values

    def split(self) -> tuple[Draw, Draw]:
        first, second = threefry.split(self.key)
        return HostDraw(first), HostDraw(second)


class RegionDraw:
    """Numbers of one block of an array, made by numpy. It is asked for the whole shape, as others are."""

    xp = np

    def __init__(self, key: threefry.Key, region: threefry.Region) -> None:
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
        if 0 <= (own := row - self.region.start[0]) < self.region.shape[0]:
            values[own] = 0
        return values

    def split(self) -> tuple[Draw, Draw]:
        first, second = threefry.split(self.key)
        return RegionDraw(first, self.region), RegionDraw(second, self.region)

    def _block(self, shape: Shape) -> threefry.Region:
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
