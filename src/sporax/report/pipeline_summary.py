"""What `sporax plan` tells of a pipeline: a table per stage, and a comparison of schedules."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from sporax.base.text_tables import page_width
from sporax.planner.pipeline.simulate import Outcome


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """A pipeline for people.

    Attributes:
        outcome: the simulated step of the schedule that runs.
        num_micro: number of micro batches.
        others: simulated steps of other schedules with the same tasks' costs.
        reason: why the stages are as they are.
        warnings: as in `report.view.summary.Summary`.
        notes: what else is said, such as what is in host memory.
    """

    outcome: Outcome
    num_micro: int
    others: tuple[Outcome, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Outcome:
        """The quickest schedule; of equally quick ones that with the least memory."""
        return min(
            (self.outcome, *self.others),
            # Rounded to 1e-12 s: sums in different order must not decide between equal schedules.
            key=lambda outcome: (round(outcome.seconds, 12), max(stage.peak_bytes for stage in outcome.stages)),
        )

    def __str__(self) -> str:
        rows = [("stage", "tasks", "bubble", "peak memory", "sent per step")]
        rows += [
            (
                str(number),
                _seconds(stage.busy_seconds),
                f"{stage.bubble_share:.1%}",
                decimal_bytes(stage.peak_bytes),
                decimal_bytes(stage.sent_bytes),
            )
            for number, stage in enumerate(self.outcome.stages)
        ]
        head = (
            f"Pipeline of {len(self.outcome.stages)} stages, {self.num_micro} micro batches, schedule "
            f"{self.outcome.schedule.name}: {_seconds(self.outcome.seconds)} per step, bubble {self.outcome.bubble_share:.1%}"
        )
        paragraphs = [
            head,
            *(f"Warning: {text}" for text in self.warnings),
            *([self.reason] if self.reason else []),
            *self.notes,
        ]
        lines = [*(line for paragraph in paragraphs for line in textwrap.wrap(paragraph, page_width())), *_table(rows)]
        if self.others:
            lines += ["", *self._comparison()]
        return "\n".join(lines)

    def _comparison(self) -> list[str]:
        rows = [("schedule", "step", "bubble", "peak memory")]
        for outcome in sorted((self.outcome, *self.others), key=lambda outcome: outcome.seconds):
            peak = max(stage.peak_bytes for stage in outcome.stages)
            row = outcome.schedule.name, _seconds(outcome.seconds), f"{outcome.bubble_share:.1%}", decimal_bytes(peak)
            rows.append(row)
        return [*_table(rows), f"Best: {self.best.schedule.name} with {self.num_micro} micro batches."]

    def to_json(self) -> str:
        """The tables as JSON."""
        return json.dumps(
            {
                "schedule": self.outcome.schedule.name,
                "num_micro": self.num_micro,
                "seconds": self.outcome.seconds,
                "reason": self.reason,
                "warnings": self.warnings,
                "notes": self.notes,
                "stages": [
                    {
                        "busy_seconds": stage.busy_seconds,
                        "bubble_share": stage.bubble_share,
                        "peak_bytes": stage.peak_bytes,
                        "sent_bytes": stage.sent_bytes,
                    }
                    for stage in self.outcome.stages
                ],
                "schedules": {
                    outcome.schedule.name: {"seconds": outcome.seconds, "bubble_share": outcome.bubble_share}
                    for outcome in (self.outcome, *self.others)
                },
                "best": self.best.schedule.name,
            }
        )


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3f} ms"


def decimal_bytes(size: float) -> str:
    """A number of bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size:.0f} B"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
