import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from solver_graphs import whole

from sporax.planner.solver import CostGraph
from sporax.planner.solver.methods.coordinate_descent import RemainingCapacity, conditional, descend

SEEDS = st.integers(0, 10**9)


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_descent_from_a_choice_that_fits_stays_feasible_and_never_gets_dearer(seed, tiny_graph):
    core = whole(tiny_graph(seed, forbidden=0.0))
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, np.diff(core.offsets)).astype(np.int64)
    better = descend(core, positions)
    if core.fits(positions):
        assert core.fits(better)
        assert core.cost(better) <= core.cost(positions)


@settings(deadline=None, max_examples=40)
@given(seed=SEEDS)
def test_the_ledger_keeps_the_room_of_every_row(seed, tiny_graph):
    core = whole(tiny_graph(seed))
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, np.diff(core.offsets)).astype(np.int64)
    ledger = RemainingCapacity(core)
    for node, position in enumerate(positions.tolist()):
        ledger.change(node, position, -1)
    np.testing.assert_array_equal(ledger.left, core.room - core.loads(positions))


def alternatives(limit):
    """One node, live at one row: the cheaper a strategy is, the more memory it needs."""
    return whole(CostGraph.build([[1, 2, 3]], [[9, 5, 2]], [(0, 1)], [], limit))


@pytest.mark.parametrize(("limit", "picked"), [(9, 0), (6, 1), (2, 2)])
def test_the_cheapest_strategy_that_fits_is_picked(limit, picked):
    core = alternatives(limit)
    assert RemainingCapacity(core).pick(0, core.costs) == picked


def test_where_none_fits_the_smallest_overrun_is_picked():
    core = alternatives(0)
    ledger = RemainingCapacity(core)
    assert ledger.overrun(0).tolist() == [7, 3, 0]  # beyond the 2 that every strategy needs
    ledger.left -= 1
    assert ledger.pick(0, core.costs) == 2


def test_memory_given_back_can_be_taken_again():
    ledger = RemainingCapacity(alternatives(9))
    before = ledger.left.copy()
    ledger.change(0, 0, -1)
    assert ledger.left.tolist() == [0]
    ledger.change(0, 0, 1)
    np.testing.assert_array_equal(ledger.left, before)


def test_conditional_costs_count_the_tables_of_neighbours():
    core = whole(CostGraph.build([[1, 2], [3, 4]], [[0, 0]] * 2, [(0, 0)] * 2, [(0, 1, [10, 20, 30, 40])], None))
    assert conditional(core, core.costs, np.array([0, 1]), 0).tolist() == [1 + 20, 2 + 40]
    assert conditional(core, core.costs, np.array([1, 0]), 1).tolist() == [3 + 30, 4 + 40]


def test_descent_stops_where_no_single_node_can_improve():
    """Both nodes at strategy 1 cost 2; only changing both at once would reach 0."""
    core = whole(CostGraph.build([[0, 1]] * 2, [[0, 0]] * 2, [(0, 0)] * 2, [(0, 1, [0, 9, 9, 0])], None))
    assert descend(core, np.array([1, 1])).tolist() == [1, 1]
    assert core.cost(descend(core, np.array([0, 1]))) < core.cost(np.array([0, 1]))
    assert descend(core, np.array([0, 1]), sweeps=0).tolist() == [0, 1]
