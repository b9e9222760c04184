"""The global seed and the random stream that operators and initializers draw from."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.runtime.random import Generator, KeySequence
from sporax.runtime.session import SESSION

operators = Generator()
"""Stream of the random operators (Dropout, ops.standard_normal, …)."""

initializers = KeySequence()
"""Stream of the parameter initializers."""


_drawn: Counter[tuple[str, int]] = Counter()
"""How often `_get_graph_seed` was asked for an operator and its seed."""
_MODULUS = 2**31 - 1
_STEP = 533697028
"""Distance of the seeds of one operator's calls, as in MindSpore."""
_SEED_FOR_ZERO = 87654321
"""MindSpore's global seed where 0 was set."""


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
    _drawn.clear()
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


def _get_graph_seed(op_seed: int | None, kernel_name: str) -> tuple[int, int]:
    """The two seeds of MindSpore's next call of a random operator: the global one, and one of the operator's own.

    Args:
        op_seed: seed of the operator; None or 0 for none.
        kernel_name: its name. Each call for the same name and seed gives another number.

    Returns:
        Global seed and operator's seed; (0, 0) where neither was set.

    Raises:
        SporaxValueError: `op_seed` is negative.
    """
    seed = op_seed or 0
    if seed < 0:
        raise SporaxValueError(f"For '{kernel_name}', the 'seed' must be int and must >= 0, but got '{seed}'.")
    if SESSION.seed is None and not seed:
        return 0, 0
    root = 0 if SESSION.seed is None else SESSION.seed or _SEED_FOR_ZERO
    count = _drawn[kernel_name, seed]
    _drawn[kernel_name, seed] += 1
    return root % _MODULUS, (seed + count * _STEP) % _MODULUS
