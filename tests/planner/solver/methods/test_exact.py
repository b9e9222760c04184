import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from solver_graphs import least_of_all, tied_graph, whole

from sporax.planner.budget import Budget
from sporax.planner.solver import evaluate
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.exact import peaks, solve_exactly

SEEDS = st.integers(0, 10**9)


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_agrees_with_trying_every_choice(seed, tiny_graph, least):
    graph = tiny_graph(seed)
    expected = least(graph)
    bounds = []
    core = Core.of(Network.of(graph, Moments.of(graph.intervals)))
    outcome = solve_exactly(core, Budget.of(30), report=bounds.append)
    if expected == np.inf:
        assert outcome.positions is None
        assert outcome.bound == np.inf
        return
    assert outcome.optimal
    assert evaluate(graph, core.expand(outcome.positions)).cost == expected
    assert bounds == sorted(bounds)
    assert abs(outcome.bound - expected) < 1e-6 * max(1, expected)


def test_no_time_means_no_answer(tiny_graph):
    graph = tiny_graph(1)
    core = Core.of(Network.of(graph, Moments.of(graph.intervals)))
    outcome = solve_exactly(core, Budget.of(-1))
    assert outcome.positions is None
    assert not outcome.optimal
    assert outcome.bound == -np.inf


def test_peaks_are_apart_and_worst_first():
    excess = np.array([0.0, 3.0, 2.9, -1.0, 0.5, 1.0, 0.0])
    assert peaks(excess, most=2).tolist() == [1, 5]
    assert peaks(-excess[:1]).tolist() == []


def test_hundreds_of_graphs_have_the_optimum_that_trying_every_choice_finds():
    infeasible = 0
    for seed in range(240):
        graph = tied_graph(seed)
        expected = least_of_all(graph)
        outcome = solve_exactly(whole(graph), Budget.of(60))
        if expected == np.inf:
            infeasible += 1
            assert outcome.positions is None, seed
            assert outcome.bound == np.inf, seed
        else:
            assert outcome.optimal, seed
            assert whole(graph).cost(outcome.positions) == pytest.approx(expected, abs=1e-7), seed
            assert whole(graph).fits(outcome.positions), seed
            assert outcome.bound == pytest.approx(expected, abs=1e-7), seed
    assert infeasible > 10
