"""Rounds of the exact solver by elimination with labels.

Multipliers and messages give a lower bound, and for every strategy and pair a slack above it. Elimination then looks at
the choices close to the bound. If the best of them costs no more than that, it is optimal. Otherwise the bound
has risen by as much, and it looks further. What takes too many labels is left to the integer program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Floats, Ints
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.coordinate_descent import descend
from sporax.planner.solver.methods.exact import BY_PROGRAM
from sporax.planner.solver.methods.integer_program import Answer
from sporax.planner.solver.methods.label_elimination import Allowance, Elimination, TooManyLabels
from sporax.planner.solver.methods.lagrangian import MultiplierAscent
from sporax.planner.solver.methods.trws import MessagePassing

MOST_JOINS = 4_000_000
"""Pairs of labels that a round may put together."""
_SWEEPS = 72
"""Most sweeps of messages and multipliers before elimination begins."""
_SWEEPS_PER_LOOK = 12
"""Sweeps between two looks at how much the bound has risen: single sweeps with new multipliers may lower it."""
_SLOW_GAIN = 2e-4
"""Rise between two looks, as a share of the bound, below which sweeps end."""
_SWEEPS_PER_CHOICE = 4
"""Sweeps between two choices that are read off on the way."""
_FIRST_STEP = 1 / 9
"""Share of the gap between bound and best choice that is looked through first: two wider steps then reach the whole gap."""
_WIDER = 3.0
"""Factor from one step to the next: all earlier rounds together then cost less than half of the last one."""
_FIRST_SHARE = 0.002
"""First step as a share of the bound, where no choice is known."""
_EXACT = 1e-10
"""Share of a cost that is rounding."""


@dataclass(slots=True)
class ByLabels:
    """Rounds by labels, and by integer program where those would be too many.

    Attributes:
        most_joins: pairs of labels that a round may put together.
        rows_at_once: rows that a round may add: where rows are many, labels are.
        labels: labels that were kept, all rounds together.
        largest: labels in the largest table.
        rows: memory rows in the last round.
        left: a round was left to the integer program.
    """

    most_joins: int = MOST_JOINS
    rows_at_once: int = 3
    labels: int = 0
    largest: int = 0
    rows: int = 0
    left: bool = False

    @property
    def method(self) -> str:
        """The method that gave the answers, in words."""
        return "integer program" if self.left else "labels" if self.labels else "messages"

    def statistics(self) -> dict[str, int]:
        """The effort: labels and memory rows."""
        return {"labels": self.labels, "largest_table": self.largest, "memory_rows": self.rows}

    def __call__(self, network: Network, budget: Budget, gap: float) -> Answer:
        """The answer to a round."""
        core = Core.of(network)
        self.rows = len(core.room)
        if not core.num_nodes:
            return Answer(np.zeros(0, np.int64), core.constant, True)
        search = _Search(core, gap)
        allowance = Allowance(self.most_joins, budget)
        try:
            search.widen(allowance)
        except TooManyLabels:
            self.left = True
            return _better(search.answer(), BY_PROGRAM(network, budget, gap), core)
        finally:
            self.labels += allowance.labels
            self.largest = max(self.largest, allowance.largest)
        return search.answer()


class _Search:
    """What is known of a round: its bound, the best choice, and how far choices are above the bound."""

    def __init__(self, core: Core, gap: float) -> None:
        self.core, self.gap = core, gap
        self.best: Ints | None = None
        self.least = np.inf
        multipliers, messages = self._ascended()
        # The multipliers of the best bound need messages of their own; those at hand belong to the last multipliers.
        _, bound = messages.sweep(core.charged(multipliers))
        self.start = self.bound = core.constant + bound - float(multipliers @ core.room)
        self.scale = max(abs(self.start), 1.0)
        self.elimination = Elimination(core, multipliers, *messages.slacks(), self.scale)

    @property
    def target(self) -> float:
        """A bound that is good enough."""
        # For a negative cost, a gap means a bound further down, hence the product.
        return self.least / (1 + self.gap) if self.least > 0 else self.least * (1 + self.gap)

    @property
    def closed(self) -> bool:
        """Whether the bound is good enough, or has shown that there is nothing."""
        return self.bound == np.inf or self.bound >= self.target - _EXACT * self.scale

    def answer(self) -> Answer:
        """What is known."""
        return Answer(self.best, min(self.bound, self.least), self.closed, self.bound == np.inf and self.best is None)

    def widen(self, allowance: Allowance) -> None:
        """Look further and further above the bound until nothing better is left.

        Raises:
            TooManyLabels: that would take more than is allowed.
        """
        most = self.elimination.most
        step = _FIRST_SHARE * self.scale if self.best is None else _FIRST_STEP * (self.target - self.start)
        while not self.closed:
            # Beyond the known choice nothing is of interest, and beyond `most` there is nothing.
            step = min(step, self.target - self.start, most)
            # A choice equals the bound only up to rounding, so the cutoff is a little further away.
            self._offer(self.elimination.run(step + _EXACT * self.scale, allowance))
            # All choices below the cutoff were seen, so no better one is there.
            self.bound = self.start + step if step < most else np.inf
            step *= _WIDER

    def _ascended(self) -> tuple[Floats, MessagePassing]:
        """Multipliers of a good bound, and the messages; choices are read off on the way."""
        ascent = MultiplierAscent(self.core)
        before = -np.inf
        for number in range(1, _SWEEPS + 1):
            ascent.sweep()
            if number % _SWEEPS_PER_CHOICE == 0:
                self._offer(descend(self.core, ascent.decode()))
            if ascent.bound >= self.target - _EXACT * abs(ascent.bound):
                break
            if number % _SWEEPS_PER_LOOK == 0:
                if ascent.bound - before < _SLOW_GAIN * abs(ascent.bound):
                    break
                before = ascent.bound
        return ascent.best_multipliers, ascent.messages

    def _offer(self, positions: Ints | None) -> None:
        if positions is not None and self.core.cost(positions) < self.least and self.core.fits(positions):
            self.best, self.least = positions, self.core.cost(positions)


def _better(one: Answer, other: Answer, core: Core) -> Answer:
    """Two answers in one: the second if it is final, otherwise the better bound and the better choice."""
    if other.finished or one.positions is None:
        return Answer(other.positions, max(one.bound, other.bound), other.finished, other.infeasible)
    # Both fit: the round's rows are the same for both methods.
    positions = min((position for position in (one.positions, other.positions) if position is not None), key=core.cost)
    return Answer(positions, max(one.bound, other.bound), False)
