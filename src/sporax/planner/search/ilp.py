"""The exact search: the whole problem goes to the cost-graph solver, which returns a plan and a proof or a bound.

Problem: the plan of least predicted time, with a certificate.

Method: solve without the memory limit first. If that plan does not fit, search for plans that do (`limit.exact`). The
bound then holds for all plans that fit: it is that of all plans whose arguments do.
"""

from __future__ import annotations

import math
from operator import itemgetter

from sporax.base.errors import SporaxRuntimeError
from sporax.planner.budget import Budget
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.search.limit.exact import bound_below, solve_within
from sporax.planner.search.recursive import one_axis_after_another
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured
from sporax.planner.search.space.problem import Problem, SearchResult
from sporax.planner.search.task import SearchTask, searches
from sporax.planner.solver import Solution, solve
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE

SECONDS = 60.0
"""Most of the time for the solver."""
_FREE_SHARE = 0.5
"""Most of the time that the question without a limit may take; the rest is for plans that fit."""


@searches
def ilp(task: SearchTask) -> SearchResult:
    """The plan of least predicted time, proven, or the best found in time with a bound.

    Args:
        task: its time is the solver's, a minute at most.
    """
    problem, options = task.builder().build(), task.options
    built = task.clock.used
    best, solution = _solve(problem, task.budget.at_most(SECONDS))
    plan, cost = best.plan, problem.seconds(best.chosen)
    bound = bound_below(cost, solution.bound, problem.scale)
    # A quick search may have met another plan; the better one is kept, and the bound holds for both.
    is_proven = bound is not None and cost <= bound * (1 + OPTIMALITY_TOLERANCE)
    if options.memory_bytes is not None and not is_proven:
        quick = one_axis_after_another(task, full=problem)
        plan, cost = min(((plan, cost), (quick.plan, quick.cost_seconds)), key=itemgetter(1))
        bound = bound_below(cost, solution.bound, problem.scale)
    statistics = {
        **solution.statistics,
        **problem.statistics(),
        "build_seconds": built,
        "peak_bytes": memory_of(task.graph, plan, backend=backend_of(options.platform)).peak_bytes,
    }
    return task.result("ilp", plan, cost, statistics, bound)


def _solve(problem: Problem, budget: Budget) -> tuple[MeasuredPlan, Solution]:
    """The best plan that was found, and a solution whose bound holds for all plans.

    The plan of least cost of all may fit. Where it does not, its cost is still a bound.
    """
    limit, seconds = problem.options.memory_bytes, budget.left
    free = solve(problem.cost_graph(), seconds=seconds if limit is None else _FREE_SHARE * seconds)
    best = None if free.choices is None else measured(problem, free.choices.tolist())
    if best is not None and (limit is None or best.peak_bytes <= limit):
        return best, free
    if limit is None:
        raise SporaxRuntimeError(
            f"For 'ilp', {round(budget.seconds, 3)} seconds must be enough to find a plan, but none was found."
        )
    best, within = solve_within(problem, limit, budget)
    # Both bounds hold for all plans that fit; the higher one says more.
    return best, max(free, within, key=lambda entry: -math.inf if entry.bound is None else entry.bound)
