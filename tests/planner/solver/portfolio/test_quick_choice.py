"""Good choices in linear time, compared with the best of all choices."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from planner_graphs import cheapest_cost, layers, mesh_of, problem_of
from solver_graphs import least_of_all, random_graph, tied_graph

from sporax.planner.budget import Budget
from sporax.planner.solver import CostGraph, evaluate, solve
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.cost_graph import Moments
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.exact import Answer
from sporax.planner.solver.methods.trws import MessagePassing
from sporax.planner.solver.portfolio import quick_choice
from sporax.planner.solver.portfolio.quick_choice import (
    bounded,
    choose,
    converge,
    decide,
    lower_bound,
    neighborhood_order,
    refined,
    reoptimized,
)

SEEDS = st.integers(0, 10**6)


def core_of(graph):
    return Core.of(Network.of(graph, Moments.of(graph.intervals)))


@settings(max_examples=20)
@given(seed=SEEDS)
def test_small_problems_are_solved_exactly(seed):
    graph = random_graph(seed)
    assert evaluate(graph, choose(graph)).cost == solve(graph).cost


@settings(max_examples=15)
@given(seed=SEEDS)
def test_bounds_are_below_and_choices_above_the_optimum(seed):
    graph = random_graph(seed)
    best = solve(graph).cost
    assert lower_bound(graph) <= best + 1e-6
    messages = MessagePassing(core_of(graph))
    assert converge(messages) <= best + 1e-6


def test_without_exact_elimination_messages_and_neighborhoods_come_close(monkeypatch):
    monkeypatch.setattr(quick_choice, "_SMALL", 0)
    for seed in range(5):
        graph = random_graph(seed)
        core = core_of(graph)
        positions, bound = bounded(core)
        best = solve(graph).cost
        assert bound <= best + 1e-6
        assert best <= core.cost(positions) <= 1.02 * best


def test_what_messages_leave_open_is_left_to_the_integer_program():
    methods = set()
    for seed in range(20):
        graph = random_graph(seed, nodes=8)
        decision = decide(core := core_of(graph), Budget.of(60.0), largest_table=0)
        assert core.cost(decision.positions) == pytest.approx(decision.bound) == pytest.approx(solve(graph).cost)
        methods.add(decision.statistics["method"])
    assert methods == {"messages", "integer program"}


@pytest.mark.parametrize("gap", [0.02, 0.1, 0.5])
def test_a_gap_that_is_good_enough_is_kept(gap):
    for seed in range(10):
        graph = random_graph(seed, nodes=8)
        decision = decide(core := core_of(graph), Budget.of(60.0), largest_table=0, epsilon=gap)
        assert decision.bound <= solve(graph).cost + 1e-6
        assert core.cost(decision.positions) <= (1 + gap) * decision.bound + 1e-6


def test_bounds_hold_where_the_integer_program_has_no_time(monkeypatch):
    graph = random_graph(3, nodes=14)
    best = solve(graph).cost
    monkeypatch.setattr(
        "sporax.planner.solver.methods.exact.solve_program", lambda *_, **__: Answer(None, -np.inf, False)
    )
    decision = decide(core := core_of(graph), Budget.of(60.0), largest_table=0)
    assert decision.bound <= best + 1e-6
    assert best - 1e-6 <= core.cost(decision.positions) <= 1.1 * best


def test_a_chain_is_decided_by_messages_alone():
    """The linear relaxation of a chain is exact, so its bound meets the choice that is read off."""
    graph = tied_graph(0, nodes=2, limit=1000)
    decision = decide(core := core_of(graph), Budget.of(60.0), largest_table=0)
    assert decision.statistics["method"] == "messages"
    assert core.cost(decision.positions) == pytest.approx(least_of_all(graph))


@settings(max_examples=10)
@given(seed=SEEDS)
def test_free_decisions_get_the_best_of_their_choices_whatever_method_decides(seed):
    core = core_of(random_graph(seed, nodes=6))
    start, free = np.zeros(core.num_nodes, np.int64), np.array([1, 3, 4])
    best = min(core.cost(_with(start, free, entry)) for entry in itertools.product(range(3), repeat=3))
    chosen = reoptimized(core, start, free)
    assert core.cost(chosen) == best
    assert chosen[[0, 2, 5]].tolist() == [0, 0, 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick_choice, "_SMALL_TABLE", 0)
        assert core.cost(reoptimized(core, start, free)) == pytest.approx(best)


def _with(start, free, entry):
    positions = start.copy()
    positions[free] = entry
    return positions


def test_refining_never_makes_a_choice_more_expensive(monkeypatch):
    for name, number in (("_ONE_NEIGHBORHOOD", 0), ("_NEIGHBORHOODS", 4), ("_NEIGHBORHOOD", 4)):
        monkeypatch.setattr(quick_choice, name, number)
    core = core_of(random_graph(3, nodes=12))
    start = np.zeros(core.num_nodes, np.int64)
    better = refined(core, start)
    assert core.cost(better) < core.cost(start)


@pytest.mark.parametrize(
    ("start", "size", "nodes"), [(0, 3, [0, 1, 2]), (2, 3, [1, 2, 3]), (4, 2, [3, 4]), (0, 99, [0, 1, 2, 3, 4])]
)
def test_a_neighborhood_holds_the_nearest_nodes(start, size, nodes):
    table = np.zeros((2, 2)) + np.arange(2)[:, None] * np.arange(2)
    chain = CostGraph.build([[0, 1]] * 5, [[0, 0]] * 5, [(0, 0)] * 5, [(n, n + 1, table) for n in range(4)], None)
    assert neighborhood_order(core_of(chain), start, size).tolist() == nodes


def test_the_plan_of_a_small_network_is_the_best_of_all():
    problem = problem_of(layers(2), mesh_of(2))
    assert problem.seconds(choose(problem.cost_graph())) == pytest.approx(cheapest_cost(problem))
