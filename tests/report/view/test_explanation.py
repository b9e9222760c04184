"""Explanations as text."""

from dataclasses import replace

import pytest
from planner_graphs import layers, mesh_of, operation, placement, product, roofline

from sporax.planner.rules import rule_for
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.report.view.explain import explain
from sporax.report.view.explanation import Alternative, Explanations, OperandTransfer, alternatives_text, rule_text

GATHER = OperandTransfer("w", (("all_gather", 1000),), 2e-3)


def alternative(seconds=1e-3, fetches=(), deliveries=(), parts=2, **options):
    where = (placement("0 -"),)
    return Alternative(((0,),), where, where, parts, seconds, tuple(fetches), tuple(deliveries), **options)


def test_an_alternative_costs_its_work_and_what_it_moves():
    way = alternative(1.0, [OperandTransfer("x", (), 0.25)], [OperandTransfer("y", (), 0.5)])
    assert (way.fetch_seconds, way.deliver_seconds, way.seconds) == (0.25, 0.5, 1.75)


@pytest.mark.parametrize(("other", "text"), [
    (alternative(), "equal cost"),
    (alternative(3e-3, parts=1), "computing +2 ms (over 1 devices, not 2)"),
    (alternative(fetches=[GATHER]), "operands +2 ms (all_gather 1 kB of w)"),
    (alternative(deliveries=[OperandTransfer("y", (), 1e-3)]), "results +1 ms (slices are copied)"),
    (alternative(lacking_bytes=2000), "does not fit: 2 kB of memory are missing"),
])  # fmt: skip
def test_differences_are_reported_with_what_is_sent_for_them(other, text):
    assert other.why_not(alternative(chosen=True)) == text


def test_what_is_saved_is_reported_too():
    chosen = alternative(fetches=[GATHER], chosen=True)
    assert alternative().why_not(chosen) == "operands -2 ms (saves all_gather 1 kB of w)"
    assert chosen.why_not(chosen) == "chosen: all_gather 1 kB of w"


def test_rules_are_written_in_capitals_with_sizes():
    rule = rule_for(product(32, 64, 16).operators[0].operation)
    assert rule_text(rule) == "A B, B C → A C; A = 32, B = 64 (reduced), C = 16"
    sort = rule_for(operation("sort", [(4, 8)], [(4, 8)], dimension=1))
    assert "B = 8 (never sharded)" in rule_text(sort)


def test_layers_that_are_sharded_equally_are_shown_once():
    mesh = mesh_of(2)
    explanations = explain(layers(2), replicated_plan(layers(2), mesh), roofline(mesh), "tanh")
    assert isinstance(explanations, Explanations)
    assert str(explanations) == alternatives_text(explanations)
    assert str(explanations).startswith("axes a = 2; * marks the plan's choice")
    first = explanations[0]
    same = [replace(first, operator=number, title=f"#{number} layers.{number}.act tanh") for number in (0, 1)]
    other = replace(first, operator=2, title="#2 head.act tanh")
    text = alternatives_text([*same, other])
    assert text.count("compared with the chosen one") == 2
    assert "and 1 like it: #1" in text
    assert alternatives_text([]) == ""
