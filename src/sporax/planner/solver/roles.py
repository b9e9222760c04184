"""What the solver's workers do, written as loops of short steps.

A role works on one core and speaks through a `Channel`: it sends choices and bounds, and takes in the best choice that
others found. `Bounder` raises the bound (and throws off choices on the way); `Searcher` improves the best choice. With
one thread both take turns.
"""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np

from sporax.planner.solver.core import Core
from sporax.planner.solver.descent import descend
from sporax.planner.solver.exact import solve_exactly
from sporax.planner.solver.graph import Floats, Ints
from sporax.planner.solver.prices import PriceAscent
from sporax.planner.solver.reduce import reduce
from sporax.planner.solver.search import Neighbourhoods

_SWEEPS_PER_CHOICE = 24
_STALLED_SWEEPS = 240
_EXACT_ENTRIES = 400_000
"""Table entries up to which the whole core is given to the integer program once prices have settled."""


class Channel(Protocol):
    """How a role hears from and speaks to the others."""

    def best(self) -> tuple[float, Ints | None]:
        """Cost and positions of the best choice that anyone has found."""

    def found(self, cost: float, positions: Ints) -> None:
        """Sends a choice that fits."""

    def bounded(self, bound: float) -> None:
        """Sends a lower bound."""


class Bounder:
    """Raises the bound by prices and messages; drops strategies that the bound rules out; finishes by integer program."""

    def __init__(self, core: Core, channel: Channel) -> None:
        self._whole = core
        self._channel = channel
        self._core = core
        self._ascent = PriceAscent(core)
        self._settled = 0
        self._last = -np.inf
        self._tried_exact = False
        self.finished = False

    def step(self, deadline: float) -> None:
        """A few sweeps, then a choice; from time to time a smaller core or an attempt to finish."""
        for _ in range(_SWEEPS_PER_CHOICE):
            self._ascent.sweep()
            if time.monotonic() > deadline:
                break
        self._channel.bounded(self._ascent.bound)
        self._offer(self._ascent.decode(), deadline)
        gain = (self._ascent.bound - self._last) / max(1.0, abs(self._ascent.bound))
        self._last = self._ascent.bound
        self._settled = self._settled + _SWEEPS_PER_CHOICE if gain < 3e-4 else 0
        if self._settled:
            self._shrink()
        if self._settled >= _STALLED_SWEEPS or (self._settled and self._entries() <= _EXACT_ENTRIES):
            self._finish(deadline)

    def _offer(self, positions: Ints, deadline: float) -> None:
        positions = descend(self._core, positions, deadline=deadline)
        cost = self._core.cost(positions)
        if cost < self._channel.best()[0] and self._core.fits(positions):
            self._channel.found(cost, self._core_to_whole(positions))

    def _core_to_whole(self, positions: Ints) -> Ints:
        return positions if self._core is self._whole else self._core.expand(positions)

    def _entries(self) -> int:
        return sum(table.size for table in self._core.tables)

    def _shrink(self) -> None:
        """Removes what no better choice uses, if that is a good part, and reduces again."""
        cutoff = self._channel.best()[0]
        useless = self._ascent.useless(cutoff)
        if useless.mean() < 0.1:
            return
        network = self._core.as_network()
        offsets = self._core.offsets
        for node in range(self._core.num_nodes):
            mask = useless[offsets[node] : offsets[node + 1]]
            if mask.all():
                self._close(cutoff)
                return
            if mask.any():
                network.keep(node, ~mask)
        ...


def start_positions(core: Core) -> Ints:
    """The choice of least memory, node by node: where a search can begin when nothing better is known."""
    used = core.priced(np.ones(len(core.room)) * 1.0) - core.costs
    return np.array([int(used[a:b].argmin()) for a, b in zip(core.offsets, core.offsets[1:], strict=False)], np.int64)
