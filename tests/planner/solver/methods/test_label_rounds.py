import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_graphs import hard_graph, least_of_all, network_of, tied_graph, whole

from sporax.planner.budget import Budget
from sporax.planner.solver import CostGraph, solve
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce
from sporax.planner.solver.methods.exact import solve_exactly
from sporax.planner.solver.methods.integer_program import Answer
from sporax.planner.solver.methods.label_rounds import ByLabels

SEEDS = st.integers(0, 10**9)


def test_hundreds_of_graphs_have_the_optimum_that_trying_every_choice_finds():
    counted = with_labels = infeasible = 0
    for seed in range(240):
        graph = tied_graph(seed)
        expected, rounds = least_of_all(graph), ByLabels()
        outcome = solve_exactly(whole(graph), Budget.of(60), rounds=rounds)
        counted, with_labels = counted + 1, with_labels + (rounds.labels > 0)
        if expected == np.inf:
            infeasible += 1
            assert outcome.positions is None, seed
            assert outcome.bound == np.inf, seed
        else:
            assert outcome.optimal, seed
            assert whole(graph).cost(outcome.positions) == pytest.approx(expected, abs=1e-7), seed
            assert whole(graph).fits(outcome.positions), seed
            assert outcome.bound == pytest.approx(expected, abs=1e-7), seed
        assert not rounds.left
    assert with_labels > counted / 4
    assert infeasible > 10


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_larger_graphs_agree_with_the_integer_program(seed):
    graph = tied_graph(seed, nodes=11)
    rounds = ByLabels()
    by_labels, expected = solve(graph, seconds=60, rounds=rounds), solve(graph, seconds=60)
    assert by_labels.infeasible == expected.infeasible
    if not expected.infeasible:
        assert by_labels.optimal
        assert expected.optimal
        assert by_labels.cost == pytest.approx(expected.cost, rel=1e-6)
        assert by_labels.statistics["method"] == rounds.method


def test_too_many_labels_are_left_to_the_integer_program():
    full, capped = ByLabels(), ByLabels(most_joins=10)
    expected, actual = solve(hard_graph(), seconds=60, rounds=full), solve(hard_graph(), seconds=60, rounds=capped)

    assert full.method == "labels"
    assert 0 < full.largest <= full.labels
    assert capped.method == actual.statistics["method"] == "integer program"
    assert actual.optimal
    assert actual.cost == pytest.approx(expected.cost, rel=1e-6)


def test_bounds_hold_where_there_is_no_time_for_anybody_else(monkeypatch):
    graph = hard_graph()
    expected = solve(graph, seconds=60).cost
    network = reduce(Network.of(graph, Moments.of(graph.intervals)))
    monkeypatch.setattr(
        "sporax.planner.solver.methods.label_rounds.BY_PROGRAM", lambda *_: Answer(None, -np.inf, False)
    )
    for most_joins in (0, 100, 1000, 10_000):
        answer = ByLabels(most_joins)(network, Budget.of(60.0), 0.0)
        assert answer.bound <= expected + 1e-6
        assert answer.positions is None or Core.of(network).cost(answer.positions) >= expected - 1e-6
        assert not answer.finished or answer.bound == pytest.approx(expected, rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, gap=st.sampled_from([0.02, 0.1, 0.5]))
def test_a_gap_that_is_good_enough_is_kept_and_told(seed, gap):
    graph = tied_graph(seed)
    expected = least_of_all(graph)
    actual = solve(graph, seconds=60, rounds=ByLabels(), gap=gap)
    if expected == np.inf:
        assert actual.infeasible
        return
    assert expected - 1e-7 <= actual.cost <= (1 + gap) * actual.bound + 1e-6
    assert actual.bound <= expected + 1e-7
    assert not actual.optimal or actual.cost == pytest.approx(expected, rel=1e-8, abs=1e-7)


def test_a_network_without_nodes_is_answered_by_its_constant():
    network = network_of(CostGraph.build([], [], [], [], None))
    network.constant = 7.0
    answer = ByLabels()(network, Budget.of(60.0), 0.0)
    assert (answer.positions.tolist(), answer.bound, answer.finished) == ([], 7.0, True)


def test_the_method_is_named_by_what_was_needed():
    assert ByLabels().method == "messages"
    assert ByLabels(labels=3).method == "labels"
    assert ByLabels(labels=3, left=True).method == "integer program"


def test_a_chain_is_solved_by_messages_alone():
    """The linear relaxation of a chain is exact, so its bound meets the choice that is read off."""
    graph = tied_graph(0, nodes=2, limit=1000)
    rounds = ByLabels()
    answer = rounds(network_of(graph), Budget.of(60.0), 0.0)
    assert rounds.method == "messages"
    assert answer.bound == pytest.approx(least_of_all(graph))
