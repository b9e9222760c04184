"""Choices that fit: greedy construction and coordinate descent, one node at a time, within the memory that is left.

Both keep the load of every row at hand. A node may take a strategy only if the rows that it is live in have room for
it; when no strategy fits, the one that overruns least is taken, so that an infeasible choice is repaired as it is walked.
"""

from __future__ import annotations

import numpy as np

from sporax.planner.budget import UNLIMITED, Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Floats, Ints


class RemainingCapacity:
    """The room left in each row as nodes take and give back memory."""

    def __init__(self, core: Core, positions: Ints | None = None) -> None:
        self.core = core
        self.left = core.room.copy() if positions is None else core.room - core.loads(positions)
        self._spans: list[list[list[int]]] = []
        self._usages: list[Ints] = []
        for node in core.nodes.tolist():
            memory = core.network.memory[node]
            self._spans.append(memory.spans.tolist())
            self._usages.append(memory.usages)

    def change(self, node: int, position: int, sign: int) -> None:
        """Takes (sign -1) or gives back (+1) the memory of a strategy."""
        if not self._spans[node]:
            return
        for (first, last), usage in zip(self._spans[node], self._usages[node][:, position].tolist(), strict=True):
            if usage:
                self.left[first:last] += sign * usage

    def overrun(self, node: int) -> Ints:
        """[strategies] how far each strategy would exceed the room left, summed over the node's pieces."""
        usages = self._usages[node]
        if not self._spans[node]:
            return np.zeros(len(self.core.network.costs[int(self.core.nodes[node])]), np.int64)
        # A piece fits if it fits the fullest of its rows.
        # Room that is already overdrawn counts as none: what earlier nodes took too much is not this node's excess.
        room = np.array([self.left[first:last].min() for first, last in self._spans[node]])
        over: Ints = np.maximum(usages - np.maximum(room, 0)[:, None], 0).sum(axis=0)  # strategies that fit have zero
        return over

    def pick(self, node: int, scores: Floats) -> int:
        """The strategy of least score among those that fit (or that overrun least)."""
        if not self._spans[node]:
            return int(scores.argmin())
        over = self.overrun(node)
        # Where some strategies fit, `least` is zero and only those compete on cost.
        least = over.min()
        return int(np.where(over == least, scores, np.inf).argmin())


def conditional(core: Core, costs: Floats, positions: Ints, node: int) -> Floats:
    """[strategies] cost of each strategy of `node`, its neighbours kept."""
    scores = costs[core.offsets[node] : core.offsets[node + 1]]
    for other, table in core.links[node]:
        scores = scores + table[:, positions[other]]
    return scores


def descend(
    core: Core, positions: Ints, costs: Floats | None = None, *, sweeps: int = 20, budget: Budget = UNLIMITED
) -> Ints:
    """Improves a choice one node at a time until nothing changes; returns the new choice.

    `costs` [K] replaces the core's own strategy costs, for instance with those that include charges for memory.
    """
    costs = core.costs if costs is None else costs
    positions = positions.copy()
    ledger = RemainingCapacity(core, positions)
    # A dict is a queue without duplicates that keeps the order, so runs are reproducible.
    waiting = dict.fromkeys(range(core.num_nodes))
    # Memory may force a node back and forth for ever, so the number of steps is limited.
    steps = sweeps * core.num_nodes
    while waiting and steps > 0 and not budget.is_over:
        node = next(iter(waiting))
        del waiting[node]
        steps -= 1
        scores = conditional(core, costs, positions, node)
        old = int(positions[node])
        # The node's own memory is given back first, or its present strategy would not seem to fit.
        ledger.change(node, old, 1)
        new = ledger.pick(node, scores)
        # A tie keeps the present strategy; otherwise two equal ones would wake the neighbours in turn.
        if new != old and scores[new] == scores[old] and ledger.overrun(node)[old] == 0:
            new = old
        ledger.change(node, new, -1)
        if new != old:
            positions[node] = new
            waiting.update(dict.fromkeys(other for other, _ in core.links[node]))
    return positions


def first_positions(core: Core, budget: Budget) -> Ints | None:
    """A choice that fits, found by descent from the choice of least memory; None if that does not fit."""
    # A multiplier of one for every row: memory summed over time, which is small where little is live for long.
    used = core.charges(np.ones(len(core.room)))
    least = [int(used[a:b].argmin()) for a, b in zip(core.offsets[:-1], core.offsets[1:], strict=True)]
    positions = np.array(least, dtype=np.int64)
    positions = descend(core, positions, budget=budget)
    return positions if core.fits(positions) and np.isfinite(core.cost(positions)) else None
