"""Who is told of a plan as soon as it is made, before anything is compiled: `sporax plan` stops there."""

from __future__ import annotations

from collections.abc import Callable

from sporax.planner.planned import PlannedGraph

Watcher = Callable[[PlannedGraph], None]

watchers: list[Watcher] = []
"""Called in order with every plan of a step that this process makes."""


def announce(planned: PlannedGraph) -> None:
    """Tell all watchers of a new plan. What they raise goes to whoever started the step."""
    for watcher in watchers:
        watcher(planned)
