"""The global seed and the random stream that operators and initializers draw from."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from sporax.base.errors import For
from sporax.mindspore.common._random_streams import Generator, KeySequence
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
    For("set_seed").typed("the argument 'seed'", seed, "int", int, takes_bool=False)
    For("set_seed").refuse(seed < 0, "the argument 'seed' must be >= 0", seed)
    SESSION.seed = seed
    # numpy takes 32 bits.
    np.random.seed(seed % 2**32)
    _KERNEL_SEEDS.calls.clear()
    operators.seed(seed)
    initializers.seed(seed)
    # The dataset package, which does without JAX, reads this seed when it is imported; it must be set only if it was before.
    config = sys.modules.get("sporax.mindspore.dataset.config")
    if config is not None:
        config.set_seed(seed % 2**32)


class _KernelSeeds:
    """How often seeds of operators were drawn: MindSpore moves them on so that two calls differ.

    Attributes:
        calls: numbers of former calls by operator and seed.
    """

    step = 0xD2511F53 ^ 0xCD9E8D57
    """What a seed moves by: MindSpore takes constants of the Philox generator (Salmon et al. 2011)."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()

    def next(self, kernel_name: str, op_seed: int) -> int:
        """The seed at this call."""
        calls = self.calls[kernel_name, op_seed]
        self.calls[kernel_name, op_seed] += 1
        return op_seed + calls * self.step


_KERNEL_SEEDS = _KernelSeeds()
_MAX_SEED = 2**31 - 1
_SEED_FOR_ZERO = 87654321
"""The global seed that MindSpore's operators use where it was set to 0, which means "none" to them."""


def _get_graph_seed(op_seed: int | None, kernel_name: str) -> tuple[int, int]:
    """The pair of seeds that MindSpore gives a random operator: the global one, and the operator's own, moved on at each call.

    Args:
        op_seed: the operator's own; None is 0.
        kernel_name: which operator draws.

    Returns:
        Both below 2³¹ - 1; (0, 0) where neither is set.

    Raises:
        SporaxValueError: `op_seed` is negative.
    """
    own = op_seed or 0
    For(kernel_name).refuse(own < 0, "the 'seed' must be int and must >= 0", op_seed)
    overall = SESSION.seed
    if not own and overall is None:
        return 0, 0
    overall = _SEED_FOR_ZERO if overall == 0 else overall or 0
    return overall % _MAX_SEED, _KERNEL_SEEDS.next(kernel_name, own) % _MAX_SEED


def get_seed() -> int | None:
    """The global seed, or None when it was never set."""
    return SESSION.seed


def manual_seed(seed: int) -> Generator:
    """Seed the random operators alone; the stream they draw from.

    Raises:
        SporaxTypeError: `seed` is not an int.
        SporaxValueError: `seed` is negative.
    """
    For("manual_seed").typed("the argument 'seed'", seed, "int", int, takes_bool=False)
    For("manual_seed").refuse(seed < 0, "the argument 'seed' must be >= 0", seed)
    operators.seed(seed)
    return operators
