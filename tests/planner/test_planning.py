"""One way to a plan: what settings mean for a search, what becomes of its result, and what is sent of it."""

from dataclasses import replace

import pytest
from planner_graphs import layers, mesh_of, placement, product

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.config.search_config import CostModelConfig, SearchConfig
from sporax.ir.hardware import load_profile
from sporax.ir.marks import OperatorMark, Side
from sporax.ir.operation import TensorSpec
from sporax.planner import PlanRequest, PlanResult, cost_model, device_memory, finish, make_plan, planning, received
from sporax.planner.cost import Roofline, Symbolic
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.planning import search_options
from sporax.planner.propagation.semi_auto import AutoPolicy
from sporax.planner.search import SearchResult
from sporax.planner.search.limit.limit import PlanTooLargeError

MESH = mesh_of(2, 2)
CPU = load_profile("cpu")


def settings(hardware="cpu", search=None, cost=None, **options):
    parallel = ParallelConfig(device_num=4, parallel_mode=ParallelMode.AUTO_PARALLEL, **options)
    return PlanSettings(parallel, search or SearchConfig(), cost or CostModelConfig(), hardware)


def request(graph, placements=None, *, memory_bytes=None, **options):
    return PlanRequest(graph, MESH, settings(**options), CPU, placements or {}, memory_bytes=memory_bytes)


def test_the_plan_is_that_of_the_search_with_the_rest_by_propagation():
    graph = layers(2)
    rows = placement("01 -")
    result = make_plan(request(graph, {graph.inputs[0].tensor: rows}))
    plan, search = result.plan, result.search
    check_plan(graph, plan)
    assert plan.inputs[0] == rows
    assert [operator.assignment for operator in plan.operators] == [
        operator.assignment for operator in search.plan.operators
    ]
    assert finish(result.request, search, result.model).plan == plan
    assert search.cost_seconds == pytest.approx(cost_of(graph, plan, result.model).seconds)


def test_without_a_search_the_strategies_decide():
    graph = layers(2)
    own = settings()
    by_hand = replace(own, parallel=replace(own.parallel, parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL))
    result = make_plan(PlanRequest(graph, MESH, by_hand, CPU, {graph.inputs[0].tensor: placement("01 -")}))
    check_plan(graph, result.plan)
    assert result.search is None
    assert result.keeps(mark())


def test_results_are_values_that_other_processes_receive_whole():
    requested = request(layers(2), memory_bytes=1 << 30)
    result = make_plan(requested)
    assert isinstance(hash(result.plan.mesh), int)
    there = received(requested, result.to_json())
    assert there == result
    assert there.search.statistics == result.search.statistics
    assert (there.search.options, there.search.request) == (result.search.options, requested)
    by_strategies = PlanResult(requested, result.plan)
    assert received(requested, by_strategies.to_json()) == by_strategies


def test_a_search_is_repeated_with_less_memory_until_the_finished_plan_fits(monkeypatch):
    graph = layers(2)
    free = make_plan(request(graph))
    limit = memory_of(graph, free.plan, XLA_CPU).peak_bytes
    limits = []

    def peak(result):
        return limit + 1000 if len(limits) < 2 else limit

    def search(graph, mesh, model, mode, options, budget):
        limits.append(options.memory_bytes)
        return free.search

    monkeypatch.setattr(planning, "peak_bytes", peak)
    monkeypatch.setattr(planning, "search", search)
    result = make_plan(request(graph, memory_bytes=limit))
    assert limits == [limit, limit - 1000]
    assert result.search.options.memory_bytes == limit  # what the user requested, and reports say
    monkeypatch.setattr(planning, "peak_bytes", lambda result: limit + 1000)
    with pytest.raises(SporaxRuntimeError, match=r"^For '.*', a plan must fit into .*B per device, but with gradients"):
        make_plan(request(graph, memory_bytes=limit))


def test_the_plan_of_least_time_counts_where_it_fits_once_it_is_finished(monkeypatch):
    """Its own form in the search may be larger: finishing takes resharding out. MaxText's step was 2.8 times as slow."""
    graph = layers(2)
    free = make_plan(request(graph))
    limit = memory_of(graph, free.plan, XLA_CPU).peak_bytes

    def search(graph, mesh, model, mode, options, budget):
        if options.memory_bytes is not None:
            raise PlanTooLargeError("For 'memory', the plan must fit", 2 * limit)
        return free.search

    monkeypatch.setattr(planning, "search", search)
    found = make_plan(request(graph, memory_bytes=limit))
    assert found.plan == free.plan
    assert found.search.method == free.search.method == "recursive"
    with pytest.raises(SporaxRuntimeError):
        make_plan(request(graph, memory_bytes=limit // 50))


def test_data_without_a_placement_is_where_the_search_has_put_it():
    graph = layers(2)
    result = make_plan(request(graph))
    assert result.plan.inputs == result.search.plan.inputs
    assert isinstance(result.search, SearchResult)


def test_search_settings_become_options_of_the_search():
    plain = search_options(request(layers(1), memory_bytes=7))
    assert (plain.align, plain.epsilon, plain.follow, plain.fully_use_devices) == (1, 0.0, False, False)
    assert plain.memory_bytes == 7
    changed = SearchConfig(
        fully_use_devices=True,
        elementwise_op_strategy_follow=True,
        tensor_slice_align_enable=True,
        enable_algo_approxi=True,
    )
    options = search_options(request(layers(1), {0: placement("0 -")}, search=changed))
    assert (options.align, options.epsilon, options.follow, options.fully_use_devices) == (16, 0.1, True, True)
    assert options.fixed == {0: placement("0 -")}


def test_a_memory_that_the_user_names_is_the_limit():
    cost = CostModelConfig(device_memory_capacity=5e9)
    assert device_memory(settings(), CPU) == CPU.memory_bytes
    assert device_memory(settings(cost=cost), CPU) == 5_000_000_000
    assert device_memory(replace(settings(), max_device_bytes=5), CPU) == 5


def test_plans_are_priced_in_seconds_unless_the_published_model_is_requested():
    assert isinstance(cost_model(settings(), MESH, CPU), Roofline)
    assert isinstance(cost_model(settings(cost=CostModelConfig(costmodel_alpha=2.0), hardware=""), MESH, CPU), Symbolic)


def test_settings_that_change_nothing_are_named():
    cost = CostModelConfig(is_multi_subgraphs=True)
    with pytest.warns(UserWarning, match="For 'set_cost_model_context', 'is_multi_subgraphs' has no effect"):
        make_plan(request(product(), cost=cost))


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


@pytest.mark.parametrize("alltoall", [False, True])
def test_what_is_searched_moves_tensors_as_what_is_executed(alltoall):
    """A product that is sharded by columns and then by rows: without all-to-all its result is gathered."""
    graph = layers(2, 64, 64)
    requested = request(graph, {graph.inputs[0].tensor: placement("01 -")}, enable_alltoall=alltoall)
    assert search_options(requested).alltoall is alltoall
    result = make_plan(requested)
    assert result.plan.alltoall is alltoall
    assert result.search.cost_seconds == pytest.approx(cost_of(graph, result.plan, result.model).seconds)
