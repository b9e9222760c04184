"""The core: what is left of a network after reduction, renumbered, with fast evaluation; and parts of it.

Heuristics and bounds look at the same nodes thousands of times. `Core` numbers the nodes that are left from zero, keeps
the network for building sub-problems, and evaluates costs and loads of a choice with a handful of array operations. A
choice on the core is an array of *positions*: which of the node's remaining strategies.

`subproblem` frees some nodes and leaves the others as they are in a choice. The result is again a network: fixed neighbours turn
into costs, the load of fixed nodes is taken off the capacity, and rows that free nodes load equally become one. Reductions then
shrink it as they shrink the whole, so that hundreds of free nodes are solved at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.planner.solver.graph.cost_graph import Booleans, Floats, Ints
from sporax.planner.solver.graph.network import Memory, Network


@dataclass(frozen=True, slots=True)
class Core:
    """A reduced network in compact form. Shapes: n nodes, m edges, K strategies, P memory pieces, R rows.

    Attributes:
        network: where it comes from.
        nodes: [n] the network's number of each core node.
        offsets: [n + 1] strategies of node ``v`` are ``offsets[v]:offsets[v + 1]``.
        costs: [K] strategy costs.
        edges: [m, 2] core nodes, first < second.
        tables: per edge [strategies of first, strategies of second].
        links: per node, a list of (neighbour, table [own strategies, neighbour's]).
        piece_nodes: [P] node of each memory piece.
        spans: [P, 2] rows of each piece.
        piece_offsets: [n + 1] pieces of node ``v`` are ``piece_offsets[v]:piece_offsets[v + 1]``.
        piece_starts: [P] where each piece's usages begin in `flat_usages`.
        flat_usages: usages of all pieces, one after another.
        room: [R] capacity less the load that no choice can change.
        constant: cost that no choice can change.
        pool: entries of the distinct tables, one table after another.
        pool_starts: [m] where each edge's table begins in `pool`.
        pool_columns: [m] columns of each edge's table.
    """

    network: Network
    nodes: Ints
    offsets: Ints
    costs: Floats
    edges: Ints
    tables: tuple[Floats, ...]
    links: tuple[tuple[tuple[int, Floats], ...], ...]
    piece_nodes: Ints
    piece_offsets: Ints
    spans: Ints
    piece_starts: Ints
    flat_usages: Ints
    room: Ints
    constant: float
    pool: Floats
    pool_starts: Ints
    pool_columns: Ints

    @classmethod
    def of(cls, network: Network) -> Core:
        """Compacts a network."""
        nodes = network.alive()
        links = _links(network, nodes)
        # Both ends list an edge in `links`; once is enough here.
        pairs = [(v, w, table) for v, link in enumerate(links) for w, table in link if v < w]
        tables = tuple(table for _, _, table in pairs)
        pool, pool_starts = _pooled(tables)
        memory = [network.memory[node] for node in nodes]
        counts = np.array([len(m) for m in memory], dtype=np.int64)
        sizes = np.array([len(network.costs[node]) for node in nodes], dtype=np.int64)
        # A piece has one usage per strategy of its node, so pieces of different nodes have different lengths in `flat_usages`.
        per_piece = np.repeat(sizes, counts)
        pieces = [piece for piece in memory if len(piece)]
        return cls(
            network=network,
            nodes=np.array(nodes, dtype=np.int64),
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            costs=np.concatenate([np.zeros(0), *(network.costs[node] for node in nodes)]),
            edges=np.array([(v, w) for v, w, _ in pairs], dtype=np.int64).reshape(-1, 2),
            tables=tables,
            links=links,
            piece_nodes=np.repeat(np.arange(len(nodes)), counts),
            piece_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            spans=np.concatenate([np.zeros((0, 2), np.int64), *(piece.spans for piece in pieces)]),
            piece_starts=np.cumsum(per_piece) - per_piece,
            flat_usages=np.concatenate([np.zeros(0, np.int64), *(piece.usages.reshape(-1) for piece in pieces)]),
            room=network.capacity - network.base,
            constant=network.constant,
            pool=pool,
            pool_starts=pool_starts,
            pool_columns=np.array([table.shape[1] for table in tables], dtype=np.int64),
        )

    @property
    def num_nodes(self) -> int:
        """Number of nodes, n."""
        return len(self.nodes)

    def as_network(self) -> Network:
        """The core as a network of its own: nodes numbered from zero, strategies are positions."""
        return Network(
            ids=[np.arange(size, dtype=np.int64) for size in np.diff(self.offsets).tolist()],
            costs=[self.network.costs[node] for node in self.nodes.tolist()],
            memory=[self.network.memory[node] for node in self.nodes.tolist()],
            links=[dict(link) for link in self.links],
            rows=np.arange(len(self.room)),
            base=np.zeros(len(self.room), np.int64),
            capacity=self.room,
            constant=self.constant,
        )

    def cost(self, positions: Ints) -> float:
        """Total cost of a choice, the constant included."""
        # One gather in a flat pool replaces a Python loop over the edges.
        first, second = positions[self.edges[:, 0]], positions[self.edges[:, 1]]
        across = self.pool[self.pool_starts + first * self.pool_columns + second]
        return float(self.costs[self.offsets[:-1] + positions].sum() + across.sum()) + self.constant

    def strategies(self, node: int) -> Ints:
        """The network's numbers of a core node's strategies."""
        return self.network.left(int(self.nodes[node]))

    def memory_of(self, node: int, ends: Ints) -> Memory:
        """A node's memory with its rows counted as stretches between `ends` (which hold all its spans' ends)."""
        memory = self.network.memory[int(self.nodes[node])]
        return Memory(np.searchsorted(ends, memory.spans), memory.usages) if len(memory) else memory

    def loads(self, positions: Ints, counted: Booleans | None = None) -> Ints:
        """[R] load of each row beyond what no choice can change; of the nodes `counted` [n] alone, if given."""
        used = self.flat_usages[self.piece_starts + positions[self.piece_nodes]]
        if counted is not None:
            used = used * counted[self.piece_nodes]
        # One more entry than rows: a span may end after the last row.
        change = np.zeros(len(self.room) + 1, dtype=np.int64)
        np.add.at(change, self.spans[:, 0], used)
        np.subtract.at(change, self.spans[:, 1], used)
        return np.cumsum(change)[:-1]

    def fits(self, positions: Ints) -> bool:
        """Whether a choice respects every row."""
        return bool((self.loads(positions) <= self.room).all())

    def charges(self, multipliers: Floats) -> Floats:
        """[K] what each strategy pays when each row charges `multipliers` [R] per unit of load."""
        # A piece pays the sum of the multipliers of its rows, which two entries of the cumulative sum give.
        cumulative = np.concatenate([[0.0], np.cumsum(multipliers)])
        charge = cumulative[self.spans[:, 1]] - cumulative[self.spans[:, 0]]
        sizes = np.diff(self.offsets)[self.piece_nodes]
        within = np.arange(len(self.flat_usages)) - np.repeat(self.piece_starts, sizes)
        result = np.zeros(len(self.costs))
        strategies = np.repeat(self.offsets[self.piece_nodes], sizes) + within
        np.add.at(result, strategies, self.flat_usages * np.repeat(charge, sizes))
        return result

    def expand(self, positions: Ints) -> Ints:
        """The choice on all nodes of the original graph (strategy numbers)."""
        choice = np.zeros(len(self.network.ids), dtype=np.int64)
        for node, position in zip(self.nodes.tolist(), positions.tolist(), strict=True):
            choice[node] = self.network.left(node)[position]
        return self.network.unwind(choice)


def _links(network: Network, nodes: Sequence[int]) -> tuple[tuple[tuple[int, Floats], ...], ...]:
    """Per node its neighbours and their tables, by the new numbers."""
    place = {node: number for number, node in enumerate(nodes)}
    return tuple(tuple((place[other], table) for other, table in sorted(network.links[node].items())) for node in nodes)


def _pooled(tables: Sequence[Floats]) -> tuple[Floats, Ints]:
    """Entries of the distinct tables, one table after another, and where each table begins among them."""
    # Equal tables are one array (interned), so identity is enough to store each once.
    distinct: dict[ByIdentity, int] = {}
    pool: list[Floats] = []
    starts: list[int] = []
    filled = 0
    for table in tables:
        starts.append(distinct.setdefault(ByIdentity(table), filled))
        if starts[-1] == filled:
            pool.append(table.reshape(-1))
            filled += table.size
    return np.concatenate([np.zeros(0), *pool]), np.array(starts, dtype=np.int64)


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
