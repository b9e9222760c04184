"""The problem with a memory limit that is a relaxation: no plan that fits the limit violates it.

Problem: a solver can prove optimality only if its memory constraint never excludes a plan that fits.

Method: its memory is the lower bound of `memory_lower_bound`. The moments of that bound become consecutive time steps
of a cost graph. Bytes that depend on one decision are the usage of its node. Bytes that depend on two decisions are the
usage of an extra node whose strategies are the pairs of their candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sporax.planner.search.bound.memory_lower_bound import BoundTable, MemoryLowerBound, memory_lower_bound
from sporax.planner.search.space.problem import Problem
from sporax.planner.solver.graph.cost_graph import CostGraph, Floats, Ints

_Pair = tuple[int, int]
_Interval = tuple[int, int, Ints]
"""The first tick, the one after the last, and the bytes meanwhile."""


def bounding_graph(problem: Problem, limit: int) -> CostGraph:
    """The problem with a memory limit in bytes that no plan breaks which keeps it; the first nodes are the decisions."""
    costs = [costs_of.tolist() for costs_of in problem.costs]
    usages = [[0] * len(costs_of) for costs_of in costs]
    spans: list[tuple[int, int]] = [(0, 0)] * len(costs)
    edges: list[tuple[int, int, Floats]] = [*problem.edges]
    # Tables over one decision are stored as diagonals of that decision with itself.
    for (first, second), intervals in _intervals(memory_lower_bound(problem)).items():
        rows, columns = len(problem.costs[first]), len(problem.costs[second])
        for begin, end, sizes in intervals:
            values = sizes.diagonal() if first == second else sizes.reshape(-1)
            # A node has one usage and one span; further intervals of a decision need nodes of their own.
            if first == second and spans[first] == (0, 0):
                usages[first], spans[first] = values.tolist(), (begin, end)
                continue
            pairs = np.arange(rows) if first == second else np.repeat(np.arange(rows), columns)
            edges.append((first, len(costs), _agreement(rows, pairs)))
            if first != second:
                edges.append((second, len(costs), _agreement(columns, np.tile(np.arange(columns), rows))))
            costs.append([0.0] * len(values))
            usages.append(values.tolist())
            spans.append((begin, end))
    return CostGraph.build(costs, usages, spans, edges, limit, "plan")


# A node for a pair of candidates agrees with both decisions: tables of zeros and infinity tie them.
def _agreement(count: int, candidate: Ints) -> Floats:
    """A table [count, candidates of a further node] that allows only the candidates that agree."""
    return np.where(np.arange(count)[:, None] == candidate, 0.0, np.inf)


def _intervals(bound: MemoryLowerBound) -> Mapping[_Pair, list[_Interval]]:
    """For every decision (twice itself) and pair, when it takes how much."""
    intervals: dict[_Pair, list[_Interval]] = {}
    for tick, tables in enumerate(bound.moments.values()):
        for pair, sizes in _tables_at(bound.always, tables).items():
            before = intervals.setdefault(pair, [])
            # Consecutive moments with equal bytes become one interval: fewer nodes for the solver.
            if before and before[-1][1] == tick and np.array_equal(before[-1][2], sizes):
                before[-1] = (before[-1][0], tick + 1, sizes)
            else:
                before.append((tick, tick + 1, sizes))
    return intervals


def _tables_at(always: Mapping[int, Ints], tables: Sequence[BoundTable]) -> dict[_Pair, Ints]:
    """What one moment takes: tables over the same decisions in one, and those over one decision wherever that is possible."""
    tables_of: dict[_Pair, Ints] = {(node, node): np.diag(sizes) for node, sizes in always.items() if sizes.any()}
    for table in tables:
        for first, second, sizes in _split(table):
            pair, sizes = ((first, second), sizes) if first <= second else ((second, first), sizes.T)
            tables_of[pair] = tables_of.get(pair, 0) + sizes
    return tables_of


def _split(table: BoundTable) -> Iterator[BoundTable]:
    """A table over two decisions as a sum of tables over one each, where it is one."""
    first, second, sizes = table
    if first == second:
        yield BoundTable(first, second, np.diag(sizes.diagonal()))
        return
    # The share of the columns is not unique; this choice makes it zero at its least, so usages stay non-negative.
    # If a table is a sum, its first column gives the rows' share and its minima the columns' share.
    columns = sizes.min(axis=0) - sizes.min()
    rows = sizes[:, 0] - columns[0]
    if np.array_equal(rows[:, None] + columns, sizes) and rows.min() >= 0:
        yield BoundTable(first, first, np.diag(rows))
        yield BoundTable(second, second, np.diag(columns))
    else:
        yield table
