"""Large neighbourhood search: the way to good choices on graphs that are too large to solve whole.

A neighbourhood frees some nodes of the best choice and solves them exactly (`planner.solver.graph.core`). Where to free:
the nodes nearest to one, a stretch of neighbouring nodes (which are neighbours in time), or a few of either far
apart, so that memory saved in one place can be spent in another; or the nodes, wherever they are, on which the bound is
undecided. Each kind keeps its own size: it grows while sub-problems are solved with ease and shrinks when time runs out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core, subproblem
from sporax.planner.solver.graph.cost_graph import Booleans, Floats, Ints
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.exact import ExactOutcome, peaks, solve_exactly

_FANOUT = 12
"""Neighbours that the search for the nearest nodes follows from one node, so that a hub does not fill it."""
_UNLIMITED_SHARE = 0.2
"""Share of neighbourhoods that offer all strategies."""
_PROMISING_GAP = 0.03
"""Otherwise only strategies with a marginal up to this share of the gap are offered."""
_FIRST_SIZE = 700.0
"""Nodes that a neighbourhood frees at first."""
_EASY_SECONDS = 2.0
"""A neighbourhood solved faster than this lets its kind grow."""
_HARD_SECONDS = 12.0
"""Time limit of a neighbourhood; missing it makes its kind shrink."""


@dataclass(slots=True)
class _Kind:
    """One way to pick nodes, with its present size."""

    pick: Callable[[int], Ints]
    size: float = _FIRST_SIZE


@dataclass(slots=True)
class Neighbourhoods:
    """Improves a choice on a core, one neighbourhood at a time.

    Attributes:
        core: the problem.
        positions: the best choice known; must fit. Replace it when a better one comes from elsewhere.
        generator: source of randomness.
        marginals: a bound and what it rises by when a strategy is forced [K]: which strategies look promising.
        bound: lower bound, from neighbourhoods that were the whole core.
    """

    core: Core
    positions: Ints
    generator: np.random.Generator
    bound: float = -np.inf
    marginals: tuple[float, Floats] | None = None
    kinds: list[_Kind] = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = [
            _Kind(lambda size: self._nearest(size, 1)),
            _Kind(lambda size: self._nearest(size, 3)),
            _Kind(lambda size: self._stretch(size, 1)),
            _Kind(lambda size: self._stretch(size, 3)),
            _Kind(self._undecided),
        ]

    def step(self, budget: Budget) -> bool:
        """Tries one neighbourhood; returns whether the choice costs less now."""
        kind = self.kinds[int(self.generator.integers(len(self.kinds)))]
        is_full = kind.size >= self.core.num_nodes
        # A neighbourhood of all nodes is an exact attempt on the whole core, and then its bound holds for the whole.
        free = np.arange(self.core.num_nodes) if is_full else kind.pick(int(kind.size))
        allowed = self._allowed()
        attempt = budget.at_most(_HARD_SECONDS)
        outcome, chosen = resolve(self.core, self.positions, free, attempt, allowed)
        taken = attempt.used
        if not outcome.optimal:
            # A floor from which factors of 1.4 lead back up.
            kind.size = max(10.0, kind.size * 0.75)
        elif taken < _EASY_SECONDS:
            # Just above the number of nodes, so that `is_full` above becomes true.
            kind.size = min(kind.size * 1.4, 1.01 * self.core.num_nodes)
        if is_full and allowed is None:
            self.bound = max(self.bound, outcome.bound)
        if chosen is None:
            return False
        before, after = self.core.cost(self.positions), self.core.cost(chosen)
        # Equal cost is taken too: walks along a plateau lead to better choices.
        if after <= before:
            self.positions = chosen
        return after < before

    def _allowed(self) -> Booleans | None:
        """Strategies for the next neighbourhood: now and then all, mostly those the bound finds promising."""
        if self.marginals is None or self.generator.random() < _UNLIMITED_SHARE:
            return None
        bound, marginals = self.marginals
        allowed: Booleans = marginals <= _PROMISING_GAP * max(self.core.cost(self.positions) - bound, 0.0)
        return allowed

    def _undecided(self, size: int) -> Ints:
        """Nodes, anywhere, whose second-best strategy is nearly as good as the best (with some chance in it)."""
        if self.marginals is None:
            return self._stretch(size, 5)
        core, marginals = self.core, self.marginals[1]
        regret = np.full(core.num_nodes, np.inf)
        # A node with one strategy has no regret: there is nothing to decide.
        for node, (begin, end) in enumerate(zip(core.offsets[:-1].tolist(), core.offsets[1:].tolist(), strict=True)):
            if end - begin > 1:
                regret[node] = np.partition(marginals[begin:end], 1)[1]
        # Without chance in it, the same nodes would be freed again and again.
        scores = (regret + 1e-9) * self.generator.uniform(0.2, 1.0, core.num_nodes)
        return np.sort(np.argsort(scores)[:size])

    def _nearest(self, size: int, parts: int) -> Ints:
        """Nodes reached first from `parts` random nodes, following at most a few links of each."""
        core, generator = self.core, self.generator
        front = [int(node) for node in generator.integers(core.num_nodes, size=parts)]
        free = set(front)
        while len(free) < size:
            if not front:
                # The nearest nodes fill a part of the graph that does not touch the rest; it goes on elsewhere.
                front.append(int(generator.integers(core.num_nodes)))
                free.add(front[0])
            # From the oldest few: breadth first, with some chance in the order.
            node = front.pop(int(generator.integers(min(len(front), 8))))
            others = [other for other, _ in core.links[node] if other not in free]
            if len(others) > _FANOUT:
                others = [others[i] for i in generator.choice(len(others), _FANOUT, replace=False).tolist()]
            others = others[: size - len(free)]
            free.update(others)
            front += others
        return np.array(sorted(free), dtype=np.int64)

    def _stretch(self, size: int, parts: int) -> Ints:
        """`parts` random runs of consecutive nodes."""
        length = max(1, size // parts)
        chosen = np.zeros(self.core.num_nodes, dtype=np.bool_)
        for _ in range(parts):
            begin = int(self.generator.integers(max(1, self.core.num_nodes - length + 1)))
            chosen[begin : begin + length] = True
        return np.flatnonzero(chosen)


def resolve(
    core: Core, positions: Ints, free: Ints, budget: Budget, allowed: Booleans | None = None
) -> tuple[ExactOutcome, Ints | None]:
    """Solves the `free` nodes with all others kept; returns the outcome and the choice on the whole core, if any.

    `allowed` [K] limits the strategies of the free nodes (those of `positions` are always allowed).
    """
    network = subproblem(core, positions, free)
    if allowed is not None:
        keep_allowed(network, core, positions, free, allowed)
    inner = Core.of(reduce(network))
    present = positions[free]
    near = np.zeros(0, np.int64)
    if len(inner.room) and inner.num_nodes:
        held = np.array([min(int(np.searchsorted(ids, present[v])), len(ids) - 1) for v, ids in _alive(inner)])
        # Rows that are nearly full now are the likeliest to be broken, so the first round has them already.
        near = peaks(inner.loads(held) / np.maximum(inner.room, 1) - 0.95, apart=0.02)
    # The last digits of a proof are not worth their time: the next neighbourhood starts from the result anyway.
    outcome = solve_exactly(inner, budget, rows=near, gap=1e-5)
    if outcome.positions is None:
        return outcome, None
    result = positions.copy()
    result[free] = inner.expand(outcome.positions)
    return outcome, result


def keep_allowed(network: Network, core: Core, positions: Ints, free: Ints, allowed: Booleans) -> None:
    """Takes all strategies out of the network of the `free` nodes but those of `allowed` [K] and of `positions`."""
    for number, node in enumerate(free.tolist()):
        # A copy: `allowed` belongs to the caller.
        mask = allowed[core.offsets[node] : core.offsets[node + 1]].copy()
        mask[positions[node]] = True
        if not mask.all():
            network.keep(number, mask)


def _alive(core: Core) -> list[tuple[int, Ints]]:
    return [(v, ids) for v in core.nodes.tolist() if (ids := core.network.ids[v]) is not None]
