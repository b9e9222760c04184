"""The search that proves: the whole problem goes to the cost-graph solver.

Under a memory limit its bound is that of plans of which what they surely need fits (`surely`). Where the best of these does not
fit, because it needs more, plans that do are looked for (`limit`), and the recursive search has its say as well.
"""

from __future__ import annotations

import time
from operator import itemgetter

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.memory import memory_of
from sporax.planner.search.limit import bound_below, solve_within
from sporax.planner.search.measuring import Fitted, measured
from sporax.planner.search.nested import inside_loops
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.recursive import recursive
from sporax.planner.search.result import SearchResult
from sporax.planner.solver import Solution, solve
from sporax.planner.solver.solution import OPTIMALITY_TOLERANCE


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
    if problem.options.memory_bytes is not None:
        return solve_within(problem, problem.options.memory_bytes, seconds)
    solution = solve(problem.cost_graph(), seconds=seconds)
    if solution.choices is None:
        raise SporaxRuntimeError(f"For 'ilp', {seconds} seconds must be enough to find a plan, but none was found.")
    return measured(problem, solution.choices.tolist()), solution
