"""Boxes and arrows of the operator picture."""

from dataclasses import replace

import pytest
from planner_graphs import layers, mesh_of, placement, roofline, training_step

from sporax.planner.cost import cost_of
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.report.summarize import summarize
from sporax.report.view.step_graph import folded_graph

MESH = mesh_of(2)
MODEL = roofline(MESH)


def drawn(graph, **changes):
    view = summarize(graph, replace(replicated_plan(graph, MESH), **changes), None, MODEL)
    return view.operators, view.arrows


def test_every_heavy_operator_is_a_box_and_arrows_follow_the_tensors():
    boxes, arrows = drawn(layers(3))
    assert [box.name for box in boxes] == ["dot_general"] * 3
    assert {(arrow.source, arrow.target): arrow.num_tensors for arrow in arrows} == {(0, 1): 1, (1, 2): 1}


def test_boxes_share_the_time_of_the_plan():
    graph = training_step()
    boxes, _ = drawn(graph)
    cost = cost_of(graph, replicated_plan(graph, MESH), MODEL)
    assert sum(box.seconds for box in boxes) == pytest.approx(cost.seconds)


def test_bytes_that_travel_are_on_the_arrow_or_at_the_box_of_an_input():
    graph = layers(2)
    boxes, arrows = drawn(graph, inputs=(placement("0 -"), placement("- -"), placement("- -")))
    assert boxes[0].moved_bytes == 8 * 16 * 4  # an argument comes from no box
    assert not any(arrow.moved for arrow in arrows)


def test_layers_that_are_sharded_equally_fold_into_one_box():
    boxes, arrows = folded_graph(*drawn(layers(6)), "s")
    (box,) = boxes
    assert (box.times, box.paths) == (6, "w1-6")
    assert arrows == ()  # to the next layer, which is the same box
