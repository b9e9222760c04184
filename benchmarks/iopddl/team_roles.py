"""What the solver's workers do, written as steps.

A role works on one core and speaks through a `BestKnown`: it posts choices and bounds, and looks up the best choice that
anyone has found. `Bounder` raises the bound, and finds choices on the way; `Searcher` improves the best choice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from lagrangian import MultiplierAscent
from neighborhoods import Neighbourhoods

from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Booleans, Floats, Ints
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.coordinate_descent import descend, first_positions
from sporax.planner.solver.methods.exact import solve_exactly

_SWEEPS_PER_STEP = 24
"""Sweeps of messages in one step, after which a choice is read off."""
_SLOW_GAIN = 2e-4
"""Relative rise of the bound in one step below which multipliers count as converged."""
_PATIENCE = 20
"""Steps after which multipliers count as converged though the bound rises: without a plan that fits it never stops."""
_EXACT_ENTRIES = 300_000
"""Table entries up to which a converged core goes to the integer program as a whole."""
_ANY_GAP = 1e9
"""A relative gap at which the integer program stops with the first choice."""
_EXACT_SHARE = 0.4
"""Share of the time left that one attempt to finish may take; the next waits for a core of 0.7 times the size."""
_WORTH_SHRINKING = 0.1
"""Share of dominated strategies from which reducing the core again saves more than it costs."""


class MarginalAscent(MultiplierAscent):
    """An ascent that remembers the min-marginals of its best bound."""

    def __init__(self, core: Core, multipliers: Floats | None = None) -> None:
        super().__init__(core, multipliers)
        self._best_marginals = np.zeros(len(core.costs))
        self._best_low = -np.inf

    def sweep(self) -> float:
        """As of any ascent."""
        bound = super().sweep()
        # Marginals belong to the first pass of a sweep, so they are kept with the best bound of that pass.
        if self.low > self._best_low:
            self._best_low = self.low
            if self.low < np.inf:
                self._best_marginals = np.concatenate([np.zeros(0), *self.messages.marginals])
        return bound

    def dominated(self, cutoff: float) -> Booleans:
        """[K] strategies that no choice with c(x) < `cutoff` uses, by the best bound's min-marginals."""
        # Rounding must not remove a strategy of the optimum.
        slack = 1e-9 * max(1.0, abs(cutoff))
        result: Booleans = self._best_low + self._best_marginals > cutoff + slack
        return result

    @property
    def marginals(self) -> tuple[float, Floats]:
        """A bound, and [K] how much it rises when a strategy is forced."""
        return self._best_low, self._best_marginals


@dataclass(slots=True)
class BestKnown:
    """The best that is known, and where to send better.

    Attributes:
        cost: cost of the best choice (``inf`` before the first).
        positions: that choice, on the core that the workers share.
        bound: best lower bound.
        marginals: (bound, [K] marginals) that the bounder last posted, if any.
        post: called as ``post(positions or None, cost, bound, marginals or None)`` when something here improves.
    """

    post: Callable[[Ints | None, float, float, tuple[float, Floats] | None], None]
    cost: float = np.inf
    positions: Ints | None = None
    bound: float = -np.inf
    marginals: tuple[float, Floats] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def post_choice(self, cost: float, positions: Ints) -> None:
        """Notes a choice that fits, and posts it if it is the best."""
        if self.take(cost, positions):
            self.post(positions, cost, self.bound, None)

    def take(self, cost: float, positions: Ints) -> bool:
        """Notes a choice that fits without posting it; says whether it is the best. Safe from any thread."""
        # The listening thread of a worker and its search both bring choices.
        with self._lock:
            better = cost < self.cost
            if better:
                self.cost, self.positions = cost, positions
        return better

    def bounded(self, bound: float, marginals: tuple[float, Floats] | None = None) -> None:
        """Notes a lower bound, and posts it if it is the best."""
        if bound > self.bound or marginals is not None:
            self.bound = max(bound, self.bound)
            self.marginals = marginals or self.marginals
            self.post(None, self.cost, self.bound, marginals)

    @property
    def closed(self) -> bool:
        """Whether the bound has met the best choice, or has shown that there is none."""
        if np.isinf(self.cost):
            return self.bound == np.inf
        # Relative tolerance of the arithmetic; absolute below one, where costs near zero would never close.
        return self.bound >= self.cost - 1e-9 * max(1.0, abs(self.cost))


@dataclass(slots=True)
class Bounder:
    """Raises the bound by multipliers and messages, drops strategies that it rules out, finishes by integer program.

    Attributes:
        core: the core that all workers share.
        board: where results go.
        converged: the bound has nearly stopped rising.
        finished: nothing is left for this role to do.
    """

    core: Core
    board: BestKnown
    converged: bool = False
    finished: bool = False
    _cores: list[Core] = field(init=False)
    _ascent: MarginalAscent = field(init=False)
    _tried: int = _EXACT_ENTRIES
    _steps: int = 0

    def __post_init__(self) -> None:
        # The shared core first; each further one is made of the one before, with fewer strategies.
        self._cores = [self.core]
        self._ascent = MarginalAscent(self.core)

    def step(self, budget: Budget) -> None:
        """Some sweeps and one choice; from time to time a smaller core, or an attempt to finish."""
        core = self._cores[-1]
        if not core.num_nodes:
            self._offer(np.zeros(0, np.int64))
            self._close()
            return
        before = self._ascent.bound
        for _ in range(_SWEEPS_PER_STEP):
            self._ascent.sweep()
            if budget.is_over:
                break
        self._steps += 1
        slow = self._ascent.bound - before < _SLOW_GAIN * max(1.0, abs(self._ascent.bound))
        self.converged = slow or self._steps >= _PATIENCE
        # A bound above the best cost says only that no choice costs less, so the best cost is the bound then.
        self.board.bounded(min(self._ascent.bound, self.board.cost), self._marginals())
        self._offer(descend(core, self._ascent.decode(), budget=budget))
        if self.converged:
            self._shrink()
            if not self.finished and self._entries() <= self._tried:
                self._finish(budget)

    def _entries(self) -> int:
        return sum(table.size for table in self._cores[-1].tables)

    def _marginals(self) -> tuple[float, Floats]:
        """The bound and marginals on the shared core; of nodes that the present core keeps, dropped strategies are inf."""
        bound, marginals = self._ascent.marginals
        # From the innermost core outwards: each one knows the strategies it took from the next.
        for core, outer in zip(reversed(self._cores[1:]), reversed(self._cores[:-1]), strict=True):
            spread = np.zeros(len(outer.costs))
            for number, node in enumerate(core.nodes.tolist()):
                part = np.full(int(outer.offsets[node + 1] - outer.offsets[node]), np.inf)
                part[core.strategies(number)] = marginals[core.offsets[number] : core.offsets[number + 1]]
                spread[outer.offsets[node] : outer.offsets[node + 1]] = part
            marginals = spread
        return bound, marginals

    def _offer(self, positions: Ints) -> None:
        core = self._cores[-1]
        cost = core.cost(positions)
        if cost < self.board.cost and core.fits(positions):
            # Positions on the innermost core mean nothing to other workers.
            for inner in reversed(self._cores[1:]):
                positions = inner.expand(positions)
            self.board.post_choice(cost, positions)

    def _shrink(self) -> None:
        """Removes what no better choice uses, if that is a good part, and reduces again."""
        core = self._cores[-1]
        dominated = self._ascent.dominated(self.board.cost)
        if dominated.mean() < _WORTH_SHRINKING:
            return
        network = core.as_network()
        for node in range(core.num_nodes):
            mask = dominated[core.offsets[node] : core.offsets[node + 1]]
            if mask.all():
                self._close()
                return
            if mask.any():
                network.keep(node, ~mask)
        if reduce(network).infeasible:
            self._close()
            return
        self._cores.append(Core.of(network))
        # Multipliers go on from the best ones: the rows that are left are a subset, and their multipliers hardly change.
        self._ascent = MarginalAscent(self._cores[-1], self._ascent.best_multipliers[network.rows])
        self.converged, self._steps = False, 0

    def _finish(self, budget: Budget) -> None:
        core = self._cores[-1]
        # An attempt that failed on so many entries fails again until the core is clearly smaller.
        self._tried = int(0.7 * self._entries())
        outcome = solve_exactly(
            core,
            # Every attempt repeats the root of the branch-and-bound tree, so it gets half a minute at least.
            budget.at_most(max(30.0, _EXACT_SHARE * budget.left)),
            # Rows with a positive multiplier are those that bind, so the first round has them already.
            rows=np.flatnonzero(self._ascent.best_multipliers),
            report=lambda bound: self.board.bounded(min(bound, self.board.cost)),
        )
        if outcome.positions is not None:
            self._offer(outcome.positions)
        if outcome.optimal or outcome.bound >= self.board.cost:
            self._close()

    def _close(self) -> None:
        """Every choice of lower cost than the best has been ruled out."""
        self.board.bounded(self.board.cost)
        self.finished = True


@dataclass(slots=True)
class Searcher:
    """Improves the best choice by large neighbourhoods."""

    core: Core
    board: BestKnown
    seed: int
    _search: Neighbourhoods | None = None
    _attempts: int = 0
    _generator: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._generator = np.random.default_rng(self.seed)

    def step(self, budget: Budget) -> None:
        """One neighbourhood, around the best choice known to anyone."""
        if self._search is None:
            positions = self.board.positions
            if positions is None:
                positions = self._first(budget)
            if positions is None:
                return
            self._search = Neighbourhoods(self.core, positions, self._generator)
        search = self._search
        # Equal cost is left alone: the search may stand on a plateau, and going back would undo its walk.
        if self.board.positions is not None and self.board.cost < self.core.cost(search.positions):
            search.positions = self.board.positions
        search.marginals = self.board.marginals
        search.step(budget)
        cost = self.core.cost(search.positions)
        self.board.post_choice(cost, search.positions)
        if search.bound > self.board.bound:
            self.board.bounded(min(search.bound, cost))

    def _first(self, budget: Budget) -> Ints | None:
        """A choice to begin with: by descent, or else any that the integer program finds, in ever longer attempts."""
        self._attempts += 1
        if self._attempts == 1:
            return first_positions(self.core, budget)
        # Ever longer attempts (40 s, 80 s, …): each starts from the root again, so a doubled time wastes at most half.
        outcome = solve_exactly(self.core, budget.at_most(10.0 * 2**self._attempts), gap=_ANY_GAP)
        if outcome.bound == np.inf:
            self.board.bounded(np.inf)
        return outcome.positions
