"""A plan as a web page: one HTML file without external resources.

From top to bottom: totals and how the plan was found, communication, the picture of the operators, memory over time,
and the tables of all operators and of all tensors that enter the step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from string import Template

from sporax.base.text_tables import Section, cost_text
from sporax.ir.graph import OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.cost.model import CostModel
from sporax.planner.search.space.result import SearchResult
from sporax.report.pictures.step_graph import Box, boxes_of, folded_boxes
from sporax.report.pictures.svg import memory_picture, operators_picture
from sporax.report.view.summarize import summarize
from sporax.report.view.summary import (
    collective_texts,
    folded_section,
    heading,
    notes_section,
    search_section,
    tensors_section,
    totals_section,
)

_PAGE = Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>$title</title>
<style>
:root { --ink: #222; --paper: #fff; --head: #f6f6f6; --line: #ddd; --faint: #bbb; --loud: #c33; color-scheme: light dark }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --paper: #1b1b1d; --head: #2a2a2d; --line: #3a3a3d; --faint: #666; --loud: #f77 }
}
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 1320px; padding: 0 1em; color: var(--ink);
  background: var(--paper) }
h1 { font-size: 20px } h2 { font-size: 16px; margin: 2em 0 .4em }
.beside { display: flex; flex-wrap: wrap; gap: 0 4em }
.scroll { overflow: auto; max-height: 80vh; border: 1px solid var(--line) }
table { border-collapse: collapse; font-size: 12.5px }
th { position: sticky; top: 0; background: var(--head) }
th, td { text-align: left; padding: 3px 14px 3px 4px; border-bottom: 1px solid var(--line); vertical-align: top }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td { font-family: ui-monospace, monospace }
summary { cursor: pointer }
.key { margin-right: 1.2em; white-space: nowrap; font: 12px ui-monospace, monospace }
.key i { display: inline-block; width: 12px; height: 12px; margin-right: 4px; border: 1px solid #999; vertical-align: -2px }
.box { stroke: #888 } .bar { fill: #c33 } .grid { stroke: var(--ink); stroke-dasharray: 4 3 }
.stays { fill: none; stroke: var(--faint) } .moves { fill: none; stroke: var(--loud) } marker { fill: #888 }
text { font: 11px ui-monospace, monospace; fill: var(--ink) } text.head { font: bold 14px system-ui, sans-serif }
text.name { font-weight: bold } g > text.name, g > text.inside { fill: #222 }
text.bytes { fill: var(--loud); paint-order: stroke; stroke: var(--paper); stroke-width: 3px }
</style>
</head>
<body>
<h1>$title</h1>
$warnings
<div class="beside">$totals</div>
$notes
<h2>Operators</h2>
<p>Arrows are tensors; red ones carry collectives. The red bar of a box is its share of the slowest operator's time. Red
figures beside a box are bytes that one rank brings into collectives: those on the red arrows that leave it, and above them
those inside of it or on inputs of the step. Layers that are cut alike are drawn once: (4 ×) stands for four alike, with the
figures of one, and arrows to the next layer come back. Point at anything to see more.</p>
$operators
<h2>Memory of one device over time</h2>
$memory
<h2>Table of operators</h2>
$rows
<h2>Parameters and inputs</h2>
$tensors
$state
</body>
</html>
"""
)


def report(
    graph: OperatorGraph,
    plan: Plan,
    model: CostModel,
    search: SearchResult | None = None,
    remarks: tuple[str, ...] = (),
) -> str:
    """The page of a plan.

    Args:
        graph: the step.
        plan: its plan.
        model: prices operators and transfers.
        search: how the plan was found.
        remarks: what its head says.

    Returns:
        HTML, with styles and pictures inside.
    """
    summary = summarize(graph, plan, search, model, remarks)
    boxes, arrows = boxes_of(graph, plan, model)
    state = tensors_section(summary, ("state",))
    return _PAGE.substitute(
        title=escape(heading(summary)),
        warnings="".join(f"<p><strong>Warning: {escape(text)}</strong></p>" for text in summary.warnings),
        totals=_titled(totals_section(summary)) + _titled(search_section(summary)),
        notes=_titled(notes_section(summary)),
        operators=operators_picture(*folded_boxes(boxes, arrows)),
        memory=memory_picture(graph, plan),
        rows=_table(folded_section(_operators(boxes))),
        tensors=_table(folded_section(tensors_section(summary))),
        state=f"<details><summary>Other variables</summary>{_table(state)}</details>" if state.rows else "",
    )


def _operators(boxes: Iterable[Box]) -> Section:
    columns = ("operator", "", "phase", "strategy", "inputs → results", "collectives", "flops", "share", "predicted")
    rows = tuple(
        (
            row.path or "between operators",
            row.name,
            row.phase,
            " ".join(str(entry).replace(" ", "") for entry in row.strategy) + (" *" if row.given else ""),
            f"{' '.join(row.inputs)} → {' '.join(row.results)}" if row.inputs or row.results else "",
            "; ".join(collective_texts(row)),
            f"{row.flops:.3g}",
            f"{row.flops_share:.1%}",
            cost_text(box.seconds, box.unit),
        )
        for box in boxes
        for row in (box.row,)
    )
    return Section("Operators", columns, rows, right=(6, 7, 8))


def _titled(section: Section) -> str:
    """A table under its title; nothing where it has no rows."""
    return f"<div><h2>{escape(section.title)}</h2>{_table(section)}</div>" if section.rows else ""


def _table(section: Section) -> str:
    head = _cells("th", section.columns, section.right) if any(section.columns) else ""
    body = "\n".join(_cells("td", row, section.right) for row in section.rows)
    return f'<div class="scroll"><table>{head}\n{body}</table></div>'


def _cells(tag: str, cells: Sequence[str], right: Sequence[int]) -> str:
    kinds = [' class="number"' if number in right else "" for number in range(len(cells))]
    inside = (f"<{tag}{kind}>{_breakable(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
    return f"<tr>{''.join(inside)}</tr>"


def _breakable(cell: str) -> str:
    """Text whose lines break between layouts and not inside of one; paths and long names break between their parts."""
    if " " in cell:
        return escape(re.sub(r"\[[^\]]*\]", lambda layout: layout.group().replace(" ", "\N{NO-BREAK SPACE}"), cell))
    # Escaped before, not after: the marks where a line may break are markup.
    return re.sub(r"(?<=[._])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])", "<wbr>", escape(cell))
