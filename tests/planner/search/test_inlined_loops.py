"""Searches see one graph without bodies, and callers get plans of their own graph."""

import pytest
from planner_graphs import mesh_of, product, roofline, scan

from sporax.planner.plan_check import check_plan
from sporax.planner.search.inlined_loops import inside_loops
from sporax.planner.search.space.plan_assembly import plan_of
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions, SearchResult

MESH = mesh_of(2)


def first_plan(graph, candidate):
    problem = ProblemBuilder(graph, MESH, roofline(MESH), SearchOptions()).build()
    chosen = [min(candidate, len(costs) - 1) for costs in problem.costs]
    return SearchResult(plan_of(problem, chosen), "first", problem.seconds(chosen), None, False, 0.0)


def test_the_search_sees_no_bodies_and_its_plan_has_them():
    seen = []

    @inside_loops
    def search(graph, candidate):
        seen.append(graph)
        return first_plan(graph, candidate)

    graph = scan()
    result = search(graph, 1)
    assert [operator.name for operator in graph.operators] == ["scan"]
    assert not any(operator.bodies for operator in seen[0].operators)
    assert "dot_general" in [operator.name for operator in seen[0].operators]
    assert len(result.plan.operators) == len(result.plan.operators[0].bodies) == 1
    check_plan(graph, result.plan)


def test_every_result_of_several_is_folded():
    @inside_loops
    def search(graph):
        return first_plan(graph, 0), first_plan(graph, 1)

    graph = scan()
    results = search(graph)
    assert isinstance(results, tuple)
    for result in results:
        check_plan(graph, result.plan)


@pytest.mark.parametrize("candidate", [0, 1])
def test_without_loops_the_plan_is_the_searchs_own(candidate):
    plans = []

    @inside_loops
    def search(graph, candidate):
        plans.append(first_plan(graph, candidate))
        return plans[-1]

    assert search(product(), candidate=candidate).plan is plans[-1].plan
