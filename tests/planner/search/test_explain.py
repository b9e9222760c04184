"""What a plan reports of itself."""

from dataclasses import replace

import networks
import pytest

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, cost_of, link_costs
from sporax.planner.search import SearchOptions, ilp, replicated_plan
from sporax.report.summarize import summarize
from sporax.report.view.diff import diff
from sporax.report.view.explain import explain

MESH = DeviceMatrix((2, 4), ("dp", "mp"))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), MESH))
GRAPH = networks.mlp(3, 32, 1024).graph
RESULT = ilp(GRAPH, MESH, MODEL)
PLAN = RESULT.plan


def with_paths(graph: OperatorGraph) -> OperatorGraph:
    operators = tuple(replace(item, path=f"layers.{n % 3}.op") for n, item in enumerate(graph.operators))
    return replace(graph, operators=operators)


def test_the_cost_of_a_plan_is_what_the_search_says():
    cost = cost_of(GRAPH, PLAN, MODEL)

    assert cost.seconds == pytest.approx(RESULT.cost_seconds, rel=1e-6)
    assert cost.collectives["all_reduce"][0] >= 2
    assert "all_reduce" in str(cost)
    assert cost_of(GRAPH, replicated_plan(GRAPH, MESH), MODEL).communication_seconds == 0.0


def test_the_summary_names_variables_operators_cost_and_memory():
    text = str(summarize(GRAPH, PLAN, RESULT))

    assert "w0" in text
    assert "dot_general" in text
    assert "axes a = 8" in text or "axes a = 2, b = 4" in text
    assert "predicted time of a step" in text
    assert "predicted peak memory" in text
    assert "predicted time" not in str(summarize(GRAPH, PLAN))


def test_alternatives_say_why_they_lost():
    (report,) = explain(GRAPH, PLAN, MODEL, "#0", most=6)

    assert report.chosen is report.alternatives[0]
    assert report.chosen.assignment == PLAN.operators[0].assignment
    assert [alternative.seconds for alternative in report.alternatives] == sorted(
        alternative.seconds for alternative in report.alternatives
    )
    assert len(report.alternatives) == 6
    for alternative in report.alternatives[1:]:
        assert any(
            word in alternative.why_not(report.chosen) for word in ("computing", "operands", "results", "equal cost")
        )
    assert "chosen" in str(report)


def test_the_chosen_way_is_reported_even_when_others_look_better():
    """Alone against a plan that cuts nothing, cutting the first product would pay; the plan's way is there all the same."""
    (answers,) = explain(GRAPH, replicated_plan(GRAPH, MESH), MODEL, "#0", most=2)

    assert len(answers.alternatives) == 2
    assert not any(answers.chosen.assignment)


def test_alternatives_are_priced_as_the_search_prices_them():
    """What the model gives less weight to in the backward pass has less weight here."""
    last = max(n for n, item in enumerate(GRAPH.operators) if item.name == "dot_general")
    (full,), (free,) = (
        explain(GRAPH, PLAN, model, f"#{last}") for model in (MODEL, replace(MODEL, late_computing=0.5))
    )

    assert free.chosen.operator_seconds == pytest.approx(full.chosen.operator_seconds / 2)
    hidden = explain(GRAPH, PLAN, replace(MODEL, late_communication=0.0), f"#{last}")[0]
    assert hidden.chosen.deliver_seconds == 0.0
    assert any(item.deliver_seconds for item in full.alternatives)


def test_operators_are_found_by_path():
    graph = with_paths(GRAPH)
    explanations = explain(graph, PLAN, MODEL, "layers.0")

    assert explanations
    assert all(graph.operators[item.operator].path == "layers.0.op" for item in explanations)
    assert explain(graph, PLAN, MODEL, "0.op") == explanations
    assert str(explanations).count("\n\n") == len(explanations) - 1
    with pytest.raises(
        SporaxValueError,
        match=r"'path' must be one of the program's, such as \['layers\.\d', 'layers\.\d', 'layers\.\d'\]",
    ):
        explain(graph, PLAN, MODEL, "layers.7")


def test_differences_of_two_plans():
    whole = replicated_plan(GRAPH, MESH)
    text = diff(GRAPH, PLAN, whole)

    assert diff(GRAPH, PLAN, PLAN) == ""
    assert "variable w0" in text
    assert "dot_general" in text
    assert len(diff(GRAPH, PLAN, whole, every=True).splitlines()) > len(text.splitlines())
    line = DeviceMatrix((8,))
    other = ilp(GRAPH, line, Roofline(MODEL.profile, link_costs(MODEL.profile, line)), SearchOptions()).plan
    with pytest.raises(SporaxValueError, match="must be of one mesh"):
        diff(GRAPH, PLAN, other)


def test_explanations_speak_of_axes_as_the_summary_does():
    """The plan's own way has the letters of the summary; pieces of an axis are numbered, and the legend says so."""
    row = next(row for row in summarize(GRAPH, PLAN).operators if row.name == "dot_general")
    (explanations,) = explain(GRAPH, PLAN, MODEL, "#0")
    text = str(explanations)

    assert explanations.axes.layouts(explanations.chosen.operands) == " ".join(row.inputs)
    assert text.startswith(f"axes {explanations.axes.legend()}; * marks the plan's choice")
    assert max(map(len, text.splitlines())) <= 120
    for item in explanations.alternatives:
        assert explanations.axes.layout(item.operands[0]) in text.replace("\n", " ")


def test_reasons_are_in_words():
    (explanations,) = explain(GRAPH, PLAN, MODEL, "#0", most=40)
    reasons = [item.why_not(explanations.chosen) for item in explanations.alternatives if not item.chosen]

    assert any("kB of w0" in reason or "MB of w0" in reason for reason in reasons)
    assert any(f"over 1 devices, not {explanations.chosen.parts}" in reason for reason in reasons)
    assert "#0 dot_general of data 0, w0, forward" in str(explanations)
    assert "A B, B C → A C; A = 32, B = 1024 (reduced), C = 1024" in str(explanations)


def test_what_does_not_fit_says_so():
    (free,), (tight,) = (explain(GRAPH, PLAN, MODEL, "#0", memory_bytes=limit) for limit in (None, 1))

    assert not any(item.lacking_bytes for item in free.alternatives)
    lacking = [item for item in tight.alternatives if item.lacking_bytes]
    assert lacking
    assert all("does not fit: " in item.why_not(tight.chosen) for item in lacking)
    assert not tight.chosen.lacking_bytes


def test_strategies_that_are_not_possible_are_reported():
    step = networks.mlp(2, 30, 1024)
    plan = replicated_plan(step.graph, MESH)
    (explanations,) = explain(step.graph, plan, MODEL, "#0")

    assert "a dimension of 30 does not divide into 4 or 8 parts" in explanations.notes
    assert "more alternatives: most=" in explanations.notes[1]


def test_operators_are_found_by_variable_and_by_primitive():
    products = [number for number, reader in enumerate(GRAPH.operators) if reader.name == "dot_general"]

    assert [reader.operator for reader in explain(GRAPH, PLAN, MODEL, "dot_general")] == products
    readers = explain(GRAPH, PLAN, MODEL, "w1")
    assert 0 < len(readers) < len(products)
    assert all("w1" in reader.title for reader in readers)
    with pytest.raises(SporaxValueError, match=r"such as \['dot_general'"):
        explain(GRAPH, PLAN, MODEL, "dot_generel")


def test_layers_with_equal_shardings_are_explained_once():
    operators = tuple(
        replace(item, path=f"layers.{n}.op" if item.name == "dot_general" and not item.backward else "other")
        for n, item in enumerate(GRAPH.operators)
    )
    explanations = explain(replace(GRAPH, operators=operators), replicated_plan(GRAPH, MESH), MODEL, "layers")
    text = str(explanations)

    assert len(explanations) > 1
    assert text.count("compared with the chosen one") < len(explanations)
    assert "like it: #" in text


def test_a_row_of_a_summary_is_a_name():
    graph = with_paths(GRAPH)
    (every, some, one) = (
        {item.operator for item in explain(graph, PLAN, MODEL, path)}
        for path in ("layers.0-2.op (3\N{NO-BREAK SPACE}×)", "layers.0,2", "layers.1.op dot_general")
    )
    names = [graph.operators[number].path for number in sorted(some)]

    assert every == {number for number, item in enumerate(graph.operators) if item.name == "dot_general"}
    assert set(names) <= {"layers.0.op", "layers.2.op"}
    assert one == every - some
    with pytest.raises(SporaxValueError, match="must be one of the program's"):
        explain(graph, PLAN, MODEL, "layers.3-999999999999")


@pytest.mark.parametrize(
    ("path", "most", "error"),
    [
        (None, 8, SporaxTypeError),
        (3, 8, SporaxTypeError),
        ("#0", "x", SporaxTypeError),
        ("#0", 1.5, SporaxTypeError),
        ("#0", True, SporaxTypeError),
        ("#0", 0, SporaxValueError),
        ("#-1", 8, SporaxValueError),
        ("#", 8, SporaxValueError),
    ],
    ids=str,
)
def test_bad_questions(path, most, error):
    with pytest.raises(error, match="For 'explain', "):
        explain(GRAPH, PLAN, MODEL, path, most=most)
