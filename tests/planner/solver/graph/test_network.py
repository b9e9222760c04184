import numpy as np
import pytest
from hypothesis import strategies as st
from solver_graphs import network_of

from sporax.planner.solver import CostGraph
from sporax.planner.solver.graph.network import Eliminated, Memory, Substitution

SEEDS = st.integers(0, 10**9)


def two_nodes(limit=10):
    """Two nodes, live together at time 1 only; equal strategies cost nothing together, others 5."""
    return CostGraph.build([[1, 2], [3, 4]], [[2, 4], [3, 3]], [(0, 2), (1, 3)], [(0, 1, [0, 5, 5, 0])], limit)


def test_overlapping_pieces_are_merged_into_disjoint_ranges():
    memory = Memory(np.array([[0, 4], [2, 6]]), np.array([[1, 0], [0, 2]]))
    merged = memory.merged()
    assert merged.spans.tolist() == [[0, 2], [2, 4], [4, 6]]
    assert merged.usages.tolist() == [[1, 0], [1, 2], [0, 2]]


def test_neighbouring_ranges_of_equal_usage_become_one():
    memory = Memory(np.array([[0, 2], [2, 5]]), np.array([[1, 3], [1, 3]]))
    assert memory.merged().spans.tolist() == [[0, 5]]


def test_memory_that_no_choice_changes_goes_to_the_base_load():
    network = network_of(two_nodes())
    assert network.base.tolist() == [2 + 3]  # one maximal live set: both nodes at time 1
    assert network.memory[0].usages.tolist() == [[0, 2]]
    assert len(network.memory[1]) == 0  # both of its strategies use the same


@pytest.mark.parametrize(("limit", "binding"), [(7, []), (6, [0])])
def test_only_rows_that_some_choice_overloads_bind(limit, binding):
    assert network_of(two_nodes(limit)).binding_rows().tolist() == binding


def test_leaving_a_strategy_out_narrows_costs_tables_and_memory():
    network = network_of(two_nodes())
    network.keep(0, np.array([False, True]))
    assert network.ids[0].tolist() == [1]
    assert network.costs[0].tolist() == [2]
    assert network.links[0][1].tolist() == [[5, 0]]
    assert network.links[1][0].tolist() == [[5], [0]]
    assert network.base.tolist() == [4 + 3]  # what is left of node 0 is no choice


def test_parallel_edges_add_up():
    graph = CostGraph.build(
        [[0, 0]] * 2, [[0, 0]] * 2, [(0, 0)] * 2, [(0, 1, [1, 2, 3, 4]), (1, 0, [10, 20, 30, 40])], None
    )
    assert network_of(graph).links[0][1].tolist() == [[1 + 10, 2 + 30], [3 + 20, 4 + 40]]


def test_equal_tables_are_one_array():
    network = network_of(two_nodes())
    assert network.intern(np.array([[0.0, 5.0], [5.0, 0.0]])) is network.links[0][1]


def test_a_restricted_copy_leaves_the_original_alone():
    graph = CostGraph.build([[1, 2]] * 2, [[0, 4]] * 2, [(0, 1), (2, 3)], [], 3)
    network = network_of(graph)
    copy = network.restricted(np.array([1]))
    assert (len(copy.base), len(network.base)) == (1, 2)
    assert len(copy.memory[0]) == 0  # node 0 is live at the row that was left out
    assert network.memory[0].usages.tolist() == [[0, 4]]


def test_dropped_rows_say_which_nodes_need_less():
    graph = CostGraph.build([[1, 2]] * 2, [[0, 4]] * 2, [(0, 1), (2, 3)], [], 3)
    assert network_of(graph).keep_rows(np.array([1])) == [0]


def test_unwinding_undoes_eliminations_latest_first():
    """Node 1 copies node 2, and node 0 then takes what is cheapest next to node 1."""
    network = network_of(CostGraph.build([[0, 0]] * 3, [[0, 0]] * 3, [(0, 0)] * 3, [], None))
    numbers = np.arange(2)
    differ = np.array([[9.0, 0.0], [0.0, 9.0]])
    network.trail = [
        Eliminated(0, numbers, np.zeros(2), ((1, numbers, differ),)),
        Substitution(1, 2, numbers, numbers[::-1]),
    ]
    assert network.unwind(np.array([0, 0, 0])).tolist() == [0, 1, 0]
