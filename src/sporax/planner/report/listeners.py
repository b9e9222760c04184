"""Listeners that receive every plan as soon as it is made, before compilation. `sporax plan` uses one to stop there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sporax.planner.report.questions import Planned

PlanListener = Callable[[Planned], None]

plan_listeners: list[PlanListener] = []
"""Called in order with every plan of a step that this process makes."""


@dataclass(slots=True)
class StepExecution:
    """What this process does with planned steps of the facade.

    Attributes:
        plan_only: they are planned and not run: variables keep their values, results are zeros.
    """

    plan_only: bool = False


step_execution = StepExecution()


def announce(planned: Planned) -> None:
    """Call all listeners with a new plan. An exception of theirs reaches the caller of the step."""
    for listener in plan_listeners:
        listener(planned)
