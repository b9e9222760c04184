"""The events of a step in order."""

from dataclasses import replace

import pytest
from planner_graphs import GraphBuilder, layers, mesh_of, placement, product

from sporax.ir.plan import Resharding
from sporax.planner.memory.step_events import Timeline
from sporax.planner.search.space.plan_assembly import replicated_plan

MESH = mesh_of(2)


def test_without_a_plan_every_operator_is_one_event_and_the_results_are_the_last():
    graph = layers(2)
    timeline = Timeline(graph)
    assert [event.operator for event in timeline.events] == [*graph.operators, None]
    assert timeline.events[-1].reads == ((graph.outputs[0], None),)
    assert timeline.mesh is None
    assert timeline.merging


def test_a_transfer_comes_before_the_operator_that_needs_it():
    graph = product()
    plan = replace(replicated_plan(graph, MESH), inputs=(placement("0 -"), placement("- -")))
    move, run, end = Timeline(graph, plan).events
    assert move.operator is None
    assert (move.reads, move.writes) == (((0, placement("0 -")),), ((0, placement("- -")),))
    assert [transfer.tensor for transfer in move.transfers] == [0]
    assert run.reads == ((0, placement("- -")), (1, placement("- -")))
    assert (move.position, run.position, end.position) == (0, 0, 1)


def test_constants_are_no_values():
    builder = GraphBuilder()
    graph = builder.graph(builder.binary("add", builder.argument(4), 1.0))
    assert Timeline(graph).events[0].reads == ((0, None),)


@pytest.mark.parametrize(("fusion", "merging"), [(None, True), (0, False), (1, False)])
def test_the_compiler_combines_only_where_nothing_was_said_about_fusion(fusion, merging):
    graph = product()
    resharding = Resharding(placement("0 -"), fusion=fusion)
    plan = replace(replicated_plan(graph, MESH), reshardings={2: resharding})
    assert Timeline(graph, plan).merging == merging
