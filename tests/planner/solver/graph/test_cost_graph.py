import numpy as np
import pytest

from sporax.base.errors import SporaxValueError
from sporax.planner.solver import CostGraph


def build(**changes):
    parts = {
        "node_costs": [[1, 2], [3, 4, 5]],
        "node_usages": [[1, 1], [2, 2, 2]],
        "intervals": [(0, 2), (1, 3)],
        "edges": [(0, 1, [0, 1, 2, 3, 4, 5])],
        "limit": 10,
    }
    return CostGraph.build(**{**parts, **changes})


def test_build_lays_strategies_out_flat():
    graph = build()
    assert graph.num_nodes == 2
    assert graph.num_edges == 1
    np.testing.assert_array_equal(graph.offsets, [0, 2, 5])
    np.testing.assert_array_equal(graph.tables[0], [[0, 1, 2], [3, 4, 5]])


def test_equal_tables_are_stored_once():
    graph = build(edges=[(0, 1, [0.0] * 6), (0, 1, [0.0] * 6), (1, 0, [0.0] * 6)])
    assert len(graph.tables) == 2  # 2 x 3 and 3 x 2 differ
    np.testing.assert_array_equal(graph.edge_tables, [0, 0, 1])


def test_an_edge_on_one_node_adds_its_diagonal():
    graph = build(edges=[(0, 0, [10, 99, 99, 20])])
    assert graph.num_edges == 0
    np.testing.assert_array_equal(graph.costs[:2], [11, 22])


def test_huge_costs_are_infinite():
    graph = build(node_costs=[[1, 10**18], [3, 4, 5]], edges=[(0, 1, [10**18] + [0] * 5)])
    assert np.isinf(graph.costs[1])
    assert np.isinf(graph.tables[0][0, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_usages": [[1, 1]]}, "one entry per node, but got 2 and 1"),
        ({"node_usages": [[1, 1], [2]]}, "node 1 .* got 3 costs and 1 usages"),
        ({"node_costs": [[], [3, 4, 5]], "node_usages": [[], [2, 2, 2]]}, "node 0 must have at least one strategy"),
        ({"intervals": [(0, 2)]}, "got 1 intervals and 2 nodes"),
        ({"edges": [(0, 2, [0])]}, "edge 0 must join nodes below 2, but got nodes 0 and 2"),
        ({"edges": [(0, 1, [0, 1])]}, "2 x 3 = 6 costs, but got 2"),
        ({"edges": [(0, 1, [float("nan")] * 6)]}, "edge 0 must hold numbers"),
        ({"node_costs": [[1, float("nan")], [3, 4, 5]]}, "strategy 1 of node 0"),
        ({"node_usages": [[1, 1], [2, -2, 2]]}, "usage -2 in strategy 1 of node 1"),
        ({"limit": -1}, "limit must not be negative, but got -1"),
    ],
)
def test_wrong_parts_are_refused(changes, message):
    with pytest.raises(SporaxValueError, match=message):
        build(**changes)
