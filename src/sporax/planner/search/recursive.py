"""The fast search: mesh axis by mesh axis over the whole graph.

For every axis, from the outermost to the innermost, each decision extends what it has by that axis at one place or none, so
there are only a handful of candidates at a time. Double recursion (Wang et al., Euro-Par 2021) works this way, with halves and
a constant for every disagreement, heaviest operators first; here axes have any size, disagreements cost what the moves cost,
and messages between the decisions take the place of an order (`deciding`).
"""

from __future__ import annotations

import time

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.deciding import choose
from sporax.planner.search.problem import ProblemBuilder, SearchOptions, refuse_memory
from sporax.planner.search.result import SearchResult


def recursive(
    graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions | None = None
) -> SearchResult:
    """A good plan quickly; nothing is proven.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do; `units` are its rounds, single axes by default.

    Raises:
        SporaxValueError: a memory limit is given, which this search does not keep.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    refuse_memory("recursive", options)
    rounds = options.units or tuple((axis,) for axis in mesh.device_axes if mesh.shape[axis] > 1)
    builder = ProblemBuilder(graph, mesh, model, options, units=(), hurry=True)
    problem = builder.build()
    chosen = [0] * len(problem.costs)
    candidates = 0
    for unit in rounds:
        builder.extend((unit,))
        problem = builder.build(problem.bases(chosen))
        chosen = choose(problem.cost_graph())
        candidates += sum(map(len, problem.costs))
    final = builder.priced(problem.bases(chosen))
    chosen = [0] * len(final.costs)
    return SearchResult(
        plan_of(final, chosen),
        "recursive",
        final.seconds(chosen),
        None,
        False,
        time.monotonic() - start,
        {**final.statistics(), "candidates": candidates, "rounds": len(rounds)},
    )
