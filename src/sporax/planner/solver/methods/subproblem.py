"""A part of a core as a problem of its own: some nodes are free, all others stay as they are in a choice.

The sub-problem is again a network: fixed neighbours turn into costs, the load of fixed nodes is taken off the capacity,
and rows that no free node tells apart become one. Reductions then shrink it as they shrink the whole, so that hundreds
of free nodes are solved at once.
"""

from __future__ import annotations

import numpy as np

from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Ints
from sporax.planner.solver.graph.network import Network


def subproblem(core: Core, positions: Ints, free: Ints) -> Network:
    """The network over the `free` nodes (ascending core numbers), all others kept at `positions`.

    Node ``i`` of the result is ``free[i]``; its strategies are positions. A choice that fits the result fits the core.
    """
    place = {node: number for number, node in enumerate(free.tolist())}
    offsets = core.offsets
    costs, links, memory = [], [], []
    # Rows between two ends differ for no free node, so the fullest of them stands for all.
    pieces = np.concatenate([np.arange(core.piece_offsets[v], core.piece_offsets[v + 1]) for v in free.tolist()])
    ends = np.unique(core.spans[pieces])
    for node in free.tolist():
        cost = core.costs[offsets[node] : offsets[node + 1]]
        link = {}
        for other, table in core.links[node]:
            if other in place:
                link[place[other]] = table
            else:
                cost = cost + table[:, positions[other]]
        costs.append(cost)
        links.append(link)
        memory.append(core.memory_of(node, ends))
    return Network(
        ids=[np.arange(len(cost), dtype=np.int64) for cost in costs],
        costs=costs,
        memory=memory,
        links=links,
        rows=np.arange(max(len(ends) - 1, 0)),
        base=np.zeros(max(len(ends) - 1, 0), np.int64),
        capacity=_room(core, positions, free, ends),
    )


def _room(core: Core, positions: Ints, free: Ints, ends: Ints) -> Ints:
    """Per stretch of rows between `ends`: the least that the fixed nodes leave."""
    if len(ends) < 2:
        return np.zeros(0, np.int64)
    is_free = np.zeros(core.num_nodes, dtype=np.bool_)
    is_free[free] = True
    # Loads of the fixed nodes alone; what is free takes its part of the rest.
    left = core.room - core.loads(positions, ~is_free)
    return np.minimum.reduceat(left[: ends[-1]], ends[:-1])
