"""Plans within a memory limit, and the bound that holds for all of them."""

import math

import pytest
from planner_graphs import every_choice, mesh_of, problem_of, product, training_step

from sporax.planner.budget import Budget
from sporax.planner.search.exact import bounding_graph, solve_within
from sporax.planner.search.limit.limit import fit, smallest
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.problem import NANOSECONDS
from sporax.planner.search.task import bound_below
from sporax.planner.solver import evaluate

TWO = mesh_of(2)


@pytest.mark.parametrize("graph", [product(), training_step()], ids=["product", "training step"])
def test_the_graph_of_the_bound_has_the_arguments_alone(graph):
    problem = problem_of(graph, TWO)
    bound = bounding_graph(problem, 10**6)
    for chosen in list(every_choice(problem))[::97]:
        plan = measured(problem, list(chosen))
        found = evaluate(bound, chosen)
        assert found.cost == pytest.approx(problem.seconds(chosen) * problem.scale)
        held = sum(
            problem.graph.tensors[argument.tensor].num_bytes // math.prod(where.parts(TWO))
            for argument, where in zip(problem.graph.inputs, plan.plan.inputs, strict=True)
        )
        assert 0 < held == found.peak <= plan.peak_bytes


def test_the_quick_way_and_the_proving_way_keep_the_limit():
    problem = problem_of(product(), TWO)
    limit = smallest(problem).peak_bytes
    fitting = [chosen for chosen in every_choice(problem) if measured(problem, list(chosen)).peak_bytes <= limit]
    assert fit(problem, limit).peak_bytes <= limit
    plan, proof = solve_within(problem, limit, Budget.of(5.0))
    assert plan.peak_bytes <= limit
    least = min(problem.seconds(chosen) for chosen in fitting)
    assert problem.seconds(plan.chosen) <= 1.1 * least
    assert proof.bound <= problem.seconds(plan.chosen) * problem.scale * (1 + 1e-9)


def test_a_limit_that_every_plan_keeps_is_solved_to_the_optimum():
    problem = problem_of(product(), TWO)
    plan, proof = solve_within(problem, 10**9, Budget.of(5.0))
    assert proof.optimal
    assert problem.seconds(plan.chosen) == min(map(problem.seconds, every_choice(problem)))


@pytest.mark.parametrize(("cost", "bound", "expected"), [
    (2.0, 1.5 * NANOSECONDS, 1.5),
    (2.0, 2.0 * NANOSECONDS, 2.0),
    (2.0, 2.1 * NANOSECONDS, None),  # a plan below the bound refutes it
    (2.0, None, None),
])  # fmt: skip
def test_a_bound_counts_as_long_as_no_plan_refutes_it(cost, bound, expected):
    assert bound_below(cost, bound) == (expected if expected is None else pytest.approx(expected))
