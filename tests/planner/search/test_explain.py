"""What a plan tells of itself."""

from dataclasses import replace

import networks
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.graph import OperatorGraph
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, cost_of, link_costs
from sporax.planner.explain import diff, explain, summary
from sporax.planner.search import SearchOptions, ilp, whole_plan

MESH = DeviceMatrix((2, 4), ("dp", "mp"))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), MESH))
GRAPH = networks.mlp(3, 32, 1024).graph
RESULT = ilp(GRAPH, MESH, MODEL)
PLAN = RESULT.plan


def with_paths(graph: OperatorGraph) -> OperatorGraph:
    operators = tuple(replace(each, path=f"layers.{n % 3}.op") for n, each in enumerate(graph.operators))
    return replace(graph, operators=operators)


def test_the_cost_of_a_plan_is_what_the_search_says():
    cost = cost_of(GRAPH, PLAN, MODEL)

    assert cost.seconds == pytest.approx(RESULT.cost_seconds, rel=1e-6)
    assert cost.collectives["all_reduce"][0] >= 2
    assert "all_reduce" in str(cost)
    assert cost_of(GRAPH, whole_plan(GRAPH, MESH), MODEL).communication_seconds == 0.0


def test_the_summary_names_variables_operators_cost_and_memory():
    text = summary(GRAPH, PLAN, MODEL)

    assert "w0" in text
    assert "dot_general" in text
    assert "dp" in text or "mp" in text
    assert "time    " in text
    assert "memory  " in text
    assert "time    " not in summary(GRAPH, PLAN)


def test_alternatives_say_why_they_lost():
    (told,) = explain(GRAPH, PLAN, MODEL, "#0", most=6)

    assert told.chosen is told.alternatives[0]
    assert told.chosen.assignment == PLAN.operators[0].assignment
    assert [each.seconds for each in told.alternatives] == sorted(each.seconds for each in told.alternatives)
    assert len(told.alternatives) == 6
    for each in told.alternatives[1:]:
        assert any(word in each.why_not(told.chosen) for word in ("computing", "operands", "results", "as good"))
    assert "chosen" in str(told)


def test_the_chosen_way_is_told_even_when_others_look_better():
    """Alone against a plan that cuts nothing, cutting the first product would pay; the plan's way is there all the same."""
    (told,) = explain(GRAPH, whole_plan(GRAPH, MESH), MODEL, "#0", most=2)

    assert len(told.alternatives) == 2
    assert not any(told.chosen.assignment)


def test_alternatives_are_priced_as_the_search_prices_them():
    """What the model gives less weight to in the backward pass has less weight here."""
    last = max(n for n, each in enumerate(GRAPH.operators) if each.name == "dot_general")
    (full,), (free,) = (
        explain(GRAPH, PLAN, model, f"#{last}") for model in (MODEL, replace(MODEL, late_computing=0.5))
    )

    assert free.chosen.operator_seconds == pytest.approx(full.chosen.operator_seconds / 2)
    hidden = explain(GRAPH, PLAN, replace(MODEL, late_communication=0.0), f"#{last}")[0]
    assert hidden.chosen.deliver_seconds == 0.0
    assert any(each.deliver_seconds for each in full.alternatives)


def test_operators_are_found_by_path():
    graph = with_paths(GRAPH)
    told = explain(graph, PLAN, MODEL, "layers.0")

    assert told
    assert all(graph.operators[each.operator].path == "layers.0.op" for each in told)
    assert explain(graph, PLAN, MODEL, "0.op") == told
    assert str(told).count("\n\n") == len(told) - 1
    with pytest.raises(SporaxValueError, match=r"'path' must be one of the program's, such as \['layers\.\d\.op'"):
        explain(graph, PLAN, MODEL, "layers.7")


def test_differences_of_two_plans():
    whole = whole_plan(GRAPH, MESH)
    text = diff(GRAPH, PLAN, whole)

    assert diff(GRAPH, PLAN, PLAN) == ""
    assert "variable w0" in text
    assert "dot_general" in text
    assert len(diff(GRAPH, PLAN, whole, every=True).splitlines()) > len(text.splitlines())
    other = ilp(GRAPH, DeviceMatrix((8,)), MODEL, SearchOptions()).plan
    with pytest.raises(SporaxValueError, match="must be of one mesh"):
        diff(GRAPH, PLAN, other)
