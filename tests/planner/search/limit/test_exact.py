"""Plans within a memory limit: what the solver is told, and what comes of it."""

import math

import numpy as np
import pytest
from planner_graphs import every_choice, layers, mesh_of, problem_of, product, training_step

from sporax.planner import budget
from sporax.planner.budget import Budget
from sporax.planner.search.limit.exact import bound_below, bounding_graph, limited_graph, solve_within, unmodelled_bytes
from sporax.planner.search.limit.limit import fit, smallest
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.problem import NANOSECONDS
from sporax.planner.solver import evaluate, solve
from sporax.planner.solver.portfolio.quick_choice import choose

TWO = mesh_of(2)


def whole_choice(problem, graph, chosen):
    """A choice with the copies of its decisions that stand for further spans, and the reserved bytes."""
    positions = [*chosen, *[0] * (graph.num_nodes - len(chosen))]
    for (first, second), index in zip(graph.edges.tolist(), graph.edge_tables.tolist(), strict=True):
        if second >= len(chosen):
            positions[second] = int(np.isfinite(graph.tables[index][positions[first]]).argmax())
    return positions


def test_the_solvers_graph_has_the_costs_of_the_problem():
    problem = problem_of(training_step(), TWO)
    graph = limited_graph(problem, 10**6)
    for chosen in list(every_choice(problem))[::101]:
        assert evaluate(graph, whole_choice(problem, graph, chosen)).cost == pytest.approx(
            problem.seconds(chosen) * problem.scale
        )


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


def test_reserved_bytes_are_taken_when_they_are_reserved():
    problem = problem_of(product(), TWO)
    chosen = choose(problem.cost_graph())
    bare = limited_graph(problem, 10**6)
    reserve = np.full(len(problem.graph.operators) + 2, 1000)
    reserved = limited_graph(problem, 10**6, reserve)
    peaks = [evaluate(graph, whole_choice(problem, graph, chosen)).peak for graph in (bare, reserved)]
    assert peaks[1] == peaks[0] + 1000
    assert reserved.num_nodes == bare.num_nodes + 1  # one span of equal bytes


def test_what_the_solver_knows_and_what_it_does_not_know_make_up_the_measured_peak():
    problem = problem_of(training_step(), TWO)
    plan = measured(problem, choose(problem.cost_graph()))
    rest = unmodelled_bytes(problem, plan)
    assert (rest >= 0).all()
    graph = limited_graph(problem, 10**6, rest)
    assert evaluate(graph, whole_choice(problem, graph, plan.chosen)).peak >= plan.peak_bytes


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


def test_the_solver_that_is_given_is_the_one_that_is_asked(monkeypatch):
    monkeypatch.setattr(budget.time, "monotonic", lambda: 0.0)  # no time passes before it is asked
    problem = problem_of(product(), TWO)
    asked = []

    def counting(graph, seconds):
        monkeypatch.undo()
        asked.append(seconds)
        return solve(graph, seconds=seconds)

    solve_within(problem, 10**9, Budget.of(5.0), solver=counting)
    assert asked == [0.4 * 5.0]  # the proof's share; it is optimal, so nothing else is asked


@pytest.mark.parametrize(("cost", "bound", "expected"), [
    (2.0, 1.5 * NANOSECONDS, 1.5),
    (2.0, 2.0 * NANOSECONDS, 2.0),
    (2.0, 2.1 * NANOSECONDS, None),  # a plan below the bound refutes it
    (2.0, None, None),
])  # fmt: skip
def test_a_bound_counts_as_long_as_no_plan_refutes_it(cost, bound, expected):
    assert bound_below(cost, bound) == (expected if expected is None else pytest.approx(expected))


def test_reserves_make_room_for_what_the_solver_does_not_know():
    """The first answer is too large, since it leaves resharding out; the next ones leave room for as much."""
    problem = problem_of(layers(3), mesh_of(2, 2))
    limit = int(0.8 * measured(problem, choose(problem.cost_graph())).peak_bytes)
    asked = []

    def noting(graph, seconds):
        asked.append(graph)
        return solve(graph, seconds=seconds)

    plan, proof = solve_within(problem, limit, Budget.of(20.0), noting)
    assert plan.peak_bytes <= limit
    assert plan.rounds == len(asked)
    assert proof.bound <= problem.seconds(plan.chosen) * problem.scale * (1 + 1e-9)
