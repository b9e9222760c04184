"""Repeated blocks planned once: the layers of a deep network that look alike are cut alike.

Decisions with the same candidates and the same surroundings are tied: one variable with their costs added up, so what is to
be decided does not grow with depth. Plans that alternate from layer to layer need blocks of two layers, so several periods are
tried; then single decisions, those at the ends above all, may leave their class. What tying costs at most is certified by a
bound on the whole problem; where it is too much, or too large for the memory, every decision gets its own variable after all.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

import numpy as np

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.deciding import Improver, choose, lower_bound
from sporax.planner.search.fitting import cheapest
from sporax.planner.search.limit import measured
from sporax.planner.search.moving import Floats
from sporax.planner.search.nested import inside_loops
from sporax.planner.search.problem import NANOSECONDS, Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.result import SearchResult
from sporax.planner.solver import CostGraph
from sporax.planner.solver.solution import OPTIMALITY_TOLERANCE

_RADIUS = 2
"""How far decisions look around to tell whether their surroundings are the same."""
_TOLERABLE = 0.01
"""What tying may cost."""


@inside_loops
def repeated(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions | None = None,
    *,
    periods: Sequence[int] = (1, 2),
) -> SearchResult:
    """A plan in which repeated blocks are cut alike, with a bound on what better there could be.

    Cost and bound are of one price list, in which moves go the straight way; the plan may run faster, by cheaper ways.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do.
        periods: after how many layers blocks repeat; all are tried.

    Raises:
        SporaxRuntimeError: nothing fits the memory.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    problem = ProblemBuilder(graph, mesh, model, options, hurry=True).build()
    alike, improver = classes(problem), Improver(problem)
    attempts = []
    for period in periods:
        classed = numbered(alike, period)
        decided = choose(tied(problem, classed))
        chosen = [decided[each] for each in classed]
        improver.improve(chosen)
        attempts.append((problem.seconds(chosen), max(classed) + 1, chosen))
    bound = lower_bound(problem.cost_graph(), min(attempts)[0] * NANOSECONDS) / NANOSECONDS
    if min(attempts)[0] > (1 + _TOLERABLE) * bound:
        chosen = choose(problem.cost_graph())
        attempts.append((problem.seconds(chosen), len(chosen), chosen))
    cost, num_classes, best = min(attempts)
    limit, plan = options.memory_bytes, None
    if limit is not None:
        found = measured(problem, best)
        if found.peak_bytes <= limit:
            plan = found.plan
        else:
            best = cheapest(problem, [chosen for *_, chosen in attempts])
            cost, num_classes = problem.seconds(best), len(best)
    return SearchResult(
        plan or plan_of(problem, best),
        "repeated",
        cost,
        min(bound, cost),
        cost - bound <= OPTIMALITY_TOLERANCE * cost,
        time.monotonic() - start,
        {**problem.statistics(), "classes": num_classes},
    )


def classes(problem: Problem, radius: int = _RADIUS) -> list[int]:
    """For every decision a number that decisions with the same candidates and surroundings share."""
    links: list[list[tuple[str, int, int]]] = [[] for _ in problem.costs]
    for first, second, table in problem.edges:
        content = hash(table.tobytes())
        links[first].append(("to", content, second))
        links[second].append(("from", content, first))
    labels = _numbers(
        [(id(each.steps), costs.tobytes()) for each, costs in zip(problem.choices, problem.costs, strict=True)]
    )
    for _ in range(radius):
        labels = _numbers(
            [
                (labels[node], tuple(sorted((way, content, labels[other]) for way, content, other in link)))
                for node, link in enumerate(links)
            ]
        )
    return labels


def _numbers(keys: Sequence[Hashable]) -> list[int]:
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def numbered(labels: Sequence[int], period: int) -> list[int]:
    """Classes again, with members told apart by their number within the class, modulo `period`."""
    count: dict[int, int] = {}
    keys = []
    for label in labels:
        count[label] = count.get(label, -1) + 1
        keys.append((label, count[label] % period))
    return _numbers(keys)


def tied(problem: Problem, classed: Sequence[int]) -> CostGraph:
    """The problem with one decision per class."""
    total: dict[int, Floats] = {}
    for node, each in enumerate(classed):
        total[each] = total[each] + problem.costs[node] if each in total else problem.costs[node]
    tables: dict[tuple[int, int], Floats] = {}
    for first, second, table in problem.edges:
        pair = classed[first], classed[second]
        if pair[0] == pair[1]:
            total[pair[0]] = total[pair[0]] + table.diagonal()
        elif pair in tables:
            tables[pair] = tables[pair] + table
        else:
            tables[pair] = table
    costs = [total[each].tolist() for each in range(len(total))]
    usages = [np.zeros(len(each), np.int64).tolist() for each in costs]
    edges = [(first, second, table) for (first, second), table in tables.items()]
    return CostGraph.build(costs, usages, [(0, 0)] * len(costs), edges, None, "repeated blocks")
