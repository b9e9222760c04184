"""The proving search: Alpa's closed forms, and plans that run on eight simulated devices as on one."""

import jax
import jax.numpy as jnp
import networks
import pytest
from alpa import AlpaLinks, all_reduce
from planner_graphs import CommunicationOnly
from running import assert_same_results

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.budget import Budget
from sporax.planner.communication.transfers import schedule
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.plan_check import check_plan
from sporax.planner.search import ilp
from sporax.planner.search.limit import limit as limits
from sporax.planner.search.space import problem
from sporax.planner.search.space.problem import SearchOptions

EIGHT = DeviceMatrix((2, 2, 2))


def alpa(graph, mesh, betas=(), **options):
    result = ilp(
        graph,
        DeviceMatrix(mesh),
        CommunicationOnly(AlpaLinks(axis_beta=betas)),
        SearchOptions(fully_use_devices=True, **options),
    )
    check_plan(graph, result.plan)
    assert result.optimal
    return result


def collectives(graph, plan):
    actual = {}
    for together in schedule(graph, plan):
        for transfer in together:
            for move in transfer.redistribution.moves:
                if move.collective:
                    actual.setdefault(move.collective, []).append(move.local_bytes)
    return actual


@pytest.mark.parametrize(("layers", "batch", "width", "expected"), [
    (2, 1024, 128, 196_610.02),
    (2, 128, 1024, 786_433.01),
    (12, 1024, 128, 1_179_660.12),
    (12, 128, 1024, 8_650_763.11),
])  # fmt: skip
def test_mlp_has_the_cost_of_alpas_plan(layers, batch, width, expected):
    result = alpa(networks.mlp(layers, batch, width, with_loss=False).graph, (4,))

    assert result.cost_seconds == pytest.approx(expected, abs=5e-3)
    assert result.bound_seconds == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize(("step", "mesh", "betas", "published"), [
    (networks.mlp(6, 32, 256, with_loss=False), (4,), (), 245_765.05),
    (networks.mlp(6, 256, 32, with_loss=False), (4,), (), 38_028.12),
    (networks.mlp(6, 256, 32, with_loss=False), (2, 2), (1.0, 0.1), 21_265.17),
    (networks.bare_transformer(2, 8, 8, 128), (4,), (), 344_071.07),
])  # fmt: skip
def test_published_costs_are_met_or_improved(step, mesh, betas, published):
    """Six layers by columns and rows, by batch, on two axes; two transformer layers."""
    assert alpa(step.graph, mesh, betas).cost_seconds <= published + 5e-3


def test_data_parallel_mlp_reduces_gradients_only():
    graph = networks.mlp(12, 1024, 128, with_loss=False).graph

    assert collectives(graph, alpa(graph, (4,)).plan) == {"all_reduce": [128 * 128 * 4] * 12}


def test_tensor_parallel_mlp_alternates_columns_and_rows():
    graph = networks.mlp(12, 128, 1024, with_loss=False).graph
    result = alpa(graph, (4,))

    assert collectives(graph, result.plan) == {"all_reduce": [128 * 1024 * 4] * 11}
    cuts = [placement.dims.index((0,)) for placement in result.plan.inputs[:12]]
    assert cuts in ([0, 1] * 6, [1, 0] * 6)


@pytest.mark.parametrize(("layers", "mesh"), [(2, (4, 8)), (2, (8, 4)), (12, (4, 8)), (12, (8, 4))])
def test_mlp_on_a_mesh_of_two_axes_has_the_cost_of_alpas_plan_or_less(layers, mesh):
    batch, width, (data, model) = 1024, 128, mesh
    gradient = all_reduce(width * width * 4 / model, data)
    activation = all_reduce(batch * width * 4 / data, model, 0.01)
    result = alpa(networks.mlp(layers, batch, width, with_loss=False).graph, mesh, (1.0, 0.01))

    assert result.cost_seconds <= layers * gradient + (layers - 1) * activation + 5e-3


def test_forward_pass_of_six_layers_reduces_every_other_product():
    result = alpa(networks.mlp_forward(6, 32, 256).graph, (4,))

    assert result.cost_seconds <= 5 * all_reduce(32 * 256 * 4, 4)


def test_attention_needs_no_gather():
    graph = networks.attention(4, 128, 512, 16).graph
    free = alpa(graph, (4,))
    x = next(item.tensor for item in graph.inputs if item.name == "x")
    whole = {x: Placement.replicated(3), graph.outputs[0]: Placement.replicated(3)}
    result = alpa(graph, (4,), fixed=whole)

    assert free.cost_seconds == 0.0
    assert result.cost_seconds <= all_reduce(4 * 128 * 512 * 4, 4) + 5e-3


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize(("name", "step"), [
    ("wide", networks.mlp(3, 16, 512)),
    ("tall", networks.mlp(3, 64, 32)),
    ("attention", networks.attention(8, 16, 64, 8)),
    ("control flow", networks.looped()),
])  # fmt: skip
@pytest.mark.sampled(4)
def test_plans_run_as_on_one_device(name, step, busy):
    model = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))
    result = ilp(step.graph, EIGHT, model, SearchOptions(fully_use_devices=busy))

    check_plan(step.graph, result.plan)
    assert result.optimal
    assert_same_results(step, result.plan)


@pytest.mark.parametrize("step", [networks.transformer(1, 8, 8, 32, 4), networks.convolutional()])
@pytest.mark.sampled(1)
def test_larger_plans_run_as_on_one_device(step):
    model = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))
    result = ilp(step.graph, EIGHT, model, SearchOptions(fully_use_devices=True))

    check_plan(step.graph, result.plan)
    assert any(any(operator.assignment) for operator in result.plan.operators)
    assert_same_results(step, result.plan)


def test_what_cannot_be_sharded_is_reported_in_loops_too():
    def loop(x):
        return jax.lax.scan(lambda x, _: (x + jax.lax.rng_uniform(0.0, 1.0, (16, 16)), None), x, None, length=3)[0]

    model = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))
    plan = ilp(ingest(jax.make_jaxpr(loop)(jnp.zeros((16, 16), jnp.float32))).graph, EIGHT, model).plan

    assert [note for note in plan.notes if "'rng_uniform' is not sharded" in note] == list(plan.notes)
    assert len(plan.notes) == 1


def test_given_placements_are_kept():
    step = networks.mlp(2, 64, 64)
    graph = step.graph
    hidden = graph.operators[0].results[0]
    fixed = {graph.inputs[0].tensor: Placement(((0,), (1,))), hidden: Placement(((2,), ()))}
    model = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))
    plan = ilp(graph, EIGHT, model, SearchOptions(fixed=fixed)).plan

    check_plan(graph, plan)
    assert plan.inputs[0] == Placement(((0,), (1,)))
    assert plan.outputs[0] == plan.inputs[0]
    where = plan.reshardings[hidden].placement if hidden in plan.reshardings else plan.operators[0].results[0]
    assert where == Placement(((2,), ()))
    assert_same_results(step, plan)


@pytest.mark.parametrize(("fixed", "message"), [
    ({10**6: Placement(())}, "tensor must be one of"),
    ({0: Placement(((0,), (), ()))}, "must be complete and divide its shape"),
    ({0: Placement(((), ()), (0,))}, "must be complete"),
    ({0: Placement(((7,), ()))}, "must be complete and divide"),
])  # fmt: skip
def test_impossible_given_placements_are_refused(fixed, message):
    model = CommunicationOnly(AlpaLinks())
    with pytest.raises(SporaxValueError, match=message):
        ilp(networks.mlp(2, 64, 64).graph, EIGHT, model, SearchOptions(fixed=fixed))


def test_given_placements_that_contradict_each_other_are_refused():
    graph = networks.mlp(2, 64, 64).graph
    fixed = {graph.inputs[0].tensor: Placement(((0,), ())), graph.outputs[0]: Placement(((), (0,)))}
    with pytest.raises(SporaxValueError, match="result 0 replaces w0"):
        ilp(graph, EIGHT, CommunicationOnly(AlpaLinks()), SearchOptions(fixed=fixed))


@pytest.mark.parametrize("units", [((0,), (0, 1)), ((5,),)])
def test_units_that_do_not_fit_the_mesh_are_refused(units):
    with pytest.raises(SporaxValueError, match="every axis must be one of the 3 axes"):
        ilp(networks.mlp(2, 64, 64).graph, EIGHT, CommunicationOnly(AlpaLinks()), SearchOptions(units=units))


def test_under_a_limit_the_whole_problem_is_built_and_fitted_once(monkeypatch):
    fitted, built = [], []
    fit, build = limits._fit, problem.ProblemBuilder.build
    monkeypatch.setattr(limits, "_fit", lambda *args: fitted.append(args) or fit(*args))
    # Rounds of the fast search say which axes they hand out; only the whole problem is built without arguments.
    monkeypatch.setattr(problem.ProblemBuilder, "build", lambda *args: built.append(args) or build(*args))

    step, mesh = networks.mlp(2, 64, 256), DeviceMatrix((8,))
    model = Roofline(load_profile("h200"), link_costs(load_profile("h200"), mesh))
    limit = ilp(step.graph, mesh, model).statistics["peak_bytes"] // 2
    built.clear()
    result = ilp(step.graph, mesh, model, SearchOptions(memory_bytes=limit), budget=Budget.of(8))

    assert result.statistics["peak_bytes"] <= limit
    assert not result.optimal, "a proven plan needs no fast search, so this one would show nothing"
    assert len(fitted) == 1
    assert len([args for args in built if len(args) == 1]) == 1
