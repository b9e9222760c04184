"""The problem with a memory limit that no plan violates which fits."""

import numpy as np
import pytest
from planner_graphs import every_choice, mesh_of, problem_of, product, training_step

from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search.bound.bound_problem import bounding_graph
from sporax.planner.search.bound.memory_lower_bound import memory_lower_bound
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.solver import evaluate

MESH = mesh_of(2)


def completed(graph, chosen):
    """A choice of decisions with the strategies of the nodes for pairs that agree with it."""
    positions = [*chosen, *[0] * (graph.num_nodes - len(chosen))]
    allowed = {node: np.ones(graph.sizes[node], bool) for node in range(len(chosen), graph.num_nodes)}
    for (first, second), index in zip(graph.edges.tolist(), graph.edge_tables.tolist(), strict=True):
        if second in allowed:
            allowed[second] &= np.isfinite(graph.tables[index][positions[first]])
    for node, mask in allowed.items():
        (positions[node],) = np.flatnonzero(mask)  # one pair of candidates agrees
    return positions


@pytest.mark.parametrize("graph", [product(), training_step()], ids=["product", "training step"])
def test_costs_and_memory_are_those_of_the_problem_and_of_its_bound(graph):
    problem = problem_of(graph, MESH)
    bound, costs = memory_lower_bound(problem), bounding_graph(problem, 10**6)
    for chosen in list(every_choice(problem))[::97]:
        measured = evaluate(costs, completed(costs, chosen))
        assert measured.cost == pytest.approx(problem.seconds(chosen) * problem.scale)
        assert measured.peak == bound.bytes_of(chosen)


def test_no_plan_needs_less_than_its_choice_uses_there():
    problem = problem_of(training_step(), MESH)
    costs = bounding_graph(problem, 10**6)
    for chosen in list(every_choice(problem))[::73]:
        peak = memory_of(problem.graph, plan_of(problem, chosen), XLA_CPU).peak_bytes
        assert evaluate(costs, completed(costs, chosen)).peak <= peak


def test_decisions_come_first_and_keep_their_candidates():
    problem = problem_of(product(), MESH)
    costs = bounding_graph(problem, 1)
    assert costs.limit == 1
    assert costs.sizes[: len(problem.costs)].tolist() == [len(candidates) for candidates in problem.costs]
