"""Several plans on one page: a table, a plot of the predicted time, and two plans side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from sporax.base.text_tables import cost_text
from sporax.report.render.html import page, table
from sporax.report.render.templates import template
from sporax.report.view.comparison import ComparedPlan, compared, comparison_section, quickest
from sporax.report.view.plan_view import PlanView

_WIDTH, _HEIGHT, _MARGIN = 520, 260, 70
"""Pixels of the plot, and of the room around it for labels."""
_GAP = 14
"""Pixels from one line of text to the next, and from a line to its name."""
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1")
"""One per kind of hardware, from the first again where there are more."""


def comparison_page(views: Sequence[PlanView], plans: Sequence[ComparedPlan]) -> str:
    """The page of several plans, and of those that were refused; it needs nothing but itself."""
    titles = [escape(compared(view).title) for view in views]
    options = "".join(f'<option value="{number}">{title}</option>' for number, title in enumerate(titles))
    pages = "".join(f"<textarea hidden>{escape(page(view))}</textarea>" for view in views)
    return template("comparison.html").substitute(
        title=escape(f"{len(plans)} plans of {views[0].headline.script or 'one step'}"),
        style=template("plan.css").template,
        table=table(comparison_section(plans)),
        plot=_plot(plans),
        options=options,
        pages=pages,
        script=template("comparison.js").template,
    )


def _plot(plans: Sequence[ComparedPlan]) -> str:
    """Predicted time over the number of devices, both in logarithms: a line for each kind of hardware, and a dashed one for
    twice the devices in half the time. Each point has its numbers as a title.
    """
    timed = [(plan, plan.seconds) for plan in plans if plan.seconds]
    if not timed:
        return ""
    counts = sorted({plan.num_devices for plan, _ in timed})
    ideal = [seconds * plan.num_devices / counts[-1] for plan, seconds in timed]
    across = _Scale(counts, _MARGIN, _MARGIN + _WIDTH)
    down = _Scale([*ideal, *(seconds for _, seconds in timed)], 20 + _HEIGHT, 20)
    unit, best = timed[0][0].unit, quickest(plans)
    parts, ends = list(_axes(counts, across, down, unit)), []
    for number, hardware in enumerate(dict.fromkeys(plan.hardware for plan, _ in timed)):
        colour = _COLOURS[number % len(_COLOURS)]
        points = sorted(
            ((plan, seconds) for plan, seconds in timed if plan.hardware == hardware),
            key=lambda point: point[0].num_devices,
        )
        first, longest = points[0][0].num_devices, points[0][1]
        parts.append(
            f'<line x1="{across(first):.1f}" y1="{down(longest):.1f}" x2="{across(counts[-1]):.1f}" '
            f'y2="{down(longest * first / counts[-1]):.1f}" stroke="{colour}" stroke-dasharray="4 4">'
            f"<title>ideal scaling of {escape(hardware)}</title></line>"
        )
        parts += _line(
            [(across(plan.num_devices), down(seconds), plan, plan is best) for plan, seconds in points], colour
        )
        ends.append((down(points[-1][1]), hardware, colour))
    parts += _names(ends, across(counts[-1]) + _GAP)
    parts.sort(key=lambda part: part.startswith("<text"))  # no line goes through a label
    return f'<svg viewBox="0 0 {_WIDTH + 3 * _MARGIN} {_HEIGHT + 75}">{"".join(parts)}</svg>'


def _axes(counts: Sequence[int], across: _Scale, down: _Scale, unit: str) -> Iterator[str]:
    """Both axes with their quantities."""
    bottom = _HEIGHT + 34
    yield f'<path d="M{_MARGIN - 14} 14V{bottom}H{_WIDTH + _MARGIN + 14}" fill="none" stroke="#888"/>'
    for seconds, y in down.ends():
        yield f'<text x="2" y="{y + 4:.1f}">{cost_text(seconds, unit)}</text>'
    yield '<text x="2" y="10">time of a step, logarithmic</text>'
    for count in counts:
        yield f'<text x="{across(count):.1f}" y="{bottom + 16}" text-anchor="middle">{count}</text>'
    middle = _MARGIN + _WIDTH / 2
    words = "devices, logarithmic; dashed: ideal scaling; hollow: does not fit"
    yield f'<text x="{middle}" y="{bottom + 34}" text-anchor="middle">{words}</text>'


class _Scale:
    """Logarithms of values to pixels; one value alone stands in the middle."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.least, self.start, self.end = math.log(min(values)), start, end
        self.length = math.log(max(values)) - self.least

    def __call__(self, value: float) -> float:
        share = (math.log(value) - self.least) / self.length if self.length else 0.5
        return self.start + share * (self.end - self.start)

    def ends(self) -> list[tuple[float, float]]:
        """The least and the greatest value, with their pixels."""
        return [
            (value, self(value)) for value in dict.fromkeys((math.exp(self.least), math.exp(self.least + self.length)))
        ]


def _line(points: Sequence[tuple[float, float, ComparedPlan, bool]], colour: str) -> Iterator[str]:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y, *_ in points)
    yield f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y, plan, is_best in points:
        time = cost_text(plan.seconds or 0.0, plan.unit)
        title = escape(f"{plan.title}: {time}" + ("" if plan.fits else f", {plan.memory_text}"))
        dot = f'r="{7 if is_best else 4}" fill="{colour if plan.fits else "none"}" stroke="{colour}"'
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" {dot}><title>{title}</title></circle>'
        if is_best:
            yield f'<text x="{x:.1f}" y="{y + 24:.1f}" text-anchor="middle">quickest: {time}</text>'


def _names(ends: Sequence[tuple[float, str, str]], x: float) -> Iterator[str]:
    """Names of hardware next to where their lines end, each below the one before."""
    free = 0.0
    for y, hardware, colour in sorted(ends):
        free = max(y + 4, free + _GAP)
        yield f'<text x="{x:.1f}" y="{free:.1f}" style="fill: {colour}">{escape(hardware)}</text>'
