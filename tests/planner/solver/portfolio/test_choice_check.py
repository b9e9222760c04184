import numpy as np
import pytest

from sporax.base.errors import SporaxValueError
from sporax.planner.solver import CostGraph, evaluate

GRAPH = CostGraph.build(
    [[1, 2], [3, 1e18]], [[5, 1], [2, 2]], [(0, 2), (1, 3)], [(0, 1, [10, 0, 1e18, 0])], limit=6, name="pair"
)


def test_cost_and_peak_are_added_up():
    measured = evaluate(GRAPH, [0, 0])
    assert (measured.cost, measured.peak, measured.peak_time, measured.feasible) == (14.0, 7, 1, False)


def test_live_intervals_are_half_open():
    graph = CostGraph.build([[0], [0], [0]], [[3], [4], [9]], [(0, 2), (2, 3), (5, 5)], [], limit=4)
    measured = evaluate(graph, [0, 0, 0])
    assert (measured.peak, measured.peak_time, measured.feasible) == (4, 2, True)


@pytest.mark.parametrize("choices", [[1, 0], [1, 1]])
def test_forbidden_strategies_and_pairs_are_infeasible(choices):
    measured = evaluate(GRAPH, choices)
    assert np.isinf(measured.cost)
    assert not measured.feasible


@pytest.mark.parametrize(
    ("choices", "message"), [([0], "1 choices and 2 nodes"), ([0, 2], "node 1 must be from 0 to 1, but got 2")]
)
def test_wrong_choices_are_refused(choices, message):
    with pytest.raises(SporaxValueError, match=message):
        evaluate(GRAPH, choices)
