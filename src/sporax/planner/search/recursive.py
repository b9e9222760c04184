"""The fast search: mesh axis by mesh axis over the whole graph.

For every axis, from the outermost to the innermost, each decision extends what it has by that axis at one place or none, so
there are only a handful of candidates at a time. Double recursion (Wang et al., Euro-Par 2021) works this way, with halves and
a constant for every disagreement, heaviest operators first; here axes have any size, disagreements cost what the moves cost,
and messages between the decisions take the place of an order (`deciding`). What is decided first weighs on the rest, so a few
orders are tried: single axes, and all axes of one kind of link together, from either end.
"""

from __future__ import annotations

import time

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.deciding import choose
from sporax.planner.search.menu import Units, natural_units
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions, refuse_memory
from sporax.planner.search.result import SearchResult


def recursive(
    graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions | None = None
) -> SearchResult:
    """A good plan quickly; nothing is proven.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do; `units` are its rounds; several orders are tried by default.

    Raises:
        SporaxValueError: a memory limit is given, which this search does not keep.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    refuse_memory("recursive", options)
    orders = [options.units] if options.units else _orders(mesh, model)
    attempts = [_run(ProblemBuilder(graph, mesh, model, options, units=(), hurry=True), order) for order in orders]
    costs = [final.seconds([0] * len(final.costs)) for final, _ in attempts]
    best = costs.index(min(costs))
    final = attempts[best][0]
    return SearchResult(
        plan_of(final, [0] * len(final.costs)),
        "recursive",
        costs[best],
        None,
        False,
        time.monotonic() - start,
        {
            **final.statistics(),
            "candidates": sum(count for _, count in attempts),
            "orders": len(orders),
            "rounds": len(orders[best]),
        },
    )


def _orders(mesh: DeviceMatrix, model: CostModel) -> list[Units]:
    """Orders of rounds to try."""
    single = tuple((axis,) for axis in mesh.device_axes if mesh.shape[axis] > 1)
    runs = natural_units(mesh, model.links)
    return list(dict.fromkeys([single, runs, runs[::-1]]))


def _run(builder: ProblemBuilder, order: Units) -> tuple[Problem, int]:
    """The problem with everything decided, and how many candidates were looked at."""
    problem = builder.build()
    chosen = [0] * len(problem.costs)
    candidates = 0
    for unit in order:
        builder.extend((unit,))
        problem = builder.build(problem.bases(chosen))
        chosen = choose(problem.cost_graph())
        candidates += sum(map(len, problem.costs))
    return builder.priced(problem.bases(chosen)), candidates
