"""What `sporax plan` tells of a pipeline: a table per stage, and a comparison of schedules."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape

import msgspec

from sporax.base.text_tables import Section, page_width, size_text, table_lines, time_text
from sporax.planner.pipeline.simulate import Outcome
from sporax.report.render.pipeline_timeline import svg, times_of
from sporax.report.render.templates import template
from sporax.report.view.plan_view import Headline, TimePart
from sporax.report.view.tables import headline_table, time_section


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """A pipeline for people.

    Attributes:
        outcome: the simulated step of the schedule that runs.
        num_micro: number of micro batches.
        others: simulated steps of other schedules with the same tasks' costs.
        reason: why the stages are as they are.
        warnings: as in `report.summary.Summary`.
        notes: what else is said, such as what is in host memory.
        script: the program that was planned.
        num_devices: of all stages together.
        headline: what one asks first: hardware, throughput, utilization, memory of the fullest device.
        parts: what the stage that works longest spends the step on.
    """

    outcome: Outcome
    num_micro: int
    others: tuple[Outcome, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    script: str = ""
    num_devices: int = 0
    headline: Headline = field(default_factory=Headline)
    parts: tuple[TimePart, ...] = ()

    def of_script(self, script: str) -> PipelineSummary:
        """The same, with the name of the program that was planned."""
        return replace(self, script=script)

    def under(self, limit_bytes: int) -> PipelineSummary:
        """The same, with the memory that the user has set for a device in its headline."""
        return replace(self, headline=replace(self.headline, limit_bytes=limit_bytes))

    @property
    def best(self) -> Outcome:
        """The quickest schedule; of equally quick ones that with the least memory."""
        return min(
            (self.outcome, *self.others),
            # Rounded to 1e-12 s: sums in different order must not decide between equal schedules.
            key=lambda outcome: (round(outcome.seconds, 12), max(stage.peak_bytes for stage in outcome.stages)),
        )

    def __str__(self) -> str:
        rows = [
            (
                time_text(stage.busy_seconds),
                f"{stage.bubble_share:.1%}",
                size_text(stage.peak_bytes),
                size_text(stage.sent_bytes),
            )
            for stage in self.outcome.stages
        ]
        stages = _table("stage", ("tasks", "bubble", "peak memory", "sent per step"), enumerate(rows))
        head = (
            f"Pipeline of {len(self.outcome.stages)} stages, {self.num_micro} micro batches, schedule "
            f"{self.outcome.schedule.name}: {time_text(self.outcome.seconds)} per step, bubble {self.outcome.bubble_share:.1%}"
        )
        paragraphs = [
            head,
            *([f"Script: {self.script}"] if self.script else []),
            *(f"Warning: {text}" for text in self.warnings),
            *([self.reason] if self.reason else []),
            *self.notes,
        ]
        lines = [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, page_width())]
        tables = [headline_table(self.headline), time_section(self.parts, "s"), stages]
        for table in [*tables, self._comparison()] if self.others else tables:
            lines += [*table_lines(table, page_width()), ""] if table.rows else []
        best = f"Best: {self.best.schedule.name} with {self.num_micro} micro batches."
        return "\n".join([*lines, best] if self.others else lines[:-1])

    def _comparison(self) -> Section:
        rows = []
        for outcome in sorted((self.outcome, *self.others), key=lambda outcome: outcome.seconds):
            peak = max(stage.peak_bytes for stage in outcome.stages)
            row = time_text(outcome.seconds), f"{outcome.bubble_share:.1%}", size_text(peak)
            rows.append((outcome.schedule.name, row))
        return _table("schedule", ("step", "bubble", "peak memory"), rows)

    def to_json(self) -> str:
        """The tables as JSON."""
        schedules = (self.outcome, *self.others)
        document = {
            "script": self.script,
            "schedule": self.outcome.schedule.name,
            "num_micro": self.num_micro,
            "seconds": self.outcome.seconds,
            "num_devices": self.num_devices,
            "headline": msgspec.to_builtins(self.headline),
            "reason": self.reason,
            "warnings": self.warnings,
            "notes": self.notes,
            "stages": [
                {name: getattr(stage, name) for name in ("busy_seconds", "bubble_share", "peak_bytes", "sent_bytes")}
                for stage in self.outcome.stages
            ],
            "schedules": {
                entry.schedule.name: {"seconds": entry.seconds, "bubble_share": entry.bubble_share}
                for entry in schedules
            },
            "best": self.best.schedule.name,
        }
        return msgspec.json.encode(document).decode()

    def to_html(self) -> str:
        """A page with the tables and the timeline of the simulated step."""
        timeline = svg([(f"simulated, {self.outcome.schedule.name}", times_of(self.outcome))])
        return template("pipeline.html").substitute(tables=escape(str(self)), timeline=timeline)


def _table(first: str, columns: Sequence[str], rows: Iterable[tuple[object, tuple[str, ...]]]) -> Section:
    cells = tuple((str(name), *row) for name, row in rows)
    return Section("", (first, *columns), cells, right=tuple(range(1, len(columns) + 1)))
