"""Bytes of collectives in compiled programs beside what plans of every search say, by kind: within one percent."""

from functools import cache
from types import SimpleNamespace

import networks
import pytest
from program_text import planned_bytes, read_collectives
from running import arguments_of, compiled

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.search import MODES, SearchOptions, search

EIGHT = DeviceMatrix((2, 2, 2))
PROFILE = load_profile("h200")
MODEL = Roofline(PROFILE, link_costs(PROFILE, EIGHT))
NETWORKS = {
    "narrow": networks.mlp(4, 32, 512),
    "tall": networks.mlp(4, 512, 64),
    "transformer": networks.transformer(1, 8, 8, 32, 4),
    "convolution": networks.convolutional(16),
}


@cache
def program_of(name, plan_text):
    """What the compiled program sends; searches that agree share one."""
    step, plan = NETWORKS[name], PLANS[name, plan_text]
    return read_collectives(compiled(step, plan).lower(*arguments_of(step)).compile().as_text())


PLANS = {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled(8)
def test_compiled_programs_send_what_plans_say(name, mode):
    step = NETWORKS[name]
    plan = search(step.graph, EIGHT, MODEL, mode, SearchOptions(fully_use_devices=True)).plan
    PLANS[name, repr(plan)] = plan
    planned = planned_bytes(SimpleNamespace(graph=step.graph, plan=plan))
    there = program_of(name, repr(plan))

    assert planned
    assert there.keys() == planned.keys()
    assert there == pytest.approx(planned, rel=0.01)
