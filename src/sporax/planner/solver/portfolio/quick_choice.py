"""Good choices in linear time, without memory: exact elimination where its tables are small, TRW-S messages for the rest.

Problem: min_x c(x) = sum_i c_i(x_i) + sum_ij t_ij(x_i, x_j), and a bound b <= c(x) for all x.

Method: messages m_ij(x_j) give every decision j what each of its candidates would cost its neighbour i at best. Choices
are decoded from the messages forward and backward in turn; a few sweeps are usually enough. If c(x) > (1 + gap) b after
that, neighborhoods of some dozen decisions are decided again, each exactly with the rest fixed. `decide` takes the time to be
exact: elimination with larger tables, then messages or an integer program.

Reference: V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 28 (2006).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sporax.planner.budget import Budget
from sporax.planner.solver.graph.core import Core, subproblem
from sporax.planner.solver.graph.cost_graph import OPTIMALITY_TOLERANCE, CostGraph, Ints, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.bucket_elimination import eliminate
from sporax.planner.solver.methods.coordinate_descent import descend
from sporax.planner.solver.methods.exact import solve_exactly
from sporax.planner.solver.methods.trws import MessagePassing

_REDUCE_SECONDS = 120.0
"""Time limit of a reduction: far from what is needed, so that all processes of a run, however busy, find the same plan."""
_SMALL = 400
"""Decisions up to which elimination is tried first."""
_SMALL_TABLE = 100_000
"""Most entries of a table of that elimination: more would take longer than messages."""
LARGEST_TABLE = 500_000
"""Entries of the largest table where a choice is to be exact."""
_GAP = 0.01
"""Share of the cost that may be left open without a second look."""
_RISE = 1e-4
"""Share of the bound by which a sweep must raise it to be worth another one."""
_MORE_SWEEPS = 12
"""Sweeps that may raise the bound towards the cost of a choice from elsewhere."""
_PROVING_SWEEPS = 48
"""Sweeps that may raise the bound to the cost of a choice where it is to be exact."""
_FAR_SWEEPS = 96
"""Sweeps of messages, at most, where the choice is far above a bound that rises: four times what others take."""
_NEIGHBORHOODS = 32
"""Most neighborhoods that are decided again."""
_NEIGHBORHOOD = 40
"""Decisions in each of them."""
_ONE_NEIGHBORHOOD = 100
"""Decisions up to which one neighborhood has all of them: loops make small graphs in which all depend on each other."""
_NEIGHBORHOOD_GAP = 1e-5
"""Relative gap at which a neighborhood is decided: the next neighborhood starts from the result anyway."""
_NEIGHBORHOOD_SECONDS = 60.0
"""Time limit of one neighborhood: far from what is needed, for the same reason as `_REDUCE_SECONDS`."""


def choose(graph: CostGraph, sweeps: int = 24, patience: int = 6, known: float = np.inf) -> list[int]:
    """One candidate per decision.

    Args:
        graph: the decisions, without memory.
        sweeps: of messages, at most.
        patience: how many sweeps in a row may bring nothing better.
        known: cost of a choice from elsewhere; where the bound nearly reaches it, no second look is worth its time.
    """
    return choose_with_bound(graph, sweeps, patience, known)[0]


def choose_with_bound(
    graph: CostGraph, sweeps: int = 24, patience: int = 6, known: float = np.inf
) -> tuple[list[int], float]:
    """As `choose`, and a cost that no choice is below; `known` is 0 for no second look at all."""
    core = _reduced(graph)
    best, bound = np.zeros(core.num_nodes, dtype=np.int64), core.constant
    if core.num_nodes:
        best, bound = bounded(core, sweeps, patience, known)
    return [int(entry) for entry in core.expand(best)], bound


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


def _reduced(graph: CostGraph) -> Core:
    return Core.of(reduce(Network.of(graph, Moments.of(graph.intervals)), Budget.of(_REDUCE_SECONDS)))


def bounded(core: Core, sweeps: int = 24, patience: int = 6, known: float = np.inf) -> tuple[Ints, float]:
    """A choice on a core without memory rows, and a cost that none is below.

    Args:
        core: the decisions.
        sweeps: of messages, at most.
        patience: how many sweeps in a row may bring nothing better.
        known: cost of a choice from elsewhere; where the bound nearly reaches it, no second look is worth its time.
    """
    # Elimination is exact, and its bound is its own cost.
    exact = eliminate(core, _SMALL_TABLE) if core.num_nodes <= _SMALL else None
    if exact is not None:
        return exact[0], core.cost(exact[0])
    messages = MessagePassing(core)
    best, bound = _swept(messages, sweeps, patience, known)
    least = core.cost(best)
    if known < least:
        # The bound may still rise, and some sweeps cost less than to decide neighborhoods again in vain.
        bound = max(bound, converge(messages, known, _MORE_SWEEPS))
    return (best if min(least, known) <= (1 + _GAP) * bound else refined(core, best)), bound


def _swept(messages: MessagePassing, sweeps: int = 24, patience: int = 6, known: float = np.inf) -> tuple[Ints, float]:
    """The best choice that is read off while messages are sent, and their bound."""
    core = messages.core
    best, least, idle = np.zeros(core.num_nodes, dtype=np.int64), np.inf, 0
    bound = -np.inf
    for number in range(max(sweeps, _FAR_SWEEPS)):
        before, bound = bound, max(bound, *messages.sweep(core.costs))
        # Forward and backward in turn: each direction decodes well what the other one decodes badly.
        positions = descend(core, messages.decode(core.costs, backward=number % 2 == 1))
        cost, idle = core.cost(positions), idle + 1
        if cost < least:
            best, least, idle = positions, cost, 0
        reached = bound + core.constant
        # As long as the bound rises, the messages have not said all they know, and the best choice may come late.
        far = min(least, known) > (1 + _GAP) * reached and bound - before > _RISE * abs(reached)
        if ((idle >= patience or number + 1 >= sweeps) and not far) or least <= (1 + OPTIMALITY_TOLERANCE) * reached:
            break
    return best, bound + core.constant


def refined(core: Core, positions: Ints) -> Ints:
    """A choice at least as good, by deciding neighborhoods again, each exactly."""
    number, size = (1, core.num_nodes) if core.num_nodes <= _ONE_NEIGHBORHOOD else (_NEIGHBORHOODS, _NEIGHBORHOOD)
    # Half overlapping, so that decisions at the border of one neighborhood are inside the next.
    step = max(size // 2, -(-core.num_nodes // number), 1)
    for start in range(0, core.num_nodes, step):
        better = reoptimized(core, positions, neighborhood_order(core, start, size))
        # Equal cost is taken too: the next neighborhood then starts from another choice.
        if core.cost(better) <= core.cost(positions):
            positions = better
    return positions


def reoptimized(core: Core, positions: Ints, free: Ints) -> Ints:
    """The choice of least cost in which all decisions but the free ones are as in `positions`.

    Args:
        core: the decisions, without memory rows.
        positions: a choice.
        free: numbers of decisions, ascending.
    """
    inner = Core.of(reduce(subproblem(core, positions, free)))
    chosen = _decided(inner, Budget.of(_NEIGHBORHOOD_SECONDS), _SMALL_TABLE, _NEIGHBORHOOD_GAP).positions
    result = positions.copy()
    result[free] = inner.expand(chosen)
    return result


def neighborhood_order(core: Core, start: int, size: int) -> Ints:
    """Nodes in the order in which they are reached from one of them."""
    reached = {start: None}
    waiting = deque([start])
    while waiting and len(reached) < size:
        fresh = [other for other, _ in core.links[waiting.popleft()] if other not in reached]
        reached.update(dict.fromkeys(fresh[: size - len(reached)]))
        waiting.extend(fresh)
    return np.array(sorted(reached), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class BoundedChoice:
    """A choice on a core, a cost that none is below, and how it was found."""

    positions: Ints
    bound: float
    statistics: Mapping[str, int | str]

    def is_optimal(self, core: Core) -> bool:
        """Whether the bound proves that nothing is better."""
        return core.cost(self.positions) <= self.bound * (1 + OPTIMALITY_TOLERANCE)


def decide(core: Core, budget: Budget, largest_table: int = LARGEST_TABLE, epsilon: float = 0.0) -> BoundedChoice:
    """What is to be chosen on a core without memory rows."""
    choice = _decided(core, budget, largest_table, epsilon)
    # Where the integer program ran out of time, the choice is worth a second look.
    if core.cost(choice.positions) > (1 + max(epsilon, _GAP)) * choice.bound:
        choice = replace(choice, positions=refined(core, choice.positions))
    return choice


def _decided(core: Core, budget: Budget, largest_table: int, epsilon: float) -> BoundedChoice:
    # `None` means that a table would be too large: networks like chains are never that, others may be.
    exact = eliminate(core, largest_table)
    if exact is not None:
        positions, largest = exact
        return BoundedChoice(positions, core.cost(positions), {"method": "elimination", "largest_table": largest})
    messages = MessagePassing(core)
    best, bound = _swept(messages)
    least = core.cost(best)
    bound = max(bound, converge(messages, least, _PROVING_SWEEPS))
    if least - bound <= max(epsilon, OPTIMALITY_TOLERANCE) * abs(bound):
        return BoundedChoice(best, bound, {"method": "messages"})
    outcome = solve_exactly(core, budget, gap=epsilon)
    if outcome.positions is not None and core.cost(outcome.positions) < least:
        best = outcome.positions
    return BoundedChoice(best, max(bound, outcome.bound), {"method": "integer program"})
