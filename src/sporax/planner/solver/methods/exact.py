"""Exact solution of a network: reduce, solve with few memory rows, add the rows that the answer broke, again.

Rows that are left out make the program a relaxation, so every round's bound is a bound of the whole, and the first
choice that breaks no row is optimal. A few dozen rows out of tens of thousands are enough on real graphs, and nodes
that are not live at any of them lose their memory, so that far more of the graph can be eliminated. What is left is solved by
integer program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Floats, Ints
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.integer_program import build_program, solve_program

_ROWS_AT_ONCE = 10
"""Most of the rows that an answer breaks that the next round has."""


@dataclass(frozen=True, slots=True)
class ExactOutcome:
    """Result of `solve_exactly`.

    Attributes:
        positions: a choice on the core that fits, or None when none was found in time.
        bound: lower bound on the cost of any choice that fits (``inf`` when there is none).
        optimal: `positions` is optimal, up to the gap requested.
        rows: the memory rows in use at the end.
    """

    positions: Ints | None
    bound: float
    optimal: bool
    rows: Ints


def solve_exactly(
    core: Core,
    budget: Budget,
    *,
    rows: Ints | None = None,
    gap: float = 0.0,
    report: Callable[[float], None] | None = None,
) -> ExactOutcome:
    """Solves a core to optimality, or until the budget is over.

    Args:
        core: what to solve.
        budget: when to give up; rounds may overrun it by a little.
        rows: memory rows to begin with (none by default).
        gap: relative optimality gap that is good enough.
        report: called with the bound after each round.
    """
    # Rows of the last attempt may be given twice; `active` is sorted because `restricted` searches in it.
    active = np.zeros(0, np.int64) if rows is None else np.unique(rows)
    # Extra room asked of a row. While it is not zero, the program is no relaxation, so its bound proves nothing.
    margin = np.zeros(len(core.room), np.int64)
    bound = -np.inf
    # Each round adds rows, and there are finitely many, so the loop ends without a budget too.
    while not budget.is_over:
        network = core.as_network()
        network.capacity = network.capacity - margin
        network = reduce(network.restricted(active))
        exact = not margin.any()
        if network.infeasible:
            # With a margin, infeasible means only that there is no choice which leaves the margin free.
            return ExactOutcome(None, np.inf if exact else bound, False, active)
        answer = solve_program(build_program(network), budget, gap=gap)
        bound = max(bound, answer.bound) if exact else bound
        if report is not None:
            report(bound)
        if answer.positions is None:
            return ExactOutcome(None, bound, False, active)
        choice = np.zeros(core.num_nodes, dtype=np.int64)
        for node, position in zip(network.alive(), answer.positions.tolist(), strict=True):
            ids = network.ids[node]
            assert ids is not None
            choice[node] = ids[position]
        # Relaxed answer on the core's own rows: those that were left out are checked here for the first time.
        choice = network.unwind(choice)
        excess = core.loads(choice) - core.room
        if (excess <= 0).all():
            return ExactOutcome(choice, bound, answer.finished and exact, active)
        # An unfinished answer that breaks rows is no optimum of the relaxation: more rows would not be aimed at
        # anything.
        if not answer.finished:
            break
        broken = peaks(excess / np.maximum(core.room, 1), _ROWS_AT_ONCE)
        # A row that is there and broken all the same was kept only to HiGHS's tolerance: ask for a little more room.
        again = np.intersect1d(broken, active)
        margin[again] = 2 * np.maximum(margin[again], excess[again])
        active = np.union1d(active, broken)
    return ExactOutcome(None, bound, False, active)


def peaks(excess: Floats, most: int = 10, apart: float = 0.005) -> Ints:
    """Rows of greatest positive `excess`, greedily, with a stretch of `apart` x rows around each left out."""
    left = excess.copy()
    # Neighbouring rows are overloaded by the same arrays, so one row of a peak usually repairs its neighbours.
    width = max(1, int(len(left) * apart))
    rows: list[int] = []
    while len(rows) < most and left.max(initial=0.0) > 0:
        row = int(left.argmax())
        rows.append(row)
        left[max(0, row - width) : row + width + 1] = 0
    return np.array(rows, dtype=np.int64)
