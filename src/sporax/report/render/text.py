"""A plan as text, in columns of one page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from sporax.base.text_tables import page_width, table_lines
from sporax.report.view.plan_view import PlanView
from sporax.report.view.tables import heading, headline_section, sections


def plain_text(view: PlanView, width: int | None = None) -> str:
    """All tables, no line longer than `width`; that of the page by default."""
    return "\n".join(line for line, _ in styled_lines(view, page_width() if width is None else width))


def styled_lines(view: PlanView, width: int) -> Iterator[tuple[str, str]]:
    """The lines of all tables, and how each looks on a terminal: "bold", "bold cyan" or ""."""
    yield from ((line, "bold") for line in textwrap.wrap(heading(view), width))
    for warning in view.warnings:
        yield from ((line, "bold red") for line in textwrap.wrap(f"Warning: {warning}", width))
    facts = headline_section(view.headline)
    yield from ((line, "") for line in (table_lines(facts, width) if facts.rows else ()))
    for section in sections(view):
        yield "", ""
        yield from ((line, "bold cyan") for line in textwrap.wrap(section.title, width))
        is_head = any(section.columns)
        for line in table_lines(section, width):
            is_head = is_head and not line.startswith("─")
            yield line, "bold" if is_head else ""
