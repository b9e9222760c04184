"""Recorded steps for people: a table, a picture (SVG), and a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from sporax.base.text_tables import Section, table_lines, time_text
from sporax.report.view.step_times import KINDS, OperatorRun, StepTimes, by_depth, by_path, task_spans

_COLOURS = {"compute": "#4e79a7", "collective": "#f28e2b", "copy": "#bab0ac", "waiting": "#ececec"}
_ROW, _LEFT, _WIDTH = 22, 330, 960
"""Pixels: height of a bar, width of the names, width of the picture."""
_LETTERS = 48
"""Characters of the font that fit into the width of the names."""
_DEVICES_OF_A_RANK = 1000
"""Perfetto wants one number for each process: devices of one rank have consecutive ones."""
_HOST_LINE, _TASK_LINE = 999, 998

Span = tuple[str, float, float]
"""Something that the host did: its name, start and end in seconds."""


def headline(times: StepTimes) -> str:
    """``"step 5 to 7: 12.3 ms each; devices: compute 71 %, collective 12 %, copy 0 %, waiting 17 %"``."""
    last = times.first + times.num_steps - 1
    name = f"step {times.first}" if times.num_steps == 1 else f"steps {times.first} to {last}"
    name = name if times.num_steps else "recording"
    rank = f"rank {times.rank}, " if times.ranks > 1 else ""
    devices = f"{times.num_devices} device" + ("" if times.num_devices == 1 else "s")
    shares = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in _shares(times).items())
    each = " each" if times.num_steps > 1 else ""
    return f"{rank}{name}: {time_text(times.seconds / max(times.num_steps, 1))}{each}; {devices}: {shares}"


def _shares(times: StepTimes) -> dict[str, float]:
    """What devices do, as shares of their time."""
    total = times.device_seconds or 1.0
    shares = {kind: times.busy_seconds.get(kind, 0.0) / total for kind in KINDS}
    return {**shares, "waiting": times.waiting_seconds / total}


def text(times: StepTimes, top: int = 20, depth: int = 0, width: int = 120) -> str:
    """Headline, a table of the paths that took longest, and one of pipeline tasks where there are any.

    Args:
        times: the recorded steps.
        top: rows of the table; what is left is added up in one more.
        depth: parts of a path that are shown; 0 for all.
        width: columns of the page.
    """
    per_step = max(times.num_steps, 1) * max(times.num_devices, 1)
    paths = list(by_path(by_depth(times.paths, depth)).items())
    rows = [_row(path, kinds, per_step, times.device_seconds) for path, kinds in paths[:top]]
    if len(paths) > top:
        rest = {kind: sum(kinds[kind] for _, kinds in paths[top:]) for kind in KINDS}
        rows.append(_row(f"({len(paths) - top} more)", rest, per_step, times.device_seconds))
    lines = [headline(times)]
    if not rows:
        return f"{lines[0]}\nNo operator was recorded on a device."
    columns = ("per step and device", *KINDS, "of step")
    lines += ["", *table_lines(Section("", columns, tuple(rows), (1, 2, 3, 4)), width)]
    if times.tasks:
        tasks = tuple((one.name, str(one.count), time_text(one.seconds / max(one.count, 1))) for one in times.tasks)
        lines += ["", *table_lines(Section("", ("pipeline tasks", "number", "time of one"), tasks, (1, 2)), width)]
    return "\n".join(lines)


def _row(path: str, kinds: Mapping[str, float], per_step: int, total: float) -> tuple[str, ...]:
    cells = [time_text(kinds[kind] / per_step) if kinds[kind] else "" for kind in KINDS]
    return (path, *cells, f"{100 * sum(kinds.values()) / (total or 1.0):.1f} %")


def svg(times: StepTimes, top: int = 16, depth: int = 0) -> str:
    """The same as a picture: one bar for the step, and one for each of the paths that took longest."""
    per_step = max(times.num_steps, 1) * max(times.num_devices, 1)
    shares = _shares(times)
    paths = list(by_path(by_depth(times.paths, depth)).items())[:top]
    longest = max((sum(kinds.values()) for _, kinds in paths), default=0.0) or 1.0
    parts = [_text(8, 20, headline(times), "bold")]
    x = 8.0
    for name, share in shares.items():
        width = share * (_WIDTH - 16)
        parts.append(_bar(x, 32, width, name, f"{name} {100 * share:.1f} %"))
        x += width
    room = _WIDTH - _LEFT - 80
    top_of_rows = 32 + 2 * _ROW + 6
    for number, (path, kinds) in enumerate(paths):
        y = top_of_rows + number * _ROW
        name = path if len(path) <= _LETTERS else "…" + path[1 - _LETTERS :]
        parts.append(f"<g><title>{escape(path)}</title>{_text(8, y + 14, name)}</g>")
        x = float(_LEFT)
        for kind in KINDS:
            width = kinds[kind] / longest * room
            if width > 0:
                parts.append(_bar(x, y, width, kind, f"{kind} {time_text(kinds[kind] / per_step)}"))
            x += width
        parts.append(_text(x + 6, y + 14, time_text(sum(kinds.values()) / per_step)))
    bottom = top_of_rows + len(paths) * _ROW + 18
    for number, name in enumerate(shares):
        parts.append(_bar(8 + number * 110, bottom - 12, 14, name, name))
        parts.append(_text(28 + number * 110, bottom, name))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{bottom + 12}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>"])


def _bar(x: float, y: float, width: float, name: str, title: str) -> str:
    return (
        f'<g><title>{escape(title)}</title><rect x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{_ROW - 6}" '
        f'fill="{_COLOURS[name]}"/></g>'
    )


def _text(x: float, y: float, words: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" font-weight="{weight}">{escape(words)}</text>'


def perfetto(runs: Sequence[OperatorRun], host: Iterable[Span], rank: int = 0) -> str:
    """A trace for https://ui.perfetto.dev: the host, and each device with its operators and tasks of a pipeline.

    Args:
        runs: what devices ran.
        host: what the host did: steps, and tasks that it started.
        rank: of this process.
    """
    first = rank * _DEVICES_OF_A_RANK
    events: list[dict[str, object]] = [named("process_name", first, f"rank {rank}: host")]
    events += [span_event(name, "host", first, _HOST_LINE, start, end) for name, start, end in host]
    for device in sorted({run.device for run in runs}):
        events.append(named("process_name", first + 1 + device, f"rank {rank}: device {device}"))
    for run in runs:
        name = f"{run.path}: {run.name}" if run.path else run.name
        events.append(
            {
                **span_event(name, run.kind, first + 1 + run.device, run.line, run.start, run.end),
                "args": {"cell": run.path, "operator": run.name, "program": run.program, "task": run.task},
            }
        )
    for (task, device, _), (start, end) in task_spans(runs).items():
        events.append(span_event(task, "pipeline task", first + 1 + device, _TASK_LINE, start, end))
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})


def named(kind: str, process: int, name: str) -> dict[str, object]:
    """The event of a trace that names a process."""
    return {"ph": "M", "name": kind, "pid": process, "args": {"name": name}}


def span_event(name: str, kind: str, process: int, line: int, start: float, end: float) -> dict[str, object]:
    """The event of a trace for what lasts; its format counts microseconds."""
    microseconds = {"ts": start * 1e6, "dur": (end - start) * 1e6}
    return {"ph": "X", "name": name, "cat": kind, "pid": process, "tid": line, **microseconds}
