"""Exact elimination of decisions, compared with trying every choice."""

import itertools

import numpy as np
import pytest

from sporax.planner.solver import CostGraph, evaluate
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.bucket_elimination import eliminate


def core_of(graph):
    return Core.of(Network.of(graph, Moments.of(graph.intervals)))


def joined(pairs, size=3, nodes=5, seed=0):
    """Decisions with `size` candidates each, with random costs and tables between the given pairs."""
    random = np.random.default_rng(seed)
    tables = [(a, b, random.integers(0, 20, (size, size)).astype(float)) for a, b in pairs]
    costs = random.integers(0, 20, (nodes, size)).tolist()
    return core_of(CostGraph.build(costs, [[0] * size] * nodes, [(0, 0)] * nodes, tables, None))


def test_chains_and_stars_need_tables_over_two_decisions_only():
    assert eliminate(joined([(0, 1), (1, 2), (2, 3), (3, 4)]), 10**6)[1] == 3 * 3
    assert eliminate(joined([(0, 1), (0, 2), (0, 3), (0, 4)]), 10**6)[1] == 3 * 3


def test_a_ring_needs_tables_over_three_decisions_and_no_more():
    assert eliminate(joined([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]), 10**6)[1] == 3**3


def test_all_pairs_joined_need_one_table_over_all():
    assert eliminate(joined(list(itertools.combinations(range(5), 2))), 10**6)[1] == 3**5


def test_forbidden_pairs_are_avoided():
    graph = CostGraph.build([[0, 9]] * 2, [[0, 0]] * 2, [(0, 0)] * 2, [(0, 1, [np.inf, 1, 2, 0])], None)
    chosen, _ = eliminate(core_of(graph), 10**6)
    assert chosen.tolist() == [0, 1]


def test_no_decisions_are_decided_by_nothing():
    chosen, largest = eliminate(core_of(CostGraph.build([], [], [], [], None)), 10**6)
    assert (chosen.tolist(), largest) == ([], 0)


def random_graph(seed, nodes=7, edges=12):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, nodes).tolist()
    pairs = [random.choice(nodes, 2, replace=False).tolist() for _ in range(edges)]
    tables = [(a, b, random.integers(0, 20, (sizes[a], sizes[b])).astype(float)) for a, b in pairs]
    costs = [random.integers(0, 20, size).tolist() for size in sizes]
    return CostGraph.build(costs, [[0] * size for size in sizes], [(0, 0)] * nodes, tables, None)


@pytest.mark.parametrize("seed", range(12))
def test_elimination_finds_what_enumeration_finds(seed):
    graph = random_graph(seed)
    core = Core.of(Network.of(graph, Moments.of(graph.intervals)))
    chosen, largest = eliminate(core, 10**6)
    every = itertools.product(*(range(size) for size in graph.sizes.tolist()))

    assert evaluate(graph, core.expand(chosen).tolist()).cost == min(evaluate(graph, choice).cost for choice in every)
    assert largest >= 1


def test_elimination_stops_before_a_table_too_large():
    graph = random_graph(0)
    core = Core.of(Network.of(graph, Moments.of(graph.intervals)))
    _, largest = eliminate(core, 10**6)

    assert eliminate(core, 2) is None
    assert eliminate(core, largest - 1) is None
    assert eliminate(core, largest)[1] == largest
