"""The summary of a plan: a value, and its text tables.

A `Summary` has one row per operator that the user wrote, one row per tensor that enters the step, and totals; `summarize` makes
it. `sections` gives its tables as strings; `plain_text` lays them out in columns. `sporax.mindspore.parallel.show_plan` shows
the same sections in terminals with colours.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sporax.base.text_tables import Section, cost_text, page_width, size_text, table_lines, time_text
from sporax.report.view.folding import folded
from sporax.report.view.operator_names import common_prefix

VERSION = 1
"""Version of the JSON form; goes up where a key changes its meaning."""

_SHOWN_SHARE = 0.01
"""Operators of scalars, and those outside of the user's own, are shown if they communicate or take this share of the work."""

_FEW = 6
"""Layouts that are reported of one side of an operator."""

_PHASES = {"forward": "Forward", "backward": "Backward", "update": "Gradients and update"}


@dataclass(frozen=True, slots=True)
class Collective:
    """Equal collectives of one operator.

    Attributes:
        kind: ``"all_reduce"``, ``"all_gather"``, ``"reduce_scatter"``, ``"all_to_all"`` or ``"permute"``.
        ranks: how many take part in one.
        num_bytes: what one rank brings into one.
        count: how many there are per step.
    """

    kind: str
    ranks: int
    num_bytes: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One call of one operator that the user wrote, in one phase of the step.

    Attributes:
        path, name: where it is and what it is; the name is "" for what stands outside of such operators.
        phase: ``"forward"``, ``"backward"`` or ``"update"``.
        strategy: numbers of slices per dimension of each input.
        given: whether the user said so.
        inputs, results: layouts at its entrance and exit; in the backward phase, those of the cotangents.
        collectives: what is communicated for it.
        flops: floating-point operations of one device.
        flops_share: their share of the step's.
    """

    path: str
    name: str
    phase: str
    strategy: tuple[tuple[int, ...], ...]
    given: bool
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    collectives: tuple[Collective, ...]
    flops: float
    flops_share: float


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One input of the step.

    Attributes:
        name: the Parameter's, or ``"input 0"``.
        role: ``"parameter"`` for what is trained (in steps that train nothing, every Parameter), ``"state"`` for other
            variables (moments, counters, running statistics), ``"data"``.
        dtype: of its elements.
        shape, slice_shape: of the whole, and of what a device keeps.
        layout: how operators have it.
        kept_as: its sharding between steps; differs from `layout` with optimizer parallelism.
        num_bytes: of one device.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    slice_shape: tuple[int, ...]
    layout: str
    kept_as: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """All collectives of one kind in a step.

    Attributes:
        kind: as in `Collective`.
        count: how many one rank takes part in.
        num_bytes: what it brings into them.
    """

    kind: str
    count: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a step, of one device.

    Attributes:
        parameter_bytes, state_bytes, data_bytes: of the inputs by role.
        whole_parameter_bytes, whole_state_bytes: the same whole: what a single device would hold.
        peak_bytes: predicted most memory in use, by the lives of tensors.
        peak_uses: what it is made of, as pairs of a use and bytes.
        flops: floating-point operations.
        traffic: communication by kind.
    """

    parameter_bytes: int
    state_bytes: int
    data_bytes: int
    whole_parameter_bytes: int
    whole_state_bytes: int
    peak_bytes: int
    peak_uses: tuple[tuple[str, int], ...]
    flops: float
    traffic: tuple[Traffic, ...]


@dataclass(frozen=True, slots=True)
class SearchRow:
    """How the plan was found.

    Attributes:
        method: the search.
        predicted_seconds: of one step as the search left it; optimizer parallelism and fusion come after it.
        bound_seconds: no plan of the same search space is faster than this; None when nothing was proven.
        optimal: the prediction is the least of the search space.
        search_seconds: what the search took.
        unit: of the prediction and the bound; another one than seconds where a model without hardware priced the plan.
    """

    method: str
    predicted_seconds: float
    bound_seconds: float | None
    optimal: bool
    search_seconds: float
    unit: str = "s"


@dataclass(frozen=True, slots=True)
class Summary:
    """A plan for people. ``str(summary)`` is a table of at most 120 columns.

    Attributes:
        num_devices: how many there are.
        axes: name and size of each axis as shown, outermost first.
        operators: in the order in which they run.
        tensors: inputs of the step.
        totals: sums.
        notes: what one should know: operators that could not be sharded, and why.
        search: how the plan was found; None where the user's shardings decided.
        warnings: what makes the plan worse than it need be, or leaves something out of it; they stand at its head.
    """

    num_devices: int
    axes: tuple[tuple[str, int], ...]
    operators: tuple[OperatorRow, ...]
    tensors: tuple[TensorRow, ...]
    totals: Totals
    notes: tuple[str, ...]
    search: SearchRow | None = None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return plain_text(self)

    def to_json(self) -> str:
        """All of it as a JSON object, keys as the attributes here."""
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, indent=1)


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


def plain_text(summary: Summary, width: int | None = None) -> str:
    """All tables, no line longer than `width`; that of the page by default."""
    return "\n".join(line for line, _ in styled_lines(summary, page_width() if width is None else width))


def styled_lines(summary: Summary, width: int) -> Iterator[tuple[str, str]]:
    """The lines of all tables, and how each looks on a terminal: "bold", "bold cyan" or ""."""
    yield from ((line, "bold") for line in textwrap.wrap(heading(summary), width))
    for warning in summary.warnings:
        yield from ((line, "bold red") for line in textwrap.wrap(f"Warning: {warning}", width))
    for section in sections(summary):
        yield "", ""
        yield from ((line, "bold cyan") for line in textwrap.wrap(section.title, width))
        is_head = any(section.columns)
        for line in table_lines(section, width):
            is_head = is_head and not line.startswith("─")
            yield line, "bold" if is_head else ""


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
