"""Who is told of a plan as soon as it is made, before anything is compiled: `sporax plan` stops there, or goes on to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it brings the searches along, which most processes never need
    from sporax.planner.report.questions import Planned

Watcher = Callable[["Planned"], None]

watchers: list[Watcher] = []
"""Called in order with every plan of a step that this process makes."""


@dataclass(slots=True)
class Conduct:
    """What this process does with planned steps of the facade.

    Attributes:
        only_plans: they are planned and not run: variables keep their values, results are zeros.
        plans_all: training steps that the script does not cut are planned as well, in automatic parallelism, and nothing is
            trained or written: the process is there for its plans.
    """

    only_plans: bool = False
    plans_all: bool = False


conduct = Conduct()


def announce(planned: Planned) -> None:
    """Tell all watchers of a new plan. What they raise goes to whoever started the step."""
    for watcher in watchers:
        watcher(planned)
