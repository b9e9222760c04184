"""The fast search: mesh axis by mesh axis over the whole graph.

For every axis, from the outermost to the innermost, each decision extends what it has by that axis at one place or none. The
heaviest operators choose first, each the cheapest candidate beside the neighbours that have chosen already; then decisions are
looked at again until none wants to change. Double recursion (Wang et al., Euro-Par 2021) works this way with halves and a
constant for every disagreement; here axes have any prime size and disagreements cost what the moves cost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.greedy import Neighbours, heaviest_first
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.result import SearchResult


def recursive(
    graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions | None = None
) -> SearchResult:
    """A good plan quickly; nothing is proven.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do; `units` are its rounds, single axes by default. A memory limit is not kept.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    axes = [axis for axis in mesh.device_axes if mesh.shape[axis] > 1]
    rounds = list(options.units) or [(axis,) for axis in axes]
    builder = ProblemBuilder(graph, mesh, model, options, units=(), hurry=True)
    problem = builder.build()
    chosen = [0] * len(problem.costs)
    order = heaviest_first(problem, chosen)
    for unit in rounds:
        builder.catalogue.extend((unit,))
        problem = builder.build(problem.bases(chosen))
        chosen = choose(problem, order)
    return SearchResult(
        plan_of(problem, chosen),
        "recursive",
        problem.seconds(chosen),
        None,
        False,
        time.monotonic() - start,
        {**problem.statistics(), "rounds": len(rounds)},
    )


def choose(problem: Problem, order: Sequence[int]) -> list[int]:
    """One candidate per decision: greedily in `order`, then improved one by one."""
    neighbours = Neighbours(problem)
    chosen = neighbours.greedy(order)
    neighbours.improve(chosen)
    return [int(each) for each in np.asarray(chosen)]
