"""Dynamic programming: decisions are eliminated one by one until none is left.

First go those with few neighbours and the candidates that cannot be best (`solver.reduce`), then the rest by tables over more
neighbours (`elimination`). Where that would need a table too large, an integer program decides what is left.
"""

from __future__ import annotations

import time

import numpy as np

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.elimination import eliminate
from sporax.planner.search.problem import ProblemBuilder, SearchOptions, refuse_memory
from sporax.planner.search.result import SearchResult
from sporax.planner.solver import CostGraph
from sporax.planner.solver.core import Core
from sporax.planner.solver.exact import solve_exactly
from sporax.planner.solver.graph import Ints
from sporax.planner.solver.network import Network
from sporax.planner.solver.reduce import reduce
from sporax.planner.solver.timeline import Timeline

LARGEST_TABLE = 500_000
"""Entries of the largest table that elimination may make."""


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
        seconds: time for what elimination leaves over.
        largest_table: entries of the largest table that elimination may make.

    Raises:
        SporaxValueError: a memory limit is given, which this search does not keep.
        SporaxRuntimeError: what elimination left over could not be decided in time.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    refuse_memory("dynamic", options)
    problem = ProblemBuilder(graph, mesh, model, options).build()
    core = _reduced(problem.cost_graph())
    positions, optimal, largest = _decide(core, seconds, largest_table)
    chosen = [int(each) for each in core.expand(positions)]
    cost = problem.seconds(chosen)
    return SearchResult(
        plan_of(problem, chosen),
        "dynamic",
        cost,
        cost if optimal else None,
        optimal,
        time.monotonic() - start,
        {
            **problem.statistics(),
            "reduced": len(problem.costs) - core.num_nodes,
            "core_nodes": core.num_nodes,
            "largest_table": largest,
            "method": "elimination" if largest else "integer program",
        },
    )


def decided(graph: CostGraph, seconds: float) -> tuple[list[int], bool] | None:
    """One candidate per decision, and whether nothing is better; None where the time was not enough.

    Args:
        graph: the decisions, without memory.
        seconds: time for what elimination leaves over.
    """
    core = _reduced(graph)
    try:
        positions, optimal, _ = _decide(core, seconds, LARGEST_TABLE)
    except SporaxRuntimeError:
        return None
    return [int(each) for each in core.expand(positions)], optimal


def _reduced(graph: CostGraph) -> Core:
    return Core.of(reduce(Network.of(graph, Timeline.of(graph.intervals))))


def _decide(core: Core, seconds: float, largest_table: int) -> tuple[Ints, bool, int]:
    """The choice on a core, whether it is the best, and the largest table (0 when an integer program decided)."""
    if not core.num_nodes:
        return np.zeros(0, np.int64), True, 1
    found = eliminate(core, largest_table)
    if found is not None:
        return found[0], True, found[1]
    outcome = solve_exactly(core, time.monotonic() + seconds)
    if outcome.positions is None:
        raise SporaxRuntimeError(
            f"For 'dynamic', {seconds} seconds must be enough for the {core.num_nodes} decisions that elimination left over, "
            f"but they were not; allow more, or use 'recursive'."
        )
    return outcome.positions, outcome.optimal, 0
