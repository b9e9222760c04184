"""The network: a cost graph that can be made smaller without losing its optimum.

Where `CostGraph` is a frozen value, `Network` is the workshop: nodes and strategies vanish from it, tables merge, and a
trail remembers how to turn a choice on what is left into a choice on the whole. Memory is carried exactly: a node owns
*pieces* (a range of rows, a usage per strategy); the part of a piece that no choice can change goes into the base load
of its rows, and a node that has no pieces left is free of memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.planner.solver.graph.cost_graph import Booleans, CostGraph, Floats, Ints, Moments


@dataclass(frozen=True, slots=True)
class Memory:
    """The variable memory of a node, in P pieces.

    Attributes:
        spans: [P, 2] half-open ranges of rows, disjoint once tidied.
        usages: [P, strategies] usage of each strategy in that range; least entry zero once tidied.
    """

    spans: Ints
    usages: Ints

    def __len__(self) -> int:
        return len(self.spans)

    # Tidying at each joining would cost more than it saves, see `add_memory`.
    def joined(self, other: Memory) -> Memory:
        """The pieces of both, untidied."""
        return Memory(np.concatenate([self.spans, other.spans]), np.concatenate([self.usages, other.usages]))

    def merged(self) -> Memory:
        """The same memory in disjoint ranges, ascending; neighbouring ranges of equal usage are one."""
        # A difference array: each piece adds its usage where it begins and takes it away where it ends.
        ends = np.unique(self.spans)
        change = np.zeros((len(ends), self.usages.shape[1]), np.int64)
        # `+=` would count only one of several pieces that begin at the same row.
        np.add.at(change, np.searchsorted(ends, self.spans[:, 0]), self.usages)
        np.subtract.at(change, np.searchsorted(ends, self.spans[:, 1]), self.usages)
        differs = change.any(axis=1)
        ends, change = ends[differs], change[differs]
        return Memory(np.stack([ends[:-1], ends[1:]], axis=1), np.cumsum(change, axis=0)[:-1])


_NO_MEMORY = Memory(np.zeros((0, 2), np.int64), np.zeros((0, 1), np.int64))


@dataclass(frozen=True, slots=True)
class Eliminated:
    """Trail entry: `node` takes its best strategy given its (at most two) neighbours."""

    node: int
    ids: Ints
    costs: Floats
    neighbours: tuple[tuple[int, Ints, Floats], ...]

    def unwind(self, choice: Ints) -> None:
        """Decides `node` from the neighbours' choices, in place."""
        total = self.costs
        for other, ids, table in self.neighbours:
            # The ids are ascending, and the neighbour's choice is one of them, so a binary search is a lookup.
            total = total + table[:, np.searchsorted(ids, choice[other])]
        choice[self.node] = self.ids[int(total.argmin())]


@dataclass(frozen=True, slots=True)
class Substitution:
    """Trail entry: `node`'s strategy is a function of that of `master`."""

    node: int
    master: int
    master_ids: Ints
    ids: Ints

    def unwind(self, choice: Ints) -> None:
        """Copies the strategy that follows from the master's, in place."""
        choice[self.node] = self.ids[int(np.searchsorted(self.master_ids, choice[self.master]))]


@dataclass(slots=True)
class Network:
    """A reducible cost graph over a fixed set of memory rows.

    Attributes:
        ids: per node, the graph's numbers of the strategies that are left (ascending); None when the node is gone.
        costs: per node, cost of each strategy left.
        memory: per node, its variable memory; empty for nodes free of memory.
        links: per node, neighbour -> table [strategies of node, strategies of neighbour].
        rows: [rows] what the rows were called when the network was made (they are dropped as it is reduced).
        base: [rows] load that no choice can change.
        capacity: [rows] greatest load.
        constant: cost that no choice can change.
        trail: how to decide the nodes that are gone, in the order they went.
        infeasible: some node has no strategy left.
    """

    ids: list[Ints | None]
    costs: list[Floats]
    memory: list[Memory]
    links: list[dict[int, Floats]]
    rows: Ints
    base: Ints
    capacity: Ints
    constant: float = 0.0
    trail: list[Eliminated | Substitution] = field(default_factory=list)
    infeasible: bool = False
    interned: dict[tuple[int, bytes], Floats] = field(default_factory=dict)
    """Tables by number of rows and content: what looks equal tables up afterwards needs no comparison."""
    narrowed: dict[tuple[ByIdentity, bytes], tuple[Floats, Floats]] = field(default_factory=dict)
    """By table and remaining strategies: the smaller table and its transpose. Layers repeat, so most keys occur often."""

    def left(self, node: int) -> Ints:
        """The graph's numbers of the strategies of a node that is there."""
        ids = self.ids[node]
        assert ids is not None
        return ids

    @classmethod
    def of(cls, graph: CostGraph, timeline: Moments) -> Network:
        """The whole graph as a network over the timeline's rows."""
        # Without a limit there are no rows: no node then has memory, and reductions see a problem of costs alone.
        rows = timeline.num_rows if graph.limit is not None else 0
        offsets = graph.offsets.tolist()
        network = cls(
            ids=[np.arange(size, dtype=np.int64) for size in graph.sizes.tolist()],
            costs=[graph.costs[a:b] for a, b in zip(offsets, offsets[1:], strict=False)],
            memory=[_NO_MEMORY] * graph.num_nodes,
            links=[{} for _ in range(graph.num_nodes)],
            rows=np.arange(rows),
            base=np.zeros(rows, np.int64),
            capacity=np.full(rows, graph.limit if graph.limit is not None else 0, np.int64),
        )
        if rows:
            for node in range(graph.num_nodes):
                usages = graph.usages[None, offsets[node] : offsets[node + 1]]
                network.set_memory(node, Memory(timeline.spans[None, node], usages))
        # Each distinct table is interned once and not once per edge: graphs have far fewer tables than edges.
        both = [(network.intern(table), network.intern(table.T)) for table in graph.tables]
        for (first, second), index in zip(graph.edges.tolist(), graph.edge_tables.tolist(), strict=True):
            network.add_table(first, second, *both[index])
        return network

    def restricted(self, rows: Ints) -> Network:
        """A copy that keeps only the given memory rows (ascending): a relaxation."""
        network = Network(
            ids=list(self.ids),
            costs=list(self.costs),
            memory=list(self.memory),
            links=[dict(link) for link in self.links],
            rows=self.rows,
            base=self.base,
            capacity=self.capacity,
            constant=self.constant,
            trail=list(self.trail),
            infeasible=self.infeasible,
            # `narrowed` stays behind: its entries belong to strategies that this copy may yet keep.
            interned=dict(self.interned),
        )
        network.keep_rows(rows)
        return network

    def keep_rows(self, rows: Ints) -> list[int]:
        """Drops all memory rows but the given ones (ascending); returns the nodes whose memory became less."""
        self.rows, self.base, self.capacity = self.rows[rows], self.base[rows], self.capacity[rows]
        changed = []
        for node, memory in enumerate(self.memory):
            if len(memory):
                before = int((memory.spans[:, 1] - memory.spans[:, 0]).sum())
                # Spans are in numbers of rows, so they shrink with the rows; a span without rows left becomes empty.
                spans = np.searchsorted(rows, memory.spans)
                self.set_memory(node, Memory(spans, memory.usages))
                # A node that needs less may now be reducible, so the caller looks at it again.
                if int((spans[:, 1] - spans[:, 0]).sum()) < before:
                    changed.append(node)
        return changed

    def binding_rows(self) -> Ints:
        """Rows that some choice, however expensive, would overload."""
        most = np.zeros(len(self.base) + 1, dtype=np.int64)
        for memory in self.memory:
            # Each node at its greatest at every row: an upper bound of all loads, though no single choice may reach it.
            if len(memory):
                greatest = memory.usages.max(axis=1)
                np.add.at(most, memory.spans[:, 0], greatest)
                np.subtract.at(most, memory.spans[:, 1], greatest)
        return np.flatnonzero(np.cumsum(most)[:-1] > self.capacity - self.base)

    def alive(self) -> list[int]:
        """The nodes that are left."""
        return [node for node, ids in enumerate(self.ids) if ids is not None]

    def intern(self, table: Floats) -> Floats:
        """The one stored array equal to `table`, so that identity stands for equality."""
        table = np.ascontiguousarray(table)
        # 16 bytes of hash in place of the table: a collision has a chance of 2**-128, and keys of megabytes would
        # double the memory.
        key = (table.shape[0], blake2b(table.data, digest_size=16).digest())
        return self.interned.setdefault(key, table)

    def add_table(self, first: int, second: int, table: Floats, transposed: Floats) -> None:
        """Adds an interned table (and its interned transpose) to the edge between two nodes."""
        # Parallel edges are one edge with the sum of their tables.
        old = self.links[first].get(second)
        if old is not None:
            table = self.intern(old + table)
            transposed = self.intern(table.T)
        self.links[first][second] = table
        self.links[second][first] = transposed

    def set_memory(self, node: int, memory: Memory, *, merge: bool = True) -> None:
        """Gives a node its memory, tidied: the constant part goes to the base load, empty pieces are dropped."""
        if merge and len(memory) > 1:
            memory = memory.merged()
        # Whatever the node chooses, it takes at least the smallest usage of a piece, so that part is no choice.
        least = memory.usages.min(axis=1) * (memory.spans[:, 0] < memory.spans[:, 1])
        for index in np.flatnonzero(least):
            self.base[memory.spans[index, 0] : memory.spans[index, 1]] += least[index]
        usages = memory.usages - least[:, None]
        varies = usages.any(axis=1) & (memory.spans[:, 0] < memory.spans[:, 1])
        self.memory[node] = Memory(memory.spans[varies], usages[varies]) if varies.any() else _NO_MEMORY

    def add_memory(self, node: int, memory: Memory) -> None:
        """Adds pieces to a node; ranges may overlap until `set_memory` is next called for the node."""
        # Only the new pieces are tidied: nodes that absorb many others would otherwise be merged again each time.
        before = self.memory[node]
        self.set_memory(node, memory, merge=False)
        if len(before):
            self.memory[node] = before.joined(self.memory[node]) if len(self.memory[node]) else before

    def keep(self, node: int, mask: Booleans) -> None:
        """Removes the strategies of `node` that are not in `mask`."""
        ids = self.ids[node]
        assert ids is not None
        self.ids[node] = ids[mask]
        self.costs[node] = self.costs[node][mask]
        if len(self.memory[node]):
            self.set_memory(node, Memory(self.memory[node].spans, self.memory[node].usages[:, mask]))
        content = mask.tobytes()
        for other, table in self.links[node].items():
            key = ByIdentity(table), content
            both = self.narrowed.get(key)
            if both is None:
                smaller = self.intern(table[mask])
                both = self.narrowed[key] = smaller, self.intern(smaller.T)
            self.links[node][other], self.links[other][node] = both

    def remove(self, node: int) -> None:
        """Takes a node out; its tables are dropped."""
        for other in self.links[node]:
            del self.links[other][node]
        self.links[node] = {}
        self.memory[node] = _NO_MEMORY
        self.ids[node] = None

    def unwind(self, choice: Ints) -> Ints:
        """Completes a choice [N] (strategy numbers of the graph) given on the nodes that are left."""
        result = choice.copy()
        # What left the network last may depend only on what was still there, so the trail is read backwards.
        for entry in reversed(self.trail):
            entry.unwind(result)
        return result
