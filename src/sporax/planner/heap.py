"""Where arrays lie that share one piece of memory: what does not fit between others makes it larger.

Compilers know when every array is there, and place all of them before anything runs. XLA does it largest first: an array goes
into the smallest gap that is free for its whole life and large enough, or on top. It does so a second time, longest life first,
and takes what needs less (its `GlobalDecreasingSizeBestFitHeap`). Arrays of different sizes leave gaps, so more is needed than is
in use at any time: up to a sixth more in small networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGNMENT = 64
"""Bytes; where arrays begin."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """An array, or arrays of one size that are written over each other.

    Attributes:
        begin, end: ticks between which it is there, `end` included.
        first_end: the last tick of the first of them.
        num_bytes: its size.
    """

    begin: int
    end: int
    first_end: int
    num_bytes: int


def places(tenants: Sequence[Tenant]) -> list[int]:
    """The byte at which each begins."""
    if not tenants:
        return []
    moments = _moments(tenants)
    sizes = [each.num_bytes for each in tenants]
    by_size = sorted(range(len(tenants)), key=lambda each: (-sizes[each], moments[each][0] - moments[each][2], each))
    found = _placed(by_size, moments, sizes)
    if _height(found, sizes) <= _most(moments, sizes):
        return found
    by_life = sorted(range(len(tenants)), key=lambda each: (moments[each][0] - moments[each][1], -sizes[each], each))
    return min(found, _placed(by_life, moments, sizes), key=lambda each: _height(each, sizes))


def _moments(tenants: Sequence[Tenant]) -> list[tuple[int, int, int]]:
    """Begins, ends, and ends of the first arrays as moments of a clock that ticks whenever an array comes or goes."""
    comes, goes = 0, 1
    events = sorted(
        {(time, what, number) for number, each in enumerate(tenants) for time, what in _changes(each, comes, goes)}
    )
    moment = {event: time for time, event in enumerate(events)}
    return [
        (moment[each.begin, comes, number], moment[each.end, goes, number], moment[each.first_end, goes, number])
        for number, each in enumerate(tenants)
    ]


def _changes(each: Tenant, comes: int, goes: int) -> tuple[tuple[int, int], ...]:
    return (each.begin, comes), (each.first_end, goes), (each.end, goes)


def _placed(order: Sequence[int], moments: Sequence[tuple[int, int, int]], sizes: Sequence[int]) -> list[int]:
    """Best fit in an order, for every tenant the byte at which it begins."""
    count = len(order)
    begins, ends, bottoms, tops = (np.zeros(count, np.int64) for _ in range(4))
    found = [0] * count
    for placed, number in enumerate(order):
        begin, end, _ = moments[number]
        beside = np.flatnonzero((begins[:placed] <= end) & (ends[:placed] >= begin))
        start = _best(bottoms[beside], tops[beside], sizes[number]) if len(beside) else 0
        begins[placed], ends[placed] = begin, end
        bottoms[placed], tops[placed] = start, _aligned(start + sizes[number])
        found[number] = start
    return found


def _best(bottoms: Any, tops: Any, size: int) -> int:
    """Where the smallest gap of at least `size` bytes begins between those that are there; their top if there is none."""
    order = np.argsort(bottoms, kind="stable")
    ceilings = np.maximum.accumulate(tops[order])
    starts = np.concatenate([[0], ceilings[:-1]])
    gaps = bottoms[order] - starts
    fitting = np.flatnonzero(gaps >= size)
    return int(starts[fitting[np.argmin(gaps[fitting])]] if len(fitting) else ceilings[-1])


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _height(starts: Sequence[int], sizes: Sequence[int]) -> int:
    return max(start + size for start, size in zip(starts, sizes, strict=True))


def _most(moments: Sequence[tuple[int, int, int]], sizes: Sequence[int]) -> int:
    """The most that is there at a time: no placement needs less."""
    changes = np.zeros(max(end for _, end, _ in moments) + 2, np.int64)
    for (begin, end, _), size in zip(moments, sizes, strict=True):
        changes[begin] += size
        changes[end + 1] -= size
    return int(np.cumsum(changes).max())
