"""Why an operator is sharded as it is."""

import pytest
from planner_graphs import GraphBuilder, layers, mesh_of, roofline

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.planner.cost import cost_of
from sporax.planner.search import search
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.report.view.explain import check_count, explain

MESH = mesh_of(2)
MODEL = roofline(MESH)
GRAPH = layers(2)
PLAN = search(GRAPH, MESH, MODEL, "ilp").plan


def test_all_shardings_of_an_operator_are_alternatives_and_one_is_the_plans():
    (explanation,) = explain(GRAPH, PLAN, MODEL, "#0")
    assert len(explanation.alternatives) == 4
    assert explanation.chosen.assignment == PLAN.operators[0].assignment
    seconds = [alternative.seconds for alternative in explanation.alternatives]
    assert seconds == sorted(seconds)


def test_the_chosen_ones_add_up_to_the_operators_of_the_plan():
    explanations = [explain(GRAPH, PLAN, MODEL, f"#{number}")[0] for number in range(len(GRAPH.operators))]
    total = sum(explanation.chosen.operator_seconds for explanation in explanations)
    assert total == pytest.approx(cost_of(GRAPH, PLAN, MODEL).compute_seconds)


def test_operators_are_named_by_kind_and_by_variable():
    assert [entry.operator for entry in explain(GRAPH, PLAN, MODEL, "dot_general")] == [0, 2]
    assert [entry.operator for entry in explain(GRAPH, PLAN, MODEL, "w2")] == [2]


def test_what_is_left_out_is_counted_and_the_chosen_one_always_shown():
    (explanation,) = explain(GRAPH, replicated_plan(GRAPH, MESH), MODEL, "#0", most=1)
    assert [alternative.chosen for alternative in explanation.alternatives] == [True]
    assert "3 more alternatives: most=4 shows them" in explanation.notes


def test_what_does_not_fit_the_memory_says_how_much_is_missing():
    (explanation,) = explain(GRAPH, PLAN, MODEL, "#0", memory_bytes=1)
    assert any(alternative.lacking_bytes > 0 for alternative in explanation.alternatives if not alternative.chosen)
    (explanation,) = explain(GRAPH, PLAN, MODEL, "#0", memory_bytes=10**9)
    assert not any(alternative.lacking_bytes for alternative in explanation.alternatives)


@pytest.mark.parametrize(("path", "error", "message"), [
    (7, SporaxTypeError, "For 'explain', 'path' must be a text, but got 7"),
    ("nowhere", SporaxValueError, "nowhere"),
])  # fmt: skip
def test_wrong_paths_are_refused(path, error, message):
    with pytest.raises(error, match=message):
        explain(GRAPH, PLAN, MODEL, path)


def test_counts_are_whole_numbers_from_one_on():
    with pytest.raises(SporaxTypeError, match="For 'explain', 'most' must be an int, but got True"):
        check_count("explain", "most", True)
    with pytest.raises(SporaxValueError, match="For 'explain', 'most' must be at least 1, but got 0"):
        check_count("explain", "most", 0)


def test_operators_that_cannot_be_sharded_say_why():
    builder = GraphBuilder()
    graph = builder.graph(builder.unary("rng_bit_generator", builder.argument(8, 8)))
    (explanation,) = explain(graph, replicated_plan(graph, MESH), MODEL, "#0")
    assert explanation.rule.startswith("cannot be sharded: 'rng_bit_generator'")
