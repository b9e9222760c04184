"""A lower bound on the cost of all plans, computed on one repeated block and its surroundings.

Problem: certify a plan of a deep network in a time that does not depend on the depth.

Method: TRW-S messages move costs between tables and candidates without changing the cost of any plan (a
reparametrization). The sum of the least remaining entries is a lower bound for any messages. Equal blocks get equal
messages, so one block is evaluated and multiplied by the number of blocks. What surrounds the blocks is bounded
separately; each of its candidates pays the least that the tables to the blocks leave for it. The messages come from a
ring of a few blocks, which looks like the middle of a long chain from every block. The bound is concave in the
messages, so their mean over the blocks of the ring is as good.

Reference: V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 28 (2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.planner.search.space.repeated_blocks import Edge, Repeats, Wire
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import CostGraph, Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.trws import MessagePassing
from sporax.planner.solver.portfolio.quick_choice import converge, lower_bound

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
    # Valid for any messages: a bound is the sum of what is left at its least, and blocks with equal messages leave
    # equal amounts.
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
    """The mean of what the blocks of a ring tell each other. What is shared counts there by as much as there are blocks."""
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
            # Between blocks nothing is left in the table: its least is moved to the first end, where it counts once per
            # block.
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
