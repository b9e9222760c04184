"""The search that proves: the whole problem goes to the cost-graph solver."""

from __future__ import annotations

import time

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.problem import NANOSECONDS, ProblemBuilder, SearchOptions
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
        SporaxRuntimeError: the solver found nothing in time.
    """
    start = time.monotonic()
    problem = ProblemBuilder(graph, mesh, model, options or SearchOptions()).build()
    built = time.monotonic() - start
    solution = solve(problem.cost_graph(), seconds=seconds)
    if solution.choices is None:
        raise SporaxRuntimeError(
            f"For 'ilp', {seconds} seconds must be enough to find a plan, but none was found; allow more."
        )
    chosen = solution.choices.tolist()
    return SearchResult(
        plan_of(problem, chosen),
        "ilp",
        problem.seconds(chosen),
        None if solution.bound is None else solution.bound / NANOSECONDS,
        solution.optimal,
        time.monotonic() - start,
        {
            **solution.statistics,
            "decisions": len(problem.costs),
            "candidates": sum(map(len, problem.costs)),
            "edges": len(problem.edges),
            "build_seconds": built,
        },
    )
