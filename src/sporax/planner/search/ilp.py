"""The search that proves: the whole problem goes to the cost-graph solver.

Where the best plan does not fit the memory, plans that do are looked for (`limit`), and the recursive search has its say as well.
The bound is then that of plans of which what they surely need fits (`surely`), or of all plans.
"""

from __future__ import annotations

import math
import time
from operator import itemgetter

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.memory.peak import memory_of
from sporax.planner.search.local_search import Fitted, measured
from sporax.planner.search.loop_bodies import inside_loops
from sporax.planner.search.memory_limit import bound_below, solve_within
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.recursive import recursive
from sporax.planner.search.result import SearchResult
from sporax.planner.solver import Solution, solve
from sporax.planner.solver.solution import OPTIMALITY_TOLERANCE

_FREE_SHARE = 0.5
"""Share of the time, at most, for the question what would be best with as much memory as plans like."""


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
        model: prices operators and links.
        options: what the search may do.
        seconds: time for the solver.

    Raises:
        SporaxRuntimeError: nothing fits into the memory that is given, or nothing was found in time.
    """
    start = time.monotonic()
    problem = ProblemBuilder(graph, mesh, model, options or SearchOptions()).build()
    built = time.monotonic() - start
    found, solution = _solve(problem, seconds)
    plan, cost = found.plan, problem.seconds(found.chosen)
    bound = bound_below(cost, solution.bound, problem.scale)
    if problem.options.memory_bytes is not None and not _is_proven(cost, bound):
        quick = recursive(graph, mesh, model, options)
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
            "rounds": found.rounds,
            "peak_bytes": memory_of(graph, plan).peak_bytes,
        },
    )


def _is_proven(cost: float, bound: float | None) -> bool:
    return bound is not None and cost <= bound * (1 + OPTIMALITY_TOLERANCE)


def _solve(problem: Problem, seconds: float) -> tuple[Fitted, Solution]:
    """The best plan that was found, and a solution whose bound holds for all plans.

    The cheapest plan of all may fit. Where it does not, what it costs is still a bound.
    """
    limit, start = problem.options.memory_bytes, time.monotonic()
    free = solve(problem.cost_graph(), seconds=seconds if limit is None else _FREE_SHARE * seconds)
    found = None if free.choices is None else measured(problem, free.choices.tolist())
    if found is not None and (limit is None or found.peak_bytes <= limit):
        return found, free
    if limit is None:
        raise SporaxRuntimeError(f"For 'ilp', {seconds} seconds must be enough to find a plan, but none was found.")
    found, within = solve_within(problem, limit, seconds - (time.monotonic() - start))
    return found, max(free, within, key=lambda each: -math.inf if each.bound is None else each.bound)
