"""What the quick searches do about memory: of several choices the cheapest that fits, and one more that prices memory.

Where the cheapest choice of all fits there is nothing to do. Otherwise messages with a price on memory (`deciding`) suggest
choices, measured as finished plans (`limit`), or else there is the smallest plan that can be found. It is made cheaper region by
region (`regions`). Where nothing fits, the integer program has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence

from sporax.planner.search.large_neighborhood import settled
from sporax.planner.search.local_search import measured
from sporax.planner.search.memory_limit import fit_quickly, is_large, smallest, solve_within
from sporax.planner.search.message_passing import choose
from sporax.planner.search.problem import Problem


def cheapest(problem: Problem, attempts: Sequence[Sequence[int]], seconds: float = 20.0) -> list[int]:
    """The cheapest choice that keeps the problem's memory limit.

    Args:
        problem: the problem, with its limit in the options.
        attempts: choices that are known; what messages suggest is added.
        seconds: time for the integer program, which is asked where nothing of these fits.

    Raises:
        SporaxRuntimeError: nothing fits; says what would.
    """
    limit = problem.options.memory_bytes
    known = sorted([*map(list, attempts), choose(problem.cost_graph())], key=problem.seconds)
    if limit is None:
        return known[0]
    fitting = next((chosen for chosen in known if measured(problem, chosen).peak_bytes <= limit), None)
    if fitting is known[0]:
        return fitting
    start = fit_quickly(problem, limit) or smallest(problem, limit)
    found = [] if fitting is None else [fitting]
    if start.peak_bytes <= limit:
        found.append((start if is_large(problem) else settled(problem, start, limit)).chosen)
    return min(found, key=problem.seconds) if found else solve_within(problem, limit, seconds, tried=True)[0].chosen
