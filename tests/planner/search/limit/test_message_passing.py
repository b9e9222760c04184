"""Good choices in linear time, compared with the best of all choices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_graphs import cheapest_cost, layers, mesh_of, problem_of, product

from sporax.planner.search.limit import message_passing
from sporax.planner.search.limit.message_passing import (
    CoordinateDescent,
    ball,
    bounded,
    choose,
    choose_within,
    converge,
    lower_bound,
    refine_within,
    refined,
)
from sporax.planner.solver import CostGraph, evaluate, solve
from sporax.planner.solver.graph.core import Core
from sporax.planner.solver.graph.moments import Timeline
from sporax.planner.solver.graph.network import Network
from sporax.planner.solver.methods.trws import MessagePassing

SEEDS = st.integers(0, 10**6)


def random_graph(seed, nodes=8, limit=None):
    """Decisions of three candidates; about a third of the pairs is joined; all live at once."""
    random = np.random.default_rng(seed)
    pairs = [(a, b) for b in range(nodes) for a in range(b) if random.random() < 0.35]
    edges = [(a, b, random.integers(0, 20, (3, 3)).astype(float)) for a, b in pairs]
    costs, usages = random.integers(0, 20, (nodes, 3)).tolist(), random.integers(0, 9, (nodes, 3)).tolist()
    return CostGraph.build(costs, usages, [(0, 1)] * nodes, edges, limit)


def core_of(graph):
    return Core.of(Network.of(graph, Timeline.of(graph.intervals)))


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


def test_without_exact_elimination_messages_and_balls_come_close(monkeypatch):
    monkeypatch.setattr(message_passing, "_SMALL", 0)
    for seed in range(5):
        graph = random_graph(seed)
        core = core_of(graph)
        positions, bound = bounded(core)
        best = solve(graph).cost
        assert bound <= best + 1e-6
        assert best <= core.cost(positions) <= 1.02 * best


@settings(max_examples=8)
@given(seed=SEEDS)
def test_choices_within_a_limit_fit(seed):
    graph = random_graph(seed, nodes=6, limit=22)
    best = solve(graph)
    for decide in (choose_within, refine_within):
        chosen = decide(graph)
        if best.infeasible:
            assert chosen is None
        elif chosen is not None:
            measured = evaluate(graph, chosen)
            assert measured.feasible
            assert measured.cost >= best.cost


def test_a_limit_that_nothing_keeps_is_answered_by_none():
    graph = CostGraph.build([[1, 2]], [[5, 6]], [(0, 1)], [], 4)
    assert choose_within(graph) is None


def test_refining_never_makes_a_choice_more_expensive():
    core = core_of(random_graph(3, nodes=12))
    start = np.zeros(core.num_nodes, np.int64)
    better = refined(core, start, balls=4, size=4)
    assert core.cost(better) < core.cost(start)


@pytest.mark.parametrize(
    ("start", "size", "nodes"), [(0, 3, [0, 1, 2]), (2, 3, [1, 2, 3]), (4, 2, [3, 4]), (0, 99, [0, 1, 2, 3, 4])]
)
def test_a_ball_holds_the_nearest_nodes(start, size, nodes):
    table = np.zeros((2, 2)) + np.arange(2)[:, None] * np.arange(2)
    chain = CostGraph.build([[0, 1]] * 5, [[0, 0]] * 5, [(0, 0)] * 5, [(n, n + 1, table) for n in range(4)], None)
    assert ball(core_of(chain), start, size).tolist() == nodes


def test_descent_improves_one_decision_at_a_time_and_keeps_what_it_must():
    problem = problem_of(layers(2), mesh_of(2))
    descent = CoordinateDescent(problem)
    worst = [int(costs.argmax()) for costs in problem.costs]
    chosen = list(worst)
    descent.improve(chosen)
    assert problem.seconds(chosen) < problem.seconds(worst)
    for decision in range(len(chosen)):
        costs = descent.candidate_costs(decision, chosen)
        assert costs[chosen[decision]] <= costs.min() * (1 + 1e-9)
    kept = list(worst)
    descent.improve(kept, frozenset([0, 1]))
    assert kept[:2] == worst[:2]


def test_open_neighbours_are_taken_to_agree():
    problem = problem_of(product(), mesh_of(2))
    descent = CoordinateDescent(problem)
    for node, own in enumerate(problem.costs):
        tables = [table for _, table, _ in descent.links[node]]
        expected = own + sum(table.min(axis=1) for table in tables)
        np.testing.assert_allclose(descent.candidate_costs(node, [-1] * len(problem.costs)), expected)


def test_decided_neighbours_count_with_their_candidate():
    problem = problem_of(product(), mesh_of(2))
    descent = CoordinateDescent(problem)
    chosen = [1] * len(problem.costs)
    for node, costs in enumerate(problem.costs):
        others = [[*chosen[:node], candidate, *chosen[node + 1 :]] for candidate in range(len(costs))]
        changes = [(problem.seconds(other) - problem.seconds(others[0])) * problem.scale for other in others]
        candidate_costs = descent.candidate_costs(node, chosen)
        np.testing.assert_allclose(candidate_costs - candidate_costs[0], changes, atol=1e-6)


def test_the_plan_of_a_small_network_is_the_best_of_all():
    problem = problem_of(layers(2), mesh_of(2))
    assert problem.seconds(choose(problem.cost_graph())) == pytest.approx(cheapest_cost(problem))
