"""A plan on a terminal, or as text in a file or pipe."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.text import Text

from sporax.report.pipeline_summary import PipelineSummary
from sporax.report.render.text import styled_lines
from sporax.report.summary import Summary


class HasSummary(Protocol):
    """A planned step or pipeline."""

    def summary(self) -> Summary | PipelineSummary:
        """The plan as tables."""


def show_plan(plan: HasSummary | Summary | PipelineSummary, console: Console | None = None) -> None:
    """Print a plan as tables, in colours on a terminal and as wide as it is.

    Args:
        plan: what `plan_of` gave, or its summary.
        console: where to print; standard output by default.
    """
    summary = plan if isinstance(plan, Summary | PipelineSummary) else plan.summary()
    console = console or Console()
    # Colours and widths are for terminals; in files and pipes the text stays as it is.
    if isinstance(summary, Summary) and console.is_terminal:
        for line, style in styled_lines(summary, console.width):
            console.print(Text(line, style), no_wrap=True, overflow="ignore", crop=False)
    else:
        console.file.write(f"{summary}\n")
