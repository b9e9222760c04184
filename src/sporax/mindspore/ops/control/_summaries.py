"""Values that summary operators have put aside, for `SummaryRecord` to write: kind and name to the newest value.

Compiled steps hand values over by a callback while they run, so who reads them waits for the callbacks first.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

_stored: dict[tuple[str, str], np.ndarray[Any, Any]] = {}


def keep(plugin: str, name: str, value: np.ndarray[Any, Any]) -> None:
    """Put a value aside; the last one of a name counts."""
    _stored[plugin, name] = np.asarray(value)


def take() -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    """What was put aside since the last time."""
    # Callbacks of a step may still be on their way when its results are there.
    jax.effects_barrier()
    taken = dict(_stored)
    _stored.clear()
    return taken
