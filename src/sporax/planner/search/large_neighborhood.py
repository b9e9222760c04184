"""Regions of a plan decided anew, all their decisions at once, beside the memory of the finished plan.

A plan that fits is often dear because some layers are cut to save more than the limit asks for, and none of their decisions can
change its mind alone. So a region (a ball of neighbouring decisions) is decided exactly with its surroundings kept, as if there
were no limit, and the whole plan is measured: it counts if it still fits. Large regions come first, then smaller ones (large
neighbourhood search).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from sporax.planner.search.local_search import Attempts, Fitted, cheapened
from sporax.planner.search.message_passing import ball
from sporax.planner.search.problem import Problem
from sporax.planner.solver.core import Core
from sporax.planner.solver.graph import Ints
from sporax.planner.solver.large_neighborhood_search import resolve
from sporax.planner.solver.network import Network
from sporax.planner.solver.timeline import Timeline

_LARGEST, _LEAST = 96, 4
"""Decisions of the largest regions, and of the smallest."""
_OVERLAP = 4
"""How many regions of a size hold each decision, about."""
_SECONDS = 60.0
"""For one region: far off, so that all processes find the same."""
_WORTH = 1 - 1e-4
"""Share of the cost that a region must bring it below."""


def settled(problem: Problem, found: Fitted, limit: int) -> Fitted:
    """The cheapest plan that fits which is reached from one that does.

    Args:
        problem: the problem.
        found: where to begin; fits.
        limit: bytes of one device.
    """
    return redecided(problem, cheapened(problem, found, limit), limit)


def redecided(problem: Problem, found: Fitted, limit: int) -> Fitted:
    """A plan that fits and costs no more, in which no region wants to be decided otherwise."""
    graph = problem.cost_graph()
    core = Core.of(Network.of(graph, Timeline.of(graph.intervals)))
    attempts = Attempts(problem, limit)
    size = min(_LARGEST, core.num_nodes // 2)
    while size >= _LEAST:
        better = False
        for region in _regions(core, size):
            if not attempts.left:
                return found
            _, choice = resolve(core, np.array(found.chosen), region, time.monotonic() + _SECONDS)
            chosen = found.chosen if choice is None else choice.tolist()
            fitted = attempts.cheaper(chosen, _WORTH * problem.seconds(found.chosen))
            if fitted is not None:
                found, better = fitted, True
        size = size if better else size // 2
    return found


def _regions(core: Core, size: int) -> Iterator[Ints]:
    """Balls around decisions that are spread evenly."""
    for start in range(0, core.num_nodes, max(size // _OVERLAP, 1)):
        yield ball(core, start, size)
