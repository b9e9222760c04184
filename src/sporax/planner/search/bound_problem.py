"""The problem for a solver that shall prove: its memory is what a plan surely needs (`surely`).

So what it proves holds for all plans. Moments stand in a row, one tick each. What a decision takes is a node's memory; what two
decisions take together is the memory of a node for the pair, whose candidates are those of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sporax.planner.search.memory_lower_bound import Needs, Table, needs
from sporax.planner.search.problem import Problem
from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph import Floats, Ints

_Pair = tuple[int, int]
_Stretch = tuple[int, int, Ints]
"""The first tick, the one after the last, and the bytes meanwhile."""


def bounding_graph(problem: Problem, limit: int) -> CostGraph:
    """The problem with a memory limit in bytes that no plan breaks which keeps it; the first nodes are the decisions."""
    costs = [each.tolist() for each in problem.costs]
    usages = [[0] * len(each) for each in costs]
    spans: list[tuple[int, int]] = [(0, 0)] * len(costs)
    edges: list[tuple[int, int, Floats]] = [*problem.edges]
    for (first, second), stretches in _stretches(needs(problem)).items():
        rows, columns = len(problem.costs[first]), len(problem.costs[second])
        for begin, end, sizes in stretches:
            values = sizes.diagonal() if first == second else sizes.reshape(-1)
            if first == second and spans[first] == (0, 0):
                usages[first], spans[first] = values.tolist(), (begin, end)
                continue
            pairs = np.arange(rows) if first == second else np.repeat(np.arange(rows), columns)
            edges.append((first, len(costs), _tie(rows, pairs)))
            if first != second:
                edges.append((second, len(costs), _tie(columns, np.tile(np.arange(columns), rows))))
            costs.append([0.0] * len(values))
            usages.append(values.tolist())
            spans.append((begin, end))
    return CostGraph.build(costs, usages, spans, edges, limit, "plan")


def _tie(count: int, candidate: Ints) -> Floats:
    """A table [count, candidates of a further node] that allows only the candidates that agree."""
    return np.where(np.arange(count)[:, None] == candidate, 0.0, np.inf)


def _stretches(known: Needs) -> Mapping[_Pair, list[_Stretch]]:
    """For every decision (twice itself) and pair, when it takes how much."""
    found: dict[_Pair, list[_Stretch]] = {}
    for tick, tables in enumerate(known.moments.values()):
        for pair, sizes in _at_once(known.always, tables).items():
            before = found.setdefault(pair, [])
            if before and before[-1][1] == tick and np.array_equal(before[-1][2], sizes):
                before[-1] = (before[-1][0], tick + 1, sizes)
            else:
                before.append((tick, tick + 1, sizes))
    return found


def _at_once(always: Mapping[int, Ints], tables: Sequence[Table]) -> dict[_Pair, Ints]:
    """What one moment takes: tables over the same decisions in one, and those over one decision wherever that is possible."""
    found: dict[_Pair, Ints] = {(node, node): np.diag(sizes) for node, sizes in always.items() if sizes.any()}
    for table in tables:
        for first, second, sizes in _split(table):
            pair, sizes = ((first, second), sizes) if first <= second else ((second, first), sizes.T)
            found[pair] = found.get(pair, 0) + sizes
    return found


def _split(table: Table) -> Iterator[Table]:
    """A table over two decisions as a sum of tables over one each, where it is one."""
    first, second, sizes = table
    if first == second:
        yield Table(first, second, np.diag(sizes.diagonal()))
        return
    columns = sizes.min(axis=0) - sizes.min()
    rows = sizes[:, 0] - columns[0]
    if np.array_equal(rows[:, None] + columns, sizes) and rows.min() >= 0:
        yield Table(first, first, np.diag(rows))
        yield Table(second, second, np.diag(columns))
    else:
        yield table
