"""A plan as a web page: one HTML file without external resources.

From top to bottom: totals and how the plan was found, communication, the picture of the operators, memory over time,
and the tables of all operators and of all tensors that enter the step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from sporax.base.text_tables import Section, cost_text
from sporax.report.render.svg import memory_picture, operators_picture
from sporax.report.render.templates import template
from sporax.report.view import tables
from sporax.report.view.plan_view import PlanView
from sporax.report.view.step_graph import folded_graph

_UNBROKEN = re.compile(r"\[[^\]]*\]|\d [kMGTmµ]?[Bs]\b")


def page(view: PlanView) -> str:
    """A plan as a page with styles and pictures inside."""
    unit = view.headline.unit
    state = tables.tensors_section(view, ("state",))
    return template("plan.html").substitute(
        style=template("plan.css").template,
        title=escape(tables.heading(view)),
        warnings="".join(f"<p><strong>Warning: {escape(text)}</strong></p>" for text in view.warnings),
        headline=titled(tables.headline_section(view.headline)),
        script=template("plan.js").template,
        totals="".join(
            map(
                titled,
                (tables.time_section(view.parts, unit), tables.totals_section(view), tables.search_section(view)),
            )
        ),
        costliest=titled(tables.costliest_section(view)),
        notes=titled(tables.notes_section(view)),
        operators=operators_picture(*folded_graph(view.operators, view.arrows, unit), unit),
        memory=memory_picture(view.memory, unit),
        rows=table(tables.folded_section(_operators(view))),
        tensors=table(tables.folded_section(tables.tensors_section(view))),
        state=f"<details><summary>Other variables</summary>{table(state)}</details>" if state.rows else "",
    )


def _operators(view: PlanView) -> Section:
    columns = ("operator", "", "phase", "strategy", "inputs → results", "collectives", "flops", "predicted", "share")
    rows = tuple(
        (
            row.path or "between operators",
            row.name,
            row.phase,
            " ".join(str(entry).replace(" ", "") for entry in row.strategy) + (" *" if row.given else ""),
            f"{' '.join(row.inputs)} → {' '.join(row.results)}" if row.inputs or row.results else "",
            "; ".join(tables.collective_texts(row)),
            f"{row.flops:.3g}",
            cost_text(row.seconds, view.headline.unit),
            f"{tables.time_share(row, view):.1%}",
        )
        for row in view.operators
    )
    return Section("Operators", columns, rows, right=(6, 7, 8))


def titled(section: Section) -> str:
    """A table under its title; nothing where it has no rows."""
    title = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    return f"<div>{title}{table(section)}</div>" if section.rows else ""


def table(section: Section) -> str:
    """A table as HTML."""
    section = tables.without_empty_columns(section)
    head = _cells("th", section.columns, section.right) if any(section.columns) else ""
    body = "\n".join(_cells("td", row, section.right) for row in section.rows)
    return f'<div class="scroll"><table>{head}\n{body}</table></div>'


def _cells(tag: str, cells: Sequence[str], right: Sequence[int]) -> str:
    kinds = [' class="number"' if number in right else "" for number in range(len(cells))]
    inside = (f"<{tag}{kind}>{_breakable(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
    return f"<tr>{''.join(inside)}</tr>"


def _breakable(cell: str) -> str:
    """Text whose lines break between layouts and quantities, not inside of one; long names break between their parts."""
    if " " in cell or len(cell) < 16:  # short names stay in one line
        return escape(_UNBROKEN.sub(lambda piece: piece.group().replace(" ", "\N{NO-BREAK SPACE}"), cell))
    # Escaped before, not after: the marks where a line may break are markup.
    return re.sub(r"(?<=[._])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])", "<wbr>", escape(cell))
