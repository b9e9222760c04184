"""A Lagrangian bound on the cost of a core, whose multipliers of memory rows follow the overload.

Problem: max_p min_x c(x) + sum_r p_r (load_r(x) - room_r) with multipliers p >= 0.

Method: few moments of a program decide its memory, so p starts at 0 and rows are admitted one at a time, the worst first.
Each p_r follows its subgradient load_r - room_r with a step of its own, which grows while the sign stays and shrinks when
it changes. The messages remain from one p to the next, so every sweep counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Floats, Ints
from sporax.planner.solver.methods.trws import MessagePassing

_SWEEPS_PER_STEP = 3
"""Sweeps between two changes of multipliers: messages need a few to follow the last change."""
_STEPS_PER_ROW = 4
"""Changes of multipliers between two new rows: a new one first shows which rows it relieves."""
_WORTH_A_ROW = 0.02
"""Relative overload that admits a row: smaller ones come and go with single sweeps."""


@dataclass(slots=True)
class _Row:
    """State of one admitted row: p_r, its step, and the sign of its last subgradient."""

    multiplier: float
    step: float
    side: int


class MultiplierAscent:
    """Raises a lower bound on a core's cost, one `sweep` at a time.

    Attributes:
        bound: best bound so far, the core's constant included.
        low: bound of the first pass of the last sweep, to which the marginals of the messages belong.
        multipliers: [rows] p as it is now.
        costs: [K] strategy costs with the charges of p.
    """

    def __init__(self, core: Core, multipliers: Floats | None = None) -> None:
        self.core = core
        self.messages = MessagePassing(core)
        self.bound = -np.inf
        self.multipliers = np.zeros(len(core.room)) if multipliers is None else multipliers.copy()
        self.costs = core.costs + core.charges(self.multipliers)
        # A row without room would divide by zero; its overload counts in units then.
        self._room = np.maximum(core.room, 1).astype(np.float64)
        self._rows = {
            int(r): _Row(self.multipliers[r], 0.003 * self.multipliers[r], 1) for r in np.flatnonzero(self.multipliers)
        }
        self._load: Floats | None = None
        self._count = 0
        self.low = -np.inf
        self._best_multipliers = self.multipliers.copy()

    def sweep(self) -> float:
        """One sweep, and a change of multipliers every few; returns the bound of this sweep."""
        low, high = self.messages.sweep(self.costs)
        if high == np.inf:  # nothing is possible
            self.bound = self.low = np.inf
            return np.inf
        # The Lagrangian charges for load beyond the room, so the room itself is given back.
        offset = self.core.constant - float(self.multipliers @ self.core.room)
        self.low = low + offset
        if high + offset > self.bound:
            self.bound = high + offset
            self._best_multipliers = self.multipliers.copy()
        # Each node's strategy of least marginal: it may break memory and need not be consistent.
        guess = np.array([int(marginal.argmin()) for marginal in self.messages.marginals], dtype=np.int64)
        loads = self.core.loads(guess).astype(np.float64)
        # A running mean: guesses jump between strategies of equal cost, and multipliers would jump with them.
        self._load = loads if self._load is None else (self._load + loads) / 2
        self._count += 1
        if self._count % _SWEEPS_PER_STEP == 0:
            self._step((self._load - self.core.room) / self._room)
            # A bound 3 % below the best one means that the steps have overshot.
            if high + offset < self.bound - 0.03 * abs(self.bound):
                self._retreat()
            self.costs = self.core.costs + self.core.charges(self.multipliers)
        return high + offset

    @property
    def best_multipliers(self) -> Floats:
        """[rows] p of the best bound."""
        return self._best_multipliers

    def _step(self, over: Floats) -> None:
        if not self._rows or self._count % (_SWEEPS_PER_STEP * _STEPS_PER_ROW) == 0:
            self._admit(over)
        for number, row in self._rows.items():
            side = 1 if over[number] > 0 else -1
            row.step *= 1.5 if side == row.side else 0.5
            row.side = side
            # Small overloads make small steps, but not below a tenth: multipliers would stop before load = room.
            amount = row.step * min(max(abs(over[number]) * 5, 0.1), 1.0)
            row.multiplier = max(0.0, row.multiplier + side * amount)
            self.multipliers[number] = row.multiplier

    def _admit(self, over: Floats) -> None:
        """Admits the most overloaded row that is not next to an admitted one."""
        left = over.copy()
        # Rows within 1 % of the timeline see nearly the same live arrays, so one multiplier serves them.
        width = max(1, len(left) // 100)
        for number in self._rows:
            left[max(0, number - width) : number + width + 1] = 0
        worst = int(left.argmax()) if len(left) else 0
        if len(left) and left[worst] > _WORTH_A_ROW:
            # The first multiplier has to find its order of magnitude; later ones only correct it. Both are shares of
            # the bound per row.
            share = 0.05 if not self._rows else 0.003
            self._rows[worst] = _Row(0.0, share * max(abs(self.bound), 1.0) / self._room[worst], 1)

    def _retreat(self) -> None:
        """Goes back to the best multipliers with shorter steps."""
        self.multipliers = self._best_multipliers.copy()
        for number, row in self._rows.items():
            row.multiplier = float(self.multipliers[number])
            row.step *= 0.2

    def decode(self) -> Ints:
        """A choice built from the messages; it fits whenever each node finds room in its turn."""
        return self.messages.decode(self.costs)
