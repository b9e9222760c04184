"""Every setting of a semi-automatic run does what it says: in the losses, the compiled program, or an error."""

import re
from collections import Counter
from itertools import pairwise, starmap

import numpy as np
import program_text
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.graph import Role
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.parallel import Layout
from sporax.mindspore.parallel.auto_parallel import AutoParallel
from sporax.planner.communication.moves import MoveKind
from sporax.planner.communication.transfers import schedule
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.runtime import world

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(16, 16)).astype(np.float32), RNG.integers(0, 8, 16).astype(np.int32)
SHARDED = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
AUTO = {"mode": "auto", "config": None}


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


class Net(nn.Cell):
    """Three layers; the middle one is cut by hand."""

    def __init__(self, strategy=((2, 4), (4, 1)), dtype=ms.float32):
        super().__init__()
        self.first, self.last = nn.Dense(16, 32, dtype=dtype), nn.Dense(32, 8, dtype=dtype)
        self.product = ops.MatMul()
        if strategy is not None:
            self.product.shard(strategy)
        self.middle = ms.Parameter(initializer("normal", [32, 32], dtype), name="middle")

    def construct(self, x):
        return self.last(self.product(ops.relu(self.first(x)), self.middle))


def make_step(build=Net, optimizer=nn.Adam, **settings):
    """A training step; on one device without settings."""
    context.reset_auto_parallel_context()
    if settings:
        context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)
    ms.set_seed(2)
    net = build()
    net.set_train()
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer(net.trainable_params(), 0.01))


def run(step, steps=4, dtype=ms.float32):
    return [float(step(Tensor(X, dtype), Tensor(Y))) for _ in range(steps)]


def lowered(step, dtype=ms.float32):
    return step.program.lower(Tensor(X, dtype), Tensor(Y))


def plan_of(step, dtype=ms.float32):
    planned = step.program.plan(Tensor(X, dtype), Tensor(Y))
    check_plan(planned.graph, planned.plan)
    return planned


def collective_bytes(step):
    return program_text.collective_bytes(step.program, Tensor(X), Tensor(Y))


def counts(step):
    return program_text.count_collectives(step.program, Tensor(X), Tensor(Y))


def losses_of_one_device(step, steps=4):
    """Operator by operator: that compiles no step, and operators once for all tests."""
    mode = context.get_context("mode")
    context.set_context(mode=context.PYNATIVE_MODE)
    losses = run(step, steps)
    context.set_context(mode=mode)
    return losses


@pytest.fixture(scope="module")
def alone():
    return losses_of_one_device(make_step())


# ------------------------------------------------------------------------------------------------- optimizer parallelism


@pytest.mark.parametrize("level", ["level1", "level2", "level3"])
def test_all_levels_train_alike_and_level_3_gathers_for_the_backward_pass_again(alone, level):
    step = make_step(
        **{**SHARDED, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0, "optimizer_level": level}}
    )
    np.testing.assert_allclose(run(step), alone, rtol=2e-5)
    planned = plan_of(step)
    assert program_text.planned_bytes(planned) == collective_bytes(step)
    shapes = [spec.shape for operator in planned.graph.operators for spec in operator.operation.operands]
    assert (16, 32) in shapes or (32, 16) in shapes
    again = [mark.parameter for mark in marks(planned) if type(mark).__name__ == "WeightMark"]
    assert again == (["last.weight", "middle"] if level == "level3" else [])  # the first one's input has no derivative


def marks(planned):
    return [operator.operation.params["mark"] for operator in planned.graph.operators if operator.name == "mark"]


def test_level_3_gathers_twice_what_the_backward_pass_reads():
    gathered = {}
    for level in ("level1", "level3"):
        config = {"parallel_optimizer_threshold": 0, "optimizer_level": level}
        gathered[level] = counts(make_step(**{**SHARDED, "parallel_optimizer_config": config}))["all-gather"]
    assert gathered["level3"] == gathered["level1"] + 2


@pytest.mark.parametrize("fusion", [{}, {"comm_fusion": {"reducescatter": AUTO}}])
def test_without_a_reduce_scatter_programs_plans_and_memory_are_those_of_an_all_to_all(alone, monkeypatch, fusion):
    scatters = counts(make_step(**SHARDED, **fusion))["reduce-scatter"]
    # As on CPUs once `jax.distributed` is initialized, where tests/mindspore/communication/test_reduce_scatter.py looks.
    monkeypatch.setattr(world, "has_reduce_scatter", lambda: False)
    step = make_step(**SHARDED, **fusion)
    np.testing.assert_allclose(run(step), alone, rtol=2e-5)
    planned, actual = plan_of(step), counts(step)
    assert not planned.plan.has_reduce_scatter
    assert actual["reduce-scatter"] == 0
    assert actual["all-to-all"] == scatters > 0
    assert program_text.planned_bytes(planned) == collective_bytes(step)
    assert "reduce_scatter" not in cost_of(planned.graph, planned.plan, planned.model).collectives
    assert "reduce_scatter" not in str(planned.summary())


@pytest.mark.parametrize("fusion", [{}, {"comm_fusion": {"reducescatter": AUTO}}])
def test_an_all_to_all_in_place_of_a_reduce_scatter_needs_the_memory_that_plans_say(monkeypatch, fusion):
    monkeypatch.setattr(world, "has_reduce_scatter", lambda: False)
    layers = (16, 512, 512, 8)  # large, so that the gaps between buffers do not count
    step = make_step(lambda: nn.SequentialCell(*starmap(nn.Dense, pairwise(layers))), **SHARDED, **fusion)
    planned = plan_of(step)
    measured = program_text.compiled(step.program, Tensor(X), Tensor(Y)).memory_analysis()
    held = measured.argument_size_in_bytes + measured.output_size_in_bytes - measured.alias_size_in_bytes
    predicted = memory_of(planned.graph, planned.plan, XLA_CPU).peak_bytes
    assert predicted == pytest.approx(held + measured.temp_size_in_bytes, rel=0.01)


# ------------------------------------------------------------------------------------------------- gradient accumulation


def gradient_moves(planned):
    together = schedule(planned.graph, planned.plan)
    transfers = [transfer for group in together for transfer in group if transfer.resharding is not None]
    return Counter(
        move.kind.value
        for transfer in transfers
        if "gradient of" in transfer.resharding.reason
        for move in transfer.redistribution.moves
        if move.kind is not MoveKind.SLICE  # micro batches of 4 rows are cut over 4 devices
    )


@pytest.mark.parametrize(
    ("level", "moves"),
    [
        (None, {"all_reduce": 5}),  # one for every Parameter, however many micro batches there are
        ("level1", {"reduce_scatter": 5}),
        ("level2", {"reduce_scatter": 4 * 5}),  # the sum is kept in shards
    ],
)
@pytest.mark.sampled(1)
def test_accumulated_gradients_are_those_of_one_device(level, moves):
    def accumulating(**settings):
        step = make_step(**settings)
        return nn.TrainOneStepCell(nn.GradAccumulationCell(step.network, 4), step.optimizer, sens=0.25)

    expected = losses_of_one_device(accumulating(), 3)
    config = {"parallel_optimizer_threshold": 0, "optimizer_level": level}
    step = accumulating(**{**SHARDED, "parallel_optimizer_config": config} if level else {"full_batch": True})
    np.testing.assert_allclose(run(step, 3), expected, rtol=2e-5)
    planned = plan_of(step)
    assert gradient_moves(planned) == moves
    assert program_text.planned_bytes(planned) == collective_bytes(step)


def chain():
    return nn.SequentialCell(nn.Dense(16, 16, has_bias=False), nn.Dense(16, 16, has_bias=False), nn.Dense(16, 8))


@pytest.mark.parametrize(
    ("fusion", "gathers", "scatters"),
    [
        ({}, 4, 4),
        ({"allgather": AUTO}, 1, 4),
        ({"reducescatter": AUTO}, 4, 1),
        ({"allgather": {"mode": "size", "config": 0}}, 4, 4),
    ],
)
def test_weights_and_gradients_travel_in_buffers(fusion, gathers, scatters):
    settings = {"comm_fusion": fusion} if fusion else {}
    expected = losses_of_one_device(make_step(chain))
    step = make_step(chain, **SHARDED, **settings)
    np.testing.assert_allclose(run(step), expected, rtol=2e-5)
    assert [counts(step)[kind] for kind in ("all-gather", "reduce-scatter")] == [gathers, scatters]
    assert program_text.planned_bytes(plan_of(step)) == collective_bytes(step)


def test_buffers_may_be_closed_at_sizes_given_one_by_one():
    context.reset_auto_parallel_context()
    step = make_step(chain, dataset_strategy="data_parallel", all_reduce_fusion_sizes=[600, 1024])
    scalars = 2  # the loss: sum and number of labels
    # Backwards: the last layer has 32 + 512 bytes, then come 1024 and 1024.
    assert counts(step)["all-reduce"] == 2 + scalars
    step = make_step(chain, dataset_strategy="data_parallel", all_reduce_fusion_sizes=[500, 1024])
    assert counts(step)["all-reduce"] == 3 + scalars


def test_gradients_that_are_reduced_and_scattered_follow_rules_of_their_own():
    config = {"parallel_optimizer_threshold": 1}  # biases stay whole
    step = make_step(
        lambda: Net(None),
        enable_parallel_optimizer=True,
        parallel_optimizer_config=config,
        comm_fusion={"allreduce": AUTO},
    )
    scalars = 2  # the loss: sum and number of labels
    actual = counts(step)
    assert (actual["all-reduce"], actual["reduce-scatter"]) == (1 + scalars, 3)


def test_gradients_that_are_scattered_and_then_reduced_share_buffers_on_both_ways():
    config = {"parallel_optimizer_threshold": 0, "optimizer_weight_shard_size": 2}  # four groups of two ranks
    fusion = dict.fromkeys(("allreduce", "reducescatter", "allgather"), AUTO)
    expected = losses_of_one_device(make_step(chain))
    step = make_step(chain, enable_parallel_optimizer=True, parallel_optimizer_config=config, comm_fusion=fusion)
    np.testing.assert_allclose(run(step), expected, rtol=2e-5)
    scalars = 2  # the loss: sum and number of labels
    actual = [counts(step)[kind] for kind in ("reduce-scatter", "all-reduce", "all-gather")]
    assert actual == [1, 1 + scalars, 1]
    assert program_text.planned_bytes(plan_of(step)) == collective_bytes(step)


def test_a_group_that_does_not_divide_the_ranks_leaves_the_parameter_whole(alone):
    step = make_step(lambda: Net(None), optimizer_weight_shard_size=3, **SHARDED)
    context.forget_reported()
    with pytest.warns(
        UserWarning, match="'optimizer_weight_shard_size' must divide the 8 devices of a stage .* but got 3"
    ):
        losses = run(step)
    np.testing.assert_allclose(losses, alone, rtol=2e-5)
    assert counts(step)["reduce-scatter"] == 0


# ------------------------------------------------------------------------------------------------------ gradients, loss


@pytest.mark.parametrize("build", [Net, lambda: Net(None)])
def test_a_repeated_loss_may_count_for_every_device(build):
    def moved(**settings):
        step = make_step(build, nn.SGD, **settings)
        before = {item.name: item.asnumpy() for item in step.network.trainable_params()}
        run(step, steps=1)
        return {item.name: item.asnumpy() - before[item.name] for item in step.network.trainable_params()}

    once, often = moved(dataset_strategy="full_batch"), moved(loss_repeated_mean=False)
    for name, change in once.items():
        np.testing.assert_allclose(often[name], 8 * change, rtol=1e-3, atol=1e-6, err_msg=name)


def test_a_loss_that_is_sharded_is_not_repeated():
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, loss_repeated_mean=False)
    x = Tensor(np.arange(16, dtype=np.float32).reshape(8, 2))
    np.testing.assert_allclose(ms.grad(lambda x: x * x)(x).asnumpy(), 2 * x.asnumpy())
    np.testing.assert_allclose(ms.grad(lambda x: (x * x).sum())(x).asnumpy(), 16 * x.asnumpy())


def reduced_types(step, dtype):
    return set(
        re.findall(r"stablehlo.all_reduce.*?\n.*?\n.*?\n.*?\((tensor<[^>]*>)\)", lowered(step, dtype).as_text(), re.S)
    )


@pytest.mark.parametrize(("forced", "expected"), [(True, "f32"), (False, "bf16")])
def test_sums_of_short_floats_are_made_in_float32_on_demand(forced, expected):
    settings = {"force_fp32_communication": forced, "gradient_fp32_sync": False, "dataset_strategy": "full_batch"}
    step = make_step(lambda: Net(((4, 2), (2, 1)), ms.bfloat16), **settings)
    plan_of(step, ms.bfloat16)
    sums = {
        item for item in reduced_types(step, ms.bfloat16) if item.startswith("tensor<4x32x")
    }  # 16 rows in four slices
    assert sums == {f"tensor<4x32x{expected}>"}


@pytest.mark.parametrize(("in_float32", "expected"), [(True, "f32"), (False, "bf16")])
def test_gradients_of_short_floats_are_combined_in_float32_unless_set_otherwise(in_float32, expected):
    step = make_step(
        lambda: Net(None, dtype=ms.bfloat16), gradient_fp32_sync=in_float32, dataset_strategy="data_parallel"
    )
    assert f"tensor<32x32x{expected}>" in reduced_types(step, ms.bfloat16)


def test_gradients_of_weights_that_are_cast_are_scattered():
    """They are combined before they get longer, and by then a device needs its own shard alone."""

    def cast():
        return Net(None).to_float(ms.bfloat16)

    expected = run(make_step(cast))
    step = make_step(cast, dataset_strategy="data_parallel", **SHARDED)
    weights = [row for row in plan_of(step).summary().operators if row.name == "cast" and row.phase == "backward"]
    assert {entry.kind for row in weights for entry in row.collectives} == {"reduce_scatter"}
    assert counts(step)["reduce-scatter"] >= len(weights) > 1
    np.testing.assert_allclose(run(step), expected, rtol=1e-2)


@pytest.mark.parametrize("allowed", [False, True])
def test_all_to_all_is_used_where_it_is_allowed(allowed):
    class Turning(nn.Cell):
        def __init__(self):
            super().__init__()
            self.rows, self.columns = ops.ReLU().shard(((8, 1),)), ops.Abs().shard(((1, 8),))

        def construct(self, x):
            return self.columns(self.rows(x))

    settings = {"dataset_strategy": "data_parallel", "enable_alltoall": allowed}
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)
    net, x = Turning(), Tensor(X)
    np.testing.assert_array_equal(net(x).asnumpy(), np.maximum(X, 0))
    actual = program_text.collective_bytes(net.program, x)
    assert set(actual) == ({"all_to_all"} if allowed else {"all_gather"})


# ------------------------------------------------------------------------------------------------- operators and users


class Tied(nn.Cell):
    """Two operators with one weight."""

    def __init__(self, second):
        super().__init__()
        self.one, self.two = ops.MatMul().shard(((2, 1), (1, 4))), ops.MatMul().shard(second)
        self.weight = ms.Parameter(initializer("normal", [16, 16], ms.float32), name="weight")

    def construct(self, x):
        return self.two(self.one(x, self.weight), self.weight)


def test_users_of_one_parameter_must_shard_it_equally():
    expected = losses_of_one_device(make_step(lambda: Tied(((2, 1), (1, 4)))))
    np.testing.assert_allclose(run(make_step(lambda: Tied(((2, 1), (1, 4))), full_batch=True)), expected, rtol=2e-5)
    with pytest.raises(SporaxRuntimeError, match="'weight' has multiple users") as error:
        run(make_step(lambda: Tied(((2, 4), (4, 1))), full_batch=True))
    assert "two" in str(error.value)
    assert "one" in str(error.value)


def test_operators_may_be_sharded_against_their_rules_by_layouts():
    layout = Layout((2, 4), ("a", "b"))
    softmax = ops.Softmax().shard((layout("a", "b"),), (layout("a", "b"),)).add_prim_attr("self_define_shard", True)
    x = Tensor(X)
    expected = ops.Softmax()(x).asnumpy()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    actual = ms.jit(softmax)(x)
    np.testing.assert_allclose(actual.asnumpy(), expected, rtol=1e-6)
    assert actual.array.addressable_shards[0].data.shape == (8, 4)


GRID = Layout((2, 4), ("a", "b"))


@pytest.mark.parametrize("entry", [(1, 4), GRID("None", "b")], ids=["numbers", "layouts"])
@pytest.mark.parametrize("operator", [ops.Concat, ops.Stack, ops.AddN])
def test_a_list_of_tensors_may_have_one_entry_with_those_of_its_tensors(operator, entry):
    pair = Tensor(X), Tensor(X + 1)
    expected = operator()(pair).asnumpy()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    nested = operator().shard(((entry, entry),))
    result = ms.jit(lambda first, second: nested((first, second)))(*pair)
    np.testing.assert_array_equal(result.asnumpy(), expected)
    assert result.array.addressable_shards[0].data.size == expected.size // 4
    with pytest.raises(SporaxRuntimeError, match="one entry for each of the 2 tensors"):
        ms.jit(lambda first, second: operator().shard(((entry,) * 3,))((first, second)))(*pair)


class Products(nn.Cell):
    """Two products, each sharded in the form that the other one's result has."""

    def __init__(self, transpose_b, batches, strategies=()):
        super().__init__()
        kind = ops.BatchMatMul if batches else ops.MatMul
        self.products = [kind(transpose_b=transpose_b) for _ in range(2)]
        for product, strategy in zip(self.products, strategies, strict=False):
            product.shard(strategy).add_prim_attr("enable_nd_tp", True)
        values = np.random.default_rng(2).normal(size=(2, *batches, 16, 16)).astype(np.float32)
        self.first, self.second = (
            ms.Parameter(value, name) for value, name in zip(values, ("first", "second"), strict=True)
        )

    def construct(self, x):
        x = ops.tanh(self.products[0](x, self.first))
        return ops.square(self.products[1](x, self.second)).mean()


SQUARE, CUBE = Layout((2, 4), ("x", "y")), Layout((2, 2, 2), ("z", "x", "y"))
ND = {
    "2d": (False, SQUARE, ("None", ("x", "y")), ("x", "y"), ("None", ("y", "x")), ("y", "x")),
    "2d transposed": (True, SQUARE, ("None", ("x", "y")), ("y", "x"), ("None", ("y", "x")), ("x", "y")),
    "3d": (False, CUBE, (("z", "x"), "y"), (("y", "z"), "x"), (("z", "y"), "x"), (("x", "z"), "y")),
    "3d transposed": (True, CUBE, (("z", "x"), "y"), ("x", ("y", "z")), (("z", "y"), "x"), ("y", ("x", "z"))),
}  # fmt: skip


@pytest.mark.parametrize("batches", [(), (2,)])
@pytest.mark.parametrize("form", ND)
def test_products_in_two_and_three_dimensions_of_tensor_parallelism(form, batches):
    transpose_b, layout, *dims = ND[form]
    whole = ["None"] * len(batches)
    shardings = [layout(*whole, *names) for names in dims]
    x = Tensor(np.random.default_rng(1).normal(size=(*batches, 16, 16)).astype(np.float32))

    def trained(*strategies):
        net = Products(transpose_b, batches, strategies)
        step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1))
        return [float(step(x)) for _ in range(2)], net.first

    expected, _ = trained()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    losses, weight = trained(tuple(shardings[:2]), tuple(shardings[2:]))
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    assert weight.array.addressable_shards[0].data.size == 16 * 16 * max(1, *batches, 1) / 8


def test_cells_kept_batch_parallel_are_so_in_every_search():
    class Wide(nn.Cell):
        def __init__(self):
            super().__init__()
            self.kept = nn.Dense(16, 256).set_data_parallel()
            self.free = nn.Dense(256, 8)

        def construct(self, x):
            return self.free(self.kept(x))

    expected = losses_of_one_device(make_step(Wide), steps=2)
    for search in ("recursive_programming", "dynamic_programming", "sharding_propagation"):
        step = make_step(Wide, search_mode=search, enable_alltoall=True)
        context.set_auto_parallel_context(parallel_mode="auto_parallel")
        np.testing.assert_allclose(run(step, steps=2), expected, rtol=2e-5)
        planned = plan_of(step)
        for operator, cut in zip(planned.graph.operators, planned.plan.operators, strict=True):
            if operator.name == "dot_general" and "kept" in operator.path and not operator.backward:
                assert cut.operands[0].parts(planned.plan.mesh) == (8, 1)


# -------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("settings", [{"full_batch": True}, SHARDED])
def test_predicted_bytes_are_those_on_the_devices(settings):
    step = make_step(**settings)
    run(step, steps=1)
    planned, memory = plan_of(step), step.program.executable.memory_analysis()
    held = {tensor.name: tensor for tensor in planned.summary().tensors}
    total = 0
    for parameter in step.get_parameters():
        shard = parameter.array.addressable_shards[0].data
        if parameter.name in held:
            assert held[parameter.name].num_bytes == shard.nbytes, parameter.name
            assert held[parameter.name].slice_shape == shard.shape
        total += shard.nbytes
    data = sum(tensor.num_bytes for tensor in planned.summary().tensors if tensor.role == "data")
    state = sum(tensor.array.addressable_shards[0].data.nbytes for tensor in variables_beside(step, planned))
    assert memory.argument_size_in_bytes == pytest.approx(total + data + state, rel=0.1)


def variables_beside(step, planned):
    """Variables of the step that are no Parameters: the state of the random numbers."""
    names = {parameter.name for parameter in step.get_parameters()}
    return [
        argument
        for argument in planned.arguments
        if argument.role is Role.STATE and argument.name not in names and hasattr(argument.array, "addressable_shards")
    ]


def test_layouts_of_parameters_after_a_step():
    step = make_step(**SHARDED)
    assert step.parameter_layout_dict == {}
    run(step, steps=1)
    matrix, tensor_map, sliced, _, even, group, whole, kept, *_ = step.parameter_layout_dict["middle"]
    assert (matrix, tensor_map, sliced, even, whole) == ([2, 4], [0, -1], [8, 32], True, [32, 32])
    assert (group, kept) == ("2-0-4", [4, 32])
    assert step.parameter_layout_dict["moment1.middle"][:8] == step.parameter_layout_dict["middle"][:8]
    assert step.parameter_layout_dict["first.weight"][5] == "8-0-1-2-3-4-5-6-7"
    assert set(step.parallel_parameter_name_list) >= {"middle", "first.weight", "moment2.last.bias"}
    for name, layout in step.parameter_layout_dict.items():
        parameter = next(item for item in step.get_parameters() if item.name == name)
        assert parameter.array.addressable_shards[0].data.shape == tuple(layout[7]), name


# ------------------------------------------------------------------------------------------- functional, eager, wrapped


@pytest.mark.parametrize("settings", [{"full_batch": True}, {"dataset_strategy": "data_parallel", **SHARDED}])
@pytest.mark.parametrize("compiled", [False, True])
def test_functional_training_leaves_gradients_where_they_lie(alone, settings, compiled):
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)
    ms.set_seed(2)
    net, loss_fn = Net(), nn.CrossEntropyLoss()
    net.set_train()
    optimizer = nn.Adam(net.trainable_params(), 0.01)
    value_and_grad = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, net.trainable_params())
    middle = [item.name for item in net.trainable_params()].index("middle")

    def step(x, y):
        loss, grads = value_and_grad(x, y)
        optimizer(grads)
        return loss, grads[middle]

    step = ms.jit(step) if compiled else step
    results = [step(Tensor(X), Tensor(Y)) for _ in range(4)]
    np.testing.assert_allclose([float(loss) for loss, _ in results], alone, rtol=2e-5)
    sharding = net.middle.array.sharding
    assert net.middle.array.addressable_shards[0].data.shape == ((8, 32) if "full_batch" in settings else (4, 32))
    assert results[-1][1].array.sharding.is_equivalent_to(sharding, 2)
    assert optimizer.moment1[middle].array.sharding.is_equivalent_to(sharding, 2)
    if not compiled:
        assert program_text.collective_bytes(optimizer.program, value_and_grad(Tensor(X), Tensor(Y))[1]) == {}


def test_eager_networks_are_refused():
    context.set_context(mode=context.PYNATIVE_MODE)
    net, x = Net(), Tensor(X)
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    with pytest.raises(SporaxRuntimeError, match="For 'Net', the mode must be GRAPH_MODE"):
        net(x)
    with pytest.raises(SporaxRuntimeError, match="the mode must be GRAPH_MODE"):
        ms.grad(lambda x: net(x).sum())(x)
    with pytest.raises(SporaxRuntimeError, match="set_comm_fusion', the mode must be GRAPH_MODE"):
        net.set_comm_fusion(2)
    assert len(ms.jit(net)(x).array.sharding.device_set) == 8
    context.set_auto_parallel_context(device_num=1)
    assert net(x).shape == (16, 8)


def test_a_wrapped_network_keeps_to_its_own_settings(alone):
    context.set_context(mode=context.PYNATIVE_MODE)
    context.set_world(8, 0)
    ms.set_seed(2)
    net = Net()
    wrapped = AutoParallel(
        nn.TrainOneStepCell(
            nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Adam(net.trainable_params(), 0.01)
        ).set_train()
    )
    wrapped.hsdp(shard_size=2, threshold=0, optimizer_level="level3")
    wrapped.comm_fusion({"allgather": AUTO, "reducescatter": AUTO})
    wrapped.dataset_strategy(((8, 1), (8,)))
    np.testing.assert_allclose(run(wrapped), alone, rtol=2e-5)
    assert net.first.weight.array.addressable_shards[0].data.shape == (16, 16)
    assert net.middle.array.addressable_shards[0].data.shape == (4, 32)


def test_images_sharded_over_height_and_width():
    """Tuples do what Layouts do: numbers of one device, and an eighth of the image on each device."""
    images = Tensor(np.random.default_rng(0).normal(size=(2, 3, 8, 16)).astype(np.float32))
    kinds = Tensor(np.array([1, 0], np.int32))

    class Images(nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def construct(self, x, labels):
            return ops.cross_entropy(ops.relu(self.conv(x)).mean((2, 3)), labels)

    def trained():
        ms.set_seed(1)
        net = Images()
        step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1)).set_train()
        return step, [float(step(images, kinds)) for _ in range(2)]

    _, alone = trained()
    grid = Layout((2, 4), ("a", "b"))
    for strategy in (((1, 1, 2, 4), (1,)), (grid("None", "None", "a", "b"), grid("None"))):
        context.reset_auto_parallel_context()
        context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy=strategy)
        step, losses = trained()
        np.testing.assert_allclose(losses, alone, rtol=1e-5)
        image = step.program.planned.shardings[-2]
        assert image.shard_shape(images.shape) == (2, 3, 4, 4)
