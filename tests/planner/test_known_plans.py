"""Known plans: where they have the inputs of a step, and that a search never loses to them."""

from dataclasses import replace

import pytest
from planner_graphs import GraphBuilder, mesh_of, placement, roofline, training_step

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.graph import Role
from sporax.ir.hardware import load_profile
from sporax.planner import PlanRequest, make_plan, planning
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.known_plans import known_inputs
from sporax.planner.plan_check import check_plan
from sporax.planner.search import SearchResult
from sporax.planner.search.space.plan_assembly import replicated_plan

MESH, CPU = mesh_of(2, 2, 2), load_profile("cpu")


def two_products():
    """A product, tanh, and a product with a weight that is kept turned; their weights are tensors 1 and 3."""
    builder = GraphBuilder()
    x, up = builder.argument(64, 16, name="x"), builder.weight(16, 32)
    y = builder.unary("tanh", builder.matmul(x, up))
    down = builder.transpose(builder.weight(8, 32, name="down"), 1, 0)
    return builder.graph(builder.matmul(y, down)), up, builder.inputs[2].tensor


def request(graph, mode="recursive_programming", memory_bytes=None, **placements):
    parallel = ParallelConfig(device_num=8, parallel_mode=ParallelMode.AUTO_PARALLEL, search_mode=mode)
    settings = PlanSettings(replace(parallel, enable_alltoall=True), hardware="cpu")
    return PlanRequest(graph, MESH, settings, CPU, placements, memory_bytes=memory_bytes)


def test_data_parallelism_fsdp_and_megatron_have_their_shardings():
    graph, up, down = two_products()
    known = dict(known_inputs(graph, MESH, roofline(MESH).links))
    every = placement("012 -")
    assert known["data parallelism"] == {0: every, up: placement("- -"), down: placement("- -")}
    assert known["FSDP"][up].used == known["FSDP"][down].used == {0, 1, 2}
    # The first weight by columns, the second by rows, which are its columns before it is turned.
    assert known["tensor parallelism over 8 devices"] == {
        0: placement("- -"),
        up: placement("- 012"),
        down: placement("- 012"),
    }
    inner = known["tensor parallelism over 4 devices"]
    assert (inner[0], inner[up]) == (placement("0 -"), placement("- 12"))


def test_a_function_without_parameters_has_no_known_plans():
    graph, *_ = two_products()
    data = replace(graph, inputs=tuple(replace(entry, role=Role.DATA) for entry in graph.inputs))
    assert not [*known_inputs(data, MESH, roofline(MESH).links)]


def test_a_search_never_loses_to_known_plans(monkeypatch):
    graph = training_step(4096, 64, 64)
    monkeypatch.setattr(planning, "search", lost)
    result = make_plan(request(graph))
    check_plan(graph, result.plan)
    assert result.search.cost_seconds == pytest.approx(cost_of(graph, result.plan, result.model).seconds)
    costs = [cost_of(graph, plan, result.model).seconds for _, plan in planning._known_plans(result.request)]
    assert result.search.cost_seconds == min(costs) < cost_of(graph, replicated_plan(graph, MESH), result.model).seconds
    assert any("what the search found takes" in note and "longer than" in note for note in result.plan.notes)
    # A bound that a plan is below was none.
    assert (result.search.bound_seconds, result.search.optimal) == (None, False)


def lost(graph, mesh, model, mode, options=None, budget=None):
    """A search that shards nothing and calls that the best."""
    plan = replicated_plan(graph, mesh)
    cost = cost_of(graph, plan, model).seconds
    return SearchResult(plan, mode, cost, cost, True, 0.0)


def test_a_limit_that_a_known_plan_keeps_is_not_refused(monkeypatch):
    graph = training_step(4096, 64, 64)
    monkeypatch.setattr(planning, "search", lost)
    monkeypatch.setattr(planning, "reject_infeasible_limit", lambda *arguments: None)
    whole = planning.peak_bytes(make_plan(replace(request(graph), memory_bytes=1 << 40)))
    sizes = [
        planning.memory_of(graph, plan, backend=planning.backend_of("cpu")).peak_bytes
        for _, plan in planning._known_plans(request(graph))
    ]
    limit = min(sizes)
    result = make_plan(request(graph, memory_bytes=limit))
    assert planning.peak_bytes(result) <= limit <= whole
    with pytest.raises(SporaxRuntimeError, match="must fit into"):
        make_plan(request(graph, memory_bytes=limit - 1))
