"""The search that proves: the whole problem goes to the cost-graph solver."""

from __future__ import annotations

import time

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.memory import memory_of
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.limit import Fitted, solve_within
from sporax.planner.search.problem import NANOSECONDS, Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.result import SearchResult
from sporax.planner.solver import solve


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
    found = _solve(problem, seconds)
    solution = found.solution
    return SearchResult(
        found.plan,
        "ilp",
        problem.seconds(found.chosen),
        None if solution.bound is None else min(solution.bound / NANOSECONDS, problem.seconds(found.chosen)),
        solution.optimal and found.rounds == 1,
        time.monotonic() - start,
        {
            **solution.statistics,
            **problem.statistics(),
            "build_seconds": built,
            "rounds": found.rounds,
            "peak_bytes": found.peak_bytes,
        },
    )


def _solve(problem: Problem, seconds: float) -> Fitted:
    if problem.options.memory_bytes is not None:
        return solve_within(problem, problem.options.memory_bytes, seconds)
    solution = solve(problem.cost_graph(), seconds=seconds)
    if solution.choices is None:
        raise SporaxRuntimeError(f"For 'ilp', {seconds} seconds must be enough to find a plan, but none was found.")
    chosen = solution.choices.tolist()
    plan = plan_of(problem, chosen)
    return Fitted(solution, chosen, plan, memory_of(problem.graph, plan).peak_bytes, 1)
