import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from solver_graphs import whole
from synthetic_graphs import training_step
from team_roles import BestKnown, Bounder, MarginalAscent, Searcher

from sporax.planner.budget import Budget
from sporax.planner.solver import evaluate
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.graph.reductions import reduce


@pytest.fixture
def board():
    return BestKnown(lambda *news: None)


def test_the_board_keeps_and_posts_only_what_is_better():
    posted = []
    board = BestKnown(lambda *news: posted.append(news[1:3]))
    board.bounded(1.0)
    board.post_choice(9.0, np.zeros(1, np.int64))
    board.post_choice(11.0, np.zeros(1, np.int64))
    board.bounded(0.5)
    assert posted == [(np.inf, 1.0), (9.0, 1.0)]
    assert not board.closed
    board.bounded(9.0)
    assert board.closed


def test_an_infinite_bound_without_a_choice_closes_the_board(board):
    assert not board.closed
    board.bounded(np.inf)
    assert board.closed


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**9))
def test_the_bounder_closes_tiny_graphs_at_the_optimum(seed, tiny_graph, least):
    graph = tiny_graph(seed, forbidden=0.0)
    board = BestKnown(lambda *news: None)
    bounder = Bounder(whole(graph), board)
    for _ in range(40):
        if board.closed:
            break
        bounder.step(Budget.of(20))
    assert board.closed
    assert board.cost == least(graph)


def test_marginals_of_a_smaller_core_are_spread_over_the_shared_one(board):
    graph = training_step(layers=2, mesh=(2, 4), choices=8, width=16)
    core = Core.of(reduce(Network.of(graph, Moments.of(graph.intervals))))
    bounder = Bounder(core, board)
    for _ in range(20):
        bounder.step(Budget.of(20))
        if board.closed:
            break
    assert board.marginals is not None
    assert len(board.marginals[1]) == len(core.costs)
    picked = board.marginals[1][core.offsets[:-1] + board.positions]
    assert np.isfinite(board.cost)
    assert not np.isnan(picked).any()


def test_the_searcher_starts_from_a_better_choice_of_others(board):
    graph = training_step(layers=1, mesh=(2, 4), choices=8, width=16)
    core = Core.of(reduce(Network.of(graph, Moments.of(graph.intervals))))
    first = Searcher(core, board, seed=0)
    first.step(Budget.of(20))
    actual = board.cost
    assert core.fits(board.positions)
    second = Searcher(core, board, seed=1)
    second.step(Budget.of(20))
    assert board.cost <= actual


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 10**9), limited=st.booleans(), forbidden=st.sampled_from([0.0, 0.6]))
def test_marginals_rule_out_no_strategy_of_the_optimum(seed, limited, forbidden, tiny_graph, least):
    graph = tiny_graph(seed, forbidden=forbidden, limited=limited)
    expected, core = least(graph), whole(graph)
    ascent = MarginalAscent(core)
    for _ in range(20):
        assert ascent.sweep() <= expected + 1e-6
    assert not np.isnan(ascent.marginals[1]).any()
    dominated = ascent.dominated(expected)
    for choices in np.ndindex(*graph.sizes):
        measured = evaluate(graph, choices)
        if measured.feasible and measured.cost == expected:
            assert not dominated[core.offsets[:-1] + np.array(choices)].any()
