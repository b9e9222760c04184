"""What a user can query of a planned step."""

import dataclasses

import pytest
from planner_graphs import layers, mesh_of, product, roofline

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.planner.search import search
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.report.questions import PlannedGraph, check_seconds, facts

MESH = mesh_of(2)
GRAPH = layers(2)
SEARCHED = search(GRAPH, MESH, roofline(MESH), "ilp")
PLANNED = PlannedGraph(GRAPH, SEARCHED.plan, SEARCHED, roofline(MESH))
UNSEARCHED = PlannedGraph(GRAPH, replicated_plan(GRAPH, MESH), None, roofline(MESH))


def test_a_plan_is_described_in_a_few_lines():
    report = dict(facts(PLANNED))
    assert report["devices"] == "2, axes 2"
    assert report["graph"] == "4 operators, 7 tensors"
    assert report["inputs"] == "1 data, 2 parameter"
    assert report["search"].startswith("ilp, predicted ")
    assert "search" not in dict(facts(UNSEARCHED))
    assert repr(PLANNED).splitlines()[:2] == ["PlannedGraph:", "  devices: 2, axes 2"]
    assert "<th>devices</th><td>2, axes 2</td>" in PLANNED._repr_html_()


def test_a_plan_differs_from_another_but_not_from_itself():
    assert PLANNED.diff(PLANNED) == ""
    assert PLANNED.diff(UNSEARCHED) != ""
    assert PLANNED.diff(UNSEARCHED.plan) == PLANNED.diff(UNSEARCHED)


def test_plans_of_other_steps_cannot_be_compared():
    with pytest.raises(SporaxValueError, match="For 'diff', 'other' must be a plan of the same step"):
        PLANNED.diff(replicated_plan(product(), MESH))
    with pytest.raises(SporaxTypeError, match="For 'diff', 'other' must be a plan, or have one, but got 'plan'"):
        PLANNED.diff("plan")


def test_alternatives_are_other_plans_of_the_same_step_and_cost_no_less():
    others = PLANNED.alternatives(2, seconds=1)
    assert 0 < len(others) <= 2
    for other in others:
        assert other.graph is GRAPH
        assert other.plan.operators != PLANNED.plan.operators
        assert other.search.cost_seconds >= SEARCHED.cost_seconds * (1 - 1e-9)


def test_alternatives_need_a_search():
    with pytest.raises(SporaxValueError, match="For 'alternatives', a search must make the plan"):
        UNSEARCHED.alternatives()


def test_times_are_numbers_from_zero_on():
    with pytest.raises(SporaxTypeError, match="For 'trade_offs', 'seconds' must be a number, but got 'long'"):
        check_seconds("trade_offs", "long")
    with pytest.raises(SporaxValueError, match="For 'trade_offs', 'seconds' must be 0 or more, but got -1"):
        check_seconds("trade_offs", -1)


def test_a_report_is_a_page_in_a_file(tmp_path):
    PLANNED.report(tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(SporaxTypeError, match="For 'report', 'path' must be a text or a Path, but got 7"):
        PLANNED.report(7)


def test_notes_of_a_plan_are_counted():
    noted = dataclasses.replace(UNSEARCHED, plan=dataclasses.replace(UNSEARCHED.plan, notes=("first", "second")))
    assert dict(facts(noted))["notes"] == "2; the first: first"
