"""Cells whose `bprop` knows how many ranks repeat their result, as MindSpore runs it on each rank by itself."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell

RNG = np.random.default_rng(4)
X, W = RNG.normal(size=(8, 16)).astype(np.float32), RNG.normal(size=(16, 32)).astype(np.float32)
TARGETS = RNG.random((8, 32)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


class RowLoss(nn.Cell):
    """Losses of rows, which the `columns` devices of a row repeat; its gradient undoes that each of them has a share."""

    def __init__(self, rows, columns):
        super().__init__()
        self.columns = columns
        self.product = ops.Mul().shard(((rows, columns), (rows, columns)))
        self.total = ops.ReduceSum().shard(((rows, columns),))

    def construct(self, values, targets):
        return self.total(self.product(values, targets), -1)

    def bprop(self, values, targets, out, dout):
        return targets * ops.expand_dims(dout, -1) * self.columns, ops.zeros_like(targets)


class Doubled(nn.Cell):
    """As many ranks repeat its result as its input: there is nothing to undo."""

    def __init__(self, rows):
        super().__init__()
        self.product = ops.Mul().shard(((rows, 1), ()))

    def construct(self, x):
        return self.product(x, 2.0)

    def bprop(self, x, out, dout):
        return dout * 2


class Product(nn.Cell):
    """Every rank has some columns of its result and the gradient of its input is added up over them: nothing to undo."""

    def __init__(self, rows, columns):
        super().__init__()
        self.matmul = ops.MatMul().shard(((rows, 1), (1, columns)))

    def construct(self, x, weight):
        return self.matmul(x, weight)

    def bprop(self, x, weight, out, dout):
        return ops.matmul(dout, weight.T), ops.matmul(x.T, dout)


class Net(nn.Cell):
    def __init__(self, rows=1, columns=1, stages=1):
        super().__init__()
        self.weight = Parameter(Tensor(W), name="weight")
        self.dense = nn.Dense(16, 16, weight_init=Tensor(W[:, :16]), has_bias=False)
        self.doubled = Doubled(rows)
        self.matmul = Product(rows, columns)
        self.losses = RowLoss(rows, columns)
        self.squares, self.mean = ops.Square().shard(((rows,),)), ops.ReduceMean().shard(((rows,),))
        if stages > 1:
            self.dense.pipeline_stage, self.losses.pipeline_stage = 0, 1

    def construct(self, x, targets):
        return self.mean(self.squares(self.losses(self.matmul(self.doubled(self.dense(x)), self.weight), targets)))


def train(*sizes, steps=2, **settings):
    ms.reset_auto_parallel_context()
    if settings:
        ms.set_auto_parallel_context(device_num=8, dataset_strategy="full_batch", **settings)
    net = Net(*sizes)
    # A pipeline adds up the losses of its micro batches.
    loss, batches = (PipelineCell(net, 4), 4) if len(sizes) > 2 else (net, 1)
    step = nn.TrainOneStepCell(loss, nn.Momentum(net.trainable_params(), 1e-4 / batches, 0.9))
    losses = [float(step(Tensor(X), Tensor(TARGETS))) / batches for _ in range(steps)]
    return losses, net.weight.asnumpy(), step


@pytest.fixture(scope="module")
def alone():
    return train()


@pytest.mark.parametrize(("rows", "columns"), [(4, 2), (2, 4), (2, 2), (1, 8)])
@pytest.mark.parametrize("settings", [{}, {"enable_parallel_optimizer": True}, {"loss_repeated_mean": True}])
def test_gradients_are_those_of_one_device(alone, rows, columns, settings):
    losses, weight, step = train(rows, columns, parallel_mode="semi_auto_parallel", **settings)
    np.testing.assert_allclose(losses, alone[0], rtol=1e-5)
    np.testing.assert_allclose(weight, alone[1], rtol=1e-5)
    planned = step.program.plan(Tensor(X), Tensor(TARGETS))
    assert "layout of" not in str(planned.summary())  # that is for layouts of the user's
    assert [note for note in planned.plan.notes if "bprop" in note] == [
        f"gradients by 'bprop' of RowLoss, over {columns}: as many ranks repeat its result, but not its input. As in MindSpore, it "
        "must multiply by that"
    ]


@pytest.mark.filterwarnings("ignore:With search_mode='recursive_programming'")
@pytest.mark.parametrize("search_mode", ["sharding_propagation", "recursive_programming"])
def test_searches_keep_the_strategies_that_it_counts_on(alone, search_mode):
    losses, weight, _ = train(4, 2, parallel_mode="auto_parallel", search_mode=search_mode)
    np.testing.assert_allclose(losses, alone[0], rtol=1e-5)
    np.testing.assert_allclose(weight, alone[1], rtol=1e-5)


def test_in_a_stage_of_a_pipeline(alone):
    losses, weight, _ = train(2, 2, 2, parallel_mode="semi_auto_parallel", pipeline_stages=2)
    np.testing.assert_allclose(losses, alone[0], rtol=1e-5)
    np.testing.assert_allclose(weight, alone[1], rtol=1e-5)


class Scaled(nn.Cell):
    """A function of numpy arrays, by itself or in a Cell with a `bprop`: every device runs it on whole arrays."""

    def __init__(self, in_cell, layout=None):
        super().__init__()
        bprop = {} if in_cell else {"bprop": self.bprop}
        self.function = ops.Custom(lambda a, b: a * b, lambda a, b: a, lambda a, b: a, **bprop)
        if layout:
            self.function.shard((layout, layout), (layout,))

    def construct(self, a, b):
        return self.function(a, b)

    def bprop(self, a, b, out, dout):
        return dout * b, dout * a


class Around(nn.Cell):
    def __init__(self, scaled):
        super().__init__()
        self.weight = Parameter(Tensor(W), name="weight")
        self.matmul, self.scaled, self.relu = ops.MatMul(), scaled, ops.ReLU()

    def construct(self, x, targets):
        return self.relu(self.scaled(self.matmul(x, self.weight), targets))


@pytest.mark.parametrize("kind", ["cell", "operator", "sharded operator"])
def test_whole_inputs_have_nothing_to_undo(kind):
    """The weights after a step were those of a gradient that is an eighth."""

    def weight(layout=None):
        scaled = Scaled(True) if kind == "cell" else Scaled(False, layout).function
        net = Around(scaled)
        nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))(Tensor(X), Tensor(TARGETS))
        return net.weight.asnumpy()

    ms.reset_auto_parallel_context()
    expected = weight()
    ms.set_auto_parallel_context(device_num=8, dataset_strategy="full_batch", parallel_mode="semi_auto_parallel")
    layout = ms.Layout((4, 2), ("dp", "mp"))("dp", "None")
    np.testing.assert_allclose(weight(layout if kind == "sharded operator" else None), expected, rtol=1e-5)
