"""All objects of the process that the garbage collector tracks.

Problem: a program that calls `gc.freeze` (before it forks, say) hides its objects from `gc.get_objects`, and whoever looks for
the functions that run some code, or for all Tensors, would miss them.

Method: what was frozen is given back to the oldest generation first. It is still alive, and only costs the collector time.
"""

from __future__ import annotations

import gc
from typing import Any


def tracked_objects() -> list[Any]:
    """Every tracked object, frozen ones included."""
    if gc.get_freeze_count():
        gc.unfreeze()
    return gc.get_objects()
