"""Repeated blocks planned once: the layers of a deep network that look alike are cut alike.

Blocks that follow each other and are alike (`repeats`) are tied (`tying`), so what is to be decided does not grow with depth.
What tying costs at most is certified by a bound on the whole problem, which looks at one block, too (`certificate`); where it is
too much, or too large for the memory, every decision gets its own variable after all.
"""

from __future__ import annotations

import time

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.block_tying import TURNS, choice_alike, choose_alike_within, labels
from sporax.planner.search.local_search import measured
from sporax.planner.search.loop_bodies import inside_loops
from sporax.planner.search.lower_bound import bound_of
from sporax.planner.search.memory_heuristic import cheapest
from sporax.planner.search.message_passing import choose, lower_bound
from sporax.planner.search.plan_assembly import plan_of
from sporax.planner.search.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.repeated_blocks import find_repeats
from sporax.planner.search.result import SearchResult
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
    turns: int = TURNS,
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
    limit = options.memory_bytes
    if limit is not None and measured(problem, chosen).peak_bytes > limit:
        within = choose_alike_within(problem, limit, turns)
        if within.peak_bytes <= limit and problem.seconds(within.chosen) <= (1 + _TOLERABLE) * bound:
            chosen = within.chosen
        else:
            chosen, decided = cheapest(problem, [chosen, within.chosen]), len(chosen)
    cost = problem.seconds(chosen)
    return SearchResult(
        plan_of(problem, chosen),
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
        chosen, variables = choice_alike(problem, repeats, turns)
        attempts.append((problem.seconds(chosen), variables, chosen))
        bound = bound_of(problem.costs, repeats, attempts[0][0] * problem.scale) / problem.scale
    if not attempts or attempts[0][0] > (1 + _TOLERABLE) * bound:
        whole = problem.cost_graph()
        chosen = choose(whole)
        attempts.append((problem.seconds(chosen), len(chosen), chosen))
        bound = max(bound, lower_bound(whole, min(attempts)[0] * problem.scale) / problem.scale)
    _, variables, chosen = min(attempts)
    return chosen, bound, variables
