"""The cost of a complete plan, term by term."""

from dataclasses import replace

import pytest
from planner_graphs import layers, mesh_of, placement, product, roofline, scan

from sporax.planner.communication.resharding import redistribute
from sporax.planner.cost import cost_of
from sporax.planner.rules import rule_for
from sporax.planner.search.space.plan_assembly import replicated_plan

MESH = mesh_of(2)
MODEL = roofline(MESH)


def test_a_plan_without_shards_costs_its_operators():
    graph = layers(2)
    plan = replicated_plan(graph, MESH)
    cost = cost_of(graph, plan, MODEL)
    expected = [
        MODEL.seconds(operator.operation, rule_for(operator.operation), planned.assignment, MESH)
        for operator, planned in zip(graph.operators, plan.operators, strict=True)
    ]
    assert list(cost.operator_seconds) == expected
    assert cost.communication_seconds == 0
    assert cost.seconds == cost.compute_seconds == sum(expected)
    assert cost.collectives == {}


def test_a_transfer_belongs_to_the_operator_that_needs_it():
    graph = product(8, 16, 32)
    plan = replace(replicated_plan(graph, MESH), inputs=(placement("- -"), placement("0 -")))
    cost = cost_of(graph, plan, MODEL)
    way = redistribute((16, 32), 4, placement("0 -"), placement("- -"), MESH, True, MODEL.links)
    assert cost.transfer_seconds == (way.seconds, 0.0)
    assert cost.collectives == {"all_gather": (1, 8 * 32 * 4)}
    assert "1 all_gather of 1.02 kB" in str(cost)


def test_what_a_loop_does_counts_once_per_round():
    few, many = (cost_of(graph, replicated_plan(graph, MESH), MODEL) for graph in (scan(2), scan(6)))
    assert len(few.operator_seconds) == len(many.operator_seconds) > 1
    assert many.compute_seconds == pytest.approx(3 * few.compute_seconds)
