import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from solver_graphs import network_of

from sporax.planner.budget import Budget
from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.exact import build_program, compress, solve_program

SEEDS = st.integers(0, 10**9)


@given(seed=SEEDS)
def test_compressed_tables_are_the_tables(seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 3, (5, 4)).astype(float) + rng.integers(0, 9, (5, 1))
    table[rng.random(table.shape) < 0.2] = np.inf
    table[:, 0], table[0] = 1.0, 2.0
    packed = compress(table)
    rebuilt = (
        packed.first_costs[:, None] + packed.second_costs + packed.core[packed.first[:, None], packed.second[None, :]]
    )
    np.testing.assert_array_equal(rebuilt, table)
    assert packed.core.min() >= 0


def test_equal_rows_share_edge_columns(tiny_graph):
    table = np.array([[0.0, 3.0], [5.0, 8.0], [1.0, 0.0]])  # rows 0 and 1 differ by a constant
    assert compress(table).core.shape == (2, 2)


def test_memory_rows_are_in_the_program(tiny_graph):
    graph = tiny_graph(3)
    network = Network.of(graph, Moments.of(graph.intervals))
    program = build_program(network)
    assert np.isinf(program.lower).sum() == len(network.base)


@settings(deadline=None, max_examples=25)
@given(seed=SEEDS)
def test_the_optimum_is_that_of_trying_every_choice(seed, tiny_graph, least):
    graph = tiny_graph(seed)
    network, expected = network_of(graph), least(graph)
    answer = solve_program(build_program(network), Budget.of(30))
    assert answer.finished
    assert answer.infeasible == (expected == np.inf)
    if answer.infeasible:
        assert answer.positions is None
        return
    assert Core.of(network).cost(answer.positions) == expected
    assert answer.bound == pytest.approx(expected, abs=1e-6)


def test_a_program_without_nodes_is_its_constant():
    network = network_of(CostGraph.build([], [], [], [], None))
    network.constant = 7.0
    answer = solve_program(build_program(network), Budget.of(30))
    assert (answer.positions.tolist(), answer.bound, answer.finished) == ([], 7.0, True)


def test_the_networks_constant_is_in_the_bound():
    network = network_of(CostGraph.build([[1, 2]], [[0, 0]], [(0, 0)], [], None))
    network.constant = 40.0
    assert solve_program(build_program(network), Budget.of(30)).bound == pytest.approx(41.0)


def test_forbidden_pairs_get_no_column():
    table = [0, np.inf, np.inf, 0]
    program = build_program(
        network_of(CostGraph.build([[1, 2]] * 2, [[0, 0]] * 2, [(0, 0)] * 2, [(0, 1, table)], None))
    )
    assert program.num_strategies == 4
    assert len(program.costs) == 4 + 2
