"""The memory limit of the quick searches.

Problem: choose, within seconds, among a few known choices the cheapest one that fits.

Method: if the cheapest known choice fits, take it. Otherwise message passing with Lagrangian prices on memory suggests
choices that are measured as complete plans (`memory_limit`); if none fits, start from the smallest plan found. The
result is improved by large-neighborhood search. If nothing fits, the integer program decides. Searches that may give up
(`SearchOptions.gives_up`) end where messages found nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sporax.base.errors import SporaxRuntimeError
from sporax.planner.search.limit.large_neighborhood import improved_within
from sporax.planner.search.limit.local_search import measured
from sporax.planner.search.limit.memory_limit import fit_quickly, is_large, smallest, solve_within
from sporax.planner.search.limit.message_passing import choose
from sporax.planner.search.space.problem import Problem


def cheapest(problem: Problem, attempts: Sequence[Sequence[int]], seconds: float = 20.0) -> list[int]:
    """The cheapest choice that keeps the problem's memory limit.

    Args:
        problem: the problem, with its limit in the options.
        attempts: known choices; the one of message passing is added.
        seconds: time for the integer program, which is used only if none of these fits.

    Raises:
        SporaxRuntimeError: nothing fits; says what would, unless the search gives up soon.
    """
    limit = problem.options.memory_bytes
    # All that were suggested, and one from message passing on the whole problem, which knows no limit either.
    by_cost = sorted([*map(list, attempts), choose(problem.cost_graph())], key=problem.seconds)
    if limit is None:
        return by_cost[0]
    fitting = next((chosen for chosen in by_cost if measured(problem, chosen).peak_bytes <= limit), None)
    if fitting is by_cost[0]:
        # The cheapest plan of all fits: nothing within the limit can be better than what was suggested.
        return fitting
    start = fit_quickly(problem, limit)
    choices = [] if fitting is None else [fitting]
    if start is None and problem.options.gives_up:
        if choices:
            return choices[0]
        raise SporaxRuntimeError(
            f"For 'search', a plan must be found soon that needs no more than {limit} bytes on a device, but got none."
        )
    start = start or smallest(problem, limit)
    if start.peak_bytes <= limit:
        # On large problems each region of the neighborhood search would measure a large plan.
        choices.append((start if is_large(problem) else improved_within(problem, start, limit)).chosen)
    return min(choices, key=problem.seconds) if choices else solve_within(problem, limit, seconds, tried=True)[0].chosen
