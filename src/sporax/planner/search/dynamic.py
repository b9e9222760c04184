"""Dynamic programming: decisions are eliminated one by one until none is left.

First go those with few neighbours and the candidates that cannot be best (`solver.reduce`), then the rest by tables over more
neighbours (`elimination`). Where that would need a table too large, messages (`deciding`) decide what is left, if they also prove
it; otherwise an integer program does, and after its time the messages stand, with a bound. The integer program also decides when
the best plan is larger than the memory: rows of memory join decisions that are far apart, and tables over all of them would be
too large at once.
"""

from __future__ import annotations

import time

import numpy as np

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.deciding import bounded
from sporax.planner.search.elimination import eliminate
from sporax.planner.search.limit import bound_below, measured, solve_within
from sporax.planner.search.nested import inside_loops
from sporax.planner.search.problem import NANOSECONDS, ProblemBuilder, SearchOptions
from sporax.planner.search.result import SearchResult
from sporax.planner.solver import CostGraph
from sporax.planner.solver.core import Core
from sporax.planner.solver.exact import solve_exactly
from sporax.planner.solver.graph import Ints
from sporax.planner.solver.network import Network
from sporax.planner.solver.reduce import reduce
from sporax.planner.solver.solution import OPTIMALITY_TOLERANCE
from sporax.planner.solver.timeline import Timeline

LARGEST_TABLE = 500_000
"""Entries of the largest table that elimination may make."""
MEMORY_SECONDS = 20.0
"""Time of the integer program for a plan that fits the memory."""


@inside_loops
def dynamic(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions | None = None,
    *,
    seconds: float = 60.0,
    largest_table: int = LARGEST_TABLE,
) -> SearchResult:
    """The plan of least predicted time.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do.
        seconds: time for what elimination leaves over; `MEMORY_SECONDS` at most for a plan that fits.
        largest_table: entries of the largest table that elimination may make.

    Raises:
        SporaxRuntimeError: nothing fits the memory.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    problem = ProblemBuilder(graph, mesh, model, options).build()
    core = _reduced(problem.cost_graph())
    positions, bound, largest = _decide(core, seconds, largest_table, options.epsilon)
    chosen = [int(each) for each in core.expand(positions)]
    found = measured(problem, chosen)
    method = "elimination" if largest else "integer program"
    limit = options.memory_bytes
    if limit is not None and found.peak_bytes > limit:
        found, solution = solve_within(problem, limit, min(seconds, MEMORY_SECONDS))
        told = bound_below(problem.seconds(found.chosen), solution.bound)
        method, bound = "integer program for memory", max(bound, -np.inf if told is None else told * NANOSECONDS)
    cost = problem.seconds(found.chosen)
    bound = min(bound / NANOSECONDS, cost)
    return SearchResult(
        found.plan,
        "dynamic",
        cost,
        bound if bound > -np.inf else None,
        cost <= bound * (1 + OPTIMALITY_TOLERANCE),
        time.monotonic() - start,
        {
            **problem.statistics(),
            "reduced": len(problem.costs) - core.num_nodes,
            "core_nodes": core.num_nodes,
            "largest_table": largest,
            "method": method,
            "peak_bytes": found.peak_bytes,
        },
    )


def decided(graph: CostGraph, seconds: float) -> tuple[list[int], bool]:
    """One candidate per decision, and whether it is proven that nothing is better.

    Args:
        graph: the decisions, without memory.
        seconds: time for what elimination leaves over.
    """
    core = _reduced(graph)
    positions, bound, _ = _decide(core, seconds, LARGEST_TABLE)
    return [int(each) for each in core.expand(positions)], core.cost(positions) <= bound * (1 + OPTIMALITY_TOLERANCE)


def _reduced(graph: CostGraph) -> Core:
    return Core.of(reduce(Network.of(graph, Timeline.of(graph.intervals))))


def _decide(core: Core, seconds: float, largest_table: int, epsilon: float = 0.0) -> tuple[Ints, float, int]:
    """The choice on a core, a cost that none is below, and the largest table (0 when an integer program decided)."""
    if not core.num_nodes:
        return np.zeros(0, np.int64), core.constant, 1
    found = eliminate(core, largest_table)
    if found is not None:
        return found[0], core.cost(found[0]), found[1]
    positions, bound = bounded(core)
    if core.cost(positions) <= (1 + max(epsilon, OPTIMALITY_TOLERANCE)) * bound:
        return positions, bound, 0
    outcome = solve_exactly(core, time.monotonic() + seconds, gap=epsilon)
    if outcome.positions is None or core.cost(outcome.positions) > core.cost(positions):
        return positions, max(bound, outcome.bound), 0
    positions = outcome.positions
    return positions, core.cost(positions) if outcome.optimal and not epsilon else max(bound, outcome.bound), 0
