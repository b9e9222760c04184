"""The phases of a search: they see one graph without bodies, a limit runs the second, and callers get plans of their own graph."""

from dataclasses import replace

import pytest
from planner_graphs import mesh_of, product, roofline, scan

from sporax.planner.budget import Budget
from sporax.planner.plan_check import check_plan
from sporax.planner.search.space.measured_plan import measured
from sporax.planner.search.space.problem import SearchOptions
from sporax.planner.search.task import Finding, Search, SearchTask

MESH = mesh_of(2)
MODEL = roofline(MESH)


def first_plan(task, candidate, bound=None):
    problem = task.problem
    chosen = [min(candidate, len(costs) - 1) for costs in problem.costs]
    return Finding(problem, chosen, None if bound is None else bound * problem.seconds(chosen))


def test_a_phase_sees_no_bodies_and_the_plan_has_them():
    seen = []

    def decide(task):
        seen.append(task.problem.graph)
        return first_plan(task, 1)

    graph = scan()
    result = Search("first", decide)(graph, MESH, MODEL)
    assert [operator.name for operator in graph.operators] == ["scan"]
    assert not any(operator.bodies for operator in seen[0].operators)
    assert "dot_general" in [operator.name for operator in seen[0].operators]
    assert len(result.plan.operators) == len(result.plan.operators[0].bodies) == 1
    check_plan(graph, result.plan)


def test_every_result_of_a_task_is_folded():
    graph = scan()
    task = SearchTask.of(graph, MESH, MODEL)
    for candidate in (0, 1):
        check_plan(graph, task.result("first", first_plan(task, candidate)).plan)


@pytest.mark.parametrize("candidate", [0, 1])
def test_without_loops_the_plan_is_the_searchs_own(candidate):
    found = []

    def decide(task):
        found.append(first_plan(task, candidate))
        return found[-1]

    result = Search("first", decide, measures=True)(product(), MESH, MODEL)
    assert result.plan is found[-1].measured.plan
    assert result.statistics == {"peak_bytes": found[-1].measured.peak_bytes}


def test_a_result_says_what_was_requested_and_whether_nothing_is_better():
    tasks = []

    def search(bound):
        def decide(task):
            tasks.append(task)
            return first_plan(task, 0, bound)

        return Search("first", decide)

    options, budget = SearchOptions(fully_use_devices=True), Budget.of(60)
    proven = search(1.0)(product(), MESH, MODEL, options, budget)
    assert (proven.optimal, proven.bound_seconds, proven.unit) == (True, proven.cost_seconds, "s")
    assert proven.options is tasks[0].options is options
    assert tasks[0].budget is budget
    above, below, unknown = (search(bound)(product(), MESH, MODEL) for bound in (2.0, 0.5, None))
    assert (above.optimal, above.bound_seconds) == (True, above.cost_seconds)
    assert (below.optimal, below.bound_seconds) == (False, 0.5 * below.cost_seconds)
    assert (unknown.optimal, unknown.bound_seconds) == (False, None)
    assert unknown.options == SearchOptions()
    assert not tasks[-1].budget.is_limited


def test_the_phase_within_runs_where_the_plan_is_too_large_and_the_second_search_where_nothing_is_proven():
    limits = []

    def within(task, found, limit):
        limits.append(limit)
        return replace(found, notes=("within",))

    def search(bound, second=None):
        return Search("first", lambda task: first_plan(task, 0, bound), within, second=second)

    problem = SearchTask.of(product(), MESH, MODEL).problem
    seconds = {
        candidate: problem.seconds(first_plan(SearchTask.of(product(), MESH, MODEL), candidate).chosen)
        for candidate in (0, 1)
    }
    peak = measured(problem, [0] * len(problem.costs)).peak_bytes
    assert search(1.0)(product(), MESH, MODEL).plan.notes == ()
    assert search(1.0)(product(), MESH, MODEL, SearchOptions(memory_bytes=peak)).plan.notes == ()
    assert not limits
    assert search(1.0)(product(), MESH, MODEL, SearchOptions(memory_bytes=peak - 1)).plan.notes == ("within",)
    assert limits == [peak - 1]
    other = Search("other", lambda task: first_plan(task, 1))
    for bound in (0.5, 1.0):
        found = search(bound, other)(product(), MESH, MODEL, SearchOptions(memory_bytes=peak))
        assert found.cost_seconds == (min(seconds.values()) if bound < 1.0 else seconds[0])
        assert found.method == "first"
