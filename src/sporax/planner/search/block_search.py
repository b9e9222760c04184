"""A search that decides repeated blocks once: all layers of a deep network that are equal are sharded equally.

Problem: the number of decisions grows with the depth of a network, although the layers repeat.

Method: find equal consecutive blocks (`repeated_blocks`) and give the decisions at one position one common variable
(`block_tying`). A lower bound on the whole problem (`lower_bound`), which also looks at one block only, says how much
the tying can cost. If that is too much, or if the tied plan does not fit the memory, every decision gets its own
variable.
"""

from __future__ import annotations

import time

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.search.inlined_loops import inside_loops
from sporax.planner.search.limit.block_tying import TURNS, choose_tied_within, labels, tied_choice
from sporax.planner.search.limit.local_search import measured
from sporax.planner.search.limit.memory_heuristic import cheapest
from sporax.planner.search.limit.message_passing import choose, lower_bound
from sporax.planner.search.lower_bound import bound_of
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.space.repeated_blocks import find_repeats
from sporax.planner.search.space.result import SearchResult
from sporax.planner.solver.portfolio.solution import OPTIMALITY_TOLERANCE

_TOLERABLE = 0.01
"""Share of the cost that tying may lose; above it every decision gets a variable of its own."""


@inside_loops
def repeated(
    graph: OperatorGraph,
    mesh: DeviceMatrix,
    model: CostModel,
    options: SearchOptions | None = None,
    *,
    turns: int = TURNS,
) -> SearchResult:
    """A plan in which repeated blocks are sharded equally, with a bound on what better there could be.

    Cost and bound are of one price list. On meshes of many axes moves go the straight way there, and the plan may run faster.

    Args:
        graph: the step.
        mesh: the devices.
        model: the cost of operators and links.
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
        within = choose_tied_within(problem, limit, turns)
        if within.peak_bytes <= limit and problem.seconds(within.chosen) <= (1 + _TOLERABLE) * bound:
            chosen = within.chosen
        else:
            # All decisions are variables then, hence their number.
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
        chosen, variables = tied_choice(problem, repeats, turns)
        attempts.append((problem.seconds(chosen), variables, chosen))
        # The bound holds for all plans, tied or not, so the gap includes what the tying costs.
        bound = bound_of(problem.costs, repeats, attempts[0][0] * problem.scale) / problem.scale
    if not attempts or attempts[0][0] > (1 + _TOLERABLE) * bound:
        whole = problem.cost_graph()
        chosen = choose(whole)
        attempts.append((problem.seconds(chosen), len(chosen), chosen))
        # A bound as high as the best plan known needs no more messages.
        bound = max(bound, lower_bound(whole, min(attempts)[0] * problem.scale) / problem.scale)
    _, variables, chosen = min(attempts)
    return chosen, bound, variables
