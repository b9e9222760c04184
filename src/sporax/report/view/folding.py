"""Rows of a table whose names differ in one number, as those of equally sharded layers do, shown as one row."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterable, Sequence

_NUMBER = re.compile(r"\d+")


def folded(rows: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    r"""Rows whose first cells differ in at most one number, and nothing else, become one row, where the first of them stood.

    Where several numbers differ it is the one with the most values: that of the layer, not that of one of two norms in it.

    Example:
        >>> folded([("layer.0.q", "a"), ("layer.1.q", "a"), ("layer.2.q", "b")])[0]
        ('layer.0-1.q (2\xa0×)', 'a')
    """
    table = [tuple(row) for row in rows]
    return tuple((name, *table[positions[0]][1:]) for positions, name in equal_rows(table))


def equal_rows(rows: Sequence[Sequence[str]]) -> list[tuple[list[int], str]]:
    """The rows that `folded` makes one of, by their places, with the name of that one."""
    groups: dict[Hashable, list[int]] = {}
    for place, (name, *cells) in enumerate(rows):
        # What is between the numbers and every other cell must be equal; only then is it checked which number may differ.
        groups.setdefault((*_NUMBER.split(name), *cells), []).append(place)
    result = []
    for positions in groups.values():
        for members, name in _folded_names([rows[place][0] for place in positions]):
            result.append(([positions[member] for member in members], name))
    return sorted(result)


def _folded_names(names: Sequence[str]) -> Iterable[tuple[list[int], str]]:
    """Which names become one, and which; they differ in numbers alone."""
    numbers = [tuple(map(int, _NUMBER.findall(name))) for name in names]
    values = [len(set(column)) for column in zip(*numbers, strict=True)]
    position = values.index(max(values)) if values else -1
    groups: dict[Hashable, list[int]] = {}
    for member, own_numbers in enumerate(numbers):
        others = tuple(number for place, number in enumerate(own_numbers) if place != position)
        groups.setdefault(others, []).append(member)
    for members in groups.values():
        first = names[members[0]]
        if len(members) == 1:
            yield members, first
            continue
        texts = _NUMBER.findall(first)
        if texts:
            texts[position] = _ranges(sorted({numbers[member][position] for member in members}))
        words = itertools.zip_longest(_NUMBER.split(first), texts, fillvalue="")
        yield members, f"{''.join(itertools.chain(*words))} ({len(members)}\N{NO-BREAK SPACE}×)"


def _ranges(numbers: Sequence[int]) -> str:
    """``0-2,5``."""
    runs = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in run] for _, run in runs]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def in_ranges(number: int, ranges: str) -> bool:
    """Whether a folded name stands for a number: ``0-2,5`` for 0, 1, 2 and 5."""
    ends = (entry.partition("-") for entry in ranges.split(","))
    return any(int(first) <= number <= int(last or first) for first, _, last in ends)
