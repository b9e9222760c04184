"""Predicted memory beside what XLA says of the compiled program, and searches under a limit."""

import jax
import networks
import pytest
from running import arguments_of, assert_same_results, compiled

from sporax.base.errors import SporaxRuntimeError
from sporax.base.units import parse_bytes
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.budget import Budget
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.memory.peak import Use, memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search import ilp, propagation
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.planner.search.space.problem import SearchOptions

MESH = DeviceMatrix((2, 2, 2))
MODEL = Roofline(load_profile("h200"), link_costs(load_profile("h200"), MESH))

LINE = DeviceMatrix((8,))
"""As many devices on one axis: a search under a limit measures hundreds of plans, and there are fewer of them."""
LINE_MODEL = Roofline(load_profile("h200"), link_costs(load_profile("h200"), LINE))


@pytest.fixture
def _optimized():
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


def compiled_bytes(step, plan):
    donated = tuple(argument - len(step.constants) for _, argument in step.graph.aliases)
    program = jax.jit(compiled(step, plan), donate_argnums=donated).lower(*arguments_of(step)).compile()
    used = program.memory_analysis()
    return used.argument_size_in_bytes + used.temp_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes


@pytest.mark.usefixtures("_optimized")
@pytest.mark.parametrize(
    "step",
    [
        networks.mlp(6, 2048, 256),
        networks.mlp(6, 64, 1024),
        networks.convolutional(64),
        networks.transformer(1, 16, 32, 64, 4),
    ],
)
@pytest.mark.sampled(2)
def test_prediction_is_near_the_compiled_program(step):
    cut = ilp(step.graph, MESH, MODEL, SearchOptions(fully_use_devices=True)).plan
    for plan in (replicated_plan(step.graph, MESH), cut):
        assert memory_of(step.graph, plan, XLA_CPU).peak_bytes == pytest.approx(compiled_bytes(step, plan), rel=0.1)


def test_what_memory_is_used_for():
    step = networks.mlp(4, 1024, 128)
    used = memory_of(step.graph, replicated_plan(step.graph, MESH), XLA_CPU)

    assert used.by_use[Use.PARAMETERS] == 4 * 128 * 128 * 4
    assert used.by_use[Use.DATA] == 2 * 1024 * 128 * 4
    assert used.by_use[Use.ACTIVATIONS] >= 3 * 1024 * 128 * 4
    assert used.held_bytes == used.by_use[Use.PARAMETERS] + used.by_use[Use.DATA]
    assert sum(used.by_use.values()) == used.peak_bytes
    assert "activations" in str(used)


def test_a_plan_that_fits_is_found_and_runs():
    step = networks.mlp(2, 64, 256)
    free = ilp(step.graph, LINE, LINE_MODEL)
    limit = free.statistics["peak_bytes"] // 2
    fitting = ilp(step.graph, LINE, LINE_MODEL, SearchOptions(memory_bytes=limit), budget=Budget.of(8))

    check_plan(step.graph, fitting.plan)
    assert memory_of(step.graph, fitting.plan, XLA_CPU).peak_bytes <= limit
    assert fitting.cost_seconds > free.cost_seconds
    assert_same_results(step, fitting.plan)


def test_a_limit_that_nothing_fits_is_refused_with_the_budget_that_would_do():
    step = networks.mlp(2, 64, 256)
    with pytest.raises(
        SporaxRuntimeError, match=r"must fit into 1 kB per device, but .* kB is the smallest plan"
    ) as caught:
        ilp(step.graph, LINE, LINE_MODEL, SearchOptions(memory_bytes=1000), budget=Budget.of(8))
    stated = parse_bytes(str(caught.value).split("but ")[1].split(" is")[0], "the limit")

    fitting = propagation(step.graph, LINE, LINE_MODEL, SearchOptions(memory_bytes=stated))
    assert memory_of(step.graph, fitting.plan, XLA_CPU).peak_bytes <= stated
