"""Semi-automatic training on eight devices in one process: the losses of one device, the memory and collectives of the plan."""

import jax
import numpy as np
import pytest
from program_text import count_collectives

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn.utils import no_init_parameters
from sporax.mindspore.parallel import Layout, shard
from sporax.mindspore.parallel.function import reshard
from sporax.runtime import world

RNG = np.random.default_rng(0)
STEPS = 6


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def labels(count, classes):
    return RNG.integers(0, classes, count).astype(np.int32)


def train(build, batch, steps=STEPS, optimizer=nn.Adam, **settings):
    """Losses of some steps, and the step; on one device without settings."""
    context.reset_auto_parallel_context()
    if settings:
        context.set_auto_parallel_context(**{"parallel_mode": "semi_auto_parallel", "device_num": 8, **settings})
    else:
        context.set_context(mode=context.PYNATIVE_MODE)  # compiles operators, which tests share, and no step
    ms.set_seed(1)
    net = build()
    net.set_train()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer(net.trainable_params(), 0.01))
    tensors = [Tensor(item) for item in batch]
    losses = [float(step(*tensors)) for _ in range(steps)]
    context.set_context(mode=context.GRAPH_MODE)
    return losses, step, tensors


def collectives(step, tensors):
    return count_collectives(step.program, *tensors)


def slice_shape(parameter):
    return parameter.array.addressable_shards[0].data.shape


class Mlp(nn.Cell):
    """Columns, then rows: the second product's sums are combined."""

    def __init__(self, first=((2, 1), (1, 4)), second=((2, 4), (4, 1))):
        super().__init__()
        self.up = ms.Parameter(initializer("normal", [16, 32], ms.float32), name="up")
        self.down = ms.Parameter(initializer("normal", [32, 8], ms.float32), name="down")
        self.product1, self.product2 = ops.MatMul(), ops.MatMul()
        if first is not None:
            self.product1.shard(first)
            self.product2.shard(second)
        self.relu = ops.ReLU()
        self.dropout = nn.Dropout(p=0.2)

    def construct(self, x):
        return self.product2(self.dropout(self.relu(self.product1(x, self.up))), self.down)


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, pad_mode="same", has_bias=True)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2, 2)
        self.flatten = nn.Flatten()
        self.fc = nn.Dense(4 * 16, 8)

    def construct(self, x):
        return self.fc(self.flatten(self.pool(ops.relu(self.norm(self.conv(x))))))


class Transformer(nn.Cell):
    """One block, cut by heads as Megatron does."""

    def __init__(self):
        super().__init__()
        self.table = ms.Parameter(initializer("normal", [16, 16], ms.float32), name="table")
        self.gather = ops.Gather()
        self.norm = nn.LayerNorm((16,))
        for name in ("q", "k", "v", "o"):
            setattr(self, f"w{name}", ms.Parameter(initializer("normal", [16, 16], ms.float32), name=f"w{name}"))
            cut = ((2, 4), (4, 1)) if name == "o" else ((2, 1), (1, 4))
            setattr(self, f"product_{name}", ops.MatMul().shard(cut))
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        self.scores.shard(((2, 4, 1, 1), (2, 4, 1, 1)))
        self.mix.shard(((2, 4, 1, 1), (2, 4, 1, 1)))
        self.softmax = ops.Softmax(-1).shard(((2, 4, 1, 1),))
        self.head = nn.Dense(16, 16)

    def heads(self, x, length):
        return ops.transpose(ops.reshape(x, (-1, length, 4, 4)), (0, 2, 1, 3))

    def construct(self, ids):
        length = ids.shape[1]
        x = self.gather(self.table, ids, 0)
        y = ops.reshape(self.norm(x), (-1, 16))
        q = self.heads(self.product_q(y, self.wq), length)
        k = self.heads(self.product_k(y, self.wk), length)
        v = self.heads(self.product_v(y, self.wv), length)
        mixed = self.mix(self.softmax(self.scores(q, k) * 0.5), v)
        mixed = ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, 16))
        return self.head(ops.reshape(x, (-1, 16)) + self.product_o(mixed, self.wo))


MODELS = {
    "mlp": (Mlp, (floats(8, 16), labels(8, 8))),
    "lenet": (LeNet, (floats(8, 1, 8, 8), labels(8, 8))),
    "transformer": (Transformer, (labels((8, 4), 16), labels(32, 16))),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sharded_optimizer", [False, True])
@pytest.mark.sampled(3)
def test_losses_are_those_of_one_device(name, sharded_optimizer):
    build, batch = MODELS[name]
    alone, _, _ = train(build, batch)
    threshold = {"parallel_optimizer_threshold": 0}
    settings = {"enable_parallel_optimizer": True, "parallel_optimizer_config": threshold} if sharded_optimizer else {}
    cut, step, tensors = train(build, batch, dataset_strategy="data_parallel", **settings)
    np.testing.assert_allclose(cut, alone, rtol=2e-5)
    assert step.program.plan(*tensors).plan.notes == ()
    assert len(step.program.compilations) == 1


@pytest.mark.parametrize(
    "strategy",
    ["full_batch", ((8, 1), (8,)), ((1, 4), (1,)), (Layout((2, 4), ("a", "b"))("a", "b"), Layout((8,), ("a",))("a"))],
)
@pytest.mark.sampled(2)
def test_every_way_to_bring_data_gives_the_same_losses(strategy):
    build, batch = MODELS["mlp"]
    alone, _, _ = train(build, batch, steps=2)
    cut, _, _ = train(build, batch, steps=2, dataset_strategy=strategy)
    np.testing.assert_allclose(cut, alone, rtol=2e-5)


def test_weights_and_state_lie_in_slices():
    build, batch = MODELS["mlp"]
    _, step, _ = train(build, batch, steps=1, dataset_strategy="full_batch")
    by_name = {parameter.name: parameter for parameter in step.get_parameters()}
    assert slice_shape(by_name["up"]) == slice_shape(by_name["moment1.up"]) == (16, 8)
    assert slice_shape(by_name["down"]) == slice_shape(by_name["moment2.down"]) == (8, 8)


def test_optimizer_parallel_scatters_gradients_and_gathers_weights():
    build, batch = MODELS["mlp"]
    settings = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    _, step, tensors = train(build, batch, steps=1, dataset_strategy="full_batch", **settings)
    by_name = {parameter.name: parameter for parameter in step.get_parameters()}
    assert slice_shape(by_name["up"]) == slice_shape(by_name["moment1.up"]) == (8, 8)  # cut once more, over 2 ranks
    actual = collectives(step, tensors)
    assert actual["reduce-scatter"] == 2
    assert actual["all-gather"] >= 2


class Projections(nn.Cell):
    """Three products read rows that a norm has made in shards, as queries, keys and values do."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((16,))
        self.norm.layer_norm.shard(((8, 1), (1,), (1,)))
        for name in "qkv":
            setattr(self, name, ms.Parameter(initializer("normal", [16, 16], ms.float32), name=name))
            setattr(self, f"product_{name}", ops.MatMul().shard(((1, 1), (1, 8))))
        self.back = ms.Parameter(initializer("normal", [16, 16], ms.float32), name="back")
        self.product = ops.MatMul().shard(((1, 8), (8, 1)), ((8, 1),))

    def construct(self, x):
        y = self.norm(x)
        z = self.product_q(y, self.q) * self.product_k(y, self.k) + self.product_v(y, self.v)
        return self.product(z, self.back)


def test_gradients_of_what_several_products_read_are_combined_once():
    """As MindSpore does, which gathers for all three at once: the gradient of one gather is one scatter."""
    batch = floats(16, 16), labels(16, 16)
    alone, _, _ = train(Projections, batch, steps=2)
    sharded, step, tensors = train(Projections, batch, steps=2, dataset_strategy=((8, 1), (8,)))
    np.testing.assert_allclose(sharded, alone, rtol=2e-5)
    # The last product's result, and the sum of three gradients.
    assert collectives(step, tensors)["reduce-scatter"] == 2


def test_small_parameters_and_those_marked_stay_whole():
    def build():
        net = Mlp(None)
        net.down.parallel_optimizer = False
        return net

    settings = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    _, step, _ = train(build, MODELS["mlp"][1], steps=1, dataset_strategy="full_batch", **settings)
    by_name = {parameter.name: parameter for parameter in step.get_parameters()}
    assert slice_shape(by_name["up"]) == (2, 32)
    assert slice_shape(by_name["down"]) == (32, 8)
    settings = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 2}}
    _, step, _ = train(lambda: Mlp(None), MODELS["mlp"][1], steps=1, dataset_strategy="full_batch", **settings)
    by_name = {parameter.name: parameter for parameter in step.get_parameters()}
    assert slice_shape(by_name["up"]) == (2, 32)  # 2 KB
    assert slice_shape(by_name["down"]) == (32, 8)  # 1 KB


@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
@pytest.mark.parametrize("level", ["level1", "level3"])
@pytest.mark.sampled(2)
def test_frozen_weights_are_stored_in_shards_too(mode, level):
    def build():
        net = Mlp(None)
        net.down.requires_grad = False
        return net

    batch = MODELS["mlp"][1]
    alone, _, _ = train(build, batch)
    config = {"parallel_optimizer_threshold": 0, "optimizer_level": level}
    settings = {"enable_parallel_optimizer": True, "parallel_optimizer_config": config, "parallel_mode": mode}
    sharded, step, tensors = train(build, batch, dataset_strategy="full_batch", **settings)
    np.testing.assert_allclose(sharded, alone, rtol=2e-5)
    by_name = {parameter.name: parameter for parameter in step.get_parameters()}
    by_name = {parameter.name: parameter for parameter in step.get_parameters()}
    if mode == "semi_auto_parallel":
        assert slice_shape(by_name["down"]) == (4, 8)
        # Gathered for the forward pass, and `down`, which the backward pass reads, at level 3 again.
        assert collectives(step, tensors)["all-gather"] == (3 if level == "level3" else 2)


@pytest.mark.parametrize(("threshold", "rows"), [(2, 8), (3, 16)])
def test_the_threshold_is_about_the_whole_parameter(threshold, rows):
    """`up` has 2 KB, and 0.5 KB in each of its slices."""
    config = {"parallel_optimizer_threshold": threshold}
    settings = {"enable_parallel_optimizer": True, "parallel_optimizer_config": config}
    _, step, _ = train(Mlp, MODELS["mlp"][1], steps=1, dataset_strategy="full_batch", **settings)
    by_name = {parameter.name: parameter for parameter in step.get_parameters()}
    assert slice_shape(by_name["up"]) == (rows, 8)


class Lookup(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 8)

    def construct(self, ids):
        return ops.ReduceSum()(self.table(ids) ** 2)


class AllGradients(nn.Cell):
    def __init__(self, net, by_list):
        super().__init__()
        self.net, self.by_list = net, by_list
        self.weights = ms.ParameterTuple(net.trainable_params())
        self.gradient = ops.GradOperation(get_all=True, get_by_list=by_list)

    def construct(self, ids):
        return self.gradient(self.net, self.weights)(ids) if self.by_list else self.gradient(self.net)(ids)


@pytest.mark.parametrize("by_list", [False, True])
@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_gradients_of_integer_inputs_are_zeros(mode, by_list):
    ids = Tensor(np.arange(16, dtype=np.int32).reshape(8, 2))
    ms.set_seed(1)
    net = Lookup()
    expected = ms.grad(net, None, net.trainable_params())(ids)[0].asnumpy()
    context.set_auto_parallel_context(parallel_mode=mode, device_num=8, dataset_strategy="full_batch")
    actual = AllGradients(net, by_list)(ids)
    of_inputs, of_weights = actual if by_list else (actual, None)
    np.testing.assert_array_equal(of_inputs[0].asnumpy(), np.zeros((8, 2), np.int32))
    assert of_inputs[0].dtype == ms.int32
    if by_list:
        np.testing.assert_allclose(of_weights[0].asnumpy(), expected, rtol=1e-6)


def test_groups_of_the_given_size_share_a_weight():
    settings = {
        "enable_parallel_optimizer": True,
        "optimizer_weight_shard_size": 2,
        "parallel_optimizer_config": {"parallel_optimizer_threshold": 0},
    }
    alone, _, _ = train(lambda: Mlp(None), MODELS["mlp"][1])
    cut, step, tensors = train(lambda: Mlp(None), MODELS["mlp"][1], dataset_strategy="data_parallel", **settings)
    np.testing.assert_allclose(cut, alone, rtol=2e-5)
    by_name = {parameter.name: parameter for parameter in step.get_parameters()}
    assert slice_shape(by_name["up"]) == (8, 32)
    actual = collectives(step, tensors)
    assert actual["reduce-scatter"] == 2
    assert actual["all-reduce"] >= 2  # between the groups


def deep(layers=6):
    return nn.SequentialCell(*[nn.Dense(16, 16, has_bias=False) for _ in range(layers)])


@pytest.mark.parametrize(
    ("fusion", "count"),
    [
        ({"openstate": False}, 6),
        ({"allreduce": {"mode": "auto", "config": None}}, 1),
        ({"allreduce": {"mode": "size", "config": 0}}, 6),
        ({"allreduce": {"mode": "index", "config": [1, 3]}}, 3),
    ],
)
def test_the_number_of_gradient_collectives_follows_the_configuration(fusion, count):
    batch = (floats(8, 16), labels(8, 16))
    alone, _, _ = train(deep, batch, steps=3)
    cut, step, tensors = train(deep, batch, steps=3, dataset_strategy="data_parallel", comm_fusion=fusion)
    np.testing.assert_allclose(cut, alone, rtol=2e-5)
    scalars = 2  # the loss: sum and number of labels
    assert collectives(step, tensors)["all-reduce"] == count + scalars


def test_where_nothing_is_said_about_fusion_the_compiler_may_combine_gradients():
    batch = (floats(8, 16), labels(8, 16))
    alone, _, _ = train(deep, batch, steps=3)
    cut, step, tensors = train(deep, batch, steps=3, dataset_strategy="data_parallel")
    np.testing.assert_allclose(cut, alone, rtol=2e-5)
    assert collectives(step, tensors)["all-reduce"] == 2  # of the loss, and of all gradients


def test_a_number_of_its_own_keeps_a_gradient_from_being_combined():
    def build():
        net = deep(4)
        net[0].set_comm_fusion(0)
        return net

    batch = (floats(8, 16), labels(8, 16))
    _, step, tensors = train(build, batch, steps=1, dataset_strategy="data_parallel")
    assert collectives(step, tensors)["all-reduce"] == 4 + 2


def test_layers_with_numbers_of_their_own_are_combined_apart():
    def build():
        net = deep(4)
        net[0].set_comm_fusion(2)
        net[1].set_comm_fusion(0)
        return net

    batch = (floats(8, 16), labels(8, 16))
    _, step, tensors = train(
        build,
        batch,
        steps=1,
        dataset_strategy="data_parallel",
        comm_fusion={"allreduce": {"mode": "auto", "config": None}},
    )
    assert collectives(step, tensors)["all-reduce"] == 3 + 2


def test_gradients_mean_divides_by_the_ranks_that_repeat_a_parameter():
    def build():
        return Mlp(None)

    batch = MODELS["mlp"][1]
    _, first, _ = train(build, batch, steps=1, optimizer=nn.SGD)
    start = train(build, batch, steps=0, optimizer=nn.SGD)[1]
    _, mean, _ = train(build, batch, steps=1, optimizer=nn.SGD, dataset_strategy="data_parallel", gradients_mean=True)
    before, whole, divided = (
        {item.name: item.asnumpy() for item in step.get_parameters()}["up"] for step in (start, first, mean)
    )
    np.testing.assert_allclose((whole - before) / 8, divided - before, atol=1e-7)


def test_lazy_parameters_are_made_in_slices_with_the_values_of_one_device():
    def build():
        with no_init_parameters():
            return Mlp()

    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy="full_batch")
    ms.set_seed(5)
    net = build()
    assert net.up.has_init
    net(Tensor(floats(8, 16)))
    assert slice_shape(net.up) == (16, 8)
    cut = net.up.asnumpy()
    context.reset_auto_parallel_context()
    ms.set_seed(5)
    np.testing.assert_array_equal(Mlp().up.asnumpy(), cut)


def test_reshard_and_shard():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.block = nn.SequentialCell(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 16))
            self.block.shard(((1, 8),), parameter_plan={"block.0.weight": (1, 8)})
            self.product = shard(ms.mint.matmul, in_strategy=((2, 4), (4, 1)))
            self.weight = ms.Parameter(Tensor(floats(16, 8)), name="weight")

        def construct(self, x):
            x = reshard(self.block(x), Layout((2, 4), ("rows", "columns"))("rows", "columns"))
            return self.product(x, self.weight)

    net, x = Net(), Tensor(floats(8, 16))
    alone = net(x).asnumpy()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy="full_batch")
    np.testing.assert_allclose(net(x).asnumpy(), alone, rtol=1e-5, atol=1e-6)
    plan = net.program.plan(x)
    placed = {item.name: each_plan for item, each_plan in zip(plan.graph.inputs, plan.plan.inputs, strict=True)}
    assert placed["block.0.weight"].parts(plan.plan.mesh) == (1, 8)
    assert placed["weight"].parts(plan.plan.mesh) == (4, 1)
    moved = reshard(x, Layout((8,), ("all",))("None", "all"))
    assert moved.array.addressable_shards[0].data.shape == (8, 2)


def test_steps_that_learn_nothing_leave_parameters_where_they_are():
    build, batch = MODELS["mlp"]
    settings = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    _, step, tensors = train(build, batch, steps=1, dataset_strategy="full_batch", **settings)
    net = step.network._backbone
    before = net.up.array.sharding
    net.set_train(False)
    net(tensors[0])
    assert net.up.array.sharding == before


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (((2, 4), (2, 1)), "equal shardings"),
        (((3, 1), (1, 1)), "power of 2"),
        (((2, 4, 1), (4, 1)), "must have 2 numbers"),
        (((8, 2), (2, 1)), "divide"),
        ((Layout((2, 2), ("a", "b"))("a", "None"), Layout((2, 2), ("a", "b"))("None", "b")), "must have 8 devices"),
    ],
)
def test_strategies_that_do_not_fit_name_the_operator(strategy, words):
    with pytest.raises(SporaxRuntimeError, match=words) as error:
        train(lambda: Mlp(strategy), MODELS["mlp"][1], steps=1, dataset_strategy="full_batch")
    assert "product1" in str(error.value)


def test_wrong_numbers_of_devices():
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=6)
    with pytest.raises(SporaxRuntimeError, match=r"1, 2, 4 or a multiple of 8, but got\s+6"):
        nn.ReLU()(Tensor(floats(8, 8)))
    context.set_auto_parallel_context(device_num=16)
    with pytest.raises(SporaxRuntimeError, match="'device_num' is 16, but there are 8 devices"):
        nn.ReLU()(Tensor(floats(8, 8)))


def test_without_a_job_there_is_one_device():
    assert world.num_devices() == 1
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    assert nn.ReLU()(Tensor(floats(8, 8))).array.sharding.num_devices == 1


def test_a_planned_step_keeps_no_values_of_its_own():
    build, batch = MODELS["mlp"]
    _, step, tensors = train(build, batch, steps=2, dataset_strategy="full_batch")
    held = step.program.plan(*tensors).arguments
    assert not any(isinstance(item.array, jax.Array) for item in held)


class AddsTiled(nn.Cell):
    """Adds a tiled row, which is a constant or an input, under a strategy of `Tile`."""

    def __init__(self, strategy):
        super().__init__()
        self.tile, self.add = ops.Tile().shard((strategy,)), ops.Add().shard(((8, 1), (8, 1)))
        self.row = Tensor(np.arange(6, dtype=np.float32).reshape(1, 6))

    def construct(self, x, row=None):
        return self.add(x, self.tile(self.row if row is None else row, (16, 1)))


def test_a_strategy_of_an_operator_on_constants_alone_has_no_effect():
    """MindSpore's compiler has folded it by then: its strategies are those of Add alone, whatever Tile's cannot divide."""
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy="full_batch")
    net, x, row = AddsTiled((1, 4)), np.ones((16, 6), np.float32), np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(net(Tensor(x)).asnumpy(), x + row)
    with pytest.raises(SporaxRuntimeError, match=r"AddsTiled\.tile .* size 6, which must be divisible .* got 4"):
        net(Tensor(x), Tensor(row.reshape(1, 6)))
