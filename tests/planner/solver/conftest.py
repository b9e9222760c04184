"""Tiny random cost graphs, and the oracle that tries every choice. Helpers stand next to the tests, the contest's files in benchmarks."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from sporax.planner.solver import CostGraph, evaluate

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[3] / "benchmarks" / "iopddl")]


def _tiny_graph(seed, *, forbidden=0.25, nodes=6, limited=True):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, nodes + 1))
    sizes = rng.integers(1, 4, count)
    costs = [rng.integers(0, 20, k).astype(float).tolist() for k in sizes]
    usages = [rng.integers(0, 6, k).tolist() for k in sizes]
    begins = rng.integers(0, 8, count)
    intervals = [(int(b), int(b + d)) for b, d in zip(begins, rng.integers(0, 6, count), strict=True)]
    edges = []
    for first in range(count):
        for second in range(first + 1, count):
            if rng.random() < 0.5:
                table = rng.integers(0, 20, (sizes[first], sizes[second])).astype(float)
                table[rng.random(table.shape) < forbidden] = 1e18
                edges.append((first, second, table) if rng.random() < 0.5 else (second, first, table.T))
    limit = int(rng.integers(2, 14)) if limited else None
    return CostGraph.build(costs, usages, intervals, edges, limit, f"tiny{seed}")


def _least(graph):
    best = np.inf
    for choices in product(*(range(k) for k in graph.sizes)):
        measured = evaluate(graph, choices)
        if measured.feasible:
            best = min(best, measured.cost)
    return best


@pytest.fixture(scope="session")
def tiny_graph():
    """A function of a seed that makes a graph small enough to try every choice."""
    return _tiny_graph


@pytest.fixture(scope="session")
def least():
    """A function of a graph: the least cost of a choice that fits (inf when there is none), by trying them all."""
    return _least
