"""Times of compiled plans: kernels, not operators."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from msgspec import structs

from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.cost import Roofline, cost_of, kernel_seconds, link_costs
from sporax.planner.propagation.propagate import plan_by_propagation
from sporax.planner.propagation.semi_auto import SemiAuto
from sporax.planner.search import SearchOptions, replicated_plan, search

MESH = DeviceMatrix((2, 2, 2))
PROFILE = structs.replace(load_profile("h200"), launch_seconds=0.0)
MODEL = Roofline(PROFILE, link_costs(PROFILE, MESH))


def graph_of(function, *shapes):
    return ingest(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))).graph


def test_what_is_melted_moves_no_bytes():
    one = graph_of(lambda x: x + 1, (1024, 1024))
    three = graph_of(lambda x: (x + 1) * 2 - 3, (1024, 1024))
    seconds = kernel_seconds(one, replicated_plan(one, MESH), MODEL)

    assert seconds == pytest.approx(2 * 4 * 1024**2 / PROFILE.bytes_per_second)
    assert kernel_seconds(three, replicated_plan(three, MESH), MODEL) == pytest.approx(seconds)


def test_a_large_product_is_bound_by_arithmetic():
    graph = graph_of(lambda a, b: a @ b, (4096, 4096), (4096, 4096))
    arithmetic = 2 * 4096**3 / PROFILE.flops_per_second("float32")
    cut = search(graph, MESH, MODEL, "dynamic", SearchOptions(fully_use_devices=True)).plan

    assert kernel_seconds(graph, replicated_plan(graph, MESH), MODEL) == pytest.approx(arithmetic)
    communication = cost_of(graph, cut, MODEL).communication_seconds
    assert kernel_seconds(graph, cut, MODEL) - communication == pytest.approx(arithmetic / 8, rel=0.5)


def test_weights_and_gradients_hide_as_far_as_the_profile_says():
    graph = graph_of(lambda a, b: a @ b, (512, 4096), (4096, 512))
    # Partial sums that nothing waits for, as gradients are.
    halves = (Placement(((), (0, 1, 2))), Placement(((0, 1, 2), ())))
    inputs = {argument.tensor: where for argument, where in zip(graph.inputs, halves, strict=True)}
    config = ParallelConfig(device_num=8, parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL)
    plan = plan_by_propagation(graph, MESH, inputs, SemiAuto(MESH, config, frozenset()))
    cost = cost_of(graph, plan, MODEL)
    assert cost.by_overlap["gradients"] == cost.communication_seconds > 0
    shown = kernel_seconds(graph, plan, Roofline(structs.replace(PROFILE, hidden={}), MODEL.links))
    hidden = kernel_seconds(graph, plan, Roofline(structs.replace(PROFILE, hidden={"gradients": 0.5}), MODEL.links))
    computing = shown - cost.communication_seconds
    assert hidden == pytest.approx(computing + max(cost.communication_seconds - computing / 3, 0.0))


def test_rearranged_operands_move_bytes_where_the_compiler_of_the_hardware_rearranges():
    shapes = ((64, 64, 32), (64, 64, 32))
    straight = graph_of(lambda a, b: jnp.einsum("bik,bjk->bij", a, b.transpose(0, 1, 2)), *shapes)
    crossed = graph_of(lambda a, b: jnp.einsum("ibk,jbk->bij", a, b), *shapes)
    on_cpus = replace(MODEL, profile=structs.replace(PROFILE, platform="cpu"))

    assert kernel_seconds(crossed, replicated_plan(crossed, MESH), on_cpus) > kernel_seconds(
        straight, replicated_plan(straight, MESH), on_cpus
    )
    assert kernel_seconds(crossed, replicated_plan(crossed, MESH), MODEL) == kernel_seconds(
        straight, replicated_plan(straight, MESH), MODEL
    )
