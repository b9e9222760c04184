"""Lower bounds by message passing: TRW-S on the core, with a multiplier for each memory row.

Charging ``multiplier * (load - room)`` for the memory rows instead of enforcing them leaves a pairwise problem, whose linear
relaxation sequential tree-reweighted message passing (Kolmogorov, "Convergent tree-reweighted message passing for energy
minimization", PAMI 2006) bounds from below, in sweeps of linear cost. Multipliers follow the subgradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Booleans, Floats, Ints
from sporax.planner.solver.methods.coordinate_descent import RemainingCapacity


@dataclass(frozen=True, slots=True)
class _Visit:
    """What one pass does at one node: its messages' place, and what it needs to send messages ahead.

    `tables` [own strategies, strategies of all neighbours ahead]; `which` names each of these columns' neighbour (its
    number among those ahead), `firsts` where each neighbour's columns begin, `target` where its messages go.
    """

    node: int
    begin: int
    end: int
    shape: tuple[int, int]
    ahead: slice
    weight: float
    tables: Floats | None
    which: Ints
    firsts: Ints
    target: Ints


class MessagePassing:
    """Messages of TRW-S on a core. `sweep` improves them; `bound` holds for the costs of the last sweep."""

    def __init__(self, core: Core) -> None:
        self.core = core
        sizes = np.diff(core.offsets)
        degrees = np.array([len(link) for link in core.links], dtype=np.int64)
        self._barred = _without_partners(core)
        self._impossible = (
            bool(np.logical_and.reduceat(self._barred, core.offsets[:-1]).any()) if core.num_nodes else False
        )
        # The messages of a node to all its neighbours lie one after another, one entry per own strategy.
        self._starts = np.concatenate([[0], np.cumsum(degrees * sizes)]).astype(np.int64)
        self.messages = np.zeros(self._starts[-1])
        self._steps = (self._plan(sizes, forward=True), self._plan(sizes, forward=False))
        self.marginals = [np.zeros(size) for size in sizes.tolist()]

    def _plan(self, sizes: Ints, *, forward: bool) -> list[_Visit]:
        core = self.core
        slot = [{other: index for index, (other, _) in enumerate(link)} for link in core.links]
        none = np.zeros(0, np.int64)
        plan = []
        # Both passes visit all nodes; each sends messages to the neighbours that it will visit later.
        for v in range(core.num_nodes) if forward else range(core.num_nodes - 1, -1, -1):
            link = core.links[v]
            before = sum(other < v for other, _ in link)
            ahead = slice(before, len(link)) if forward else slice(0, before)
            # Each node shares its belief evenly among the chains through it, as TRW-S does.
            weight = 1.0 / max(before, len(link) - before, 1)
            tables, which, firsts, target = None, none, none, none
            if link[ahead]:
                # Tables of all neighbours ahead side by side, so that a pass needs one array operation per node and not per edge.
                tables = np.concatenate([self._finite(w, table) for w, table in link[ahead]], axis=1)
                counts = np.array([table.shape[1] for _, table in link[ahead]], dtype=np.int64)
                which, firsts = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts) - counts
                entries = [self._starts[w] + slot[w][v] * sizes[w] + np.arange(sizes[w]) for w, _ in link[ahead]]
                target = np.concatenate(entries)
            begin, end = int(self._starts[v]), int(self._starts[v + 1])
            shape = (len(link), int(sizes[v]))
            plan.append(_Visit(v, begin, end, shape, ahead, weight, tables, which, firsts, target))
        return plan

    def _finite(self, node: int, table: Floats) -> Floats:
        """A table in which barred strategies of `node` get the message of its first possible one: messages are finite."""
        offsets = self.core.offsets
        barred = self._barred[offsets[node] : offsets[node + 1]]
        return np.where(barred, table[:, barred.argmin(), None], table) if barred.any() else table

    def sweep(self, costs: Floats) -> tuple[float, float]:
        """One forward and one backward pass for strategy costs [K].

        Returns the lower bounds after either pass, without the core's constant; infinite ones where nothing is possible, as far
        as pairs of neighbours give it. `marginals` are then each strategy's
        min-marginals less their minimum: the first bound plus a strategy's marginal bounds all choices that use it.
        """
        bounds = []
        offsets = self.core.offsets.tolist()
        if self._impossible:
            return np.inf, np.inf
        # inf would make messages inf - inf; barred strategies are therefore kept out of the tables (`_finite`) and barred here.
        costs = np.where(self._barred, np.inf, costs)
        for backward in (False, True):
            bound = 0.0
            for visit in self._steps[backward]:
                v = visit.node
                incoming = self.messages[visit.begin : visit.end].reshape(visit.shape)
                belief = costs[offsets[v] : offsets[v + 1]] + np.add.reduce(incoming)
                least = float(np.minimum.reduce(belief))
                # Reduced to a minimum of zero: the minimum is counted in the bound once, so messages stay bounded.
                belief -= least
                bound += least
                self.marginals[v] = belief
                if visit.tables is None:
                    continue
                sent = (belief * visit.weight - incoming[visit.ahead]).T.take(visit.which, axis=1)
                out = np.minimum.reduce(sent + visit.tables)  # along the long rows, which is what arrays are quick at
                # Each message is shifted to a minimum of zero; what is taken off belongs to the bound.
                shift = np.minimum.reduceat(out, visit.firsts)
                bound += float(np.add.reduce(shift))
                self.messages[visit.target] = out - shift[visit.which]
            bounds.append(bound)
        return bounds[0], bounds[1]

    def shares(self) -> dict[tuple[int, int], Floats]:
        """By node and neighbour [strategies of node]: what the last sweep took off the table between them and added to the node.

        What is left of all nodes' costs and of all tables, each at its least, adds up to the sweep's second bound. Every strategy
        must be possible.
        """
        shares = {}
        for visit in self._steps[1]:
            incoming = self.messages[visit.begin : visit.end].reshape(visit.shape)
            own = self.marginals[visit.node] * visit.weight
            for place, (other, _) in enumerate(self.core.links[visit.node]):
                # Towards nodes that come earlier the last pass has sent a share of the belief, which is no longer the node's.
                shares[visit.node, other] = incoming[place] - own if other < visit.node else incoming[place]
        return shares

    def decode(self, costs: Floats, backward: bool = False) -> Ints:
        """A choice that fits, built node by node: decided neighbours count with their tables, others by their messages."""
        core = self.core
        ledger = RemainingCapacity(core)
        positions = np.zeros(core.num_nodes, dtype=np.int64)
        offsets = core.offsets.tolist()
        for visit in self._steps[backward]:
            v = visit.node
            incoming = self.messages[visit.begin : visit.end].reshape(visit.shape)
            scores = costs[offsets[v] : offsets[v + 1]] + incoming[visit.ahead].sum(axis=0)
            for other, table in core.links[v]:
                # Neighbours of smaller number are decided in a forward pass, larger ones in a backward pass.
                if (other > v) == backward:
                    scores = scores + table[:, positions[other]]
            positions[v] = chosen = ledger.pick(v, scores)
            ledger.change(v, chosen, -1)
        return positions


def _without_partners(core: Core) -> Booleans:
    """[K] strategies that are forbidden, or without a possible partner across some edge: reduction may have run out of time."""
    offsets = core.offsets.tolist()
    barred: Booleans = ~np.isfinite(core.costs)
    forbids: dict[ByIdentity, bool] = {}
    for link in core.links:
        for _, table in link:
            key = ByIdentity(table)
            if key not in forbids:
                forbids[key] = not np.isfinite(table).all()
    # Most cores have neither forbidden strategies nor forbidden pairs, and then there is nothing to spread.
    if not barred.any() and not any(forbids.values()):
        return barred
    # To a fixed point: a barred strategy may take the last partner from strategies further away.
    waiting = dict.fromkeys(range(core.num_nodes))
    while waiting:
        node = waiting.popitem()[0]
        mine = barred[offsets[node] : offsets[node + 1]]
        for other, table in core.links[node]:
            if mine.any() or forbids[ByIdentity(table)]:
                theirs = barred[offsets[other] : offsets[other + 1]]
                # Partners only among strategies that are not barred themselves.
                fresh = ~np.isfinite(table[~mine]).any(axis=0) & ~theirs
                if fresh.any():
                    theirs |= fresh
                    waiting[other] = None
    return barred
