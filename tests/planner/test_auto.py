"""Automatic parallelism: what settings mean for the search, and what becomes of its result."""

import pytest
from planner_graphs import layers, mesh_of, placement, product

from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.config.search_config import CostModelConfig, SearchConfig
from sporax.ir.hardware import load_profile
from sporax.ir.marks import OperatorMark, Side
from sporax.ir.operation import TensorSpec
from sporax.planner.auto import AutoPolicy, auto_plan, price_list, search_options
from sporax.planner.cost import Roofline, Symbolic
from sporax.planner.plan_check import check_plan

MESH = mesh_of(2, 2)
CPU = load_profile("cpu")


def settings(hardware="cpu", search=None, cost=None, **options):
    parallel = ParallelConfig(device_num=4, parallel_mode=ParallelMode.AUTO_PARALLEL, **options)
    return PlanSettings(parallel, search or SearchConfig(), cost or CostModelConfig(), hardware)


def test_the_plan_is_that_of_the_search_with_the_rest_by_propagation():
    graph = layers(2)
    rows = placement("01 -")
    plan, result = auto_plan(graph, MESH, settings(), {graph.inputs[0].tensor: rows}, frozenset(), CPU)
    check_plan(graph, plan)
    assert plan.inputs[0] == rows
    assert [operator.assignment for operator in plan.operators] == [
        operator.assignment for operator in result.plan.operators
    ]
    assert result.finish(result) == plan


def test_search_settings_become_options_of_the_search():
    plain = search_options(settings(), MESH, CPU, {})
    assert (plain.align, plain.epsilon, plain.follow, plain.fully_use_devices) == (1, 0.0, False, False)
    assert plain.memory_bytes == CPU.memory_bytes
    changed = SearchConfig(
        fully_use_devices=True,
        elementwise_op_strategy_follow=True,
        tensor_slice_align_enable=True,
        enable_algo_approxi=True,
    )
    options = search_options(settings(search=changed), MESH, CPU, {0: placement("0 -")})
    assert (options.align, options.epsilon, options.follow, options.fully_use_devices) == (16, 0.1, True, True)
    assert options.fixed == {0: placement("0 -")}


def test_a_memory_that_the_user_names_is_the_limit():
    cost = CostModelConfig(device_memory_capacity=5e9)
    assert search_options(settings(cost=cost), MESH, CPU, {}).memory_bytes == 5_000_000_000


def test_plans_are_priced_in_seconds_unless_the_published_model_is_asked_for():
    assert isinstance(price_list(settings(), MESH, CPU), Roofline)
    assert isinstance(price_list(settings(cost=CostModelConfig(costmodel_alpha=2.0), hardware=""), MESH, CPU), Symbolic)


def test_settings_that_change_nothing_are_named():
    cost = CostModelConfig(is_multi_subgraphs=True)
    with pytest.warns(UserWarning, match="For 'set_cost_model_context', 'is_multi_subgraphs' has no effect"):
        auto_plan(product(), MESH, settings(cost=cost), {}, frozenset(), CPU)


def mark(strategy=((4, 1),), **attributes):
    return OperatorMark("ReLU", 0, Side.IN, strategy, None, tuple(sorted(attributes.items())))


@pytest.mark.parametrize(("mode", "kept"), [("dynamic_programming", True), ("recursive_programming", False)])
def test_recursive_programming_decides_for_itself(mode, kept):
    policy = AutoPolicy(MESH, settings(search_mode=mode).parallel)
    assert policy.keeps(mark()) == kept
    assert not policy.keeps(mark(None))
    (answer,) = policy.at_operator(mark(), [TensorSpec((64, 64))], [placement("- -")])
    assert (answer is not None and answer.placement == placement("01 -")) == kept


def test_strategies_of_files_and_of_data_parallel_hold_in_every_search():
    policy = AutoPolicy(MESH, settings(search_mode="recursive_programming").parallel)
    assert policy.keeps(mark(None, strategy_gen_mode="data_parallel"))
    assert AutoPolicy(MESH, policy.config, always=True).keeps(mark())
    assert not policy.returns_cotangents
