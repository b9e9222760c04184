"""Where arrays lie: in places of others that stand empty for a while, or in one piece of memory that all the rest shares.

Compilers know when every array is there, and place all of them before anything runs. XLA does it largest first. An array moves
into a place that must be there anyway and is not always used: that of an argument which was copied and will be replaced, or of a
result that is not yet written (its `BufferAssigner`). All others share what does not fit between others makes larger: an array
goes into the smallest gap that is free for its whole life and large enough, or on top. That is done a second time, longest life
first, and what needs less is taken (its `GlobalDecreasingSizeBestFitHeap`). Arrays of different sizes leave gaps, so more is
needed than is in use at any time: up to a sixth more in small networks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGNMENT = 64
"""Bytes; where arrays begin."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """An array, or arrays of one size that are written over each other.

    Attributes:
        spans: for every array the ticks between which it is there, the last one included; in order.
        num_bytes: its size.
    """

    spans: tuple[tuple[int, int], ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Guest:
    """An array that may lie where others lie before and after it.

    Attributes:
        array: its number.
        begin, end: ticks between which it is there, `end` included.
        num_bytes: its size.
        over: arrays over which it may be written, when it begins at the tick at which they end.
    """

    array: int
    begin: int
    end: int
    num_bytes: int
    over: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A place that arrays may move into.

    Attributes:
        num_bytes: its size.
        before, after: what lies there at the start and at the end; None for nothing.
    """

    num_bytes: int
    before: Guest | None
    after: Guest | None


def housed(vacant: Sequence[Place], arrays: Sequence[Guest]) -> set[int]:
    """Numbers of the arrays that find a place.

    Args:
        vacant: the smallest that fits is taken, of one size the last one.
        arrays: of one size, the first one chooses first.
    """
    found: set[int] = set()
    ordered = sorted(vacant, key=lambda each: -each.num_bytes)[::-1]
    inside = [[each for each in (place.before, place.after) if each] for place in ordered]
    sizes = np.array([place.num_bytes for place in ordered])
    opens = np.array([place.before.end if place.before else -np.inf for place in ordered])
    closes = np.array([place.after.begin if place.after else np.inf for place in ordered])
    for array in sorted(arrays, key=lambda each: -each.num_bytes):
        for number in np.flatnonzero((sizes >= array.num_bytes) & (opens <= array.begin) & (closes >= array.end)):
            if not any(_meet(array, other) for other in inside[number]):
                inside[number].append(array)
                found.add(array.array)
                break
    return found


def _meet(one: Guest, other: Guest) -> bool:
    """Whether both need their place at the same time."""
    first, second = (one, other) if one.begin <= other.begin else (other, one)
    follows = first.end == second.begin and first.array in second.over
    return second.begin <= first.end and not follows


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
        (time, what, number, place)
        for number, each in enumerate(tenants)
        for place, (begin, end) in enumerate(each.spans)
        for time, what in ((begin, comes), (end, goes))
    )
    moment = {event: time for time, event in enumerate(events)}
    found = []
    for number, each in enumerate(tenants):
        ends = [moment[end, goes, number, place] for place, (_, end) in enumerate(each.spans)]
        found.append((moment[each.spans[0][0], comes, number, 0], max(ends), ends[0]))
    return found


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
