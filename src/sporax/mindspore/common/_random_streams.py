"""The stream of random keys.

A generator is a seed and a counter. Every random operator takes the key ``fold_in(seed, counter)`` and raises the
counter by one, so the numbers depend on the seed and on how many operators drew before, never on how arrays are laid
out or whether the step is compiled. The counter is a variable (`sporax.runtime.state.frames`), so compiled steps carry it.
"""

from __future__ import annotations

import secrets
from typing import Any

import jax
import numpy as np

from sporax.mindspore.common import _threefry as threefry
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.state import frames


class Generator:
    """Seed and counter of one stream.

    Args:
        seed: any non-negative integer; None draws one from the operating system.
    """

    __slots__ = ("joint", "name", "raw")

    def __init__(self, seed: int | None = None) -> None:
        self.name = "random_state"
        self.raw: jax.Array
        self.joint: jax.Array
        self.seed(seed)

    def __getattr__(self, name: str) -> Any:
        return joint_arrays.change_form(self, name)

    def seed(self, seed: int | None) -> None:
        """Start the stream again."""
        entropy = secrets.randbits(63) if seed is None else seed
        # Two words of seed and one of counter: the form that Threefry takes.
        words = [entropy & 0xFFFFFFFF, (entropy >> 32) & 0xFFFFFFFF, 0]
        # A numpy array until it is first used: streams are made at import, when JAX must not start its devices yet.
        frames.put(self, np.array(words, np.uint32))

    def next_key(self) -> jax.Array:
        """A key that no other call gets. Shape: scalar of a key dtype."""
        now = frames.read(self)
        key: jax.Array
        key, following = _advance(now)
        frames.write(self, following)
        return key


# Compiled as a whole: at each draw outside of a step this is one dispatch, not four.
@jax.jit
def _advance(words: jax.Array) -> tuple[jax.Array, jax.Array]:
    key = jax.random.fold_in(jax.random.wrap_key_data(words[:2], impl="threefry2x32"), words[2])
    return key, words.at[2].add(np.uint32(1))


class KeySequence:
    """A stream whose counter lives on the host: for values made outside steps, such as initial weights.

    Args:
        seed: any non-negative integer; None draws one from the operating system.
    """

    __slots__ = ("_count", "_seed")

    def __init__(self, seed: int | None = None) -> None:
        self.seed(seed)

    def seed(self, seed: int | None) -> None:
        """Start the stream again."""
        self._seed = secrets.randbits(63) if seed is None else seed
        self._count = 0

    def next_ticket(self) -> tuple[int, int]:
        """Seed and position: enough to make a key later with `key_of`, whatever was drawn in between."""
        # The counter moves now and the key is made later, so that lazy weights do not depend on their order of creation.
        self._count += 1
        return self._seed, self._count - 1


def key_of(ticket: tuple[int, int]) -> jax.Array:
    """The key a ticket stands for."""
    # 63 bits: JAX takes seeds as signed integers.
    seed, position = ticket
    return jax.random.fold_in(jax.random.key(seed & 0x7FFFFFFFFFFFFFFF, impl="threefry2x32"), position)


def key_on_host(ticket: tuple[int, int]) -> threefry.Key:
    """The same key as two numbers, for `sporax.mindspore.common._threefry`."""
    seed, position = ticket
    return threefry.key_of(seed & 0x7FFFFFFFFFFFFFFF, position)
