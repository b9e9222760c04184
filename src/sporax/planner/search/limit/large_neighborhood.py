"""Large-neighborhood search over plans under a memory limit.

Problem: a plan that fits is often expensive because some layers save more memory than the limit asks for, and no single
decision can be changed without a loss.

Method: take a ball of neighbouring decisions, solve it exactly without a memory limit while the rest stays fixed, and
measure the memory of the complete new plan. The new plan is kept if it fits and costs less. Large balls are tried
first.

Reference: P. Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", CP 1998.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from sporax.planner.search.limit.local_search import Attempts, MeasuredPlan, reduce_cost
from sporax.planner.search.limit.message_passing import ball
from sporax.planner.search.space.problem import Problem
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Ints
from sporax.planner.solver.graph.moments import Timeline
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.large_neighborhood_search import resolve

_LARGEST, _LEAST = 96, 4
"""Decisions of the largest regions and of the smallest: below the smallest, `reduce_cost` has tried the changes already."""
_OVERLAP = 4
"""Regions of one size that contain each decision, about: borders of one are inside another."""
_SECONDS = 60.0
"""Time limit of one region: far from what is needed, so that all processes of a job find the same plan."""
_WORTH = 1 - 1e-4
"""Share of the cost that a region must bring it below."""


def improved_within(problem: Problem, start: MeasuredPlan, limit: int) -> MeasuredPlan:
    """The cheapest plan that fits which is reached from one that does.

    Args:
        problem: the problem.
        start: where to begin; fits.
        limit: bytes of one device.
    """
    return reoptimized(problem, reduce_cost(problem, start, limit), limit)


def reoptimized(problem: Problem, plan: MeasuredPlan, limit: int) -> MeasuredPlan:
    """A plan that fits and costs no more, in which no region wants to be decided otherwise."""
    # Without memory rows: the solver would only know the tensors, and the measurement knows all.
    graph = problem.cost_graph()
    core = Core.of(Network.of(graph, Timeline.of(graph.intervals)))
    attempts = Attempts(problem, limit)
    # Half the decisions at most: a region of all of them is the problem without a limit, which was solved before.
    size = min(_LARGEST, core.num_nodes // 2)
    while size >= _LEAST:
        better = False
        for region in _regions(core, size):
            if not attempts.left:
                return plan
            _, choice = resolve(core, np.array(plan.chosen), region, time.monotonic() + _SECONDS)
            chosen = plan.chosen if choice is None else choice.tolist()
            fitted = attempts.cheaper(chosen, _WORTH * problem.seconds(plan.chosen))
            if fitted is not None:
                plan, better = fitted, True
        # Large regions see most, so a size is used until it stops helping; then half of it.
        size = size if better else size // 2
    return plan


def _regions(core: Core, size: int) -> Iterator[Ints]:
    """Balls around decisions that are spread evenly."""
    for start in range(0, core.num_nodes, max(size // _OVERLAP, 1)):
        yield ball(core, start, size)
