"""A search that decides repeated blocks once: all layers of a deep network that are equal are sharded equally.

Problem: the number of decisions grows with the depth of a network, although the layers repeat.

Method: equal consecutive blocks are found and tied (`repeated_blocks`). With the cost c of the tied plan and a lower bound
b on the whole problem (`lower_bound`, which also looks at one block only), tying costs at most c - b. If that is more
than a hundredth of b, or if the tied plan does not fit the memory, every decision gets its own variable.
"""

from __future__ import annotations

from sporax.planner.budget import Budget
from sporax.planner.search.limit.limit import lagrangian_plan, least_cost
from sporax.planner.search.lower_bound import bound_of
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import Problem, SearchResult
from sporax.planner.search.space.repeated_blocks import TURNS, find_repeats, labels, tied_choice
from sporax.planner.search.task import SearchTask, searches
from sporax.planner.solver.portfolio.quick_choice import choose, lower_bound

_TOLERABLE = 0.01
"""Share of the cost that tying may lose; above it every decision gets a variable of its own."""


@searches
def repeated(task: SearchTask, turns: int = TURNS) -> SearchResult:
    """A plan in which repeated blocks are sharded equally, with a bound on what better there could be.

    Cost and bound are of one cost model. On meshes of many axes moves go the straight way there, and the plan may run faster.

    Args:
        task: when its time is over, decisions of tied blocks are not freed.
        turns: after how many blocks the plan repeats.
    """
    problem = task.builder().build()
    chosen, bound, decided = _decide(problem, turns, task.budget)
    limit = task.options.memory_bytes
    if limit is not None and measured(problem, chosen).peak_bytes > limit:
        within = lagrangian_plan(problem, limit, tied=True, turns=turns)
        if within.peak_bytes <= limit and problem.seconds(within.chosen) <= (1 + _TOLERABLE) * bound:
            chosen = within.chosen
        else:
            # All decisions are variables then, hence their number.
            chosen, decided = least_cost(problem, [chosen, within.chosen]), len(chosen)
    cost = problem.seconds(chosen)
    return task.result(
        "repeated", plan_of(problem, chosen), cost, {**problem.statistics(), "variables": decided}, bound
    )


def _decide(problem: Problem, turns: int, budget: Budget) -> tuple[list[int], float, int]:
    """A choice without regard to memory, the bound in seconds, and how many variables it took."""
    repeats, bound = find_repeats(labels(problem), problem.edges), 0.0
    attempts: list[tuple[float, int, list[int]]] = []
    if repeats is not None:
        chosen, variables = tied_choice(problem, repeats, turns)
        attempts.append((problem.seconds(chosen), variables, chosen))
        # The bound holds for all plans, tied or not, so the gap includes what the tying costs.
        bound = bound_of(problem.costs, repeats, attempts[0][0] * problem.scale) / problem.scale
    if not attempts or (attempts[0][0] > (1 + _TOLERABLE) * bound and not budget.is_over):
        full = problem.cost_graph()
        chosen = choose(full)
        attempts.append((problem.seconds(chosen), len(chosen), chosen))
        # A bound as high as the best plan known needs no more messages.
        bound = max(bound, lower_bound(full, min(attempts)[0] * problem.scale) / problem.scale)
    _, variables, chosen = min(attempts)
    return chosen, bound, variables
