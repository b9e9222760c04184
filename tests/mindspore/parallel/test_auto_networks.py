"""Automatic parallelism on eight devices, network by network: losses are those of one device, whatever the search."""

from functools import cache

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.parallel.auto_parallel import AutoParallel
from sporax.mindspore.parallel.nn import PipelineCell
from sporax.mindspore.train import Callback, Model
from sporax.planner.plan_check import check_plan

RNG = np.random.default_rng(0)
IMAGES, CLASSES = RNG.normal(size=(16, 1, 12, 12)).astype(np.float32), RNG.integers(0, 8, 16).astype(np.int32)
IDS, WORDS = RNG.integers(0, 64, (16, 4)).astype(np.int32), RNG.integers(0, 64, 64).astype(np.int32)
TABLE = 0.1 * RNG.normal(size=(64, 32)).astype(np.float32)
SERIES = RNG.normal(size=(16, 4, 16)).astype(np.float32)
TOKENS, KINDS = RNG.normal(size=(32, 32)).astype(np.float32), RNG.integers(0, 8, 32).astype(np.int32)
GATE, UP, DOWN = (0.2 * RNG.normal(size=size).astype(np.float32) for size in ((32, 8), (8, 32, 32), (8, 32, 32)))
SEARCHES = ("recursive_programming", "dynamic_programming", "sharding_propagation", "ilp", "repeated_blocks")


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


class Series(nn.Cell):
    """Two recurrent layers, each a loop over time."""

    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.LSTM(16, 32, num_layers=2, batch_first=True), nn.Dense(32, 8)

    def construct(self, x):
        return self.head(self.recurrent(x)[0][:, -1])


class Experts(nn.Cell):
    """Tokens are scattered to the slots of one expert each, and gathered again."""

    def __init__(self, slots=16):
        super().__init__()
        self.slots = slots
        self.gate, self.up, self.down = (
            ms.Parameter(Tensor(value), name=name) for name, value in (("gate", GATE), ("up", UP), ("down", DOWN))
        )
        self.scatter, self.head = ops.TensorScatterAdd(), nn.Dense(32, 8)

    def construct(self, x):
        shares = ops.softmax(ops.matmul(x, self.gate), -1)
        expert = ops.argmax(shares, -1).astype(ms.int32)
        chosen = ops.one_hot(expert, len(UP), 1.0, 0.0)
        slot = self.slots * expert + ((ops.cumsum(chosen, 0) - 1) * chosen).sum(-1).astype(ms.int32)
        empty = ops.zeros((len(UP) * self.slots, 32), ms.float32)
        sent = ops.reshape(self.scatter(empty, ops.expand_dims(slot, 1), x), (len(UP), self.slots, 32))
        result = ops.bmm(ops.relu(ops.bmm(sent, self.up)), self.down)
        y = ops.gather(ops.reshape(result, (-1, 32)), slot, 0)
        return self.head(x + y * (shares * chosen).sum(-1, keepdims=True))


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


def make_step(network, recomputed=False):
    ms.set_seed(1)
    net = network().set_train()
    for cell in net.cells() if recomputed else ():
        cell.recompute()
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Adam(net.trainable_params(), 1e-2))


def losses(step, data):
    return [float(step(*map(Tensor, data))) for _ in range(3)]


NETWORKS = {
    "convolutions": (Convolutions, (IMAGES, CLASSES)),
    "words": (Words, (IDS, WORDS)),
    "series": (Series, (SERIES, CLASSES)),
    "experts": (Experts, (TOKENS, KINDS)),
}


@cache
def alone(name):
    """Operator by operator, which compiles less than a step does."""
    network, data = NETWORKS[name]
    context.set_context(mode=context.PYNATIVE_MODE)
    results = losses(make_step(network), data)
    context.set_context(mode=context.GRAPH_MODE)
    return results


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_are_those_of_one_device(name, monkeypatch):
    """A plan that several searches find is trained once."""
    expected = alone(name)
    network, data = NETWORKS[name]
    trained = []
    for mode in SEARCHES:
        monkeypatch.setenv("SPORAX_PLAN_MODE", mode)
        parallel()
        step = make_step(network)
        planned = step.program.plan(*map(Tensor, data))
        check_plan(planned.graph, planned.plan)
        assert any(any(operator.assignment) for operator in planned.plan.operators)
        if planned.plan not in trained:
            trained.append(planned.plan)
            np.testing.assert_allclose(losses(step, data), expected, rtol=5e-5, err_msg=mode)


SHARDED = {
    "enable_parallel_optimizer": True,
    "parallel_optimizer_config": {"parallel_optimizer_threshold": 0, "optimizer_level": "level3"},
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "mode", "prices", "settings"),
    [
        ("series", "sharding_propagation", "symbolic", {}),
        ("experts", "recursive_programming", "symbolic", {}),
        ("experts", "dynamic_programming", "cpu", SHARDED),
    ],
    ids=["series-symbolic", "experts-symbolic", "experts-sharded"],
)
def test_so_they_are_with_other_prices_and_when_activations_are_computed_anew(
    name, mode, prices, settings, monkeypatch
):
    """MindSpore's prices cut other operators; parameters may be kept in smaller slices."""
    expected = alone(name)
    monkeypatch.setenv("SPORAX_HARDWARE", prices)
    parallel(search_mode=mode, **settings)
    network, data = NETWORKS[name]
    np.testing.assert_allclose(losses(make_step(network, recomputed=True), data), expected, rtol=5e-5)


class Losses(Callback):
    def __init__(self):
        self.values = []

    def on_train_step_end(self, run_context):
        self.values.append(float(run_context.original_args().net_outputs.asnumpy()))


def fit(wrap):
    """Two epochs of micro batches with recomputed activations; losses, as `Model.train` reports them from the sink."""
    ms.set_seed(1)
    net = Layers()
    net.relu.recompute()
    optimizer = nn.SGD(net.trainable_params(), 1e-2)
    cell, report = wrap(PipelineCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), 4)), Losses()
    data = NumpySlicesDataset({"image": IMAGES, "label": CLASSES}, shuffle=False).batch(16)
    Model(cell, optimizer=optimizer).train(2, data, callbacks=[report], dataset_sink_mode=True)
    return report.values


def test_micro_batches_recomputation_and_optimizer_parallelism_under_a_search():
    alone = fit(lambda cell: cell)
    parallel(search_mode="recursive_programming", enable_parallel_optimizer=True)
    np.testing.assert_allclose(fit(lambda cell: cell), alone, rtol=2e-5)

    context.reset_auto_parallel_context()
    context.set_world(8, 0)

    def wrapped(cell):
        actual = AutoParallel(cell, parallel_mode="recursive_programming")
        actual.hsdp()
        actual.pipeline(stages=1)
        return actual

    np.testing.assert_allclose(fit(wrapped), alone, rtol=2e-5)
