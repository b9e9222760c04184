"""Dynamic programming: decisions are eliminated until none is left.

Problem: the plan of least predicted time, exactly where possible.

Method: first remove decisions with few neighbours and candidates that cannot be optimal (`planner.solver.graph.reductions`),
then eliminate the rest with larger tables (`bucket_elimination`). If a table would be too large, messages give a bound
and a choice (`planner.solver.portfolio.quick_choice`). If these differ, an integer program decides. If the best plan exceeds the
memory, others are found within the limit (`limit.exact`).
"""

from __future__ import annotations

import numpy as np

from sporax.planner.search.limit.exact import bound_below, solve_within
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.problem import SearchResult
from sporax.planner.search.task import SearchTask, searches
from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.portfolio.quick_choice import LARGEST_TABLE, decide

SECONDS = 60.0
"""Most of the time for what elimination leaves over."""
MEMORY_SECONDS = 20.0
"""Time for a plan that fits the memory."""


@searches
def dynamic(task: SearchTask, largest_table: int = LARGEST_TABLE) -> SearchResult:
    """The plan of least predicted time.

    Args:
        task: its time is for what elimination leaves over, a minute at most, and `MEMORY_SECONDS` at most for a plan that fits.
        largest_table: entries of the largest table that elimination may make.
    """
    options, budget = task.options, task.budget
    problem = task.builder().build()
    core = _reduced(problem.cost_graph())
    decision = decide(core, budget.at_most(SECONDS), largest_table, options.epsilon)
    plan = measured(problem, [int(entry) for entry in core.expand(decision.positions)])
    bound, statistics = decision.bound, decision.statistics
    limit = options.memory_bytes
    # The limit is looked at only now: most plans of least time fit, and elimination with memory takes far longer.
    if limit is not None and plan.peak_bytes > limit:
        plan, solution = solve_within(problem, limit, budget.at_most(MEMORY_SECONDS), gap=options.epsilon)
        # A bound for all plans that fit may be above the free bound, which holds for all plans whatever they need.
        within = bound_below(problem.seconds(plan.chosen), solution.bound, problem.scale)
        bound = max(bound, -np.inf if within is None else within * problem.scale)
        statistics = {**statistics, "method": f"{solution.statistics['method']} for memory"}
    cost = problem.seconds(plan.chosen)
    facts: dict[str, int | float | str] = {
        **problem.statistics(),
        "reduced": len(problem.costs) - core.num_nodes,
        "core_nodes": core.num_nodes,
        **statistics,
        "peak_bytes": plan.peak_bytes,
    }
    return task.result("dynamic", plan.plan, cost, facts, bound / problem.scale if bound > -np.inf else None)


def _reduced(graph: CostGraph) -> Core:
    return Core.of(reduce(Network.of(graph, Moments.of(graph.intervals))))
