"""Strategies of the user, and defaults for all other operators."""

import pytest
from planner_graphs import GraphBuilder, mesh_of, placement

from operator_marks import operator_mark
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.graph import MARK
from sporax.ir.hardware import load_profile
from sporax.ir.layout import Layout
from sporax.ir.marks import GradientMark, LayoutMark, Side
from sporax.ir.operation import TensorSpec
from sporax.planner import PlanRequest, make_plan
from sporax.planner.plan_check import check_plan
from sporax.planner.propagation.semi_auto import SemiAuto, requests_results

MESH = mesh_of(2, 2)
MATRIX = TensorSpec((64, 64))


def config(**options):
    return ParallelConfig(device_num=4, parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL, **options)


def policy(**options):
    return SemiAuto(MESH, config(**options))


def planned(graph):
    rows = {graph.inputs[0].tensor: placement("01 -")}
    return make_plan(PlanRequest(graph, MESH, PlanSettings(config()), load_profile("cpu"), rows)).plan


def mark(name, side=Side.IN, strategy=None, out=None, **attributes):
    return operator_mark(name, 7, side, strategy, out, "net.op", **attributes)


def wanted(name, specs, current, strategy=None, rules=None, **attributes):
    answers = (rules or policy()).at_operator(mark(name, strategy=strategy, **attributes), specs, current)
    return [None if answer is None else answer.placement for answer in answers]


def test_inputs_are_sharded_as_the_strategy_says():
    rows = wanted("MatMul", [MATRIX, MATRIX], [placement("- -")] * 2, ((4, 1), (1, 1)))
    assert rows == [placement("01 -"), placement("- -")]


def test_an_operator_without_a_strategy_is_batch_parallel():
    assert wanted("ReLU", [MATRIX], [placement("- -")]) == [placement("01 -")]


def test_operators_that_reshape_take_their_input_as_it_comes():
    assert wanted("Reshape", [MATRIX], [placement("- 0")]) == [None]
    assert wanted("Reshape", [MATRIX], [placement("- 0 +1")]) == [placement("- 0")]  # but complete


def test_operators_on_weights_alone_wait_for_their_readers():
    assert wanted("Mul", [MATRIX, MATRIX], [None, None]) == [None, None]
    assert wanted("Unique", [TensorSpec((64,))], [placement("0")]) == [placement("-")]


def result(current, rules=None, **options):
    rules = rules or policy()
    rules.at_operator(mark("MatMul", strategy=((1, 4), (4, 1))), [MATRIX, MATRIX], [None, None])
    (answer,) = rules.at_operator(mark("MatMul", Side.OUT, ((1, 4), (4, 1)), **options), [MATRIX], [current])
    return answer


def test_results_are_complete_unless_the_user_requests_scattered_ones():
    partial = placement("- - +01")
    assert result(partial).placement == placement("- -")
    assert result(partial, out=((4, 1),)).placement == placement("01 -")
    assert result(partial, forward_reduce_scatter=True).placement == placement("01 -")
    assert result(partial).in_float32 is False
    assert result(partial, policy(force_fp32_communication=True)).in_float32 is True


def test_an_out_strategy_must_be_possible():
    with pytest.raises(
        SporaxRuntimeError,
        match=r"For 'net\.op \(MatMul\)', 'out_strategy' must be one of \[\(1, 1\), \(4, 1\)\], but got",
    ):
        result(placement("- - +01"), out=((1, 4),))
    with pytest.raises(SporaxRuntimeError, match="'out_strategy' must be left out for this operator"):
        policy().at_operator(mark("ReLU", Side.OUT, ((4, 1),), ((4, 1),)), [MATRIX], [placement("01 -")])


def requested(operator, current, *out, specs=(MATRIX,)):
    (answer,) = policy().at_operator(mark(operator, Side.OUT, None, out), specs, [current])
    return answer.placement


def test_a_layout_of_a_transposed_tensor_has_as_many_slices():
    own, turned, other = (Layout(MESH, dims) for dims in (((1,), (0,)), ((0,), (1,)), ((0, 1), ())))
    assert requested("Transpose", placement("1 0"), own) == placement("1 0")
    assert requested("Transpose", placement("1 0"), turned) == placement("0 1")
    with pytest.raises(
        SporaxRuntimeError, match=r"For 'net.op \(Transpose\)', 'out_strategy' must be the input's in the new"
    ):
        requested("Transpose", placement("1 0"), other)


def test_batched_products_scatter_their_rows():
    batched = (TensorSpec((4, 64, 64)),)
    assert requested("BatchMatMul", placement("0 - - +1"), (2, 2, 1), specs=batched) == placement("0 1 -")
    with pytest.raises(SporaxRuntimeError, match=r"must be one of \[\(2, 1, 1\), \(2, 2, 1\)\], but got \(4, 1, 1\)"):
        requested("BatchMatMul", placement("0 - - +1"), (4, 1, 1), specs=batched)


def test_layouts_of_reshard_are_taken_as_they_are():
    (answer,) = policy().at_layout(LayoutMark("reshard", 0, ((2, 2),)), [MATRIX], [None])
    assert (answer.placement, answer.reason) == (placement("0 1"), "layout of reshard")
    with pytest.raises(
        SporaxRuntimeError, match="For 'reshard', there must be one layout for each of the 2 tensors, but got 1"
    ):
        policy().at_layout(LayoutMark("reshard", 0, ((2, 2),)), [MATRIX, MATRIX], [None, None])


@pytest.mark.parametrize(("options", "used", "stored"), [
    ({}, "0 -", "0 -"),
    ({"enable_parallel_optimizer": True, "parallel_optimizer_threshold": 0}, "0 -", "01 -"),
    ({"enable_parallel_optimizer": True, "parallel_optimizer_threshold": 0}, "- -", "01 -"),
    ({"enable_parallel_optimizer": True, "parallel_optimizer_threshold": 17}, "- -", "- -"),  # 16 KB in all
    ({"enable_parallel_optimizer": True, "parallel_optimizer_threshold": 0, "optimizer_weight_shard_size": 2}, "- -", "1 -"),
])  # fmt: skip
def test_optimizer_parallelism_stores_slices_along_the_axes_that_repeat(options, used, stored):
    assert policy(**options).storage(MATRIX, placement(used), "w") == placement(stored)


def test_parameters_named_by_the_user_stay_whole():
    options = {"enable_parallel_optimizer": True, "parallel_optimizer_threshold": 0}
    rules = SemiAuto(MESH, config(**options), frozenset({"w"}))
    assert rules.storage(MATRIX, placement("- -"), "w") == placement("- -")
    assert rules.storage(MATRIX, placement("- -"), "v") == placement("01 -")


@pytest.mark.parametrize(("mean", "used", "scale"), [(True, "- -", 1 / 4), (True, "0 -", 1 / 2), (False, "- -", 1.0)])
def test_gradients_are_means_over_the_ranks_that_repeat_their_parameter(mean, used, scale):
    answer = policy(gradients_mean=mean).gradient("w", MATRIX, placement(used), placement(used))
    assert answer.scale == scale
    assert answer.reason == "gradient of w"


@pytest.mark.parametrize(("repeated", "scale"), [(True, 1.0), (False, 2.0)])
def test_a_repeated_loss_counts_once_or_as_often_as_it_is_computed(repeated, scale):
    assert policy(loss_repeated_mean=repeated).loss_scale(placement("0")) == scale


def test_users_of_one_parameter_must_shard_it_equally():
    builder = GraphBuilder()
    x, w = builder.argument(64, 64), builder.weight(64, 64, name="w")
    for number, strategy in enumerate((((1, 1), (1, 4)), ((1, 4), (4, 1)))):
        entry = operator_mark("MatMul", number, Side.IN, strategy)
        inside = builder.add(MARK, [x, w], (64, 64), (64, 64), params={"mark": entry}, path=f"net.fc{number}")
        y = builder.matmul(*inside)
    builder.add(MARK, [y], (64, 64), params={"mark": GradientMark(("w",), (1,))})
    graph = builder.graph(y)
    with pytest.raises(SporaxRuntimeError, match=r"For 'net\.fc1 \(MatMul\)', the parameter 'w' has multiple users"):
        planned(graph)


def test_a_strategy_makes_a_plan():
    builder = GraphBuilder()
    x, w = builder.argument(64, 64), builder.weight(64, 64, name="w")
    strategy = ((2, 1), (1, 2))
    x, w = builder.add(MARK, [x, w], (64, 64), (64, 64), params={"mark": operator_mark("MatMul", 0, Side.IN, strategy)})
    y = builder.matmul(x, w)
    y = builder.add(MARK, [y], (64, 64), params={"mark": operator_mark("MatMul", 0, Side.OUT, strategy)})
    graph = builder.graph(y)
    plan = planned(graph)
    check_plan(graph, plan)
    assert plan.operators[1].operands == (placement("0 -"), placement("- 1"))
    assert plan.outputs == (placement("0 1"),)


def test_results_are_requested_by_strategy_or_flag():
    assert requests_results(mark("MatMul", out=((4, 1),)))
    assert requests_results(mark("MatMul", forward_reduce_scatter=True))
    assert not requests_results(mark("MatMul", strategy=((4, 1), (1, 1))))
