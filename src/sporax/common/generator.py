"""`mindspore.common.generator`: the state of the stream that random operators draw from."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from sporax.common.seed import manual_seed, operators
from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ir.missing import missing_names
from sporax.runtime import state as variables

__all__ = ["get_rng_state", "set_rng_state", "manual_seed"]

_NUM_WORDS = 3


def get_rng_state() -> Tensor:
    """The state, for `set_rng_state`: UInt32 of shape (3,), seed (two words) and counter.

    Differs from MindSpore, whose state is sixteen bytes of another generator.
    """
    return wrap(jnp.array(variables.read(operators), np.uint32))


def set_rng_state(state: Tensor) -> None:
    """Continue the stream at a state that `get_rng_state` gave.

    Raises:
        SporaxTypeError: no Tensor.
        SporaxValueError: a Tensor of another shape or dtype.
    """
    if not isinstance(state, Tensor):
        raise SporaxTypeError(f"For 'set_rng_state', 'state' must be a Tensor, but got {type(state).__name__}.")
    if state.shape != (_NUM_WORDS,) or state.array.dtype != np.uint32:
        raise SporaxValueError(
            f"For 'set_rng_state', 'state' must be UInt32 of shape ({_NUM_WORDS},), but got {state.dtype} of shape "
            f"{state.shape}."
        )
    variables.write(operators, state.array)


__getattr__ = missing_names(__name__)
