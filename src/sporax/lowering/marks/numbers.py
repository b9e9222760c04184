"""Numbers that tell the calls of a process apart in its traces: those of operators (`marks`) and of Cells (`tags`)."""

from __future__ import annotations

import itertools

_numbers = itertools.count(1)
"""From 1: the tag `KEEP` has number 0. One count for all, since the numbers of a step only have to differ."""


def next_number() -> int:
    """A number that no mark and no tag of this process has."""
    return next(_numbers)
