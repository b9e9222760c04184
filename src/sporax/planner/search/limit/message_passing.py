"""Good choices in linear time: exact elimination where it is cheap, TRW-S message passing for the rest.

Problem: one candidate per decision, with a lower bound that says how good the choice is.

Method: messages tell every decision what each of its candidates would cost the others at best. Choices are decoded from
the messages forward and backward in turn; a few sweeps are usually enough. If the gap to the bound stays large, balls
of some dozen decisions are solved exactly with the rest fixed. Under a memory limit, overloaded rows get a Lagrangian
price and choices are decoded within the memory that is left. `CoordinateDescent` changes one decision at a time.

Reference: V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 28 (2006).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from sporax.planner.search.space.problem import Problem
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import CostGraph, Floats, Ints
from sporax.planner.solver.graph.moments import Timeline
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.bucket_elimination import eliminate
from sporax.planner.solver.methods.coordinate_descent import descend
from sporax.planner.solver.methods.lagrangian import PriceAscent
from sporax.planner.solver.methods.large_neighborhood_search import resolve
from sporax.planner.solver.methods.trws import MessagePassing
from sporax.planner.solver.portfolio.roles import first_positions
from sporax.planner.solver.portfolio.solution import OPTIMALITY_TOLERANCE

_REDUCE_SECONDS = 120.0
"""Time limit of a reduction: far from what is needed, so that all processes of a run, however busy, find the same plan."""
_SMALL = 400
"""Decisions up to which elimination is tried first."""
_SMALL_TABLE = 100_000
"""Most entries of a table of that elimination: more would take longer than messages."""
_GAP = 0.01
"""Share of the cost that may be left open without a second look."""
_RISE = 1e-4
"""Share of the bound by which a sweep must raise it to be worth another one."""
_BALLS = 32
"""Most balls that are decided again."""
_BALL = 40
"""Decisions in each of them."""
_WHOLE = 100
"""Decisions up to which one ball holds all of them: loops make small graphs in which every decision depends on every other."""
_TIED_BALLS, _TIED_BALL = 12, 16
"""Balls and their decisions under a memory limit, which makes the decisions of a ball depend on each other."""
_BALL_SECONDS = 60.0
"""Time limit of one ball: far from what is needed, for the same reason as `_REDUCE_SECONDS`."""
_PRICED_SWEEPS = 36
"""Sweeps under a memory limit: prices take longer to converge than messages."""


def choose(graph: CostGraph, sweeps: int = 24, patience: int = 6) -> list[int]:
    """One candidate per decision.

    Args:
        graph: the decisions, without memory.
        sweeps: of messages, at most.
        patience: how many sweeps in a row may bring nothing better.
    """
    core = _reduced(graph)
    best = np.zeros(core.num_nodes, dtype=np.int64)
    if core.num_nodes:
        best, _ = bounded(core, sweeps, patience)
    return [int(entry) for entry in core.expand(best)]


def choose_within(graph: CostGraph, sweeps: int = _PRICED_SWEEPS, refine: bool = False) -> list[int] | None:
    """One candidate per decision that keeps the graph's memory limit; None where none was found.

    Args:
        graph: the decisions, with memory.
        sweeps: of messages.
        refine: decide balls again where much is left open.
    """
    network = reduce(Network.of(graph, Timeline.of(graph.intervals)), time.monotonic() + _REDUCE_SECONDS)
    if network.infeasible:
        return None
    core = Core.of(network)
    positions = _decide_within(core, sweeps, refine) if core.num_nodes else np.zeros(0, dtype=np.int64)
    return None if positions is None else [int(entry) for entry in core.expand(positions)]


def refine_within(graph: CostGraph) -> list[int] | None:
    """`choose_within`, balls included."""
    return choose_within(graph, refine=True)


def lower_bound(graph: CostGraph, reached: float = np.inf) -> float:
    """A cost that no choice is below.

    Args:
        graph: the decisions, without memory.
        reached: what a known choice costs; a bound that comes up to it is the best.
    """
    core = _reduced(graph)
    return converge(MessagePassing(core), reached) if core.num_nodes else core.constant


def converge(messages: MessagePassing, reached: float = np.inf, sweeps: int = 30) -> float:
    """Sends messages until they say next to nothing new; returns the bound, the core's constant included.

    Args:
        messages: on a core without memory rows.
        reached: what a known choice costs; a bound that comes up to it is the best.
        sweeps: how many at most; one that raises the bound by next to nothing is the last, unless more of them might
            prove the choice to be the best.
    """
    core, bound = messages.core, -np.inf
    for left in reversed(range(sweeps)):
        before, bound = bound, max(bound, core.constant + max(messages.sweep(core.costs)))
        rise = bound - before
        # So slow that all sweeps that are left could not reach the known choice.
        slow = rise <= _RISE * bound and left * rise < reached - bound
        if slow or reached <= (1 + OPTIMALITY_TOLERANCE) * bound:
            break
    return bound


class CoordinateDescent:
    """Coordinate descent: improves the decisions of a problem one by one."""

    def __init__(self, problem: Problem) -> None:
        self.costs = problem.costs
        self.links: list[list[tuple[int, Floats, Floats]]] = [[] for _ in problem.costs]
        # With the minima over the neighbour, which spreading asks for again and again.
        for first, second, table in problem.edges:
            self.links[first].append((second, table, table.min(axis=1)))
            self.links[second].append((first, table.T, table.min(axis=0)))

    def candidate_costs(self, node: int, chosen: Sequence[int]) -> Floats:
        """Cost of each candidate next to its neighbours; those that are open (-1) are taken to agree."""
        candidate_costs = self.costs[node].copy()
        for other, table, least in self.links[node]:
            # An open neighbour will take what suits it best, so its minimum is the fair guess.
            candidate_costs += least if chosen[other] < 0 else table[:, chosen[other]]
        return candidate_costs

    def improve(self, chosen: list[int], kept: frozenset[int] = frozenset()) -> None:
        """Change `chosen` in place until no decision improves; those in `kept` stay."""
        waiting = dict.fromkeys(node for node in range(len(chosen)) if node not in kept)
        while waiting:
            node = next(iter(waiting))
            del waiting[node]
            candidate_costs = self.candidate_costs(node, chosen)
            best = int(candidate_costs.argmin())
            # An improvement within rounding could alternate between two candidates for ever.
            if candidate_costs[best] < candidate_costs[chosen[node]] * (1 - 1e-12):
                chosen[node] = best
                waiting.update(dict.fromkeys(other for other, *_ in self.links[node] if other not in kept))


def _reduced(graph: CostGraph) -> Core:
    return Core.of(reduce(Network.of(graph, Timeline.of(graph.intervals)), time.monotonic() + _REDUCE_SECONDS))


def bounded(core: Core, sweeps: int = 24, patience: int = 6) -> tuple[Ints, float]:
    """A choice on a core without memory rows, and a cost that none is below.

    Args:
        core: the decisions.
        sweeps: of messages, at most.
        patience: how many sweeps in a row may bring nothing better.
    """
    # Elimination is exact, and its bound is its own cost.
    exact = eliminate(core, _SMALL_TABLE) if core.num_nodes <= _SMALL else None
    if exact is not None:
        return exact[0], core.cost(exact[0])
    messages = MessagePassing(core)
    best, least, idle = np.zeros(core.num_nodes, dtype=np.int64), np.inf, 0
    bound = -np.inf
    for number in range(sweeps):
        bound = max(bound, *messages.sweep(core.costs))
        # Forward and backward in turn: each direction decodes well what the other one decodes badly.
        positions = descend(core, messages.decode(core.costs, backward=number % 2 == 1))
        cost, idle = core.cost(positions), idle + 1
        if cost < least:
            best, least, idle = positions, cost, 0
        if idle >= patience or least <= (1 + OPTIMALITY_TOLERANCE) * (bound + core.constant):
            break
    bound += core.constant
    if least <= (1 + _GAP) * bound:
        return best, bound
    balls = (1, core.num_nodes) if core.num_nodes <= _WHOLE else (_BALLS, _BALL)
    return refined(core, best, *balls), bound


def _decide_within(core: Core, sweeps: int, refine: bool) -> Ints | None:
    """The cheapest choice that fits of those that the messages suggest, and of one that starts from the least memory."""
    # A plan of least memory, so that there is a choice even if all decoded ones are too large.
    best = first_positions(core, np.inf)
    least = np.inf if best is None else core.cost(best)
    ascent = PriceAscent(core)
    for _ in range(sweeps):
        ascent.sweep()
        positions = descend(core, ascent.decode())
        cost = core.cost(positions)
        if cost < least and core.fits(positions):
            best, least = positions, cost
        if least <= (1 + OPTIMALITY_TOLERANCE) * ascent.bound:
            break
    worth = refine and best is not None and least > (1 + _GAP) * ascent.bound
    return refined(core, best, _TIED_BALLS, _TIED_BALL) if worth and best is not None else best


def refined(core: Core, positions: Ints, balls: int = _BALLS, size: int = _BALL) -> Ints:
    """A choice at least as good, by deciding balls of neighbouring nodes again, each exactly.

    Args:
        core: the decisions.
        positions: a choice that fits.
        balls: how many, spread evenly.
        size: nodes in each.
    """
    # Half overlapping, so that decisions at the border of one ball are inside the next.
    step = max(size // 2, -(-core.num_nodes // balls), 1)
    for start in range(0, core.num_nodes, step):
        free = ball(core, start, size)
        _, better = resolve(core, positions, free, time.monotonic() + _BALL_SECONDS)
        # Equal cost is taken too: the next ball then starts from another choice.
        if better is not None and core.cost(better) <= core.cost(positions):
            positions = better
    return positions


def ball(core: Core, start: int, size: int) -> Ints:
    """Nodes in the order in which they are reached from one of them."""
    reached = {start: None}
    waiting = deque([start])
    while waiting and len(reached) < size:
        fresh = [other for other, _ in core.links[waiting.popleft()] if other not in reached]
        reached.update(dict.fromkeys(fresh[: size - len(reached)]))
        waiting.extend(fresh)
    return np.array(sorted(reached), dtype=np.int64)
