"""Plans within a memory limit: what the solver is told, and what comes of it."""

import numpy as np
import pytest
from planner_graphs import every_choice, layers, mesh_of, problem_of, product, training_step

from sporax.planner.search.limit.local_search import measured
from sporax.planner.search.limit.memory_limit import (
    _kilobytes,
    bound_below,
    fit,
    fit_quickly,
    is_large,
    limited_graph,
    smallest,
    solve_within,
    unmodelled_bytes,
)
from sporax.planner.search.limit.message_passing import choose, choose_within
from sporax.planner.search.limit.resident_memory import resident_usage
from sporax.planner.search.space.problem import NANOSECONDS
from sporax.planner.solver import evaluate, solve

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
    graph, free = (limited_graph(problem, 10**6, priced=priced) for priced in (True, False))
    for chosen in list(every_choice(problem))[::101]:
        assert evaluate(graph, whole_choice(problem, graph, chosen)).cost == pytest.approx(
            problem.seconds(chosen) * problem.scale
        )
        assert evaluate(free, whole_choice(problem, free, chosen)).cost == 0


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
    rest = unmodelled_bytes(problem, plan, resident_usage(problem))
    assert (rest >= 0).all()
    graph = limited_graph(problem, 10**6, rest)
    assert evaluate(graph, whole_choice(problem, graph, plan.chosen)).peak >= plan.peak_bytes


def test_a_plan_that_is_too_large_is_tried_again_with_less():
    problem = problem_of(layers(3), TWO)
    limit = int(0.9 * measured(problem, choose(problem.cost_graph())).peak_bytes)
    asked = []

    def decide(graph):
        asked.append(graph)
        return choose_within(graph)

    plan = fit(problem, limit, decide)
    assert plan is None or plan.peak_bytes <= limit
    assert len(asked) > 1
    assert fit(problem, limit, lambda graph: None) is None


def test_the_smallest_plan_is_no_larger_than_the_cheapest_and_remembered():
    problem = problem_of(layers(2), TWO)
    plan = smallest(problem)
    assert plan.peak_bytes <= measured(problem, choose(problem.cost_graph())).peak_bytes
    assert smallest(problem) is plan


def test_the_quick_way_and_the_proving_way_keep_the_limit():
    problem = problem_of(product(), TWO)
    limit = smallest(problem).peak_bytes
    fitting = [chosen for chosen in every_choice(problem) if measured(problem, list(chosen)).peak_bytes <= limit]
    quick = fit_quickly(problem, limit)
    assert quick is None or quick.peak_bytes <= limit
    plan, proof = solve_within(problem, limit, 5.0)
    assert plan.peak_bytes <= limit
    least = min(problem.seconds(chosen) for chosen in fitting)
    assert problem.seconds(plan.chosen) <= 1.1 * least
    assert proof.bound <= problem.seconds(plan.chosen) * problem.scale * (1 + 1e-9)


def test_a_limit_that_every_plan_keeps_is_solved_to_the_optimum():
    problem = problem_of(product(), TWO)
    plan, proof = solve_within(problem, 10**9, 5.0)
    assert proof.optimal
    assert problem.seconds(plan.chosen) == min(map(problem.seconds, every_choice(problem)))


def test_the_solver_that_is_given_is_the_one_that_is_asked():
    problem = problem_of(product(), TWO)
    asked = []

    def counting(graph, seconds):
        asked.append(seconds)
        return solve(graph, seconds=seconds)

    solve_within(problem, 10**9, 5.0, solver=counting)
    assert asked == [0.4 * 5.0]  # the proof's share; it is optimal, so nothing else is asked


@pytest.mark.parametrize(("cost", "bound", "expected"), [
    (2.0, 1.5 * NANOSECONDS, 1.5),
    (2.0, 2.0 * NANOSECONDS, 2.0),
    (2.0, 2.1 * NANOSECONDS, None),  # a plan below the bound refutes it
    (2.0, None, None),
])  # fmt: skip
def test_a_bound_counts_as_long_as_no_plan_refutes_it(cost, bound, expected):
    assert bound_below(cost, bound) == (expected if expected is None else pytest.approx(expected))


def test_problems_are_large_from_a_few_hundred_decisions_on():
    assert not is_large(problem_of(layers(4), TWO))
    assert is_large(problem_of(layers(140), TWO))


@pytest.mark.parametrize("num_bytes", [1, 999, 1000, 1001, 5_711_004])
def test_the_least_memory_that_an_error_names_is_enough(num_bytes):
    assert num_bytes <= 1000 * _kilobytes(num_bytes) < num_bytes + 1000
