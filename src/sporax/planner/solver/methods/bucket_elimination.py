"""Bucket elimination: decisions are eliminated one by one, each with its best candidate per choice of its neighbours.

Problem: the exact optimum of a pairwise problem without a memory limit.

Method: a decision and its tables are replaced by one table over its neighbours. The operator, edge, merge, contract,
source, triangle and star eliminations of MindSpore's dynamic programming are special cases. The cost is the size of the
largest table; if that exceeds a limit, nothing is done and the caller uses another method.

Reference: R. Dechter, "Bucket elimination: a unifying framework for reasoning", Artificial Intelligence 113 (1999).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Floats, Ints


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A decision that is gone: its best candidate by those of `others`."""

    node: int
    others: tuple[int, ...]
    best: Ints


def eliminate(core: Core, most_entries: int) -> tuple[Ints, int] | None:
    """The best choice on a core without memory rows, and the size of the largest table.

    Args:
        most_entries: largest table that may be made.

    Returns:
        None when a larger table would be needed.
    """
    sizes = [int(size) for size in np.diff(core.offsets)]
    # The sizes of all tables follow from the neighbours alone, so nothing is computed where one would be too large.
    found = _order(core, sizes, most_entries)
    if found is None:
        return None
    order, largest = found
    factors = _factors(core)
    trail = [_take_out(node, others, factors, sizes) for node, others in order]
    chosen = np.zeros(core.num_nodes, dtype=np.int64)
    # The last eliminated depends on none, the first on those that were eliminated after it.
    for bucket in reversed(trail):
        chosen[bucket.node] = bucket.best[tuple(chosen[list(bucket.others)])]
    return chosen, largest


def _order(core: Core, sizes: list[int], most_entries: int) -> tuple[list[tuple[int, tuple[int, ...]]], int] | None:
    """Decisions in the order of their elimination, each with its neighbours then, and the size of the largest table.

    None when a table of more than `most_entries` would be needed.
    """
    neighbours = [{other for other, _ in link} for link in core.links]
    order: list[tuple[int, tuple[int, ...]]] = []
    largest = 0
    left = {node: _entries(node, neighbours, sizes) for node in range(core.num_nodes)}
    while left:
        # The decision whose table is smallest goes first (greedy minimum-weight ordering).
        node = min(left, key=left.__getitem__)
        entries = left.pop(node)
        if entries > most_entries:
            return None
        largest = max(largest, entries)
        others = neighbours[node]
        order.append((node, tuple(sorted(others))))
        for other in others:
            neighbours[other] |= others
            neighbours[other] -= {node, other}
        # Only the neighbours' tables have changed.
        left.update((other, _entries(other, neighbours, sizes)) for other in others)
    return order, largest


def _entries(node: int, neighbours: list[set[int]], sizes: list[int]) -> int:
    return sizes[node] * math.prod(sizes[other] for other in neighbours[node])


_Factors = list[dict[tuple[int, ...], Floats]]
"""Per decision the tables that it is part of, by their decisions in ascending order."""


def _factors(core: Core) -> _Factors:
    factors: _Factors = [{} for _ in range(core.num_nodes)]
    for node in range(core.num_nodes):
        _add(factors, (node,), core.costs[core.offsets[node] : core.offsets[node + 1]])
        for other, table in core.links[node]:
            if other > node:
                _add(factors, (node, other), table)
    return factors


def _add(factors: _Factors, scope: tuple[int, ...], table: Floats) -> None:
    before = factors[scope[0]].get(scope)
    # Tables over the same decisions are added at once, so that a scope has one table.
    total = table if before is None else before + table
    for node in scope:
        factors[node][scope] = total


def _take_out(node: int, others: tuple[int, ...], factors: _Factors, sizes: list[int]) -> _Bucket:
    """Replace a decision by a table over its neighbours."""
    scope = (*others, node)
    total = np.zeros([sizes[node] for node in scope])
    # The node's own axis is last in all of them, so that one `min` eliminates it.
    for factor, table in list(factors[node].items()):
        # The axis of the eliminated decision comes last, and missing axes have length one to be broadcast.
        moved = np.moveaxis(table, factor.index(node), -1) if len(factor) > 1 else table
        present = [other for other in factor if other != node] + [node]
        total += moved.reshape([sizes[other] if other in present else 1 for other in scope])
        for other in factor:
            del factors[other][factor]
    if others:
        _add(factors, others, total.min(axis=-1))
    return _Bucket(node, others, total.argmin(axis=-1))
