"""The global seed and the random stream that operators and initializers draw from."""

from __future__ import annotations

import sys

import numpy as np

from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.runtime.random import Generator, KeySequence
from sporax.runtime.session import SESSION

operators = Generator()
"""Stream of the random operators (Dropout, ops.standard_normal, …)."""

initializers = KeySequence()
"""Stream of the parameter initializers."""


def set_seed(seed: int) -> None:
    """Seed numpy, the initializers, the random operators and the dataset pipeline.

    Raises:
        SporaxTypeError: `seed` is not an int.
        SporaxValueError: `seed` is negative.
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise SporaxTypeError(f"For 'set_seed', the argument 'seed' must be int, but got {type(seed).__name__}.")
    if seed < 0:
        raise SporaxValueError(f"For 'set_seed', the argument 'seed' must be >= 0, but got {seed}.")
    SESSION.seed = seed
    # numpy takes 32 bits.
    np.random.seed(seed % 2**32)
    operators.seed(seed)
    initializers.seed(seed)
    # The dataset package, which does without JAX, reads this seed when it is imported; it must be told only if it was before.
    config = sys.modules.get("sporax.dataset.config")
    if config is not None:
        config.set_seed(seed % 2**32)


def get_seed() -> int | None:
    """The global seed, or None when it was never set."""
    return SESSION.seed


def manual_seed(seed: int) -> Generator:
    """Seed the random operators alone; the stream they draw from.

    Raises:
        SporaxTypeError: `seed` is not an int.
        SporaxValueError: `seed` is negative.
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise SporaxTypeError(f"For 'manual_seed', the argument 'seed' must be int, but got {type(seed).__name__}.")
    if seed < 0:
        raise SporaxValueError(f"For 'manual_seed', the argument 'seed' must be >= 0, but got {seed}.")
    operators.seed(seed)
    return operators
