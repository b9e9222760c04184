"""Several plans next to each other: one row of values for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sporax.base.text_tables import Section, cost_text, size_text
from sporax.report.view.plan_view import Headline, PlanView

MILLION = 1_000_000
"""Samples for which device hours are counted."""


@dataclass(frozen=True, slots=True)
class ComparedPlan:
    """What plans are compared by; None for what is not known.

    Attributes:
        hardware, num_devices: the devices.
        seconds, unit: predicted time of a step, or another cost.
        samples_per_second, mfu: as in `Headline`.
        peak_bytes, limit_bytes: memory of one device, and what it may use of it.
        moved_bytes: what one rank brings into collectives in a step; in a pipeline what the rank that sends most sends to other
            stages.
        device_hours: of all devices together for `MILLION` samples.
    """

    hardware: str
    num_devices: int
    seconds: float | None
    unit: str
    samples_per_second: float | None
    mfu: float | None
    peak_bytes: int
    limit_bytes: int | None
    moved_bytes: int
    device_hours: float | None

    @property
    def title(self) -> str:
        """``"h100 × 8"``."""
        return f"{self.hardware or 'devices'} × {self.num_devices}"


def compared(view: PlanView) -> ComparedPlan:
    """The row of a plan."""
    return row_of(view.headline, view.num_devices, sum(entry.num_bytes for entry in view.totals.traffic))


def row_of(head: Headline, num_devices: int, moved_bytes: int) -> ComparedPlan:
    """The row of a plan with such a headline."""
    rate = head.samples_per_second
    return ComparedPlan(
        head.hardware,
        num_devices,
        head.seconds,
        head.unit,
        rate,
        head.mfu,
        head.peak_bytes,
        head.limit_bytes,
        moved_bytes,
        num_devices * MILLION / rate / 3600 if rate else None,
    )


def comparison_section(plans: Sequence[ComparedPlan]) -> Section:
    """The table of several plans."""
    columns = (
        "plan",
        "step",
        "samples/s",
        "MFU",
        "memory of a device",
        "sent by a rank",
        "device hours per million samples",
    )
    rows = tuple(
        (
            plan.title,
            "" if plan.seconds is None else cost_text(plan.seconds, plan.unit),
            "" if plan.samples_per_second is None else f"{plan.samples_per_second:,.0f}",
            "" if plan.mfu is None else f"{100 * plan.mfu:#.3g}%",
            size_text(plan.peak_bytes) + ("" if plan.limit_bytes is None else f" of {size_text(plan.limit_bytes)}"),
            size_text(plan.moved_bytes),
            "" if plan.device_hours is None else f"{plan.device_hours:.3g}",
        )
        for plan in plans
    )
    return Section("Plans", columns, rows, right=(1, 2, 3, 4, 5, 6))
