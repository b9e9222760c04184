"""Decisions that take their cheapest candidate one by one."""

import numpy as np
from planner_graphs import layers, mesh_of, problem_of, product

from sporax.planner.search.sharding_propagation import CoordinateDescent


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
