"""What cannot be planned is refused with what is wrong and where."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import networks
import pytest

import sporax
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.planner.check import check_plan
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.search import MODES, SearchOptions, search, whole_plan

EIGHT = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))
GRAPH = networks.mlp(2, 64, 64).graph
SHAPE = jax.ShapeDtypeStruct((16, 16), jnp.float32)


@pytest.mark.parametrize("devices", [0, -2, 2.5])
def test_a_number_of_devices_that_is_none(devices):
    with pytest.raises(SporaxValueError, match=rf"'devices' must be a number of devices, 1 or more, but got {devices}"):
        sporax.plan(jnp.dot, SHAPE, SHAPE, devices=devices)


@pytest.mark.parametrize("mode", MODES)
def test_impossible_and_contradictory_cuts_are_refused_by_every_search(mode):
    weight, updated = GRAPH.inputs[0].tensor, GRAPH.outputs[0]
    with pytest.raises(SporaxValueError, match=rf"tensor {weight} must be complete and divide its shape \(64, 64\)"):
        search(GRAPH, EIGHT, MODEL, mode, SearchOptions(fixed={weight: Placement(((0,), (), ()))}))
    fixed = {weight: Placement(((0,), ())), updated: Placement(((), (0,)))}
    with pytest.raises(SporaxValueError, match="takes the place of w0 and must lie as it does"):
        search(GRAPH, EIGHT, MODEL, mode, SearchOptions(fixed=fixed))


def test_a_cut_that_does_not_fit_the_devices():
    with pytest.raises(SporaxValueError, match=r"must divide the 4 devices, but got \(3, 1\)"):
        sporax.plan(jnp.dot, SHAPE, SHAPE, devices=4, fixed={0: (3, 1)})


@pytest.mark.parametrize(("text", "message"), [
    ("", "must be a saved plan, but JSONDecodeError"),
    ("[1]", "must be a saved plan"),
    ('{"version": -1}', "the version must be 1, but got -1"),
    ('{"version": 1}', "KeyError\\('mesh'\\)"),
])  # fmt: skip
def test_malformed_plans(text, message):
    with pytest.raises(SporaxValueError, match=message):
        Plan.from_json(text)


def test_a_plan_that_was_tampered_with_or_is_of_another_graph():
    plan = whole_plan(GRAPH, EIGHT)
    moved = replace(plan, inputs=(Placement(((0,), ())), *plan.inputs[1:]))
    with pytest.raises(SporaxValueError, match="output 0 must lie as the input whose place it takes, w0"):
        check_plan(GRAPH, Plan.from_json(moved.to_json()))
    with pytest.raises(SporaxValueError, match="there must be .* operators as in the graph"):
        check_plan(networks.mlp(3, 64, 64).graph, plan)
