"""The cost graph: what the solver solves.

A node is one decision (an operator, a parameter): it picks one of its strategies. Each strategy has a cost and a memory
usage, and the node is *live* over a half-open interval of logical time. An edge joins two nodes with a table of costs,
one entry per pair of strategies. The task: choose one strategy per node so that the sum of node and edge costs is
least, while at every time the usages of the live nodes stay within the limit.

`CostGraph` is a frozen value with flat arrays: strategies of all nodes are one after another, and equal edge tables are
stored once, because real graphs repeat a few hundred tables tens of thousands of times.

Time, reduced to the moments that matter.

The memory limit holds at every time, but most times say nothing: the live set at a time just before something else
starts is part of a later live set. Only *maximal* live sets are kept, as numbered rows; a node's live interval becomes
a range of rows, empty when every set it belongs to is contained in another one that it also belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import For, SporaxValueError

# One width everywhere: mixed integer widths would make numpy convert, and usages of large models exceed 32 bits.
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Booleans = NDArray[np.bool_]

OPTIMALITY_TOLERANCE = 1e-9
"""A cost counts as optimal when the bound is within this share of it: the accuracy of the arithmetic."""
INFINITE_COST = 1e17
"""Cost from which on a strategy is "not allowed", stored as ``inf``: contest files write 10**18, allowed costs stay far below."""


# Not slotted: `cached_property` needs a `__dict__`. No `eq`: comparing arrays element by element is never what is meant.
@dataclass(frozen=True, slots=False, eq=False)
class CostGraph:
    """A pairwise choice problem with a memory limit. Build it with `CostGraph.build`.

    Shapes: N nodes, M edges, K strategies of all nodes together, D distinct tables.

    Attributes:
        offsets: [N + 1] strategies of node ``v`` are ``offsets[v]:offsets[v + 1]``.
        costs: [K] cost of each strategy; ``inf`` forbids it.
        usages: [K] memory of each strategy while its node is live, in the unit of `limit`.
        intervals: [N, 2] node ``v`` is live at times ``intervals[v, 0] <= t < intervals[v, 1]``; empty is allowed.
        edges: [M, 2] the two nodes of each edge.
        edge_tables: [M] index into `tables` for each edge.
        tables: D arrays [strategies of first node, strategies of second node].
        limit: greatest total usage at any time; None means no limit.
        name: where the graph comes from, for messages.
    """

    offsets: Ints
    costs: Floats
    usages: Ints
    intervals: Ints
    edges: Ints
    edge_tables: Ints
    tables: tuple[Floats, ...]
    limit: int | None
    name: str = "graph"

    @classmethod
    def build(
        cls,
        node_costs: Sequence[Sequence[float]],
        node_usages: Sequence[Sequence[float]],
        intervals: Iterable[tuple[int, int]],
        edges: Iterable[tuple[int, int, Sequence[float] | Floats]],
        limit: int | None,
        name: str = "graph",
    ) -> CostGraph:
        """Makes a graph from plain lists and checks it.

        Args:
            node_costs: per node, per strategy.
            node_usages: same shape, non-negative integers.
            intervals: per node ``(begin, end)``, half open.
            edges: ``(first, second, table)``, the table row-major over (strategies of first, strategies of second).
                A table on one node (``first == second``) counts its diagonal.
            limit: memory limit or None.
            name: used in messages.

        Raises:
            SporaxValueError: a list has the wrong length, an index does not exist, a value is not a number.
        """
        For(name).refuse(limit is not None and limit < 0, "the limit must not be negative", limit)
        sizes = np.array([len(c) for c in node_costs], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        _check_nodes(sizes, node_usages, name)
        costs = np.concatenate([np.asarray(c, dtype=np.float64) for c in node_costs] or [np.zeros(0)])
        usages = np.concatenate([np.asarray(u, dtype=np.int64) for u in node_usages] or [np.zeros(0, np.int64)])
        spans = np.array(list(intervals), dtype=np.int64).reshape(-1, 2)
        if len(spans) != len(sizes):
            raise SporaxValueError(
                f"For '{name}', there must be one live interval per node, but got {len(spans)} intervals and {len(sizes)} nodes."
            )
        pairs, indices, tables = _intern_tables(edges, sizes, costs, offsets, name)
        # After the tables: those on a single node were added to these costs.
        costs[costs >= INFINITE_COST] = np.inf
        wrong = np.isnan(costs) | np.isneginf(costs) | (usages < 0)
        if wrong.any():
            bad = int(np.flatnonzero(wrong)[0])
            node = int(np.searchsorted(offsets, bad, side="right")) - 1
            raise SporaxValueError(
                f"For '{name}', costs must be numbers above -inf and usages must not be negative, but got cost {costs[bad]} and "
                f"usage {usages[bad]} in strategy {bad - offsets[node]} of node {node}."
            )
        return cls(offsets, costs, usages, spans, pairs, indices, tables, limit, name)

    @classmethod
    def unlimited(cls, node_costs: Sequence[Floats], edges: Iterable[tuple[int, int, Floats]], name: str) -> CostGraph:
        """A graph in which memory plays no part."""
        costs = [node_cost.tolist() for node_cost in node_costs]
        # Empty intervals: no node is ever live.
        return cls.build(costs, [[0] * len(costs_of) for costs_of in costs], [(0, 0)] * len(costs), edges, None, name)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges, M."""
        return len(self.edges)

    @cached_property
    def sizes(self) -> Ints:
        """[N] number of strategies of each node."""
        return np.diff(self.offsets)

    def __repr__(self) -> str:
        return (
            f"CostGraph(name={self.name!r}, nodes={self.num_nodes}, edges={self.num_edges}, "
            f"strategies={len(self.costs)}, tables={len(self.tables)}, limit={self.limit})"
        )


def _check_nodes(sizes: Ints, usages: Sequence[Sequence[float]], name: str) -> None:
    if len(usages) != len(sizes):
        raise For(name).error(f"costs and usages must have one entry per node, but got {len(sizes)} and {len(usages)}")
    for node, (size, usage) in enumerate(zip(sizes.tolist(), usages, strict=True)):
        if size == 0 or len(usage) != size:
            raise SporaxValueError(
                f"For '{name}', node {node} must have at least one strategy and as many usages as costs, "
                f"but got {size} costs and {len(usage)} usages."
            )


def _intern_tables(
    edges: Iterable[tuple[int, int, Sequence[float] | Floats]], sizes: Ints, costs: Floats, offsets: Ints, name: str
) -> tuple[Ints, Ints, tuple[Floats, ...]]:
    """Stores equal tables once; adds tables on a single node to that node's costs (in place)."""
    index_of: dict[tuple[int, bytes], int] = {}
    tables: list[Floats] = []
    pairs: list[tuple[int, int]] = []
    indices: list[int] = []
    count = len(sizes)
    for number, (first, second, table) in enumerate(edges):
        if not (0 <= first < count and 0 <= second < count):
            raise For(name).error(f"edge {number} must join nodes below {count}, but got nodes {first} and {second}")
        flat = np.asarray(table, dtype=np.float64).reshape(-1)
        rows, columns = int(sizes[first]), int(sizes[second])
        if len(flat) != rows * columns:
            raise SporaxValueError(
                f"For '{name}', the table of edge {number} between nodes {first} and {second} must have "
                f"{rows} x {columns} = {rows * columns} costs, but got {len(flat)}."
            )
        if first == second:
            costs[offsets[first] : offsets[first + 1]] += flat.reshape(rows, columns).diagonal()
            continue
        # Arrays have no hash; equal bytes are equal tables, and a zero of another sign only costs a second copy.
        key = (rows, flat.tobytes())
        if key not in index_of:
            wrong = np.isnan(flat) | np.isneginf(flat)
            if wrong.any():
                entry = int(np.flatnonzero(wrong)[0])
                raise SporaxValueError(
                    f"For '{name}', the table of edge {number} must hold numbers above -inf, but entry {entry} is {flat[entry]}."
                )
            index_of[key] = len(tables)
            tables.append(np.where(flat >= INFINITE_COST, np.inf, flat).reshape(rows, columns))
        pairs.append((first, second))
        indices.append(index_of[key])
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(indices, np.int64), tuple(tables)


@dataclass(frozen=True, slots=True)
class Moments:
    """The rows of a graph's memory constraint.

    Attributes:
        times: [R] the time that each row stands for, ascending.
        spans: [N, 2] each node's half-open range of rows.
    """

    times: Ints
    spans: Ints

    @classmethod
    def of(cls, intervals: Ints) -> Moments:
        """Finds the maximal live sets of half-open `intervals` [N, 2]."""
        live = intervals[intervals[:, 1] > intervals[:, 0]]
        begins, ends = np.unique(live[:, 0]), np.unique(live[:, 1])
        # A live set is maximal where something begins and the next event is an end.
        # At one time, ends come before begins: intervals are half open, hence `side="right"`.
        following = np.searchsorted(ends, begins, side="right")
        next_begin = np.append(begins[1:], np.iinfo(np.int64).max)
        times = begins[ends[following] <= next_begin] if len(begins) else begins
        # Rows inside [begin, end): those between the two insertion points.
        spans = np.stack([np.searchsorted(times, intervals[:, 0]), np.searchsorted(times, intervals[:, 1])], axis=1)
        # A node may have an empty interval: begin past its end would be a span of negative length.
        spans[:, 1] = np.maximum(spans[:, 0], spans[:, 1])
        return cls(times, spans.astype(np.int64))

    @property
    def num_rows(self) -> int:
        """Number of rows, R."""
        return len(self.times)
