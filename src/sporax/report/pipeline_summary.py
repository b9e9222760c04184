"""What `sporax plan` reports of a pipeline: a table per stage, and a comparison of schedules."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace
from html import escape

import msgspec

from sporax.base.text_tables import Section, page_width, size_text, table_lines, time_text
from sporax.planner.pipeline.simulate import Outcome
from sporax.report.render.html import titled
from sporax.report.render.pipeline_timeline import svg, times_of
from sporax.report.render.templates import template
from sporax.report.view.plan_view import Headline, TimePart
from sporax.report.view.tables import headline_section, time_section


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
        headline: what one reads first: hardware, throughput, utilization, memory of the fullest device.
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
            key=lambda outcome: (round(outcome.seconds, 12), _peak(outcome)),
        )

    def __str__(self) -> str:
        lines = [line for paragraph in self._paragraphs() for line in textwrap.wrap(paragraph, page_width())]
        for table in self._tables():
            lines += [*table_lines(table, page_width()), ""] if table.rows else []
        best = f"Best: {self.best.schedule.name} with {self.num_micro} micro batches."
        return "\n".join([*lines, best] if self.others else lines[:-1])

    def _paragraphs(self) -> tuple[str, ...]:
        head = (
            f"Pipeline of {len(self.outcome.stages)} stages, {self.num_micro} micro batches, schedule "
            f"{self.outcome.schedule.name}: {time_text(self.outcome.seconds)} per step, bubble {self.outcome.bubble_share:.1%}"
        )
        script, warnings = self.script and f"Script: {self.script}", (f"Warning: {text}" for text in self.warnings)
        return tuple(filter(None, (head, script, *warnings, self.reason, *self.notes)))

    def _tables(self) -> tuple[Section, ...]:
        """Those that have no rows have nothing to report."""
        stages = tuple(
            _cells(str(number), stage.busy_seconds, stage.bubble_share, stage.peak_bytes, stage.sent_bytes)
            for number, stage in enumerate(self.outcome.stages)
        )
        outcomes = sorted((self.outcome, *self.others), key=lambda outcome: outcome.seconds) if self.others else ()
        schedules = tuple(_cells(each.schedule.name, each.seconds, each.bubble_share, _peak(each)) for each in outcomes)
        columns = ("stage", "tasks", "bubble", "peak memory", "sent per step")
        return (
            headline_section(self.headline),
            time_section(self.parts, "s"),
            Section("Stages", columns, stages, (1, 2, 3, 4)),
            Section("Schedules", ("schedule", "step", "bubble", "peak memory"), schedules, (1, 2, 3)),
        )

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
        title = f"simulated, {self.outcome.schedule.name}; {time_text(self.outcome.seconds)} from left to right"
        head, *texts = map(escape, self._paragraphs())
        return template("pipeline.html").substitute(
            style=template("plan.css").template,
            title=head,
            texts="".join(f"<p>{text}</p>" for text in texts),
            tables="".join(map(titled, self._tables())),
            timeline=svg([(title, times_of(self.outcome))]),
        )


def _peak(outcome: Outcome) -> float:
    return max(stage.peak_bytes for stage in outcome.stages)


def _cells(name: str, seconds: float, bubble: float, *num_bytes: float) -> tuple[str, ...]:
    return name, time_text(seconds), f"{bubble:.1%}", *map(size_text, num_bytes)
