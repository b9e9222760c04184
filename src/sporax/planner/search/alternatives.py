"""The best plans, not only the best one: what else could be done, and what it would cost.

Plans often differ in nothing that a person would call a difference, so what counts are the heaviest operators. The best plan
splits all others into parts: those that cut the heaviest operator in another way, those that agree on it and cut the next one in
another way, and so on. The best of every part is found like the best of all; the cheapest of these is next, and splits its part
again (Lawler 1972).
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.deciding import choose
from sporax.planner.search.dynamic import decided
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions, refuse_memory
from sporax.planner.search.result import SearchResult
from sporax.planner.search.seeds import heaviest_first
from sporax.planner.solver import CostGraph
from sporax.planner.solver.solution import OPTIMALITY_TOLERANCE

Allowed = Mapping[int, Sequence[int]]
"""For decisions that are not free the candidates that are left."""


@dataclass(frozen=True, slots=True, order=True)
class _Part:
    """The plans that are allowed, by their best one: one candidate per decision."""

    seconds: float
    chosen: tuple[int, ...]
    proven: bool = field(compare=False)
    allowed: Allowed = field(compare=False)


def alternatives(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions | None = None,
    *,
    count: int = 3,
    decisions: int = 6,
    seconds: float = 60.0,
) -> tuple[SearchResult, ...]:
    """The `count` cheapest plans of which any two cut one of the heaviest operators in different ways, the cheapest first.

    Each is the best plan with its cuts of these operators. That they are the cheapest is proven as long as the time lasts: the
    statistics of each say ``"proven": 1`` when nothing cheaper was left out before it. What is found after that is good, and
    no more. There are fewer than `count` where the operators cannot be cut in so many ways.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do.
        count: how many plans.
        decisions: how many of the heaviest operators must not all be cut alike.
        seconds: time in which to prove.

    Raises:
        SporaxValueError: a number below 1, or a memory limit, which this search does not keep.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    refuse_memory("alternatives", options)
    if count < 1 or decisions < 1:
        raise SporaxValueError(
            f"For 'alternatives', 'count' and 'decisions' must be at least 1, but got {count} and {decisions}."
        )
    problem = ProblemBuilder(graph, mesh, model, options).build()
    heavy = heaviest_first(problem)[:decisions]
    found = _cheapest(problem, heavy, count, time.monotonic() + seconds)
    least = found[0].seconds if found[0].proven else None
    return tuple(
        SearchResult(
            plan_of(problem, part.chosen),
            "alternatives",
            part.seconds,
            least,
            least is not None and part.seconds <= least * (1 + OPTIMALITY_TOLERANCE),
            time.monotonic() - start,
            {**problem.statistics(), "rank": rank, "proven": int(part.proven)},
        )
        for rank, part in enumerate(found)
    )


def _cheapest(problem: Problem, heavy: Sequence[int], count: int, deadline: float) -> list[_Part]:
    """The best plans of parts, the cheapest first. One that stands behind an unproven part is not proven either."""
    graph = problem.cost_graph()
    waiting = [_best(problem, graph, {}, deadline)]
    found: list[_Part] = []
    sure = True
    while waiting and len(found) < count:
        part = heapq.heappop(waiting)
        sure = sure and part.proven and all(other.proven for other in waiting)
        found.append(replace(part, proven=sure))
        if len(found) < count:
            rest = (_best(problem, graph, allowed, deadline) for allowed in _parts(problem, heavy, part))
            for each in rest:
                if math.isfinite(each.seconds):
                    heapq.heappush(waiting, each)
    return sorted(found)


def _parts(problem: Problem, heavy: Sequence[int], part: _Part) -> Iterator[Allowed]:
    """What is left of a part without the choices of its best plan, split by the first decision that is another."""
    allowed = dict(part.allowed)
    for node in heavy:
        others = [each for each in allowed.get(node, range(len(problem.costs[node]))) if each != part.chosen[node]]
        if others:
            yield {**allowed, node: others}
        allowed[node] = (part.chosen[node],)


def _best(problem: Problem, graph: CostGraph, allowed: Allowed, deadline: float) -> _Part:
    """The best plan of a part; after the deadline a good one."""
    costs = graph.costs.copy()
    for node, candidates in allowed.items():
        kept = np.zeros(len(problem.costs[node]), dtype=bool)
        kept[list(candidates)] = True
        costs[graph.offsets[node] : graph.offsets[node + 1]][~kept] = np.inf
    narrowed = replace(graph, costs=costs)
    left = deadline - time.monotonic()
    exact = decided(narrowed, left) if left > 0 else None
    chosen = choose(narrowed) if exact is None else exact[0]
    proven = exact is not None and exact[1]
    return _Part(problem.seconds(chosen), tuple(chosen), proven, allowed)
