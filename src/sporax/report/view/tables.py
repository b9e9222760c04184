"""The tables of a plan as strings: the rows of a `PlanView` in words, equal layers as one row. All renderers show these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from sporax.base.text_tables import Section, cost_text, size_text, time_text
from sporax.report.view.folding import equal_rows, folded
from sporax.report.view.operator_names import PREFIX, common_prefix
from sporax.report.view.plan_view import Headline, OperatorRow, PlanView, TimePart

_LISTED_SHARE = 0.01
"""Operators of scalars, and those outside of the user's own, are shown if they communicate or take this share of the work."""

_SMALL_SHARE = 0.0005
"""Shares below this are printed as 0.0%."""

_COSTLIEST = 10
"""Rows of the table of what takes longest."""

_FEW = 6
"""Layouts that are reported of one side of an operator."""

_PHASES = {"forward": "Forward", "backward": "Backward", "update": "Gradients and update"}


def heading(view: PlanView) -> str:
    """The line above the tables."""
    axes = ", ".join(f"{name} = {size}" for name, size in view.axes)
    if not axes:
        return "Plan for one device: nothing is sharded"
    star = "; * marks a strategy that the user gave" if any(row.given for row in view.operators) else ""
    return f"Plan for {view.num_devices} devices; axes {axes}{star}"


def sections(view: PlanView) -> tuple[Section, ...]:
    """The tables in order, without empty ones. Rows of equally sharded layers become one, marked with (4 ×)."""
    listed = (row for row in view.operators if row.name and row.path and _is_listed(row, view))
    prefix = common_prefix([row.path for row in listed if not row.path.startswith(PREFIX)])
    tables = [
        time_section(view.parts, view.headline.unit),
        costliest_section(view, prefix),
        *(folded_section(_operators(view, phase, title, prefix)) for phase, title in _PHASES.items()),
        folded_section(tensors_section(view)),
        totals_section(view),
        search_section(view),
        notes_section(view),
    ]
    return tuple(without_empty_columns(section) for section in tables if section.rows)


def folded_section(section: Section) -> Section:
    """The table with rows of layers that are sharded equally as one."""
    rows = folded(section.rows)
    remark = "" if len(rows) == len(section.rows) else "; (2 ×) stands for two equal rows, with the numbers of one"
    return replace(section, title=section.title + remark, rows=rows)


def _operators(view: PlanView, phase: str, title: str, prefix: str) -> Section:
    """One table per phase; only the forward phase has strategies."""
    forward = phase == "forward"
    columns = ["operator", "strategy", "inputs → results", "collectives, bytes per rank", "predicted"]
    listed = [row for row in view.operators if row.phase == phase and _is_listed(row, view)]
    small = [row for row in listed if _is_small(row, view)]
    small = small if len(small) > 1 else []
    rows = [_operator_cells(row, prefix, view) for row in listed if row not in small]
    if small:
        seconds = cost_text(sum(row.seconds for row in small), view.headline.unit)
        rows.append([f"{len(small)} others", "", "without communication", "", seconds])
    if not forward:
        for row in (columns, *rows):
            del row[1]
    within = f", paths within {prefix}" if forward and prefix else ""
    return Section(title + within, tuple(columns), tuple(map(tuple, rows)), right=(len(columns) - 1,))


def time_share(row: OperatorRow, view: PlanView) -> float:
    """What a row takes of the step: of its time, or of its work where no time is known."""
    return row.seconds / view.headline.seconds if view.headline.seconds else row.flops_share


def _is_listed(row: OperatorRow, view: PlanView) -> bool:
    """Whether a row is worth a line; `PlanView.operators` has them all."""
    has_tensors = any(layout != "[]" for layout in (*row.inputs, *row.results))
    return bool(row.collectives or (row.name and has_tensors)) or time_share(row, view) >= _LISTED_SHARE


def _is_small(row: OperatorRow, view: PlanView) -> bool:
    """Whether a row would show nothing but layouts: 0.0 % of the step, no communication, no strategy of the user."""
    return time_share(row, view) < _SMALL_SHARE and not row.collectives and not row.given


def row_name(row: OperatorRow, prefix: str = "") -> str:
    """A row by its path and operator."""
    path = row.path.removeprefix(prefix).lstrip(".")
    last = path.rpartition(".")[2]
    is_named = path.startswith(PREFIX) or (path and last == row.name)
    name = path if is_named or not row.name else f"{path} {row.name}".strip()
    return name or ("update" if row.phase == "update" else "between operators")


def _operator_cells(row: OperatorRow, prefix: str, view: PlanView) -> list[str]:
    strategy = _some([str(entry).replace(" ", "") for entry in row.strategy])
    arrow = f"{_some(row.inputs)} → {_some(row.results)}".strip() if row.inputs or row.results else ""
    return [
        row_name(row, prefix),
        f"{strategy} *" if strategy and row.given else strategy,
        arrow,
        "; ".join(collective_texts(row)),
        cost_text(row.seconds, view.headline.unit),
    ]


def time_section(parts: Sequence[TimePart], unit: str) -> Section:
    """Where the time of a step goes, with what of it programs hide; without rows where no cost is known."""
    total = sum(part.seconds for part in parts)
    rows = tuple(
        (
            part.name,
            cost_text(part.seconds, unit),
            f"{part.seconds / total:.1%}",
            cost_text(part.hidden_seconds, unit) if part.hidden_seconds else "",
        )
        for part in parts
    )
    return Section("Where the time goes", ("part", "predicted", "share", "programs can hide"), rows, right=(1, 2, 3))


def costliest_section(view: PlanView, prefix: str = "") -> Section:
    """The rows that take longest, equal layers as one, with the time of all of them."""
    unit, total = view.headline.unit, view.headline.seconds or 1.0
    timed = [row for row in view.operators if row.seconds > 0]
    cells = [
        (row_name(row, prefix), row.phase, cost_text(row.seconds, unit), "; ".join(collective_texts(row)))
        for row in timed
    ]
    groups = ((sum(timed[row].seconds for row in equal), name, cells[equal[0]]) for equal, name in equal_rows(cells))
    longest = sorted(groups, key=lambda group: -group[0])[:_COSTLIEST]
    rows = tuple(
        (name, phase, cost_text(seconds, unit), f"{seconds / total:.1%}", collectives)
        for seconds, name, (_, phase, _, collectives) in longest
    )
    columns = ("costliest operators", "phase", "predicted", "share", "collectives, bytes per rank")
    return Section("What takes longest", columns, rows, right=(2, 3))


def _some(texts: Sequence[str]) -> str:
    """The first few: loops take and give dozens of tensors."""
    listed = texts if len(texts) <= _FEW else [*texts[: _FEW - 1], f"… {len(texts) - _FEW + 1} more"]
    return " ".join(listed)


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


def tensors_section(view: PlanView, roles: Collection[str] = ("parameter", "data")) -> Section:
    """Inputs of the step: what is whole and what a device keeps."""
    listed = [row for row in view.tensors if row.role in roles]
    rows = tuple(
        (
            row.name,
            f"{row.dtype} {_shape(row.shape)}",
            _shape(row.slice_shape),
            row.layout,
            row.kept_as if row.kept_as != row.layout else "",
            size_text(row.num_bytes),
        )
        for row in listed
    )
    columns = ("parameter or input", "whole", "slice kept", "layout in use", "kept as", "per device")
    return Section("Parameters and inputs", columns, rows, right=(5,))


def headline_section(head: Headline) -> Section:
    """What one reads first of a plan; nothing where no cost model is known."""
    if head.seconds is None:
        return Section("", ("", ""), ())
    is_time, exposed = head.unit == "s", head.seconds - head.hidden
    bound = "" if head.bound is None else f", at best {cost_text(head.bound, head.unit)}"
    compiled = "" if head.compiled_bytes is None else f" predicted, {size_text(head.compiled_bytes)} compiled"
    limit = "" if head.limit_bytes is None else f" of {size_text(head.limit_bytes)}"
    rows = (
        ("script", head.script),
        ("hardware", head.hardware),
        ("predicted time of a step" if is_time else "cost of a step", cost_text(head.seconds, head.unit) + bound),
        ("throughput", _rates(head, head.seconds)),
        ("with transfers hidden", f"{cost_text(exposed, head.unit)}, {_rates(head, exposed)}" if head.hidden else ""),
        ("model FLOPs utilization", "" if head.mfu is None else f"{100 * head.mfu:#.3g}%"),
        ("peak memory of a device", f"{size_text(head.peak_bytes)}{compiled}{limit}"),
        ("computed whole", head.gathered),
        ("what figures mean", head.remark),
    )
    return Section("", ("", ""), tuple(row for row in rows if row[1]))


def _rates(head: Headline, seconds: float) -> str:
    """Throughput where a step takes so many seconds."""
    counts = ((head.samples, "samples/s"), (head.tokens, "tokens/s"))
    return ", ".join(f"{count / seconds:,.0f} {name}" for count, name in counts if count and head.samples_per_second)


def totals_section(view: PlanView) -> Section:
    """What each device holds, and what it communicates."""
    totals = view.totals
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


def search_section(view: PlanView) -> Section:
    """How the plan was found; without rows where nothing was searched."""
    search = view.search
    if search is None:
        return Section("Search", ("", ""), ())
    bound = "none" if search.bound_seconds is None else cost_text(search.bound_seconds, search.unit)
    rows = (
        ("method", search.method),
        ("lower bound of all plans", f"{bound} (this plan is optimal)" if search.optimal else bound),
        ("time of the search", time_text(search.search_seconds)),
    )
    return Section("Search", ("", ""), rows)


def notes_section(view: PlanView) -> Section:
    """What one should know."""
    return Section("Notes", ("",), tuple((note,) for note in view.notes))


def without_empty_columns(section: Section) -> Section:
    """The table without columns in which no row has anything."""
    filled = [column for column in range(len(section.columns)) if any(row[column] for row in section.rows)]
    columns, *rows = (tuple(row[column] for column in filled) for row in (section.columns, *section.rows))
    right = tuple(position for position, column in enumerate(filled) if column in section.right)
    return Section(section.title, columns, tuple(rows), right)


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"
