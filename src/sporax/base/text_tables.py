"""Text tables: cells in columns that fit the page, and quantities for people."""

from __future__ import annotations

import itertools
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

WIDTH = 120
"""Columns where nothing says how many there are."""
_LEAST_WIDTH = 40
"""Columns below which tables cannot be read any more."""
_GAP = "  "
_UNITS = ("B", "kB", "MB", "GB", "TB")
_LAYOUT = re.compile(r"\[[^\]]*\]( \+ \w+ over)?")
_HARD_SPACE = "\u00a0"
"""Stands for the spaces in a layout while lines are broken: `textwrap` breaks at no such space."""


@dataclass(frozen=True, slots=True)
class Section:
    """One table.

    Attributes:
        title: is above it.
        columns: their headings; "" in all of them for a table without headings.
        rows: the cells.
        right: positions of columns of numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


def page_width(environ: Mapping[str, str] | None = None) -> int:
    """Columns of the page: what ``COLUMNS`` says, else those of the terminal, else `WIDTH` for files and pipes."""
    columns = (os.environ if environ is None else environ).get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return max(int(columns), _LEAST_WIDTH)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, _LEAST_WIDTH)
    except (OSError, ValueError, AttributeError):
        return WIDTH


def table_lines(section: Section, width: int = WIDTH) -> Iterable[str]:
    """The rows in columns, no line longer than `width`.

    Cells that do not fit are broken at spaces; paths in the first column lose their left ends.
    """
    has_heads = any(section.columns)
    table = [section.columns, *section.rows] if has_heads else list(section.rows)
    widths = _widths(table, width)
    if has_heads and len(section.columns) > 1:
        # Names in the first column must stay in one line, or rows could not be distinguished.
        table = [(shortened(row[0], widths[0]), *row[1:]) for row in table]
    for number, row in enumerate(table):
        cells = [_broken(cell, columns) for cell, columns in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            pieces = [cell[line] if line < len(cell) else "" for cell in cells]
            yield _GAP.join(
                piece.rjust(columns) if position in section.right else piece.ljust(columns)
                for position, (piece, columns) in enumerate(zip(pieces, widths, strict=True))
            ).rstrip()
        if has_heads and number == 0:
            yield _GAP.join("─" * columns for columns in widths)


def shortened(cell: str, width: int) -> str:
    """A name in one line, without the left end of its path where that is too long: what is last distinguishes names."""
    path = max(cell.split(" "), key=len)
    room = width - len(cell) + len(path)
    return cell.replace(path, f"…{path[1 - room :]}", 1) if 1 < room < len(path) else cell


def _broken(cell: str, width: int) -> list[str]:
    """A cell in lines; layouts stay in one piece."""
    unbroken = _LAYOUT.sub(lambda match: match.group().replace(" ", _HARD_SPACE), cell)
    words = itertools.chain(*(_pieces(word, width) for word in unbroken.split(" ")))
    return [line.replace(_HARD_SPACE, " ") for line in textwrap.wrap(" ".join(words), width)] or [""]


def _pieces(word: str, width: int) -> Iterator[str]:
    """A word that is too long, broken behind the last dot or stroke that fits."""
    while len(word) > width:
        end = max(word.rfind(mark, 0, width) for mark in "._,/" + _HARD_SPACE) + 1 or width
        yield word[:end]
        word = word[end:]
    yield word


def _widths(table: Sequence[Sequence[str]], width: int) -> list[int]:
    """As wide as the longest cells, the widest columns narrowed until all fit."""
    widths = [max(1, *(len(row[column]) for row in table)) for column in range(len(table[0]))]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        widths[widths.index(max(widths))] -= 1
    return widths


def time_text(seconds: float) -> str:
    """Seconds for people; what is shorter than a nanosecond is nothing."""
    seconds = seconds if seconds >= 1e-9 else 0.0
    for unit in ("s", "ms", "µs"):
        if seconds >= 1 or unit == "µs":
            return f"{seconds:.3g} {unit}" if seconds < 1000 else f"{seconds:.0f} {unit}"
        seconds *= 1000
    raise AssertionError("the last unit takes everything")


def cost_text(cost: float, unit: str = "s") -> str:
    """A cost for people: seconds, or what another cost model counts in their place."""
    return time_text(cost) if unit == "s" else f"{cost:.4g} {unit}"


def size_text(num_bytes: float) -> str:
    """Bytes for people, in powers of 1000."""
    size, unit = _in_unit(num_bytes)
    return f"{size:.0f} B" if unit == "B" else f"{size:.{4 if unit == 'TB' else 3}g} {unit}"


def limit_text(num_bytes: float) -> str:
    """Bytes to be compared, in the same units with three decimals, rounded up: a limit of as much as the text says is enough."""
    size, unit = _in_unit(num_bytes)
    return f"{math.ceil(round(size * 1000, 6)) / 1000:.15g} {unit}"


def _in_unit(num_bytes: float) -> tuple[float, str]:
    """Bytes in the unit that fits."""
    number = next((number for number, unit in enumerate(_UNITS) if num_bytes < 1000 ** (number + 1)), len(_UNITS) - 1)
    return num_bytes / 1000**number, _UNITS[number]
