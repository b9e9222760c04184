"""The summary of a plan as text tables.

`sections` gives the tables as strings; `plain_text` lays them out in columns. `sporax.parallel.show_plan` shows the
same sections in terminals with colours.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sporax.planner.operators.names import common_prefix
from sporax.planner.report.folding import folded

if TYPE_CHECKING:
    from sporax.planner.report.summary import OperatorRow, Summary

WIDTH = 120
"""Columns where nothing says how many there are."""
_LEAST_WIDTH = 40
"""Columns below which tables cannot be read any more."""
_GAP = "  "
_SHOWN_SHARE = 0.01
"""Operators of scalars, and those outside of the user's own, are shown if they communicate or take this share of the work."""

_FEW = 6
"""Layouts that are told of one side of an operator."""

_LAYOUT = re.compile(r"\[[^\]]*\]( \+ \w+ over)?")
_HARD_SPACE = "\u00a0"

_PHASES = {"forward": "Forward", "backward": "Backward", "update": "Gradients and update"}


@dataclass(frozen=True, slots=True)
class Section:
    """One table.

    Attributes:
        title: stands above it.
        columns: their headings; "" in all of them for a table without headings.
        rows: the cells.
        right: positions of columns of numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


def heading(summary: Summary) -> str:
    """The line above the tables."""
    axes = ", ".join(f"{name} = {size}" for name, size in summary.axes)
    if not axes:
        return "Plan for one device: nothing is sharded"
    star = "; * marks a strategy that the user gave" if any(row.given for row in summary.operators) else ""
    return f"Plan for {summary.num_devices} devices; axes {axes}{star}"


def sections(summary: Summary) -> tuple[Section, ...]:
    """The tables in order, without empty ones. Rows of equally sharded layers become one, marked with (4 ×)."""
    prefix = common_prefix([row.path for row in summary.operators if row.name and row.path and _is_shown(row)])
    tables = [
        *(folded_section(_operators(summary, phase, title, prefix)) for phase, title in _PHASES.items()),
        folded_section(tensors_section(summary)),
        totals_section(summary),
        search_section(summary),
        notes_section(summary),
    ]
    return tuple(_without_empty_columns(section) for section in tables if section.rows)


def folded_section(section: Section) -> Section:
    """The table with rows of layers that are sharded equally as one."""
    rows = folded(section.rows)
    remark = "" if len(rows) == len(section.rows) else "; (2 ×) stands for two equal rows, with the numbers of one"
    return replace(section, title=section.title + remark, rows=rows)


def page_width(environ: Mapping[str, str] | None = None) -> int:
    """Columns of the page: what ``COLUMNS`` says, else those of the terminal, else `WIDTH` for files and pipes."""
    told = (os.environ if environ is None else environ).get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return max(int(told), _LEAST_WIDTH)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, _LEAST_WIDTH)
    except (OSError, ValueError, AttributeError):
        return WIDTH


def plain_text(summary: Summary, width: int | None = None) -> str:
    """All tables, no line longer than `width`; that of the page by default."""
    width = page_width() if width is None else width
    parts = [textwrap.fill(heading(summary), width)]
    parts += ["\n".join([section.title, *table_lines(section, width)]) for section in sections(summary)]
    return "\n\n".join(parts)


def time_text(seconds: float) -> str:
    """Seconds for people; what is shorter than a picosecond is nothing."""
    seconds = seconds if seconds >= 1e-12 else 0.0
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
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.4g} TB"


# -------------------------------------------------------------------------------------------------------- the sections


def _operators(summary: Summary, phase: str, title: str, prefix: str) -> Section:
    """One table per phase; only the forward phase has strategies."""
    forward = phase == "forward"
    columns = ["operator", "strategy", "inputs → results", "collectives, bytes per rank", "flops"]
    rows = [_operator_cells(row, prefix) for row in summary.operators if row.phase == phase and _is_shown(row)]
    if not forward:
        for row in (columns, *rows):
            del row[1]
    within = f", paths within {prefix}" if forward and prefix else ""
    return Section(title + within, tuple(columns), tuple(map(tuple, rows)), right=(len(columns) - 1,))


def _is_shown(row: OperatorRow) -> bool:
    """Whether a row is worth a line; `Summary.operators` has them all."""
    has_tensors = any(layout != "[]" for layout in (*row.inputs, *row.results))
    return bool(row.collectives or (row.name and has_tensors)) or row.flops_share >= _SHOWN_SHARE


def _operator_cells(row: OperatorRow, prefix: str) -> list[str]:
    path = row.path.removeprefix(prefix).lstrip(".")
    last = path.rpartition(".")[2]
    name = path if path and (last == row.name or not row.name) else f"{path} {row.name}".strip()
    strategy = _some([str(entry).replace(" ", "") for entry in row.strategy])
    arrow = f"{_some(row.inputs)} → {_some(row.results)}".strip() if row.inputs or row.results else ""
    return [
        name or ("update" if row.phase == "update" else "between operators"),
        f"{strategy} *" if strategy and row.given else strategy,
        arrow,
        "; ".join(collective_texts(row)),
        f"{row.flops_share:.1%}",
    ]


def _some(texts: Sequence[str]) -> str:
    """The first few: loops take and give dozens of tensors."""
    shown = texts if len(texts) <= _FEW else [*texts[: _FEW - 1], f"… {len(texts) - _FEW + 1} more"]
    return " ".join(shown)


def collective_texts(row: OperatorRow) -> Iterable[str]:
    """Collectives of one kind among as many ranks, with their bytes in all."""
    totals: dict[tuple[str, int], tuple[int, int]] = {}
    for collective in row.collectives:
        count, num_bytes = totals.get((collective.kind, collective.ranks), (0, 0))
        totals[collective.kind, collective.ranks] = (
            count + collective.count,
            num_bytes + collective.count * collective.num_bytes,
        )
    for (kind, ranks), (count, num_bytes) in totals.items():
        times = f"{count} × " if count > 1 else ""
        yield f"{times}{kind} over {ranks}, {size_text(num_bytes)}"


def tensors_section(summary: Summary, roles: Collection[str] = ("parameter", "data")) -> Section:
    """Inputs of the step: what is whole and what a device keeps."""
    shown = [row for row in summary.tensors if row.role in roles]
    rows = tuple(
        (
            row.name,
            f"{row.dtype} {_shape(row.shape)}",
            _shape(row.slice_shape),
            row.layout,
            row.kept_as if row.kept_as != row.layout else "",
            size_text(row.num_bytes),
        )
        for row in shown
    )
    columns = ("parameter or input", "whole", "slice kept", "layout in use", "kept as", "per device")
    return Section("Parameters and inputs", columns, rows, right=(5,))


def totals_section(summary: Summary) -> Section:
    """What each device holds, and what it communicates."""
    totals = summary.totals
    uses = ", ".join(f"{use} {size_text(size)}" for use, size in totals.peak_uses)
    rows = [
        ("parameters", f"{size_text(totals.parameter_bytes)} of {size_text(totals.whole_parameter_bytes)}"),
        ("optimizer state and counters", f"{size_text(totals.state_bytes)} of {size_text(totals.whole_state_bytes)}"),
        ("data", size_text(totals.data_bytes)),
        ("predicted peak memory", f"{size_text(totals.peak_bytes)} ({uses})"),
    ]
    rows += [
        (entry.kind, f"{entry.count} per step, {size_text(entry.num_bytes)} per rank in total")
        for entry in totals.traffic
    ]
    return Section("Each device", ("", ""), tuple(rows))


def search_section(summary: Summary) -> Section:
    """How the plan was found; without rows where nothing was searched."""
    search = summary.search
    if search is None:
        return Section("Search", ("", ""), ())
    bound = "none" if search.bound_seconds is None else cost_text(search.bound_seconds, search.unit)
    rows = (
        ("method", search.method),
        (
            "predicted time of a step" if search.unit == "s" else "cost of a step",
            cost_text(search.predicted_seconds, search.unit),
        ),
        ("lower bound of all plans", f"{bound} (this plan is optimal)" if search.optimal else bound),
        ("time of the search", time_text(search.search_seconds)),
    )
    return Section("Search", ("", ""), rows)


def notes_section(summary: Summary) -> Section:
    """What one should know."""
    return Section("Notes", ("",), tuple((note,) for note in summary.notes))


def _without_empty_columns(section: Section) -> Section:
    kept = [column for column in range(len(section.columns)) if any(row[column] for row in section.rows)]
    return Section(
        section.title,
        tuple(section.columns[column] for column in kept),
        tuple(tuple(row[column] for column in kept) for row in section.rows),
        tuple(position for position, column in enumerate(kept) if column in section.right),
    )


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


# ---------------------------------------------------------------------------------------------------------- the layout


def table_lines(section: Section, width: int = WIDTH) -> Iterable[str]:
    """The rows in columns, no line longer than `width`.

    Cells that do not fit are broken at spaces; paths in the first column lose their left ends.
    """
    has_heads = any(section.columns)
    table = [section.columns, *section.rows] if has_heads else list(section.rows)
    widths = _widths(table, width)
    if has_heads and len(section.columns) > 1:
        table = [(_cut_left(row[0], widths[0]), *row[1:]) for row in table]
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


def _cut_left(cell: str, width: int) -> str:
    """A name in one line, without the left end of its path where that is too long: what stands last tells names apart."""
    if len(cell) <= width:
        return cell
    path, space, rest = cell.partition(" ")
    room = width - len(space + rest)
    return f"…{path[len(path) - room + 1 :]}{space}{rest}" if room > 1 and len(path) > room else cell


def _broken(cell: str, width: int) -> list[str]:
    """A cell in lines; layouts stay in one piece."""
    whole = _LAYOUT.sub(lambda match: match.group().replace(" ", _HARD_SPACE), cell)
    words = itertools.chain(*(_pieces(word, width) for word in whole.split(" ")))
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
