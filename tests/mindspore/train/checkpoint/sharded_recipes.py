"""Small Parameters, and what the ranks of a job hold of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sporax.mindspore.train.checkpoint.strategy import Strategy

STRATEGIES = Path(__file__).parents[2] / "golden" / "strategies"
W1 = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
W2 = np.arange(32 * 8, dtype=np.float32).reshape(32, 8)
WHOLE = {"w1": W1, "w2": W2, "moments.w1": -W1}
STEP = np.array([7], np.int32)


def slices(strategy: Strategy, rank: int, values: Any = None) -> dict[str, np.ndarray[Any, Any]]:
    """What a rank holds of `WHOLE`, with a step counter."""
    held = {name: value for name, value in (values or WHOLE).items() if strategy.holds(name, rank)}
    cut = {}
    for name, value in held.items():
        layout = strategy.layout(name, rank)
        cut[name] = value if layout is None else value[layout.region(strategy.place(rank)[1], value.shape)]
    return {**cut, "global_step": STEP}
