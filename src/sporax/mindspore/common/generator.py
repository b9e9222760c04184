"""`mindspore.common.generator`: the streams that random operators draw from, and their states."""

from __future__ import annotations

import secrets
from typing import Any

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.common._random_streams import Generator as Stream
from sporax.mindspore.common.seed import manual_seed as seed_operators, operators
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime.state import frames as variables

__all__ = ["Generator", "default_generator", "seed", "manual_seed", "initial_seed", "get_rng_state", "set_rng_state"]

_NUM_WORDS = 3
# Words of 32 bits; seeds must fit in a signed 64-bit number.
_BITS_PER_WORD, _SEED_BITS = 32, 63


class Generator:
    """A stream of random numbers: a seed and a position.

    Operators draw from `default_generator`; another one only keeps a state of its own.

    Example:
        >>> generator = Generator().manual_seed(5)
        >>> generator.initial_seed()
        5
    """

    def __init__(self) -> None:
        self._stream = Stream(0)

    def get_state(self) -> Tensor:
        """The state: UInt32 of shape (3,), seed (two words) and counter.

        Differs from MindSpore, whose state is sixteen bytes of another generator.
        """
        # A copy: the stream's own buffer is given away at the next step.
        return wrap(jnp.array(variables.read(self._stream), np.uint32))

    def set_state(self, state: Tensor) -> None:
        """Continue at a state that `get_state` gave.

        Raises:
            SporaxTypeError: no Tensor.
            SporaxValueError: a Tensor of another shape or dtype.
        """
        _check_state("Generator.set_state", state)
        variables.write(self._stream, state.array)

    def seed(self) -> int:
        """Start again with a seed from the operating system, which is returned."""
        return self.manual_seed(secrets.randbits(_SEED_BITS)).initial_seed()

    def manual_seed(self, seed: int) -> Generator:
        """Start again with this seed.

        Raises:
            SporaxTypeError: `seed` is not an int.
        """
        For("Generator").typed("seed", seed, "an int", int, takes_bool=False)
        self._stream.seed(seed)
        return self

    def initial_seed(self) -> int:
        """The seed that the stream started with."""
        low, high, _ = np.asarray(variables.read(self._stream)).tolist()
        return (high << _BITS_PER_WORD) + low


class _DefaultGenerator(Generator):
    """The stream of the random operators."""

    def __init__(self) -> None:
        self._stream = operators


default_generator = _DefaultGenerator()


def seed() -> int:
    """Seed the random operators by the operating system; the seed."""
    return default_generator.seed()


def manual_seed(seed: int) -> Generator:
    """Seed the random operators alone; `default_generator`.

    Raises:
        SporaxTypeError: `seed` is not an int.
        SporaxValueError: `seed` is negative.
    """
    seed_operators(seed)
    return default_generator


def initial_seed() -> int:
    """The seed of the random operators."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the random operators, for `set_rng_state`; see `Generator.get_state`."""
    return default_generator.get_state()


def set_rng_state(state: Tensor) -> None:
    """Continue the random operators at a state that `get_rng_state` gave.

    Raises:
        SporaxTypeError: no Tensor.
        SporaxValueError: a Tensor of another shape or dtype.
    """
    _check_state("set_rng_state", state)
    default_generator.set_state(state)


def _check_state(function: str, state: Any) -> None:
    For(function).typed("state", state, "a Tensor", Tensor)
    if state.shape != (_NUM_WORDS,) or state.array.dtype != np.uint32:
        raise For(function).error(
            f"'state' must be UInt32 of shape ({_NUM_WORDS},)", f"{state.dtype} of shape {state.shape}"
        )


__getattr__ = missing_names(__name__)
