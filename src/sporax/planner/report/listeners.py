"""Listeners that receive every plan as soon as it is made, before compilation. `sporax plan` uses one to stop there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it brings the searches along, which most processes never need
    from sporax.planner.report.questions import Planned

PlanListener = Callable[["Planned"], None]

plan_listeners: list[PlanListener] = []
"""Called in order with every plan of a step that this process makes."""


@dataclass(slots=True)
class StepExecution:
    """What this process does with planned steps of the facade.

    Attributes:
        plan_only: they are planned and not run: variables keep their values, results are zeros.
        plans_all: training steps that the script does not cut are planned as well, in automatic parallelism, and nothing is
            trained or written: the process is there for its plans.
    """

    plan_only: bool = False
    plans_all: bool = False


step_execution = StepExecution()


def announce(planned: Planned) -> None:
    """Call all listeners with a new plan. An exception of theirs reaches the caller of the step."""
    for listener in plan_listeners:
        listener(planned)
