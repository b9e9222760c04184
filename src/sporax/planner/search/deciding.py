"""Good choices in linear time: exact elimination of what is easy, message passing for the rest.

Messages tell every decision what each of its candidates would cost the others at best (TRW-S, see `solver.dual`); a few
sweeps are nearly always enough for the best choice, and the messages bound how much is left. `Improver` looks at one decision
at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from sporax.planner.search.problem import Problem
from sporax.planner.solver.core import Core
from sporax.planner.solver.descent import descend
from sporax.planner.solver.dual import MessagePassing
from sporax.planner.solver.graph import CostGraph, Floats, Ints
from sporax.planner.solver.network import Network
from sporax.planner.solver.reduce import reduce
from sporax.planner.solver.timeline import Timeline

_REDUCE_SECONDS = 10.0


def choose(graph: CostGraph, sweeps: int = 24, patience: int = 4) -> list[int]:
    """One candidate per decision.

    Args:
        graph: the decisions, without memory.
        sweeps: of messages, at most.
        patience: how many sweeps in a row may bring nothing better.
    """
    core = _reduced(graph)
    best = np.zeros(core.num_nodes, dtype=np.int64)
    if core.num_nodes:
        best = _decide(core, sweeps, patience)
    return [int(each) for each in core.expand(best)]


def lower_bound(graph: CostGraph, sweeps: int = 30) -> float:
    """A cost that no choice is below."""
    core = _reduced(graph)
    messages = MessagePassing(core)
    bounds = [max(messages.sweep(core.costs)) for _ in range(sweeps if core.num_nodes else 0)]
    return core.constant + max(bounds, default=0.0)


class Improver:
    """Lets the decisions of a problem change their minds, one by one."""

    def __init__(self, problem: Problem) -> None:
        self.costs = problem.costs
        self.links: list[list[tuple[int, Floats]]] = [[] for _ in problem.costs]
        for first, second, table in problem.edges:
            self.links[first].append((second, table))
            self.links[second].append((first, table.T))

    def prices(self, node: int, chosen: Sequence[int]) -> Floats:
        """Cost of each candidate beside its neighbours; those that are open (-1) are taken to agree."""
        prices = self.costs[node].copy()
        for other, table in self.links[node]:
            prices += table.min(axis=1) if chosen[other] < 0 else table[:, chosen[other]]
        return prices

    def improve(self, chosen: list[int], kept: frozenset[int] = frozenset()) -> None:
        """Change `chosen` in place until nobody wants to change; those in `kept` stay."""
        waiting = dict.fromkeys(node for node in range(len(chosen)) if node not in kept)
        while waiting:
            node = next(iter(waiting))
            del waiting[node]
            prices = self.prices(node, chosen)
            best = int(prices.argmin())
            if prices[best] < prices[chosen[node]] * (1 - 1e-12):
                chosen[node] = best
                waiting.update(dict.fromkeys(other for other, _ in self.links[node] if other not in kept))


def _reduced(graph: CostGraph) -> Core:
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
