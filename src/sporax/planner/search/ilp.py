"""The exact search: the whole problem goes to the cost-graph solver, which returns a plan and a proof or a bound.

Problem: the plan of least predicted time, with a certificate.

Method: solve without the memory limit first. If that plan does not fit, search for plans that do (`memory_limit`). The
bound then holds for all plans whose lower bound on peak memory (`memory_lower_bound`) fits the limit.
"""

from __future__ import annotations

import math
import time
from operator import itemgetter

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.memory.peak import memory_of
from sporax.planner.search.inlined_loops import inside_loops
from sporax.planner.search.limit.local_search import MeasuredPlan, measured
from sporax.planner.search.limit.memory_limit import bound_below, solve_within
from sporax.planner.search.recursive import one_axis_after_another
from sporax.planner.search.space.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.space.result import SearchResult
from sporax.planner.solver import Solution, solve
from sporax.planner.solver.portfolio.solution import OPTIMALITY_TOLERANCE

_FREE_SHARE = 0.5
"""Most of the time that the question without a limit may take; the rest is for plans that fit."""


@inside_loops
def ilp(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions | None = None,
    *,
    seconds: float = 60.0,
) -> SearchResult:
    """The plan of least predicted time, proven, or the best found in time with a bound.

    Args:
        graph: the step.
        mesh: the devices.
        model: the cost of operators and links.
        options: what the search may do.
        seconds: time for the solver.

    Raises:
        SporaxRuntimeError: nothing fits into the memory that is given, or nothing was found in time.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    problem = ProblemBuilder(graph, mesh, model, options).build()
    built = time.monotonic() - start
    best, solution = _solve(problem, seconds)
    plan, cost = best.plan, problem.seconds(best.chosen)
    bound = bound_below(cost, solution.bound, problem.scale)
    # A quick search may have met another plan; the better one is kept, and the bound holds for both.
    if options.memory_bytes is not None and not _is_proven(cost, bound):
        quick = one_axis_after_another(graph, mesh, model, options, problem)
        plan, cost = min(((plan, cost), (quick.plan, quick.cost_seconds)), key=itemgetter(1))
        bound = bound_below(cost, solution.bound, problem.scale)
    return SearchResult(
        plan,
        "ilp",
        cost,
        bound,
        _is_proven(cost, bound),
        time.monotonic() - start,
        {
            **solution.statistics,
            **problem.statistics(),
            "build_seconds": built,
            "rounds": best.rounds,
            "peak_bytes": memory_of(graph, plan).peak_bytes,
        },
    )


def _is_proven(cost: float, bound: float | None) -> bool:
    return bound is not None and cost <= bound * (1 + OPTIMALITY_TOLERANCE)


def _solve(problem: Problem, seconds: float) -> tuple[MeasuredPlan, Solution]:
    """The best plan that was found, and a solution whose bound holds for all plans.

    The cheapest plan of all may fit. Where it does not, what it costs is still a bound.
    """
    limit, start = problem.options.memory_bytes, time.monotonic()
    free = solve(problem.cost_graph(), seconds=seconds if limit is None else _FREE_SHARE * seconds)
    best = None if free.choices is None else measured(problem, free.choices.tolist())
    if best is not None and (limit is None or best.peak_bytes <= limit):
        return best, free
    if limit is None:
        raise SporaxRuntimeError(f"For 'ilp', {seconds} seconds must be enough to find a plan, but none was found.")
    best, within = solve_within(problem, limit, seconds - (time.monotonic() - start))
    # Both bounds hold for all plans that fit; the higher one says more.
    return best, max(free, within, key=lambda entry: -math.inf if entry.bound is None else entry.bound)
