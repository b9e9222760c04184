"""What no plan costs less than, worked out on one of the blocks that repeat and on what lies around them.

Messages between decisions move costs from tables to candidates and change no plan's total (`solver.dual`). Whatever they are, the
least that is left in every decision and table, added up, is below every plan. So blocks that are alike may be given the same
messages: one of them is looked at, and counts as often as there are blocks. The first and the last are told the same by what lies
around them; this falls off, with candidates that pay the least that the blocks leave for them, and is bounded by itself.

Good messages come from a ring of a few blocks, which looks like the middle of a long row from wherever one stands. The bound is
concave in the messages, so their mean over the blocks of the ring is as good as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sporax.planner.search.message_passing import lower_bound, settle
from sporax.planner.search.repeated_blocks import Edge, Repeats, Wire
from sporax.planner.search.resharding_cost import Floats
from sporax.planner.solver.core import Core
from sporax.planner.solver.graph import CostGraph
from sporax.planner.solver.network import Network
from sporax.planner.solver.timeline import Timeline
from sporax.planner.solver.trws import MessagePassing

_FORBIDDEN = 1e3
"""What the ring takes for infinite, in greatest finite costs: messages must be numbers."""


def bound_of(costs: Sequence[Floats], repeats: Repeats, reached: float = np.inf) -> float:
    """A cost that no choice is below.

    Args:
        costs: per decision [candidates].
        repeats: what is alike of them, and all edges.
        reached: what a known choice costs; a bound that comes up to it is the best.
    """
    told = _told(costs, repeats)
    block = len(repeats.blocks) * _least(costs, repeats, told)
    return block + lower_bound(_surroundings(costs, repeats, told), reached - block)


@dataclass(frozen=True, slots=True)
class _Told:
    """What decisions of a block are told, the same in every block.

    Attributes:
        wires: what either end of a wire is told. Of those between blocks nothing is left in the table.
        shared: what the block's end is told by what is shared.
    """

    wires: dict[Wire, tuple[Floats, Floats]]
    shared: dict[tuple[int, int], Floats]


def _told(costs: Sequence[Floats], repeats: Repeats) -> _Told:
    """The mean of what the blocks of a ring tell each other. What is shared counts there by as much as there are blocks."""
    sample = repeats.blocks[len(repeats.blocks) // 2]
    size, count = len(sample), 2 * repeats.span + 1
    number = {decision: count * size + place for place, decision in enumerate(_readers(repeats))}
    ring = [costs[decision] for decision in sample] * count
    ring += [costs[decision] * count / len(repeats.blocks) for decision in number]
    edges: list[Edge] = []
    for (first, second, later), table in repeats.wires.items():
        edges += [(k * size + first, (k + later) % count * size + second, table) for k in range(count)]
    for (place, decision), table in repeats.shared.items():
        edges += [(k * size + place, number[decision], table) for k in range(count)]
    messages = MessagePassing(_core(ring, edges))
    settle(messages)
    shares = messages.shares()
    told = _Told({}, {})
    for (first, second, later), table in repeats.wires.items():
        ends = [(k * size + first, (k + later) % count * size + second) for k in range(count)]
        here = np.mean([shares[one, other] for one, other in ends], axis=0)
        there = np.mean([shares[other, one] for one, other in ends], axis=0)
        if later:
            here = here + (table - here[:, None] - there).min()
        told.wires[first, second, later] = here, there
    for place, decision in repeats.shared:
        rows = [shares[k * size + place, number[decision]] for k in range(count)]
        told.shared[place, decision] = np.mean(rows, axis=0)
    return told


def _readers(repeats: Repeats) -> dict[int, None]:
    return dict.fromkeys(decision for _, decision in repeats.shared)


def _least(costs: Sequence[Floats], repeats: Repeats, told: _Told) -> float:
    """The least that is left in the decisions and tables of one block."""
    left = [costs[decision].copy() for decision in repeats.blocks[0]]
    total = 0.0
    for (first, second, later), table in repeats.wires.items():
        here, there = told.wires[first, second, later]
        left[first] += here
        left[second] += there
        if not later:
            total += float((table - here[:, None] - there).min())
    for (place, _), message in told.shared.items():
        left[place] += message
    return total + sum(float(each.min()) for each in left)


def _surroundings(costs: Sequence[Floats], repeats: Repeats, told: _Told) -> CostGraph:
    """What lies around the blocks, each candidate with the least that tables to the blocks leave for it."""
    number = {decision: place for place, decision in enumerate(repeats.outside)}
    left = [costs[decision].copy() for decision in repeats.outside]
    for _, wire, is_first, decision in repeats.ends:
        table, message = repeats.wires[wire], told.wires[wire][0 if is_first else 1]
        left[number[decision]] += ((table if is_first else table.T) - message[:, None]).min(axis=0)
    for (place, decision), table in repeats.shared.items():
        least = (table - told.shared[place, decision][:, None]).min(axis=0)
        left[number[decision]] += len(repeats.blocks) * least
    edges = [(number[first], number[second], table) for first, second, table in repeats.others]
    return CostGraph.unlimited(left, edges, "around blocks")


def _core(costs: Sequence[Floats], edges: Sequence[Edge]) -> Core:
    """As it is, but with nothing infinite."""
    arrays = {id(each): each for each in (*costs, *(table for *_, table in edges))}
    most = _FORBIDDEN * max(float(each[np.isfinite(each)].max(initial=1.0)) for each in arrays.values())
    finite = [(first, second, np.minimum(table, most)) for first, second, table in edges]
    graph = CostGraph.unlimited([np.minimum(each, most) for each in costs], finite, "ring of blocks")
    return Core.of(Network.of(graph, Timeline.of(graph.intervals)))
