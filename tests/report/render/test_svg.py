"""Pictures of a plan."""

import re
from xml.etree import ElementTree

from planner_graphs import layers, mesh_of, roofline, training_step

from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.report.render.svg import memory_picture, operators_picture
from sporax.report.summarize import summarize

MESH = mesh_of(2)


def svg_of(page):
    """The picture in a page as a tree; it must be well formed."""
    return ElementTree.fromstring(re.search(r"<svg.*</svg>", page, re.DOTALL).group())


def operators(graph):
    view = summarize(graph, replicated_plan(graph, MESH), None, roofline(MESH))
    return svg_of(operators_picture(view.operators, view.arrows, "s"))


def test_every_box_has_a_rectangle_a_tooltip_and_its_name():
    tree = operators(layers(3))
    assert len(tree.findall(".//rect[@class='box']")) == 3
    assert [text.text for text in tree.findall(".//text[@class='name']")] == [
        "w1 dot_general",
        "w2 dot_general",
        "w3 dot_general",
    ]
    tooltips = [title.text for title in tree.findall(".//g/title")]
    assert sum("predicted" in tooltip for tooltip in tooltips) == 3


def test_arrows_join_boxes_from_one_to_the_next():
    assert len(operators(layers(3)).findall(".//path[@class='stays']")) == 2


def test_phases_have_columns_of_their_own():
    heads = [text.text for text in operators(training_step()).findall(".//text[@class='head']")]
    assert heads == ["Forward", "Backward", "Update"]


def test_memory_is_drawn_per_use_up_to_the_peak():
    graph = training_step()
    tree = svg_of(memory_picture(summarize(graph, replicated_plan(graph, MESH)).memory))
    uses = [area.find("title").text for area in tree.findall(".//polygon")]
    assert uses == ["parameters", "data", "activations", "transients"]
    assert "backward pass" in [text.text for text in tree.findall(".//text")]
    assert "7.17 kB" in [text.text for text in tree.findall(".//text")]


def test_nothing_is_drawn_outside_of_the_picture():
    graph = training_step()
    tree = svg_of(memory_picture(summarize(graph, replicated_plan(graph, MESH)).memory))
    for area in tree.findall(".//polygon"):
        for corner in area.get("points").split():
            x, y = map(float, corner.split(","))
            assert 0 <= x <= float(tree.get("width"))
            assert 0 <= y <= float(tree.get("height"))
