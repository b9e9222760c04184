"""`solve`: the whole way from a cost graph to a checked solution.

Reduce; if what is left is small, solve it here by integer program; otherwise hand it to a team of workers until the
bound meets the best choice or time is up. Whatever comes back is expanded to the graph and measured by the checker.

The checker: what a choice costs and whether it fits, worked out from the graph alone.

Nothing here shares code with the search. It walks the graph node by node and edge by edge in plain Python, adds costs
with `math.fsum` and usages as integers, and replays the live intervals as events; a solution is printed only after it
has passed through here.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import index

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import CostGraph, Ints, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.exact import BY_PROGRAM, Rounds, solve_exactly
from sporax.planner.solver.portfolio.roles import BestKnown, first_positions
from sporax.planner.solver.portfolio.team import run_team


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A choice, measured.

    Attributes:
        cost: sum of node and edge costs; ``inf`` when a forbidden strategy or pair is used.
        peak: greatest total usage at any time.
        peak_time: a time at which it occurs (0 when nothing is ever live).
        feasible: the cost is finite and the peak within the limit.
    """

    cost: float
    peak: int
    peak_time: int
    feasible: bool


def evaluate(graph: CostGraph, choices: Sequence[int]) -> Evaluation:
    """Measures `choices`, one strategy number per node.

    Raises:
        SporaxValueError: there are too few or too many choices, or one is not a strategy of its node.
    """
    sizes, offsets = graph.sizes.tolist(), graph.offsets.tolist()
    try:
        # `operator.index` takes numpy's integers too, and refuses floats, which would be rounded without a word.
        picked = [index(choice) for choice in choices]
    except TypeError:
        raise SporaxValueError(
            f"For '{graph.name}', the choices must be a list of whole numbers, but got {reprlib.repr(choices)}."
        ) from None
    if len(picked) != len(sizes):
        raise SporaxValueError(
            f"For '{graph.name}', there must be one choice per node, but got {len(picked)} choices and {len(sizes)} nodes."
        )
    for node, (choice, size) in enumerate(zip(picked, sizes, strict=True)):
        if not 0 <= choice < size:
            raise SporaxValueError(
                f"For '{graph.name}', the choice of node {node} must be from 0 to {size - 1}, but got {choice}."
            )
    # As Python lists: an index into a list is several times quicker than one into an array, and integers cannot
    # overflow.
    costs, usages = graph.costs.tolist(), graph.usages.tolist()
    terms = [costs[offset + choice] for offset, choice in zip(offsets, picked, strict=False)]
    for (first, second), table in zip(graph.edges.tolist(), graph.edge_tables.tolist(), strict=True):
        terms.append(float(graph.tables[table][picked[first], picked[second]]))
    cost = math.fsum(terms)
    peak, peak_time = _peak(graph.intervals.tolist(), [usages[o + c] for o, c in zip(offsets, picked, strict=False)])
    fits = graph.limit is None or peak <= graph.limit
    return Evaluation(cost, peak, peak_time, fits and math.isfinite(cost))


def _peak(intervals: list[list[int]], usages: list[int]) -> tuple[int, int]:
    events: dict[int, int] = {}
    for (begin, end), usage in zip(intervals, usages, strict=True):
        # A node with an empty interval is never live, so its usage counts nowhere.
        if begin < end:
            events[begin] = events.get(begin, 0) + usage
            events[end] = events.get(end, 0) - usage
    # At one moment, what ends is counted together with what begins: intervals are half open.
    peak, peak_time, load = 0, 0, 0
    for moment in sorted(events):
        load += events[moment]
        if load > peak:
            peak, peak_time = load, moment
    return peak, peak_time


OPTIMALITY_TOLERANCE = 1e-9
"""A cost counts as optimal when the bound is within this share of it: the accuracy of the arithmetic."""
_SMALL_ENTRIES = 100_000
"""Table entries up to which a core is first tried in this process: no workers are started for small problems."""
_SMALL_SECONDS = 20.0
"""Time of that attempt; at most a third of the budget, or half of it where labels are tried first."""
_GRACE_SECONDS = 2.0
"""Overtime for finishing the reduction, and again for a first choice when that has used up all the time."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The answer to a cost graph.

    Attributes:
        choices: [nodes] the strategy of each node, or None when no choice that fits was found.
        cost: cost of `choices` as measured by the checker; None without choices.
        bound: proven lower bound on the cost of every choice that fits; None if there is none.
        optimal: `cost` has been proven least, to `OPTIMALITY_TOLERANCE`.
        infeasible: it has been proven that no choice fits.
        peak: greatest total usage at any time under `choices`; None without choices.
        limit: the graph's memory limit.
        seconds: wall time.
        statistics: sizes after reduction, and what the answer came from.
    """

    choices: Ints | None
    cost: float | None
    bound: float | None
    optimal: bool
    infeasible: bool
    peak: int | None
    limit: int | None
    seconds: float
    statistics: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def gap(self) -> float | None:
        """Relative distance of cost and bound, or None."""
        if self.cost is None or self.bound is None:
            return None
        return (self.cost - self.bound) / max(abs(self.cost), 1e-300) if self.cost > self.bound else 0.0


def solve(
    graph: CostGraph,
    *,
    seconds: float = 60.0,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[float, float, float], None] | None = None,
    rounds: Rounds = BY_PROGRAM,
    gap: float = 0.0,
) -> Solution:
    """Finds a choice of least cost within the memory limit.

    Args:
        graph: the problem.
        seconds: wall-clock budget, kept to within a few seconds; an optimal answer comes earlier.
        threads: worker processes for graphs that are not solved at once.
        seed: seed of the random choices in the search.
        progress: called with (seconds so far, best cost, bound) on every improvement.
        rounds: the method that is tried before a team: the integer program, for small graphs only, or labels.
        gap: relative gap that is good enough for that.

    Raises:
        SporaxValueError: `seconds` or `threads` is not positive.

    Example:
        >>> graph = CostGraph.build([[1, 5]], [[9, 2]], [(0, 1)], [], limit=4)
        >>> solve(graph).choices
        array([1])
    """
    if not seconds > 0 or threads < 1:
        raise SporaxValueError(
            f"For 'solve', seconds and threads must be positive, but got seconds={seconds} and threads={threads}."
        )
    budget = Budget.of(seconds)
    core, infeasible = _reduced(graph, budget.longer(_GRACE_SECONDS))
    board = BestKnown(lambda *news: None)
    if progress is not None:
        report = progress
        board.post = lambda *news: report(budget.used, board.cost, board.bound)
    method = "reduction"
    if not infeasible:
        method, infeasible = _run(core, board, budget, threads, seed, rounds, gap)
    return _answer(graph, core, board, infeasible, budget, method)


def _reduced(graph: CostGraph, budget: Budget) -> tuple[Core, bool]:
    # An unfinished reduction is still exact: what is left is only larger.
    network = reduce(Network.of(graph, Moments.of(graph.intervals)), budget)
    network.interned.clear()  # the tables that were only steps on the way
    return Core.of(network), network.infeasible


def _run(
    core: Core, board: BestKnown, budget: Budget, threads: int, seed: int, rounds: Rounds, gap: float
) -> tuple[str, bool]:
    """Solves the core; returns how, and whether it was proven infeasible."""
    if not budget.is_over and (rounds is not BY_PROGRAM or sum(table.size for table in core.tables) <= _SMALL_ENTRIES):
        attempt = budget.part(1 / 3 if rounds is BY_PROGRAM else 1 / 2).at_most(_SMALL_SECONDS)
        outcome = solve_exactly(core, attempt, gap=gap, report=board.bounded, rounds=rounds)
        if outcome.positions is not None:
            board.post_choice(core.cost(outcome.positions), outcome.positions)
            if outcome.optimal:
                board.bounded(outcome.bound if gap else board.cost)
                return rounds.method, False
        if outcome.bound == np.inf:
            return rounds.method, True
    if board.positions is None:
        # Even without time left: a choice that fits is worth more than the budget.
        positions = first_positions(core, budget if budget.left > _GRACE_SECONDS else Budget.of(_GRACE_SECONDS))
        if positions is not None:
            board.post_choice(core.cost(positions), positions)
    if budget.is_over:
        return "descent", False
    run_team(core, board, budget=budget, threads=threads, seed=seed)
    return "team", board.positions is None and board.bound == np.inf


def _answer(graph: CostGraph, core: Core, board: BestKnown, infeasible: bool, budget: Budget, method: str) -> Solution:
    """Expands the best choice, has it checked, and states what is known."""
    statistics: dict[str, int | float | str] = {
        "method": method,
        "core_nodes": core.num_nodes,
        "core_strategies": len(core.costs),
        "core_entries": sum(table.size for table in core.tables),
    }
    bound = board.bound if np.isfinite(board.bound) else None
    if board.positions is None:
        return Solution(None, None, bound, False, infeasible, None, graph.limit, budget.used, statistics)
    choices = core.expand(board.positions)
    # By code that shares nothing with the search: an error there must not become a wrong plan.
    measured = evaluate(graph, choices.tolist())
    if not measured.feasible:
        raise SporaxRuntimeError(
            f"For '{graph.name}', the solver's choice must pass its checker, but got cost {measured.cost} and peak "
            f"{measured.peak} at time {measured.peak_time} with limit {graph.limit}. This is a bug in Sporax."
        )
    cost = measured.cost
    optimal = bound is not None and cost - bound <= OPTIMALITY_TOLERANCE * max(1.0, abs(cost))
    # Rounding may carry a bound above the cost that the checker measured.
    if optimal or (bound is not None and bound > cost):
        bound = cost
    return Solution(choices, cost, bound, optimal, False, measured.peak, graph.limit, budget.used, statistics)
