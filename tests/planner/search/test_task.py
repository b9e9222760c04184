"""Searches see one graph without bodies, and callers get plans of their own graph."""

import pytest
from planner_graphs import mesh_of, product, roofline, scan

from sporax.planner.budget import Budget
from sporax.planner.plan_check import check_plan
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import SearchOptions
from sporax.planner.search.task import searches

MESH = mesh_of(2)
MODEL = roofline(MESH)


def first_plan(task, candidate, bound=None):
    problem = task.builder().build()
    chosen = [min(candidate, len(costs) - 1) for costs in problem.costs]
    cost = problem.seconds(chosen)
    return task.result("first", plan_of(problem, chosen), cost, {}, None if bound is None else bound * cost)


def test_the_search_sees_no_bodies_and_its_plan_has_them():
    seen = []

    @searches
    def search(task, candidate):
        seen.append(task.graph)
        return first_plan(task, candidate)

    graph = scan()
    result = search(graph, MESH, MODEL, candidate=1)
    assert [operator.name for operator in graph.operators] == ["scan"]
    assert not any(operator.bodies for operator in seen[0].operators)
    assert "dot_general" in [operator.name for operator in seen[0].operators]
    assert len(result.plan.operators) == len(result.plan.operators[0].bodies) == 1
    check_plan(graph, result.plan)


def test_every_result_of_several_is_folded():
    @searches
    def search(task):
        return first_plan(task, 0), first_plan(task, 1)

    graph = scan()
    results = search(graph, MESH, MODEL)
    assert isinstance(results, tuple)
    for result in results:
        check_plan(graph, result.plan)


@pytest.mark.parametrize("candidate", [0, 1])
def test_without_loops_the_plan_is_the_searchs_own(candidate):
    plans = []

    @searches
    def search(task):
        plans.append(first_plan(task, candidate))
        return plans[-1]

    assert search(product(), MESH, MODEL).plan is plans[-1].plan


def test_a_result_says_what_was_requested_and_whether_nothing_is_better():
    tasks = []

    @searches
    def search(task, bound):
        tasks.append(task)
        return first_plan(task, 0, bound)

    options, budget = SearchOptions(fully_use_devices=True), Budget.of(60)
    proven = search(product(), MESH, MODEL, options, budget, bound=1.0)
    assert (proven.optimal, proven.bound_seconds, proven.unit) == (True, proven.cost_seconds, "s")
    assert proven.options is tasks[0].options is options
    assert tasks[0].budget is budget
    above, below, unknown = (search(product(), MESH, MODEL, bound=bound) for bound in (2.0, 0.5, None))
    assert (above.optimal, above.bound_seconds) == (True, above.cost_seconds)
    assert (below.optimal, below.bound_seconds) == (False, 0.5 * below.cost_seconds)
    assert (unknown.optimal, unknown.bound_seconds) == (False, None)
    assert unknown.options == SearchOptions()
    assert not tasks[-1].budget.is_limited
