"""Automatic parallelism on eight devices: every search's plan trains to the losses of one device."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
from msgspec import structs

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.hardware import load_profile
from sporax.ir.plan import Plan
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.parallel import Layout
from sporax.planner.cost import Roofline, Symbolic, cost_of
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search.limit import local_search

RNG = np.random.default_rng(0)
SEARCHES = ("recursive_programming", "dynamic_programming", "sharding_propagation")
LAYOUT = Layout((2, 4), ("a", "b"))
X, Y = RNG.normal(size=(16, 256)).astype(np.float32), RNG.integers(0, 8, 16).astype(np.int32)


class Net(nn.Cell):
    def __init__(self, strategy=None, out_strategy=None, **attributes):
        super().__init__()
        self.up, self.down = nn.Dense(256, 512), nn.Dense(512, 256)
        self.product = ops.MatMul()
        if strategy is not None:
            self.product.shard(strategy, out_strategy)
        for name, value in attributes.items():
            self.product.add_prim_attr(name, value)
        self.weight = ms.Parameter(Tensor(RNG.normal(size=(256, 8)).astype(np.float32)), name="weight")
        self.norm = nn.LayerNorm((256,))
        self.dropout = nn.Dropout(p=0.1)

    def construct(self, x):
        return self.product(self.dropout(self.norm(x + self.down(ops.gelu(self.up(x))))), self.weight)


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)
    yield
    context.reset_algo_parameters()
    context.reset_cost_model_context()


@pytest.fixture
def few_plans(monkeypatch):
    """Searches for less memory measure few plans: how little there can be is not computed."""
    monkeypatch.setattr(local_search, "_OPERATORS", 10_000)


def train(strategy=None, steps=4, requested=None, **settings):
    context.reset_auto_parallel_context()
    if settings:
        context.set_auto_parallel_context(parallel_mode="auto_parallel", device_num=8, **settings)
    ms.set_seed(1)
    global RNG
    RNG = np.random.default_rng(7)
    net = Net(strategy, **(requested or {}))
    net.set_train()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Adam(net.trainable_params(), 1e-3))
    losses = [float(step(Tensor(X), Tensor(Y))) for _ in range(steps)]
    return losses, step


def planned(step):
    actual = step.program.plan(Tensor(X), Tensor(Y))
    check_plan(actual.graph, actual.plan)
    return actual


@pytest.fixture(scope="module")
def alone():
    mode = context.get_context("mode")
    context.set_context(mode=context.GRAPH_MODE)
    losses = train()[0]
    context.set_context(mode=mode)
    return losses


@pytest.mark.parametrize("mode", ["ilp", "repeated_blocks"])
@pytest.mark.sampled(1)
def test_our_own_searches_can_be_requested(alone, monkeypatch, mode):
    monkeypatch.setenv("SPORAX_PLAN_MODE", mode)
    context.set_algo_parameters(fully_use_devices=True)
    losses, step = train(search_mode="recursive_programming", steps=2)
    np.testing.assert_allclose(losses, alone[:2], rtol=2e-5)
    assert dict(planned(step).model.links.merged)["all_reduce"] > 0
    actual = planned(step).search
    assert actual.method == {"ilp": "ilp", "repeated_blocks": "repeated"}[mode]
    assert actual.bound_seconds <= actual.cost_seconds


@pytest.mark.parametrize("search_mode", SEARCHES)
@pytest.mark.parametrize("sharded_optimizer", [False, True])
@pytest.mark.sampled(2)
def test_losses_are_those_of_one_device(alone, search_mode, sharded_optimizer):
    context.set_algo_parameters(fully_use_devices=True)
    settings = {
        "enable_parallel_optimizer": sharded_optimizer,
        "comm_fusion": {"allreduce": {"mode": "auto", "config": None}},
    }
    losses, step = train(search_mode=search_mode, **settings)
    np.testing.assert_allclose(losses, alone, rtol=2e-5)
    actual = planned(step)
    assert actual.search.cost_seconds > 0
    assert any(any(operator.assignment) for operator in actual.plan.operators)
    assert not actual.model.links.merged  # it was said what travels together


@pytest.mark.parametrize("search_mode", SEARCHES)
def test_moments_are_sharded_as_their_parameters_are_stored(search_mode):
    """Also where the search keeps a weight whole, which optimizer parallelism then stores in slices."""
    config = {"parallel_optimizer_threshold": 0}
    context.set_auto_parallel_context(
        device_num=8,
        parallel_mode="auto_parallel",
        search_mode=search_mode,
        full_batch=True,
        enable_parallel_optimizer=True,
        parallel_optimizer_config=config,
    )
    net = nn.SequentialCell(
        *(nn.SequentialCell(nn.Dense(64, 64, has_bias=False), nn.Tanh()) for _ in range(3)), nn.Dense(64, 256)
    )
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.1))
    planned = step.program.plan(Tensor(np.ones((64, 64), np.float32)), Tensor(np.ones((64, 256), np.float32)))
    placed = {item.name: place for item, place in zip(planned.graph.inputs, planned.plan.inputs, strict=True)}
    weights = [name for name in placed if f"moment1.{name}" in placed]
    assert len(weights) == 5
    for name in weights:
        assert math.prod(placed[name].parts(planned.plan.mesh)) == 8
        assert placed[f"moment1.{name}"] == placed[f"moment2.{name}"] == placed[name]


@pytest.mark.parametrize("search_mode", SEARCHES)
@pytest.mark.sampled(1)
def test_the_users_strategies_hold_but_in_recursive_programming(alone, search_mode):
    lost = search_mode == "recursive_programming"
    with pytest.warns(UserWarning, match="the strategy of MatMul in .* is replaced") if lost else nullcontext():
        losses, step = train(((2, 1), (1, 4)), search_mode=search_mode)
    np.testing.assert_allclose(losses, alone, rtol=2e-5)
    actual = planned(step)
    summary = actual.summary()
    assert [row.name for row in summary.operators if row.given and row.phase == "forward"] == (
        [] if lost else ["MatMul"]
    )
    assert ["is replaced by the search's own" in warning for warning in summary.warnings] == [True] * lost
    assert Plan.from_json(actual.plan.to_json()) == actual.plan
    placed = {item.name: place for item, place in zip(actual.graph.inputs, actual.plan.inputs, strict=True)}
    if search_mode != "recursive_programming":
        assert placed["weight"].parts(actual.plan.mesh) == (1, 4)


@pytest.mark.parametrize("strategy", [((2, 1), (1, 4)), ((2, 4), (4, 1))])
@pytest.mark.parametrize("search_mode", SEARCHES)
@pytest.mark.sampled(2)
def test_the_users_strategies_cost_what_they_run(strategy, search_mode):
    """Cut alike in the plan that was searched and in the one that runs, which costs what was searched for."""
    # Other searches keep them anyway.
    context.set_algo_parameters(recursive_keeps_strategies=search_mode == "recursive_programming")
    actual = plan_only(strategy=strategy, search_mode=search_mode)
    [product] = products(actual)
    cut = ((2, 1), (1, 4)) if strategy[0] == (2, 1) else ((2, 4), (4, 1))
    for plan in (actual.plan, actual.search.plan):
        assert tuple(where.parts(plan.mesh) for where in plan.operators[product].operands) == cut
    finished = cost_of(actual.graph, actual.plan, actual.model).seconds
    assert finished == pytest.approx(actual.search.cost_seconds, rel=0.03)


def products(actual):
    """The operators' numbers of the product that strategies are for, forward."""
    return [
        number
        for number, item in enumerate(actual.graph.operators)
        if item.name == "dot_general" and item.path.endswith("product") and not item.backward
    ]


@pytest.mark.parametrize(
    ("strategy", "requested", "lies"),
    [
        (((2, 4), (4, 1)), {"out_strategy": ((8, 1),)}, (8, 1)),
        (((2, 4), (4, 1)), {"forward_reduce_scatter": True}, (8, 1)),
        ((LAYOUT("None", ("a", "b")), LAYOUT("a", "b")), {"enable_nd_tp": True}, (1, 8)),
        (
            (LAYOUT("b", "a"), LAYOUT("a", "None")),
            {"out_strategy": (LAYOUT("b", "a"),), "self_define_shard": True},
            (4, 2),
        ),
    ],
    ids=["out_strategy", "reduce_scatter", "nd_tp", "self_define_shard"],
)
@pytest.mark.parametrize("search_mode", SEARCHES[1:])
@pytest.mark.sampled(2)
def test_results_lie_where_the_user_wants_them(alone, strategy, requested, lies, search_mode):
    losses, step = train(strategy, steps=2, search_mode=search_mode, requested=requested)
    np.testing.assert_allclose(losses, alone[:2], rtol=2e-5)
    actual = planned(step)
    [product] = products(actual)
    result = actual.graph.operators[product].results[0]
    exit_mark = next(number for number, item in enumerate(actual.graph.operators) if result in item.operands)
    assert actual.plan.operators[exit_mark].operands[0].parts(actual.plan.mesh) == lies


def test_where_data_lies_is_no_seed():
    """Propagation tries its own seeds unless the user has given some."""
    free = plan_only(search_mode="sharding_propagation").search
    seeded = plan_only(strategy=((2, 1), (1, 4)), search_mode="sharding_propagation").search
    assert free.statistics["seedings"] > 1
    assert seeded.statistics["seedings"] == 1


def test_recursive_programming_can_be_set_to_keep_them():
    context.set_algo_parameters(recursive_keeps_strategies=True)
    actual = plan_only(strategy=((2, 1), (1, 4)), search_mode="recursive_programming")
    placed = {item.name: place for item, place in zip(actual.graph.inputs, actual.plan.inputs, strict=True)}
    assert placed["weight"].parts(actual.plan.mesh) == (1, 4)


@pytest.mark.full
def test_a_plan_fits_the_memory_that_there_is(alone, few_plans):
    actual = plan_only(search_mode="dynamic_programming")
    assert actual.search.method == "dynamic"
    needed = int(0.96 * memory_of(actual.graph, actual.search.plan, XLA_CPU).peak_bytes)
    context.set_cost_model_context(device_memory_capacity=float(needed))
    losses, step = train(steps=3, search_mode="dynamic_programming")
    np.testing.assert_allclose(losses, alone[:3], rtol=2e-5)
    actual = planned(step)
    assert actual.search.statistics["method"] == "integer program for memory"
    assert actual.search.statistics["peak_bytes"] <= needed
    context.set_cost_model_context(device_memory_capacity=1e5)
    with pytest.raises(SporaxRuntimeError, match="memory"):
        plan_only(search_mode="dynamic_programming")


def test_without_a_word_the_memory_is_that_of_the_hardware(few_plans, monkeypatch, tmp_path):
    small = structs.replace(load_profile("cpu"), name="small", memory_bytes=1000)
    path = tmp_path / "small.json"
    path.write_text(small.to_json())
    monkeypatch.setenv("SPORAX_HARDWARE", str(path))
    with pytest.raises(SporaxRuntimeError, match="memory"):
        plan_only(search_mode="recursive_programming")
    context.set_cost_model_context(device_memory_capacity=1e9)
    losses, _ = train(steps=1, search_mode="recursive_programming")
    assert np.isfinite(losses).all()


def plan_only(**settings):
    """The step's plan, nothing trained."""
    return planned(train(steps=0, **settings)[1])


def test_numbers_of_the_cost_model_choose_the_cost_model():
    free = plan_only(search_mode="recursive_programming")
    context.set_cost_model_context(costmodel_beta=1e9)
    dear = plan_only(search_mode="recursive_programming")
    context.set_cost_model_context(costmodel_beta=1e-3)
    cheap = plan_only(search_mode="recursive_programming")

    assert isinstance(free.model, Roofline)
    assert isinstance(dear.model, Symbolic)
    assert cheap.model.config.costmodel_beta == 1e-3
    cuts = [sum(map(any, (item.assignment for item in actual.plan.operators))) for actual in (dear, cheap)]
    assert cuts[0] < cuts[1]
    assert "weighted bytes" in str(cheap.summary())
    assert "weighted bytes" in str(cheap.explain("product"))


def test_the_published_model_can_be_named_and_hardware_wins_over_its_numbers(monkeypatch):
    monkeypatch.setenv("SPORAX_HARDWARE", "symbolic")
    assert isinstance(plan_only(search_mode="recursive_programming").model, Symbolic)
    monkeypatch.setenv("SPORAX_HARDWARE", "h200")
    context.set_cost_model_context(costmodel_beta=300.0)
    with pytest.warns(UserWarning, match="'costmodel_beta' has no effect: plans are costed in seconds on 'h200'"):
        assert isinstance(plan_only(search_mode="recursive_programming").model, Roofline)


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"costmodel_allreduce_fusion_algorithm": 1}, "comm_fusion"), ({"is_multi_subgraphs": True}, "one graph")],
)
def test_settings_that_change_nothing_say_why(settings, why):
    context.set_cost_model_context(**settings)
    with pytest.warns(UserWarning, match=f"'{next(iter(settings))}' has no effect: .*{why}"):
        plan_only(search_mode="recursive_programming")


def test_settings_of_the_search_reach_it():
    context.set_algo_parameters(
        elementwise_op_strategy_follow=True,
        tensor_slice_align_enable=True,
        tensor_slice_align_size=64,
        enable_algo_approxi=True,
        algo_approxi_epsilon=0.5,
    )
    context.set_cost_model_context(dp_algo_single_loop=True)
    search = plan_only(search_mode="dynamic_programming").search

    assert search.method == "repeated"
    assert (search.options.follow, search.options.align, search.options.epsilon) == (True, 64, 0.5)


def test_what_one_search_found_is_taken_up_from_a_file(tmp_path):
    context.set_algo_parameters(fully_use_devices=True)
    path = str(tmp_path / "strategy.json")
    saved = plan_only(search_mode="dynamic_programming", strategy_ckpt_config={"save_file": path})
    for mode in SEARCHES:
        loaded = plan_only(search_mode=mode, strategy_ckpt_config={"load_file": path})
        assert loaded.plan.inputs == saved.plan.inputs


@pytest.mark.full
def test_other_plans_of_a_step_can_be_requested(few_plans):
    actual = plan_only(search_mode="dynamic_programming")
    others, sizes = actual.alternatives(2), actual.trade_offs(3)

    assert len(others) == 2
    for size in (*others, *sizes):
        check_plan(size.graph, size.plan)
    assert others[0].plan != actual.plan
    assert actual.diff(others[0])
    assert [size.search.cost_seconds for size in sizes] == sorted(size.search.cost_seconds for size in sizes)


def test_changed_search_settings_make_a_new_plan():
    _, step = train(steps=1, search_mode="recursive_programming")
    context.set_algo_parameters(fully_use_devices=True)
    step(Tensor(X), Tensor(Y))
    assert len(step.program.compilations) == 2
    assert "search" in step.program.compilations[-1].reason
