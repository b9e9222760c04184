"""Repeated blocks planned once: the layers of a deep network that look alike are cut alike.

Blocks that follow each other and are alike (`repeats`) are tied: the decisions at one place are one variable with their costs
added up, so what is to be decided does not grow with depth. For plans that alternate from layer to layer, every other block may
differ; what lies before and behind is free. What tying costs at most is certified by a bound on the whole problem, which looks at
one block, too (`certificate`); where it is too much, or too large for the memory, every decision gets its own variable after all.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.assemble import plan_of
from sporax.planner.search.certificate import bound_of
from sporax.planner.search.deciding import choose, lower_bound
from sporax.planner.search.fitting import cheapest
from sporax.planner.search.measuring import measured
from sporax.planner.search.moving import Floats
from sporax.planner.search.nested import inside_loops
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.repeats import Edge, Repeats, find_repeats
from sporax.planner.search.result import SearchResult
from sporax.planner.solver import CostGraph
from sporax.planner.solver.solution import OPTIMALITY_TOLERANCE

_TOLERABLE = 0.01
"""What tying may cost."""


@inside_loops
def repeated(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions | None = None,
    *,
    turns: int = 2,
) -> SearchResult:
    """A plan in which repeated blocks are cut alike, with a bound on what better there could be.

    Cost and bound are of one price list. On meshes of many axes moves go the straight way there, and the plan may run faster.

    Args:
        graph: the step.
        mesh: the devices.
        model: prices operators and links.
        options: what the search may do.
        turns: after how many blocks the plan repeats.

    Raises:
        SporaxRuntimeError: nothing fits the memory.
    """
    start = time.monotonic()
    options = options or SearchOptions()
    problem = ProblemBuilder(graph, mesh, model, options).build()
    chosen, bound, decided = _decide(problem, turns)
    cost = problem.seconds(chosen)
    limit, plan = options.memory_bytes, None
    if limit is not None:
        found = measured(problem, chosen)
        if found.peak_bytes <= limit:
            plan = found.plan
        else:
            chosen = cheapest(problem, [chosen])
            cost, decided = problem.seconds(chosen), len(chosen)
    return SearchResult(
        plan or plan_of(problem, chosen),
        "repeated",
        cost,
        min(bound, cost),
        cost - bound <= OPTIMALITY_TOLERANCE * cost,
        time.monotonic() - start,
        {**problem.statistics(), "variables": decided},
    )


def _decide(problem: Problem, turns: int) -> tuple[list[int], float, int]:
    """A choice without regard to memory, the bound in seconds, and how many variables it took."""
    repeats, bound = find_repeats(labels(problem), problem.edges), 0.0
    attempts: list[tuple[float, int, list[int]]] = []
    if repeats is not None:
        chosen, variables = _choice(problem, repeats, turns)
        attempts.append((problem.seconds(chosen), variables, chosen))
        bound = bound_of(problem.costs, repeats, attempts[0][0] * problem.scale) / problem.scale
    if not attempts or attempts[0][0] > (1 + _TOLERABLE) * bound:
        whole = problem.cost_graph()
        chosen = choose(whole)
        attempts.append((problem.seconds(chosen), len(chosen), chosen))
        bound = max(bound, lower_bound(whole, min(attempts)[0] * problem.scale) / problem.scale)
    _, variables, chosen = min(attempts)
    return chosen, bound, variables


def choose_alike(problem: Problem, turns: int = 2) -> list[int]:
    """A good choice, in which blocks that repeat are decided alike; nothing is proven, and memory is not looked at."""
    repeats = find_repeats(labels(problem), problem.edges)
    if repeats is None:
        return choose(problem.cost_graph())
    return _choice(problem, repeats, turns)[0]


def _choice(problem: Problem, repeats: Repeats, turns: int) -> tuple[list[int], int]:
    """A choice in which blocks are decided alike, and how many variables it took."""
    small, variable = tied(problem.costs, repeats, turns)
    decided = choose(small)
    return [decided[each] for each in variable], small.num_nodes


def labels(problem: Problem) -> list[Hashable]:
    """Per decision what it is by itself: its candidates and their costs."""
    return [(id(each.steps), costs.tobytes()) for each, costs in zip(problem.choices, problem.costs, strict=True)]


def tied(costs: Sequence[Floats], repeats: Repeats, turns: int) -> tuple[CostGraph, list[int]]:
    """The problem in which blocks are decided alike, and for every decision its variable there.

    Args:
        costs: per decision [candidates].
        repeats: which blocks are alike, and all edges.
        turns: after how many blocks the decisions repeat.
    """
    count, turns = len(repeats.blocks), min(turns, len(repeats.blocks))
    variable = [0] * len(costs)
    for place, decision in enumerate(repeats.outside):
        variable[decision] = place
    for number, block in enumerate(repeats.blocks):
        first = len(repeats.outside) + number % turns * len(block)
        for place, decision in enumerate(block):
            variable[decision] = first + place
    small = [costs[decision] for decision in repeats.outside]
    edges: list[Edge] = [(variable[first], variable[second], table) for first, second, table in repeats.others]
    for turn, block in enumerate(repeats.blocks[:turns]):
        times = len(range(turn, count, turns))
        small += [times * costs[decision] for decision in block]
        for (place, decision), table in repeats.shared.items():
            edges.append((variable[block[place]], variable[decision], times * table))
        for (here, there, later), table in repeats.wires.items():
            pairs = len(range(turn, count - later, turns))
            second = repeats.blocks[(turn + later) % turns][there]
            edges += [(variable[block[here]], variable[second], pairs * table)] if pairs else []
    for number, wire, is_first, decision in repeats.ends:
        inside, table = repeats.blocks[number][wire[0 if is_first else 1]], repeats.wires[wire]
        edges.append((variable[inside], variable[decision], table if is_first else table.T))
    return CostGraph.unlimited(small, edges, "repeated blocks"), variable
