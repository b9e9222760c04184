"""What cannot be planned is refused with what is wrong and where."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import networks
import pytest

import sporax
from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.plan_check import check_plan
from sporax.planner.search import MODES, SearchOptions, replicated_plan, search

EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))
GRAPH = networks.mlp(2, 64, 64).graph
SHAPE = jax.ShapeDtypeStruct((16, 16), jnp.float32)


@pytest.mark.parametrize("devices", [0, -2, 2.5])
def test_a_number_of_devices_that_is_none(devices):
    with pytest.raises(SporaxValueError, match=rf"'devices' must be a number of devices, 1 or more, but got {devices}"):
        sporax.plan(jnp.dot, SHAPE, SHAPE, devices=devices)


@pytest.mark.parametrize("mode", MODES)
def test_impossible_and_contradictory_pins_are_refused_by_every_search(mode):
    weight, updated = GRAPH.inputs[0].tensor, GRAPH.outputs[0]
    with pytest.raises(SporaxValueError, match=rf"tensor {weight} must be complete and divide its shape \(64, 64\)"):
        search(GRAPH, EIGHT, MODEL, mode, SearchOptions(fixed={weight: Placement(((0,), (), ()))}))
    fixed = {weight: Placement(((0,), ())), updated: Placement(((), (0,)))}
    with pytest.raises(SporaxValueError, match="replaces w0 and must have its placement"):
        search(GRAPH, EIGHT, MODEL, mode, SearchOptions(fixed=fixed))


def test_a_pin_that_does_not_fit_the_devices():
    with pytest.raises(
        SporaxValueError,
        match=r"'fixed' must fit args\[0\] of shape \(16, 16\), but got \(3, 1\)\. .*must divide the 4 devices",
    ):
        sporax.plan(jnp.dot, SHAPE, SHAPE, devices=4, fixed={0: (3, 1)})


@pytest.mark.parametrize(("text", "message"), [
    ("", "the text is no JSON: Expecting value"),
    ("[1]", "it must be an object, but got \\[1\\]"),
    ("[" * 100_000, "the text is no JSON: maximum recursion depth exceeded"),
    ('{"version": -1}', "'version' must be 1, but got -1"),
    ('{"version": true}', "'version' must be a whole number, but got True"),
    ('{"version": 1}', "it must have 'mesh', but has \\['version'\\]"),
])  # fmt: skip
def test_malformed_plans(text, message):
    with pytest.raises(SporaxValueError, match=f"For 'Plan.from_json', there must be a saved plan, but {message}"):
        Plan.from_json(text)


@pytest.mark.parametrize(("route", "value", "message"), [
    (("mesh", "shape"), [2, 0], "'mesh' cannot be what it says: For 'DeviceMatrix'"),
    (("mesh",), {"shape": [10**9], "names": [], "ranks": []}, "'mesh' must have the 'ranks' of its devices, but got none"),
    (("inputs", 0), [[[-1], []]], r"'inputs\[0\]' must have numbers of axes, 0 or more, but got \[\[\[-1\], \[\]\]\]"),
    (("inputs",), {}, "'inputs' must be a list, but got {}"),
    (("inputs", 0), [[[0], [0]]], "'inputs\\[0\\]' cannot be what it says: For 'Placement'"),
    (("operators", 3, "operands", 0), [[["a"]]], r"'operators\[3\].operands\[0\]\[0\]\[0\]\[0\]' must be a whole number, but got 'a'"),
    (("operators", 3, "assignment"), 7, r"'operators\[3\].assignment' must be a list, but got 7"),
    (("settled",), {"x": {}}, "'settled' must have whole numbers as keys, but got 'x'"),
    (("settled",), {"4": {}}, "'settled.4' must have 'placement'"),
    (("alltoall",), "no", "'alltoall' must be true or false, but got 'no'"),
    (("notes",), "none", "'notes' must be a list, but got 'none'"),
])  # fmt: skip
def test_malformed_parts_of_plans_are_reported_with_the_way_there(route, value, message):
    document = json.loads(replicated_plan(GRAPH, EIGHT).to_json())
    *above, last = route
    inner = document
    for step in above:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(SporaxValueError, match=message):
        Plan.from_json(json.dumps(document))


def test_a_plan_that_was_tampered_with_or_is_of_another_graph():
    plan = replicated_plan(GRAPH, EIGHT)
    moved = replace(plan, inputs=(Placement(((0,), ())), *plan.inputs[1:]))
    with pytest.raises(SporaxValueError, match="output 0 must have the placement of the input that it replaces, w0"):
        check_plan(GRAPH, Plan.from_json(moved.to_json()))
    with pytest.raises(SporaxValueError, match="there must be .* operators as in the graph"):
        check_plan(networks.mlp(3, 64, 64).graph, plan)
