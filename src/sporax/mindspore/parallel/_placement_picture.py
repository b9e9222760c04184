"""A picture of a tensor's slices: a grid of boxes, in each box the ranks that hold this slice."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from sporax.base.errors import For

_MAX_LISTED = 8
"""More ranks than this in one box are counted, not listed, unless they follow on each other."""


def picture(holders: Mapping[tuple[int, ...], Sequence[int]]) -> str:
    """The grid of slices. The last dimension runs across, another one downwards; those that are not sharded are left out.

    Args:
        holders: for every slice, as one number per dimension, the ranks that have it.

    Raises:
        SporaxValueError: more than two dimensions are sharded.

    Example:
        >>> print(picture({(0, 0): [0, 2], (0, 1): [1, 3]}))
        ┌─────┬─────┐
        │ 0,2 │ 1,3 │
        └─────┴─────┘
    """
    sharded = [dim for dim, numbers in enumerate(zip(*holders, strict=True)) if max(numbers) > 0]
    For("show_layout").refuse(len(sharded) > 2, "at most two dimensions may be sharded in a picture", sharded)
    down: int | None = None
    across: int | None = None
    if len(sharded) == 2:
        down, across = sharded
    elif sharded == [max(map(len, holders)) - 1]:
        (across,) = sharded
    elif sharded:
        (down,) = sharded
    cells: dict[tuple[int, int], str] = {}
    for index, ranks in holders.items():
        row, column = (0 if dim is None else index[dim] for dim in (down, across))
        cells[row, column] = _ranks_text(sorted(ranks))
    rows = [[cells[key] for key in keys] for _, keys in itertools.groupby(sorted(cells), lambda key: key[0])]
    return "\n".join(_boxes(rows))


def _boxes(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * width for width in widths) + right

    lines = [rule("┌", "┬", "┐")]
    for number, row in enumerate(rows):
        if number:
            lines.append(rule("├", "┼", "┤"))
        lines.append("│" + "│".join(text.center(width) for text, width in zip(row, widths, strict=True)) + "│")
    return [*lines, rule("└", "┴", "┘")]


def _ranks_text(ranks: Sequence[int]) -> str:
    """``0-3`` for ranks that follow on each other, ``0,2,4`` for others, ``0,8,… (32)`` for many."""
    first, last = ranks[0], ranks[-1]
    if len(ranks) > 2 and last - first == len(ranks) - 1:
        return f"{first}-{last}"
    if len(ranks) <= _MAX_LISTED:
        return ",".join(map(str, ranks))
    return f"{first},{ranks[1]},… ({len(ranks)})"
