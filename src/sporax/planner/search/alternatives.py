"""The best plans, not only the best one: what else could be done, and what it would cost.

Plans often differ in nothing that a person would call a difference, so what counts are the heaviest operators. The best plan
splits all others into parts: those that cut the heaviest operator in another way, those that agree on it and cut the next one in
another way, and so on. The best of every part is found like the best of all; the cheapest of these is next, and splits its part
again (Lawler 1972).

`trade_offs` asks another question: what a plan costs that needs less memory.
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
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.deciding import choose
from sporax.planner.search.dynamic import decided
from sporax.planner.search.fitting import cheapest
from sporax.planner.search.limit import fit_quickly, smallest, solve_within
from sporax.planner.search.measuring import Fitted, measured
from sporax.planner.search.moving import Floats
from sporax.planner.search.nested import inside_loops
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions
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


@inside_loops
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
        SporaxValueError: a number below 1.
        SporaxRuntimeError: nothing fits the memory.
    """
    start = time.monotonic()
    options = options or SearchOptions()
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
            unit_of(model),
            options,
        )
        for rank, part in enumerate(found)
    )


@inside_loops
def trade_offs(
    graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions | None = None, *, count: int = 5
) -> tuple[SearchResult, ...]:
    """Plans of which none is both faster and smaller than another, the fastest first; the last needs as little as was found.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do; the fastest keeps its memory limit.
        count: how many at most.

    Raises:
        SporaxValueError: a count below 1.
        SporaxRuntimeError: nothing fits the memory.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    if count < 1:
        raise SporaxValueError(f"For 'trade_offs', 'count' must be at least 1, but got {count}.")
    problem = ProblemBuilder(graph, mesh, model, options).build()
    most = measured(problem, cheapest(problem, []))
    least = smallest(problem)
    step = (most.peak_bytes - least.peak_bytes) / max(count - 1, 1)
    limits = [int(most.peak_bytes - number * step) for number in range(1, count - 1)]
    between = (fit_quickly(problem, limit) for limit in limits)
    found: list[Fitted] = []
    for each in sorted(
        (each for each in (most, least, *between) if each), key=lambda each: problem.seconds(each.chosen)
    ):
        if not found or each.peak_bytes < found[-1].peak_bytes:
            found.append(each)
    return tuple(
        SearchResult(
            each.plan,
            "trade-offs",
            problem.seconds(each.chosen),
            None,
            False,
            time.monotonic() - start,
            {**problem.statistics(), "peak_bytes": each.peak_bytes},
            unit_of(model),
            options,
        )
        for each in found[:count]
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
    """The best plan of a part; after the deadline, or where that does not fit the memory, a good one."""
    kept = np.ones(len(graph.costs), dtype=bool)
    for node, candidates in allowed.items():
        kept[graph.offsets[node] : graph.offsets[node + 1]] = False
        kept[graph.offsets[node] + np.array(candidates)] = True
    narrowed = replace(graph, costs=np.where(kept, graph.costs, np.inf))
    left = deadline - time.monotonic()
    exact = decided(narrowed, left) if left > 0 else None
    chosen = choose(narrowed) if exact is None else exact[0]
    limit = problem.options.memory_bytes
    if limit is None or math.isinf(problem.seconds(chosen)) or measured(problem, chosen).peak_bytes <= limit:
        return _Part(problem.seconds(chosen), tuple(chosen), exact is not None and exact[1], allowed)
    costs = [np.where(kept[start:end], costs, np.inf) for costs, start, end in _rows(problem, graph)]
    fitted = fit_quickly(replace(problem, costs=tuple(costs)), limit)
    if fitted is None:
        if not allowed:
            fitted = solve_within(problem, limit, max(left, 1.0))[0]
        else:
            return _Part(math.inf, tuple(chosen), False, allowed)
    return _Part(problem.seconds(fitted.chosen), tuple(fitted.chosen), False, allowed)


def _rows(problem: Problem, graph: CostGraph) -> Iterator[tuple[Floats, int, int]]:
    """Every decision's costs, and where they stand in the graph's."""
    return zip(problem.costs, graph.offsets[:-1].tolist(), graph.offsets[1:].tolist(), strict=False)
