"""The fast searches beside the proving one."""

from functools import cache

import jax
import jax.numpy as jnp
import networks
import pytest
from running import assert_same_results

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.plan_check import check_plan
from sporax.planner.search import ilp, propagation, recursive
from sporax.planner.search.space.problem import SearchOptions

EIGHT = DeviceMatrix((2, 2, 2))
SEARCHES = [recursive, propagation]
NETWORKS = {
    "narrow": networks.mlp(12, 32, 1024),
    "tall": networks.mlp(12, 1024, 128),
    "large": networks.mlp(6, 4096, 4096),
    "attention": networks.attention(8, 16, 64, 8),
    "transformer": networks.transformer(1, 8, 16, 64, 8),
    "convolution": networks.convolutional(64),
}


@cache
def optimum(name, hardware):
    return ilp(NETWORKS[name].graph, EIGHT, model(EIGHT, hardware), SearchOptions(fully_use_devices=True))


def model(mesh, hardware="cpu"):
    return Roofline(load_profile(hardware), link_costs(load_profile(hardware), mesh))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("hardware", ["cpu", "h200"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("search", SEARCHES)
def test_plans_are_within_five_percent_of_the_optimum(search, name, hardware):
    graph, costs = NETWORKS[name].graph, model(EIGHT, hardware)
    options = SearchOptions(fully_use_devices=True)
    best = optimum(name, hardware)
    actual = search(graph, EIGHT, costs, options)

    check_plan(graph, actual.plan)
    assert best.optimal
    assert actual.cost_seconds <= 1.05 * best.cost_seconds
    assert actual.bound_seconds is None


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("mesh", [(2, 2, 2), (2, 3), (5,), ()])
def test_plans_for_any_number_of_devices_run_as_on_one(search, mesh):
    step = networks.mlp(2, 60, 60)
    mesh = DeviceMatrix(mesh)
    plan = search(step.graph, mesh, model(mesh), SearchOptions(fully_use_devices=True)).plan

    check_plan(step.graph, plan)
    assert any(any(operator.assignment) for operator in plan.operators) == (mesh.num_devices > 1)
    assert_same_results(step, plan)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.sampled(1)
def test_a_transformers_plan_runs_as_on_one_device(search):
    step = networks.transformer(1, 8, 8, 32, 4)
    plan = search(step.graph, EIGHT, model(EIGHT), SearchOptions(fully_use_devices=True)).plan

    check_plan(step.graph, plan)
    assert_same_results(step, plan)


@pytest.mark.parametrize("search", SEARCHES)
def test_given_placements_are_kept(search):
    step = networks.mlp(3, 64, 64)
    graph = step.graph
    weight = Placement(((), (0, 1)))
    plan = search(graph, EIGHT, model(EIGHT), SearchOptions(fixed={graph.inputs[1].tensor: weight})).plan

    check_plan(graph, plan)
    assert plan.inputs[1] == plan.outputs[1] == weight
    assert_same_results(step, plan)


@pytest.mark.parametrize("search", SEARCHES)
def test_what_is_given_on_all_axes_may_be_added_up(search):
    """Rounds hand out axis after axis: a sum over a dimension that is given is in parts along those that are out."""
    step = ingest(jax.make_jaxpr(lambda x: jnp.tanh(x).sum(0) ** 2)(jax.ShapeDtypeStruct((64, 32), jnp.float32)))
    rows = Placement(((0, 1, 2), ()))
    options = SearchOptions(fully_use_devices=True, fixed={step.graph.inputs[0].tensor: rows})
    actual, best = (item(step.graph, EIGHT, model(EIGHT), options) for item in (search, ilp))

    assert actual.plan.inputs[0] == rows
    assert actual.cost_seconds == pytest.approx(best.cost_seconds, rel=1e-9)
    assert_same_results(step, actual.plan)
