"""Blocks of arrays: a region is the first index and the end in each dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int, ...]
Region = tuple[slice, ...]
"""A block of an array: first index and end in each dimension."""


def full_region(shape: Sequence[int]) -> Region:
    """The block that is everything."""
    return tuple(slice(0, size) for size in shape)


def region_shape(region: Region) -> Shape:
    """Shape of a block."""
    return tuple(part.stop - part.start for part in region)


def volume(region: Region) -> int:
    """Number of elements of a block."""
    return math.prod(region_shape(region))


def overlap(left: Region, right: Region) -> Region | None:
    """What two blocks share; None where they share nothing."""
    both = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(left, right, strict=True))
    # Blocks that only touch share nothing.
    return both if all(part.start < part.stop for part in both) else None


def within(region: Region, outer: Region) -> Region:
    """`region` counted from the beginning of `outer`."""
    return tuple(
        slice(part.start - base.start, part.stop - base.start) for part, base in zip(region, outer, strict=True)
    )
