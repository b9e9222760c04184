"""Several plans on one page: a table, a plot of the predicted time, and two plans side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from sporax.base.text_tables import cost_text
from sporax.report.render.html import page, table
from sporax.report.render.templates import template
from sporax.report.view.comparison import ComparedPlan, compared, comparison_section
from sporax.report.view.plan_view import PlanView

_WIDTH, _HEIGHT, _MARGIN = 520, 260, 70
"""Pixels of the plot, and of the room around it for labels."""
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1")
"""One per kind of hardware, from the first again where there are more."""


def comparison_page(views: Sequence[PlanView]) -> str:
    """The page of several plans; it needs nothing but itself."""
    plans = [compared(view) for view in views]
    titles = [escape(plan.title) for plan in plans]
    options = "".join(f'<option value="{number}">{title}</option>' for number, title in enumerate(titles))
    pages = "".join(f"<textarea hidden>{escape(page(view))}</textarea>" for view in views)
    return template("comparison.html").substitute(
        title=escape(f"{len(views)} plans of {views[0].headline.script or 'one step'}"),
        style=template("plan.css").template,
        table=table(comparison_section(plans)),
        plot=_plot(plans),
        options=options,
        pages=pages,
        script=template("comparison.js").template,
    )


def _plot(plans: Sequence[ComparedPlan]) -> str:
    """Predicted time over the number of devices, both in logarithms; a line for each kind of hardware."""
    timed = [(plan, plan.seconds) for plan in plans if plan.seconds]
    if not timed:
        return ""
    across = _scale([plan.num_devices for plan, _ in timed], _MARGIN, _MARGIN + _WIDTH)
    down = _scale([seconds for _, seconds in timed], 20 + _HEIGHT, 20)
    parts: list[str] = []
    for number, hardware in enumerate(dict.fromkeys(plan.hardware for plan, _ in timed)):
        points = sorted(
            (across(plan.num_devices), down(seconds), plan, seconds)
            for plan, seconds in timed
            if plan.hardware == hardware
        )
        parts += _line(points, _COLOURS[number % len(_COLOURS)], hardware)
    for count in sorted({plan.num_devices for plan, _ in timed}):
        parts.append(f'<text x="{across(count):.1f}" y="{_HEIGHT + 50}" text-anchor="middle">{count} devices</text>')
    size = f'width="{_WIDTH + 3 * _MARGIN}" height="{_HEIGHT + 60}"'
    return f"<svg {size}>{''.join(parts)}</svg>"


def _scale(values: Sequence[float], start: float, end: float) -> _Scale:
    return _Scale(math.log(min(values)), math.log(max(values)), start, end)


class _Scale:
    """Logarithms of values to pixels; one value alone stands in the middle."""

    def __init__(self, least: float, most: float, start: float, end: float) -> None:
        self.least, self.length, self.start, self.end = least, most - least, start, end

    def __call__(self, value: float) -> float:
        share = (math.log(value) - self.least) / self.length if self.length else 0.5
        return self.start + share * (self.end - self.start)


def _line(points: Sequence[tuple[float, float, ComparedPlan, float]], colour: str, name: str) -> Iterator[str]:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
    yield f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y, plan, seconds in points:
        label = cost_text(seconds, plan.unit)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(plan.title)}</title></circle>'
        yield f'<text x="{x + 7:.1f}" y="{y - 7:.1f}">{escape(name)}: {label}</text>'
