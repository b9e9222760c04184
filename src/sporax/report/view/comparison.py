"""Several plans next to each other: one row of values for each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sporax.base.text_tables import Section, cost_text, size_text
from sporax.report.view.plan_view import Headline, PlanView

MILLION = 1_000_000
"""Samples for which device hours are counted."""


class ComparedPlan(Struct, frozen=True):
    """What plans are compared by; None for what is not known.

    Attributes:
        hardware, num_devices: the devices.
        seconds, unit: predicted time of a step, or another cost.
        samples_per_second, mfu: as in `Headline`.
        peak_bytes, limit_bytes: memory of one device, and what it may use of it.
        moved_bytes: what one rank brings into collectives in a step; in a pipeline what the rank that sends most sends to other
            stages.
        device_hours: of all devices together for `MILLION` samples.
        refused: why there is no plan; "" where there is one.
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
    refused: str = ""

    @property
    def title(self) -> str:
        """``"h100 × 8"``."""
        return f"{self.hardware or 'devices'} × {self.num_devices or 'all'}"

    @property
    def fits(self) -> bool:
        """Whether there is a plan that the memory of a device holds."""
        return not self.refused and (self.limit_bytes is None or self.peak_bytes <= self.limit_bytes)

    @property
    def rate(self) -> float:
        """Samples per second, or steps where samples are unknown; 0 without a plan that fits."""
        return (self.samples_per_second or (1 / self.seconds if self.seconds else 0.0)) if self.fits else 0.0

    @property
    def memory_text(self) -> str:
        """What a device needs of what it has, or that this does not fit."""
        if self.refused and not self.peak_bytes:
            return "refused"
        needed = size_text(self.peak_bytes) + ("" if self.limit_bytes is None else f" of {size_text(self.limit_bytes)}")
        return needed if self.fits else f"{needed}: does not fit"


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


def efficiencies(plans: Sequence[ComparedPlan]) -> list[float | None]:
    """Of each plan what one device does, as a share of what it does in the plan for fewest devices of its kind."""
    fewest: dict[str, ComparedPlan] = {}
    for plan in sorted(plans, key=lambda plan: plan.num_devices):
        if plan.rate:
            fewest.setdefault(plan.hardware, plan)

    def of_one(plan: ComparedPlan) -> float | None:
        base = fewest.get(plan.hardware)
        return plan.rate / plan.num_devices * base.num_devices / base.rate if base and plan.rate else None

    return [of_one(plan) for plan in plans]


def quickest(plans: Sequence[ComparedPlan]) -> ComparedPlan | None:
    """The plan with the highest rate of those that fit; None where only one is there to choose from."""
    fitting = [plan for plan in plans if plan.rate]
    return max(fitting, key=lambda plan: plan.rate) if len(fitting) > 1 else None


def comparison_section(plans: Sequence[ComparedPlan]) -> Section:
    """The table of several plans; memory is that of a device."""
    columns = ("plan", "step", "samples/s", "scaling", "MFU", "memory", "sent by a rank", "device hours/1M")
    best = quickest(plans)
    rows = tuple(
        (
            plan.title + (" (quickest)" if plan is best else ""),
            "" if plan.seconds is None else cost_text(plan.seconds, plan.unit),
            "" if plan.samples_per_second is None else f"{plan.samples_per_second:,.0f}",
            "" if efficiency is None else f"{efficiency:.0%}",
            "" if plan.mfu is None else f"{100 * plan.mfu:#.3g}%",
            plan.memory_text,
            "" if plan.refused else size_text(plan.moved_bytes),
            "" if plan.device_hours is None else f"{float(f'{plan.device_hours:.3g}'):,g}",
        )
        for plan, efficiency in zip(plans, efficiencies(plans), strict=True)
    )
    return Section("Plans", columns, rows, right=(1, 2, 3, 4, 5, 6, 7))
