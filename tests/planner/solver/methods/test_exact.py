from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_graphs import hard_graph, least_of_all, network_of, tied_graph, whole

from sporax.planner.budget import Budget
from sporax.planner.solver import CostGraph, evaluate, solve
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.exact import ByProgram, peaks, solve_exactly
from sporax.planner.solver.methods.integer_program import Answer

SEEDS = st.integers(0, 10**9)


@pytest.mark.parametrize("make", [ByProgram, partial(ByProgram, after_messages=True)])
@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_agrees_with_trying_every_choice(make, seed, tiny_graph, least):
    graph = tiny_graph(seed)
    expected = least(graph)
    bounds = []
    core = Core.of(Network.of(graph, Moments.of(graph.intervals)))
    outcome = solve_exactly(core, Budget.of(30), report=bounds.append, rounds=make())
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
    by_messages = infeasible = 0
    for seed in range(240):
        graph = tied_graph(seed)
        expected, rounds = least_of_all(graph), ByProgram(after_messages=True)
        outcome = solve_exactly(whole(graph), Budget.of(60), rounds=rounds)
        by_messages += not rounds.is_needed
        if expected == np.inf:
            infeasible += 1
            assert outcome.positions is None, seed
            assert outcome.bound == np.inf, seed
        else:
            assert outcome.optimal, seed
            assert whole(graph).cost(outcome.positions) == pytest.approx(expected, abs=1e-7), seed
            assert whole(graph).fits(outcome.positions), seed
            assert outcome.bound == pytest.approx(expected, abs=1e-7), seed
    assert by_messages > 60
    assert infeasible > 10


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_larger_graphs_agree_with_the_integer_program(seed):
    graph = tied_graph(seed, nodes=11)
    rounds = ByProgram(after_messages=True)
    by_messages, expected = solve(graph, seconds=60, rounds=rounds), solve(graph, seconds=60)
    assert by_messages.infeasible == expected.infeasible
    if not expected.infeasible:
        assert by_messages.optimal
        assert expected.optimal
        assert by_messages.cost == pytest.approx(expected.cost, rel=1e-6)
        assert by_messages.statistics["method"] == rounds.method


def test_what_messages_leave_open_is_left_to_the_integer_program():
    rounds = ByProgram(after_messages=True)
    actual, expected = solve(hard_graph(), seconds=60, rounds=rounds), solve(hard_graph(), seconds=60)

    assert rounds.is_needed
    assert rounds.method == actual.statistics["method"] == "integer program"
    assert actual.optimal
    assert actual.cost == pytest.approx(expected.cost, rel=1e-6)


def test_bounds_hold_where_there_is_no_time_for_anybody_else(monkeypatch):
    graph = hard_graph()
    expected = solve(graph, seconds=60).cost
    network = reduce(Network.of(graph, Moments.of(graph.intervals)))
    monkeypatch.setattr(
        "sporax.planner.solver.methods.exact.solve_program", lambda *_, **__: Answer(None, -np.inf, False)
    )
    answer = ByProgram(after_messages=True)(network, Budget.of(60.0), 0.0)
    assert answer.bound <= expected + 1e-6
    assert answer.positions is None or Core.of(network).cost(answer.positions) >= expected - 1e-6
    assert not answer.finished


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, gap=st.sampled_from([0.02, 0.1, 0.5]))
def test_a_gap_that_is_good_enough_is_kept_and_told(seed, gap):
    graph = tied_graph(seed)
    expected = least_of_all(graph)
    actual = solve(graph, seconds=60, rounds=ByProgram(after_messages=True), gap=gap)
    if expected == np.inf:
        assert actual.infeasible
        return
    assert expected - 1e-7 <= actual.cost <= (1 + gap) * actual.bound + 1e-6
    assert actual.bound <= expected + 1e-7
    assert not actual.optimal or actual.cost == pytest.approx(expected, rel=1e-8, abs=1e-7)


def test_a_network_without_nodes_is_answered_by_its_constant():
    network = network_of(CostGraph.build([], [], [], [], None))
    network.constant = 7.0
    answer = ByProgram(after_messages=True)(network, Budget.of(60.0), 0.0)
    assert (answer.positions.tolist(), answer.bound, answer.finished) == ([], 7.0, True)


def test_a_chain_is_solved_by_messages_alone():
    """The linear relaxation of a chain is exact, so its bound meets the choice that is read off."""
    graph = tied_graph(0, nodes=2, limit=1000)
    rounds = ByProgram(after_messages=True)
    answer = rounds(network_of(graph), Budget.of(60.0), 0.0)
    assert rounds.method == "messages"
    assert answer.bound == pytest.approx(least_of_all(graph))
