"""Good choices in linear time: exact elimination of what is easy, message passing for the rest.

Messages tell every decision what each of its candidates would cost the others at best (TRW-S, see `solver.dual`); a few
sweeps are nearly always enough for the best choice, and the messages bound how much is left.
"""

from __future__ import annotations

import time

import numpy as np

from sporax.planner.search.problem import Problem
from sporax.planner.solver.core import Core
from sporax.planner.solver.descent import descend
from sporax.planner.solver.dual import MessagePassing
from sporax.planner.solver.graph import Ints
from sporax.planner.solver.network import Network
from sporax.planner.solver.reduce import reduce
from sporax.planner.solver.timeline import Timeline

_REDUCE_SECONDS = 10.0


def choose(problem: Problem, sweeps: int = 24, patience: int = 4) -> list[int]:
    """One candidate per decision.

    Args:
        problem: the problem.
        sweeps: of messages, at most.
        patience: how many sweeps in a row may bring nothing better.
    """
    core = _reduced(problem)
    best = np.zeros(core.num_nodes, dtype=np.int64)
    if core.num_nodes:
        best = _decide(core, sweeps, patience)
    return [int(each) for each in core.expand(best)]


def lower_bound(problem: Problem, sweeps: int = 30) -> float:
    """Nanoseconds that no choice is below."""
    core = _reduced(problem)
    messages = MessagePassing(core)
    bounds = [max(messages.sweep(core.costs)) for _ in range(sweeps if core.num_nodes else 0)]
    return core.constant + max(bounds, default=0.0)


def _reduced(problem: Problem) -> Core:
    graph = problem.cost_graph()
    return Core.of(reduce(Network.of(graph, Timeline.of(graph.intervals)), time.monotonic() + _REDUCE_SECONDS))


def _decide(core: Core, sweeps: int, patience: int) -> Ints:
    messages = MessagePassing(core)
    best, least, idle = np.zeros(core.num_nodes, dtype=np.int64), np.inf, 0
    for _ in range(sweeps):
        messages.sweep(core.costs)
        found = descend(core, messages.decode(core.costs))
        cost, idle = core.cost(found), idle + 1
        if cost < least:
            best, least, idle = found, cost, 0
        if idle >= patience:
            break
    return best
