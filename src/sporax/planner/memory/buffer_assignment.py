"""Buffer assignment: at which offset of the shared memory each array is placed.

Problem: arrays of different sizes and live ranges share one heap. Gaps between them make the heap larger than the live
bytes at any time, in small networks by up to a sixth.

Method: as XLA. First, an array reuses an allocation that exists anyway and is partly unused: the buffer of an argument
that was copied and will be replaced, or the buffer of a result that is not yet written (`BufferAssigner`). All other
arrays share the heap, largest first: each goes into the smallest gap that is free for its whole live range, or on top
(`GlobalDecreasingSizeBestFitHeap`). This is repeated with the longest live range first, and the smaller heap is used.

Reference: XLA, `xla/service/buffer_assignment.cc` and `xla/service/heap_simulator/heap_simulator.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

ALIGNMENT = 64
"""Bytes: where XLA for CPUs lets buffers begin."""


@dataclass(frozen=True, slots=True)
class HeapBuffer:
    """An array, or arrays of one size that are written over each other.

    Attributes:
        spans: for every array the ticks between which it is there, the last one included; in order.
        num_bytes: its size.
    """

    spans: tuple[tuple[int, int], ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class LiveArray:
    """An array that may be where others are before and after it.

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
class Allocation:
    """A place that arrays may move into.

    Attributes:
        num_bytes: its size.
        before, after: what is there at the start and at the end; None for nothing.
    """

    num_bytes: int
    before: LiveArray | None
    after: LiveArray | None


def arrays_in_allocations(allocations: Sequence[Allocation], arrays: Sequence[LiveArray]) -> set[int]:
    """Numbers of the arrays that find a place.

    Args:
        vacant: the smallest that fits is taken, of one size the last one.
        arrays: of one size, the first one chooses first.
    """
    numbers: set[int] = set()
    # Ascending, and of equal ones the last first, as XLA walks through its allocations.
    ordered = sorted(allocations, key=lambda allocation: -allocation.num_bytes)[::-1]
    inside = [[entry for entry in (place.before, place.after) if entry] for place in ordered]
    sizes = np.array([place.num_bytes for place in ordered])
    opens = np.array([place.before.end if place.before else -np.inf for place in ordered])
    closes = np.array([place.after.begin if place.after else np.inf for place in ordered])
    # Large arrays first: small ones find a place anywhere.
    arrays = sorted(arrays, key=lambda array: -array.num_bytes)
    needs, begins, ends = np.array([(array.num_bytes, array.begin, array.end) for array in arrays]).reshape(-1, 3).T
    # All pairs at once: most arrays are larger than every place, or live when none is vacant.
    possible = (sizes >= needs[:, None]) & (opens <= begins[:, None]) & (closes >= ends[:, None])
    for entry in np.flatnonzero(possible.any(axis=1)).tolist():
        array = arrays[entry]
        for number in np.flatnonzero(possible[entry]).tolist():
            if not any(_overlap(array, other) for other in inside[number]):
                inside[number].append(array)
                numbers.add(array.array)
                break
    return numbers


def _overlap(one: LiveArray, other: LiveArray) -> bool:
    """Whether both need their place at the same time."""
    first, second = (one, other) if one.begin <= other.begin else (other, one)
    # Writing over an operand needs its last tick, so both share it without a conflict.
    follows = first.end == second.begin and first.array in second.over
    return second.begin <= first.end and not follows


def heap_offsets(buffers: Sequence[HeapBuffer]) -> list[int]:
    """The byte at which each begins."""
    if not buffers:
        return []
    moments = _clocked_ranges(buffers)
    sizes = [buffer.num_bytes for buffer in buffers]
    by_size = sorted(
        # XLA's order: by size, then by the length of the first array's life, then by number.
        range(len(buffers)),
        key=lambda number: (-sizes[number], moments[number][0] - moments[number][2], number),
    )
    offsets = _best_fit(by_size, moments, sizes)
    # No assignment is below the live bytes, so a heap that high needs no second try.
    if _height(offsets, sizes) <= least_height(buffers):
        return offsets
    # XLA's second try: the longest-lived first.
    by_life = sorted(
        range(len(buffers)), key=lambda number: (moments[number][0] - moments[number][1], -sizes[number], number)
    )
    return min(offsets, _best_fit(by_life, moments, sizes), key=lambda entry: _height(entry, sizes))


def least_height(buffers: Sequence[HeapBuffer]) -> int:
    """The most bytes that are there at a time: no assignment needs less."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        begin, end = buffer.spans[0][0], max(end for _, end in buffer.spans)
        changes[begin] = changes.get(begin, 0) + buffer.num_bytes
        # At its last tick it is still there.
        changes[end + 1] = changes.get(end + 1, 0) - buffer.num_bytes
    return max(accumulate(changes[tick] for tick in sorted(changes)), default=0)


def _clocked_ranges(buffers: Sequence[HeapBuffer]) -> list[tuple[int, int, int]]:
    """Begins, ends, and ends of the first arrays as moments of a clock that ticks whenever an array comes or goes."""
    comes, goes = 0, 1
    # Arrays come before others go at one tick: a kernel's operands and results exist together.
    events = sorted(
        (time, what, number, place)
        for number, buffer in enumerate(buffers)
        for place, (begin, end) in enumerate(buffer.spans)
        for time, what in ((begin, comes), (end, goes))
    )
    moment = {event: time for time, event in enumerate(events)}
    ranges = []
    for number, buffer in enumerate(buffers):
        ends = [moment[end, goes, number, place] for place, (_, end) in enumerate(buffer.spans)]
        ranges.append((moment[buffer.spans[0][0], comes, number, 0], max(ends), ends[0]))
    return ranges


def _best_fit(order: Sequence[int], moments: Sequence[tuple[int, int, int]], sizes: Sequence[int]) -> list[int]:
    """Best fit in an order, for every tenant the byte at which it begins."""
    count = len(order)
    begins, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    bottoms, tops = [0] * count, [0] * count
    offsets = [0] * count
    for placed, number in enumerate(order):
        begin, end, _ = moments[number]
        # Only buffers that are live at the same time are in each other's way.
        live = np.flatnonzero((begins[:placed] <= end) & (ends[:placed] >= begin)).tolist()
        live.sort(key=bottoms.__getitem__)
        start = _smallest_gap([(bottoms[other], tops[other]) for other in live], sizes[number])
        begins[placed], ends[placed] = begin, end
        bottoms[placed], tops[placed] = start, -(-(start + sizes[number]) // ALIGNMENT) * ALIGNMENT
        offsets[number] = start
    return offsets


def _smallest_gap(buffers: Sequence[tuple[int, int]], size: int) -> int:
    """Where the smallest gap of at least `size` bytes begins between buffers that are there; their top if there is none.

    Args:
        buffers: bottoms and tops, in the order of their bottoms.
        size: in bytes.
    """
    # A loop and no arrays: few buffers are live at the same time. They overlap, so the top of all so far counts.
    ceiling, start, least = 0, -1, math.inf
    for bottom, top in buffers:
        # Negative gaps are overlaps and fit nothing.
        if size <= bottom - ceiling < least:
            start, least = ceiling, bottom - ceiling
        ceiling = max(ceiling, top)
    return ceiling if start < 0 else start


def _height(starts: Sequence[int], sizes: Sequence[int]) -> int:
    return max(start + size for start, size in zip(starts, sizes, strict=True))
