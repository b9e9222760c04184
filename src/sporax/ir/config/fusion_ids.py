"""Fusion ids: which gradients share a buffer, by position or by size.

Id 0 is not fused; equal ids above 0 share one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

BYTES_PER_MEGABYTE = 1 << 20
"""MindSpore's megabytes."""
_FIRST_SPLIT_ID = 1 << 10
"""First number of buffers that are split by positions."""


def ids_by_position(count: int, last_of_each: Sequence[int]) -> list[int]:
    """Ids for arrays that are split after the given positions, these included; numbers beyond the end do nothing."""
    ids, current = [], _FIRST_SPLIT_ID
    for position in range(count):
        ids.append(current)
        current += position in last_of_each
    return ids


def ids_by_size(sizes: Sequence[int], threshold_bytes: int) -> list[int]:
    """Ids for arrays of these sizes in bytes: the one with which a buffer reaches the threshold opens the next buffer.

    A threshold of 0 fuses nothing.
    """
    if threshold_bytes <= 0:
        return [0] * len(sizes)
    ids, current, total = [], 1, 0
    for size in sizes:
        total += size
        # The array that fills the buffer opens the next one, and so is not in the full one.
        if total >= threshold_bytes:
            current, total = current + 1, 0
        ids.append(current)
    return ids


def ids_by_sizes(sizes: Sequence[int], limits: Sequence[int]) -> list[int]:
    """Ids for arrays of these sizes in bytes: the first buffer is closed when it holds `limits[0]` bytes, the second when it
    holds `limits[1]`, and so on; the last one, for which no limit is left, takes the rest.

    Example:
        >>> ids_by_sizes([4, 4, 4, 4, 4], [4, 8])
        [1, 2, 2, 3, 3]
    """
    ids: list[int] = []
    current, total = 0, 0
    for size in sizes:
        ids.append(current + 1)
        total += size
        # After the last limit, one buffer takes the rest.
        if current < len(limits) and total >= limits[current]:
            current, total = current + 1, 0
    return ids
