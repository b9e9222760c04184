"""Primitives inside layers, operators that write Parameters, and random ones, cut by hand."""

import numpy as np
import pytest
from program_text import collective_bytes, planned_bytes

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.graph import MARK
from sporax.ir.marks import OperatorMark, Side
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import init

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
    init()


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def semi_auto(**settings):
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)


def readable_strategy(planned):
    """By path and name of the operator, how its inputs are cut."""
    actual = {}
    for operator, cut in zip(planned.graph.operators, planned.plan.operators, strict=True):
        mark = operator.operation.params["mark"] if operator.name == MARK else None
        if isinstance(mark, OperatorMark) and mark.side is Side.IN:
            path = operator.path.rpartition(".")[2]
            actual[path, mark.operator] = tuple(operand.parts(planned.plan.mesh) for operand in cut.operands)
    return actual


def dense(cut):
    layer = nn.Dense(16, 32, activation="relu")
    if cut:
        layer.matmul.shard(((2, 1), (4, 1)))
        layer.bias_add.shard(((2, 4), (4,)))
        layer.activation.relu.shard(((2, 4),))
    return layer, floats(8, 16)


def dense_of_blocks(cut):
    layer = nn.Dense(16, 32)
    if cut:
        layer.matmul.shard(((2, 4), (1, 4)))
    return layer, floats(4, 4, 16)


def convolution(cut):
    layer = nn.Conv2d(4, 8, 3, has_bias=True)
    if cut:
        layer.conv2d.shard(((2, 2, 1, 1), (2, 2, 1, 1)))
        layer.bias_add.shard(((2, 4, 1, 1), (4,)))
    return layer, floats(4, 4, 6, 6)


def signals(cut):
    layer = nn.Conv1d(4, 8, 3, has_bias=True)
    if cut:
        layer.conv2d.shard(((2, 2, 1, 1), (2, 2, 1, 1)))
        layer.bias_add.shard(((2, 4, 1, 1), (4,)))
    return layer, floats(4, 4, 6)


def normalized(cut):
    layer = nn.LayerNorm((8,))
    if cut:
        layer.layer_norm.shard(((4, 2, 1), (1,), (1,)))
    return layer, floats(4, 4, 8)


def batch_normalized(cut):
    layer = nn.BatchNorm2d(8)
    if cut:
        layer.bn_train.shard(((2, 4, 1, 1), (4,), (4,), (4,), (4,)))
    return layer, floats(4, 8, 3, 3)


def looked_up(cut):
    layer = nn.Embedding(16, 8)
    if cut:
        layer.gather.shard(((8, 1), (1,)))
    return layer, RNG.integers(0, 16, (8, 4)).astype(np.int32)


def one_hot(cut):
    layer = nn.Embedding(16, 8, use_one_hot=True)
    if cut:
        layer.one_hot.shard(((4, 2), (), ()))
        layer.array_mul.shard(((4, 2), (2, 1)))
    return layer, RNG.integers(0, 16, (8, 4)).astype(np.int32)


def activations(cut):
    layers = [nn.Softmax(0), nn.LogSoftmax(-1), nn.Sigmoid(), nn.Tanh(), nn.ELU(), nn.HSwish(), nn.PReLU(4)]
    if cut:
        strategies = (((1, 8),), ((8, 1),), ((2, 4),), ((4, 1),), ((1, 4),), ((8, 1),), ((2, 4), (4,)))
        names = ("softmax", "log_softmax", "sigmoid", "tanh", "elu", "hswish", "prelu")
        for layer, name, strategy in zip(layers, names, strategies, strict=True):
            getattr(layer, name).shard(strategy)
    return nn.SequentialCell([nn.Dense(4, 8), *layers[:-1], nn.Dense(8, 4), layers[-1]]), floats(8, 4)


def dropped(cut):
    layer = nn.Dropout(p=0.25)
    if cut:
        layer.dropout.shard(((2, 4),))
    return nn.SequentialCell([nn.Dense(8, 8), layer]), floats(8, 8)


def loss(cut):
    layer = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    if cut:
        layer.one_hot.shard(((8, 1), (), ()))
        layer.softmax_cross_entropy.shard(((8, 1), (8, 1)))
        layer.reduce_mean.shard(((4,),))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.scores, self.loss = nn.Dense(4, 8), layer

        def construct(self, x):
            return self.loss(self.scores(x), Tensor(np.arange(8, dtype=np.int32)))

    return Net(), floats(8, 4)


LAYERS = [
    dense,
    dense_of_blocks,
    convolution,
    signals,
    normalized,
    batch_normalized,
    looked_up,
    one_hot,
    activations,
    dropped,
    loss,
]


def train(make, cut):
    """Three losses, the weights after them, and the step."""
    ms.set_seed(3)
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state
    layer, data = make(cut)

    class Total(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def construct(self, x):
            y = self.layer(x)
            return ops.square(y + 0.5).mean()

    net = Total()
    net.set_train()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    tensor = Tensor(data)
    losses = [float(step(tensor)) for _ in range(3)]
    return losses, [parameter.asnumpy() for parameter in net.get_parameters()], step.program.plan(tensor), step, tensor


@pytest.mark.parametrize("make", LAYERS, ids=lambda make: make.__name__)
@pytest.mark.sampled(6)
def test_layers_run_through_the_primitives_that_were_sharded(make):
    losses, weights, *_ = train(make, cut=False)
    semi_auto(dataset_strategy="full_batch")
    cut_losses, cut_weights, planned, step, tensor = train(make, cut=True)
    np.testing.assert_allclose(cut_losses, losses, rtol=1e-5, atol=1e-6)
    for one, other in zip(weights, cut_weights, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=2e-5 * max(1e-3, np.abs(one).max()))
    assert collective_bytes(step.program, tensor) == planned_bytes(planned)


def test_layers_that_nothing_was_said_of_run_one_operator():
    semi_auto(dataset_strategy="full_batch")
    _, _, planned, *_ = train(dense, cut=False)
    assert ("layer", "dense") in readable_strategy(planned)
    ms.reset_auto_parallel_context()
    semi_auto(dataset_strategy="full_batch")
    _, _, planned, *_ = train(dense, cut=True)
    actual = readable_strategy(planned)
    assert actual["matmul", "MatMul"] == ((2, 1), (4, 1))
    assert actual["bias_add", "BiasAdd"] == ((2, 4), (4,))
    assert actual["relu", "ReLU"] == ((2, 4),)
    assert not any(name == "dense" for _, name in actual)


def test_the_message_names_the_primitive_in_its_layer():
    semi_auto()
    layer = nn.Dense(16, 32)
    layer.matmul.shard(((2, 4), (2, 1)))
    with pytest.raises(
        SporaxRuntimeError, match=r"For 'Dense.matmul \(MatMul\)'.*is sharded into 1 and another into 4"
    ):
        layer(Tensor(floats(8, 16)))


# -------------------------------------------------------------------------------------------- writing, and random numbers

ROWS = (Tensor(np.array([1, 5, 6], np.int32)), Tensor(1.5 + RNG.random((3, 4), np.float32)))
PLACES = (Tensor(np.array([[1], [5], [6]], np.int32)), ROWS[1])
WRITERS = {
    **{
        f"Scatter{word}": (ROWS, ((1, 4), (1,), (1, 4)))
        for word in ("Update", "Add", "Sub", "Mul", "Div", "Max", "Min")
    },
    **{f"ScatterNd{word}": (PLACES, ((2, 4), (1, 1), (1, 4))) for word in ("Add", "Sub")},
    "ScatterNdUpdate": (PLACES, ((1, 4), (1, 1), (1, 4))),  # one of several updates of a row would win
    **{name: ((Tensor(floats(8, 4)),), ((2, 4), (2, 4))) for name in ("Assign", "AssignAdd", "AssignSub")},
}


class Writers(nn.Cell):
    """One Parameter for each operator that writes."""

    def __init__(self, cut):
        super().__init__()
        start = 1.0 + np.arange(32, dtype=np.float32).reshape(8, 4) / 16
        self.targets = [ms.Parameter(Tensor(start), name=f"target_{name}") for name in WRITERS]
        for number, target in enumerate(self.targets):
            setattr(self, f"target{number}", target)
        self.primitives = [getattr(ops, name)() for name in WRITERS]
        for primitive, (_, strategy) in zip(self.primitives, WRITERS.values(), strict=True):
            if cut:
                primitive.shard(strategy)

    def construct(self, x):
        for primitive, target, (values, _) in zip(self.primitives, self.targets, WRITERS.values(), strict=True):
            primitive(target, *values)
        return x


def test_operators_that_write_parameters():
    whole = Writers(cut=False)
    whole(Tensor(floats(8, 4)))
    semi_auto(dataset_strategy="full_batch")
    cut = Writers(cut=True)
    cut(Tensor(floats(8, 4)))
    for name, one, other in zip(WRITERS, whole.targets, cut.targets, strict=True):
        np.testing.assert_allclose(other.asnumpy(), one.asnumpy(), rtol=1e-6, err_msg=name)
        _, strategy = WRITERS[name]
        assert other.array.addressable_shards[0].data.shape == tuple(np.array((8, 4)) // strategy[0]), name


class Random(nn.Cell):
    def __init__(self, cut):
        super().__init__()
        self.dropout, self.gamma, self.choice = ops.Dropout(0.5), ops.Gamma(seed=3), ops.RandomChoiceWithMask(4, seed=3)
        if cut:
            self.dropout.shard(((2, 4),))
            self.gamma.shard(((4, 2), (), ()))
            self.choice.shard(((1, 1),))

    def construct(self, x):
        return (
            *self.dropout(x),
            self.gamma((8, 4), Tensor(2.0, ms.float32), Tensor(1.5, ms.float32)),
            *self.choice(x > 0),
        )


def test_random_operators_draw_what_one_device_draws():
    x = Tensor(floats(8, 4))
    ms.set_seed(5)
    whole = Random(cut=False)(x)
    semi_auto(dataset_strategy="full_batch")
    ms.set_seed(5)
    cut = Random(cut=True)(x)
    for one, other in zip(whole, cut, strict=True):
        np.testing.assert_allclose(other.asnumpy(), one.asnumpy(), rtol=1e-6)
