"""A pipeline's timeline, for people: as SVG, and as a trace for Perfetto or chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

from sporax.ir.pipeline_schedule import Task, TaskKind
from sporax.planner.pipeline.simulate import Outcome
from sporax.report.render.step_times import named, span_event

Times = Mapping[Task, tuple[float, float]]
"""Start and end of every task in seconds."""

_COLORS = {
    TaskKind.FORWARD: "#7ea6d9",
    TaskKind.BACKWARD: "#e2a36f",
    TaskKind.BACKWARD_INPUT: "#e2a36f",
    TaskKind.BACKWARD_WEIGHT: "#9cc48d",
    TaskKind.REDUCE: "#bbbbbb",
    TaskKind.UPDATE: "#c3a5d3",
}
_ROW, _LEFT, _TITLE = 26, 70, 22
"""Pixels: height of a stage's row, width of the stage names, height of a title."""


def times_of(outcome: Outcome) -> Times:
    """The simulated times."""
    return {task: (outcome.start[task], outcome.end[task]) for task in outcome.schedule}


def svg(timelines: Sequence[tuple[str, Times]], width: int = 900) -> str:
    """One picture of several timelines of the same schedule, one below the other, in one scale each.

    Args:
        timelines: title and times: simulated, measured.
        width: in pixels.
    """
    parts: list[str] = []
    top = 0
    for title, times in timelines:
        stages = 1 + max(task.stage for task in times)
        # Measured times begin when the process does, so the first task moves to the left border.
        first = min(start for start, _ in times.values())
        # A timeline without any length would divide by zero.
        length = max(end for _, end in times.values()) - first or 1.0
        scale = (width - _LEFT - 10) / length
        parts.append(f'<text x="4" y="{top + 15}" font-weight="bold">{escape(title)}</text>')
        top += _TITLE
        parts += [f'<text x="4" y="{top + stage * _ROW + 17}">stage {stage}</text>' for stage in range(stages)]
        for task, (start, end) in times.items():
            parts.append(_box(task, _LEFT + (start - first) * scale, top + task.stage * _ROW, (end - start) * scale))
        top += stages * _ROW + 8
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" font-family="sans-serif" font-size="11">'
    return "\n".join([head, *parts, "</svg>"])


def _box(task: Task, x: float, y: float, width: float) -> str:
    # Chunks after the first are paler, so that rounds of an interleaved schedule can be distinguished.
    opacity = 1.0 if task.chunk == 0 else 0.6
    # About 6 pixels per letter at this font size; a narrower box stays empty.
    label = task.text if width > 6 * len(task.text) else ""
    return (
        f'<g><title>{escape(str(task))}</title><rect x="{x:.2f}" y="{y}" width="{max(width, 0.5):.2f}" height="{_ROW - 4}" '
        f'fill="{_COLORS[task.kind]}" fill-opacity="{opacity}" stroke="white"/>'
        f'<text x="{x + width / 2:.2f}" y="{y + 15}" text-anchor="middle">{label}</text></g>'
    )


def chrome_trace(timelines: Sequence[tuple[str, Times]]) -> str:
    """The timelines as a trace: one process per timeline, one thread per stage."""
    events: list[dict[str, object]] = []
    for process, (title, times) in enumerate(timelines):
        events.append(named("process_name", process, title))
        for task, (start, end) in times.items():
            events.append(span_event(task.text, task.kind.name.lower(), process, task.stage, start, end))
    return json.dumps({"traceEvents": events})
