"""Automatic parallelism on eight devices, network by network: losses are those of one device, whatever the search."""

import numpy as np
import pytest

import sporax as ms
from sporax import Tensor, context, nn, ops
from sporax.dataset import NumpySlicesDataset
from sporax.parallel.auto_parallel import AutoParallel
from sporax.parallel.nn import PipelineCell
from sporax.train import Callback, Model

RNG = np.random.default_rng(0)
IMAGES, CLASSES = RNG.normal(size=(16, 1, 12, 12)).astype(np.float32), RNG.integers(0, 8, 16).astype(np.int32)
IDS, WORDS = RNG.integers(0, 64, (16, 4)).astype(np.int32), RNG.integers(0, 64, 64).astype(np.int32)
TABLE = 0.1 * RNG.normal(size=(64, 32)).astype(np.float32)


class Convolutions(nn.Cell):
    """Pooling as in LeNet, and a residual block with batch normalisation."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3)
        self.norm, self.pool, self.relu = nn.BatchNorm2d(8), nn.MaxPool2d(2, 2), nn.ReLU()
        self.flatten, self.head = nn.Flatten(), nn.Dense(288, 8)

    def construct(self, x):
        x = self.pool(self.relu(self.first(x)))
        return self.head(self.flatten(self.relu(x + self.norm(self.second(x)))))


class Words(nn.Cell):
    """A looked up table, attention with dropout, and the same table again as the head."""

    def __init__(self):
        super().__init__()
        self.table = ms.Parameter(Tensor(TABLE), name="table")
        self.query, self.key, self.value = nn.Dense(32, 32), nn.Dense(32, 32), nn.Dense(32, 32)
        self.lookup, self.head = ops.Gather(), ops.MatMul(transpose_b=True)
        self.scores, self.weighted = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        self.norm, self.softmax, self.dropout = nn.LayerNorm((32,)), nn.Softmax(), nn.Dropout(p=0.1)

    def construct(self, ids):
        x = self.lookup(self.table, ids, 0)
        h = self.norm(x)
        weights = self.softmax(self.scores(self.query(h), self.key(h)) * 32**-0.5)
        x = x + self.dropout(self.weighted(weights, self.value(h)))
        return self.head(ops.reshape(x, (-1, 32)), self.table)


class Layers(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Dense(144, 64), nn.Dense(64, 64), nn.Dense(64, 8)
        self.flatten, self.relu = nn.Flatten(), nn.ReLU()

    def construct(self, x):
        return self.last(self.relu(self.second(self.relu(self.first(self.flatten(x))))))


@pytest.fixture(autouse=True)
def _graph_mode():
    context.set_context(mode=context.GRAPH_MODE)
    yield
    context.reset_auto_parallel_context()
    context.reset_algo_parameters()


def parallel(**settings):
    context.set_auto_parallel_context(parallel_mode="auto_parallel", device_num=8, **settings)
    context.set_algo_parameters(fully_use_devices=True)


def losses(network, *data):
    ms.set_seed(1)
    net = network().set_train()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Adam(net.trainable_params(), 1e-2))
    return [float(step(*map(Tensor, data))) for _ in range(3)], step.program.plan(*map(Tensor, data))


@pytest.mark.parametrize(("network", "data"), [(Convolutions, (IMAGES, CLASSES)), (Words, (IDS, WORDS))])
def test_losses_are_those_of_one_device(network, data):
    alone, _ = losses(network, *data)
    for mode in ("recursive_programming", "dynamic_programming", "sharding_propagation"):
        parallel(search_mode=mode)
        found, planned = losses(network, *data)
        np.testing.assert_allclose(found, alone, rtol=5e-5, err_msg=mode)
        assert any(any(each.assignment) for each in planned.plan.operators)


class Losses(Callback):
    def __init__(self):
        self.values = []

    def on_train_step_end(self, run_context):
        self.values.append(float(run_context.original_args().net_outputs.asnumpy()))


def fit(wrap):
    """Two epochs of micro batches with recomputed activations; losses, as `Model.train` tells them from the sink."""
    ms.set_seed(1)
    net = Layers()
    net.relu.recompute()
    optimizer = nn.SGD(net.trainable_params(), 1e-2)
    cell, told = wrap(PipelineCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), 4)), Losses()
    data = NumpySlicesDataset({"image": IMAGES, "label": CLASSES}, shuffle=False).batch(16)
    Model(cell, optimizer=optimizer).train(2, data, callbacks=[told], dataset_sink_mode=True)
    return told.values


def test_micro_batches_recomputation_and_optimizer_parallelism_under_a_search():
    alone = fit(lambda cell: cell)
    parallel(search_mode="recursive_programming", enable_parallel_optimizer=True)
    np.testing.assert_allclose(fit(lambda cell: cell), alone, rtol=2e-5)

    context.reset_auto_parallel_context()
    context.set_world(8, 0)

    def wrapped(cell):
        found = AutoParallel(cell, parallel_mode="recursive_programming")
        found.hsdp()
        found.pipeline(stages=1)
        return found

    np.testing.assert_allclose(fit(wrapped), alone, rtol=2e-5)
