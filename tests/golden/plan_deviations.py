"""Where semi-automatic plans depart from those of MindSpore's compiler, and why: reason → recipes.

Every entry is checked from both sides: the plans must really differ.
"""

from __future__ import annotations

FORWARD: dict[str, tuple[str, ...]] = {}

WEIGHTS: dict[str, tuple[str, ...]] = {}

BACKWARD: dict[str, tuple[str, ...]] = {}

SENDS_MORE: dict[str, tuple[str, ...]] = {}


def names(table: dict[str, tuple[str, ...]]) -> frozenset[str]:
    """All recipes of a table."""
    return frozenset(name for members in table.values() for name in members)
