"""A search that decides repeated blocks once: all layers of a deep network that are equal are sharded equally.

Problem: the number of decisions grows with the depth of a network, although the layers repeat; and a plan is to be certified in a
time that does not depend on the depth.

Method: equal consecutive blocks are found and tied (`repeated_blocks`). With the cost c of the tied plan and a lower bound
b on the whole problem, tying costs at most c - b. If that is more than a hundredth of b, or if the tied plan does not fit the
memory, every decision gets its own variable.

The bound (`bound_of`): TRW-S messages move costs between tables and candidates without changing the cost of any plan (a
reparametrization). The sum of the least remaining entries is a lower bound for any messages. Equal blocks get equal
messages, so one block is evaluated and multiplied by the number of blocks. What surrounds the blocks is bounded
separately; each of its candidates pays the least that the tables to the blocks leave for it. The messages come from a
ring of a few blocks, which looks like the middle of a long chain from every block. The bound is concave in the
messages, so their mean over the blocks of the ring is as good.

Reference: V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 28 (2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.planner.search.limit.limit import lagrangian_plan, least_cost
from sporax.planner.search.space.repeated_blocks import Edge, Repeats, Wire, find_repeats, labels, tied_choice
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.search.task import Finding, SearchTask
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import CostGraph, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.trws import MessagePassing
from sporax.planner.solver.portfolio.quick_choice import choose, converge, lower_bound

_TOLERABLE = 0.01
"""Share of the cost that tying may lose; above it every decision gets a variable of its own."""


def tied_blocks(task: SearchTask) -> Finding:
    """A choice in which repeated blocks are equal, with a bound on what better there could be; memory aside.

    Cost and bound are of one cost model. On meshes of many axes moves go the straight way there, and the plan may run faster.

    Args:
        task: when its time is over, decisions of tied blocks are not freed.
    """
    problem = task.problem
    repeats, bound = find_repeats(labels(problem), problem.edges), 0.0
    attempts: list[tuple[float, int, list[int]]] = []
    if repeats is not None:
        chosen, variables = tied_choice(problem, repeats)
        attempts.append((problem.seconds(chosen), variables, chosen))
        # The bound holds for all plans, tied or not, so the gap includes what the tying costs.
        bound = bound_of(problem.costs, repeats, attempts[0][0] * problem.scale) / problem.scale
    if not attempts or (attempts[0][0] > (1 + _TOLERABLE) * bound and not task.budget.is_over):
        full = problem.cost_graph()
        chosen = choose(full)
        attempts.append((problem.seconds(chosen), len(chosen), chosen))
        # A bound as high as the best plan known needs no more messages.
        bound = max(bound, lower_bound(full, min(attempts)[0] * problem.scale) / problem.scale)
    _, variables, chosen = min(attempts)
    return Finding(problem, chosen, bound, {**problem.statistics(), "variables": variables})


def tied_within(task: SearchTask, found: Finding, limit: int) -> Finding:
    """A choice that fits: with equal blocks where that is near the bound, else with every decision by itself."""
    del task
    problem, tied = found.problem, lagrangian_plan(found.problem, limit, tied=True)
    within = replace(found, chosen=tied.chosen)
    if within.fits(limit) and within.cost <= (1 + _TOLERABLE) * (found.bound or 0.0):
        return within
    chosen = least_cost(problem, [found.chosen, tied.chosen])
    # All decisions are variables then, hence their number.
    return replace(found, chosen=chosen, statistics={**found.statistics, "variables": len(chosen)})


_FORBIDDEN = 1e3
"""In place of ``inf``, as a multiple of the greatest finite cost: messages must be numbers."""


def bound_of(costs: Sequence[Floats], repeats: Repeats, reached: float = np.inf) -> float:
    """A cost that no choice is below.

    Args:
        costs: per decision [candidates].
        repeats: what is equal of them, and all edges.
        reached: what a known choice costs; a bound that comes up to it is the best.
    """
    reparametrization = _average_messages(costs, repeats)
    # Valid for any messages: a bound is the sum of what is left at its least, and blocks with equal messages leave equal amounts.
    block = len(repeats.blocks) * _least(costs, repeats, reparametrization)
    return block + lower_bound(_surroundings(costs, repeats, reparametrization), reached - block)


@dataclass(frozen=True, slots=True)
class _Reparametrization:
    """What decisions of a block depend on, the same in every block.

    Attributes:
        wires: what either end of a wire depends on. Of those between blocks nothing is left in the table.
        shared: what the block's end gets from what is shared.
    """

    wires: dict[Wire, tuple[Floats, Floats]]
    shared: dict[tuple[int, int], Floats]


def _average_messages(costs: Sequence[Floats], repeats: Repeats) -> _Reparametrization:
    """The mean of what the blocks of a ring send each other. What is shared counts there by as much as there are blocks."""
    # A block from the middle: the first and the last may have other surroundings.
    sample = repeats.blocks[len(repeats.blocks) // 2]
    # So many blocks that no block of the ring is tied to another one on both sides.
    size, count = len(sample), 2 * repeats.span + 1
    number = {decision: count * size + place for place, decision in enumerate(_readers(repeats))}
    ring = [costs[decision] for decision in sample] * count
    # What is shared stands once in the ring, so it counts in proportion to the ring's share of the blocks.
    ring += [costs[decision] * count / len(repeats.blocks) for decision in number]
    edges: list[Edge] = []
    for (first, second, later), table in repeats.wires.items():
        edges += [(k * size + first, (k + later) % count * size + second, table) for k in range(count)]
    for (place, decision), table in repeats.shared.items():
        edges += [(k * size + place, number[decision], table) for k in range(count)]
    messages = MessagePassing(_core(ring, edges))
    converge(messages)
    shares = messages.shares()
    reparametrization = _Reparametrization({}, {})
    for (first, second, later), table in repeats.wires.items():
        ends = [(k * size + first, (k + later) % count * size + second) for k in range(count)]
        here = np.mean([shares[one, other] for one, other in ends], axis=0)
        there = np.mean([shares[other, one] for one, other in ends], axis=0)
        if later:
            # Between blocks nothing is left in the table: its least is moved to the first end, where it counts once per block.
            here = here + (table - here[:, None] - there).min()
        reparametrization.wires[first, second, later] = here, there
    for place, decision in repeats.shared:
        rows = [shares[k * size + place, number[decision]] for k in range(count)]
        reparametrization.shared[place, decision] = np.mean(rows, axis=0)
    return reparametrization


def _readers(repeats: Repeats) -> dict[int, None]:
    return dict.fromkeys(decision for _, decision in repeats.shared)


def _least(costs: Sequence[Floats], repeats: Repeats, reparametrization: _Reparametrization) -> float:
    """The least that is left in the decisions and tables of one block."""
    left = [costs[decision].copy() for decision in repeats.blocks[0]]
    total = 0.0
    for (first, second, later), table in repeats.wires.items():
        here, there = reparametrization.wires[first, second, later]
        left[first] += here
        left[second] += there
        if not later:
            total += float((table - here[:, None] - there).min())
    for (place, _), message in reparametrization.shared.items():
        left[place] += message
    return total + sum(float(entry.min()) for entry in left)


def _surroundings(costs: Sequence[Floats], repeats: Repeats, reparametrization: _Reparametrization) -> CostGraph:
    """What is around the blocks, each candidate with the least that tables to the blocks leave for it."""
    number = {decision: place for place, decision in enumerate(repeats.outside)}
    left = [costs[decision].copy() for decision in repeats.outside]
    for _, wire, is_first, decision in repeats.ends:
        table, message = repeats.wires[wire], reparametrization.wires[wire][0 if is_first else 1]
        # Infinite entries stay infinite: a candidate without a partner in the block is forbidden in any plan.
        left[number[decision]] += ((table if is_first else table.T) - message[:, None]).min(axis=0)
    for (place, decision), table in repeats.shared.items():
        least = (table - reparametrization.shared[place, decision][:, None]).min(axis=0)
        left[number[decision]] += len(repeats.blocks) * least
    edges = [(number[first], number[second], table) for first, second, table in repeats.others]
    return CostGraph.unlimited(left, edges, "around blocks")


def _core(costs: Sequence[Floats], edges: Sequence[Edge]) -> Core:
    """As it is, but with nothing infinite."""
    # Arrays repeat from block to block; each one is looked at once.
    arrays = {ByIdentity(array): array for array in (*costs, *(table for *_, table in edges))}
    most = _FORBIDDEN * max(float(array[np.isfinite(array)].max(initial=1.0)) for array in arrays.values())
    finite = [(first, second, np.minimum(table, most)) for first, second, table in edges]
    graph = CostGraph.unlimited([np.minimum(costs_of, most) for costs_of in costs], finite, "ring of blocks")
    return Core.of(Network.of(graph, Moments.of(graph.intervals)))
