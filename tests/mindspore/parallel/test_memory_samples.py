"""Networks of MindSpore's sample programs about memory: each setting changes the compiled program, and no value."""

import re

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.common.initializer import One, initializer
from sporax.mindspore.context import reset_offload_context
from sporax.mindspore.nn.utils import no_init_parameters
from sporax.mindspore.parallel.auto_parallel import AutoParallel
from sporax.mindspore.runtime import _memory

BATCH, LENGTH, HEADS, SIZE, LAYERS = 8, 16, 2, 4, 4


class Block(nn.Cell):
    """The block of the sample about recomputation."""

    def __init__(self):
        super().__init__()
        self.transpose, self.real_div, self.batch_matmul = ops.Transpose(), ops.RealDiv(), ops.BatchMatMul()
        self.softmax, self.dropout, self.expand_dims = ops.Softmax(-1), ops.Dropout(0.9), ops.ExpandDims()
        self.y = ms.Parameter(initializer(One(), [BATCH, LENGTH, LENGTH], ms.float32))

    def construct(self, x):
        query = self.real_div(self.transpose(x, (0, 2, 1, 3)), Tensor(2.37891))
        key = self.real_div(self.transpose(x, (0, 2, 3, 1)), Tensor(2.37891))
        bias = (Tensor([1.0]) - self.expand_dims(self.y, 1)) * Tensor([-0.0001])
        scores = self.dropout(self.softmax(bias + self.batch_matmul(query, key)))[0]
        return self.transpose(self.batch_matmul(scores, self.transpose(x, (0, 2, 1, 3))), (0, 2, 1, 3))


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList([Block() for _ in range(LAYERS)])

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Grad(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.grad, self.net = ops.GradOperation(), net

    def construct(self, x):
        return self.grad(self.net)(x)


@pytest.fixture(autouse=True)
def _graph_mode():
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=mode)


def gradient(recompute):
    """The gradient of the sample's network, and its compiled program."""
    ms.set_seed(4)
    with no_init_parameters():
        net = Network()
    for block in net.blocks if recompute else ():
        block.recompute()
    step = AutoParallel(Grad(net), parallel_mode="semi_auto")
    x = Tensor(np.random.default_rng(0).normal(size=(BATCH, LENGTH, HEADS, SIZE)).astype(np.float32))
    return step(x).asnumpy(), step.program.lower(x).as_text()


def test_recomputed_blocks_run_their_products_twice():
    """The scores of every block but for those that are still there run twice."""
    plain, text = gradient(recompute=False)
    again, recomputed_text = gradient(recompute=True)
    products = [len(re.findall(r"stablehlo\.dot_general", item)) for item in (text, recomputed_text)]
    assert products[1] >= products[0] + LAYERS
    np.testing.assert_allclose(again, plain, rtol=1e-5, atol=1e-7)


class Dense(nn.Cell):
    """The layer of the sample about hosts and devices."""

    def __init__(self, in_channels, out_channels, on_host):
        super().__init__()
        self.weight = ms.Parameter(initializer("normal", [in_channels, out_channels], ms.float32))
        self.bias = ms.Parameter(initializer("normal", [out_channels], ms.float32))
        self.matmul, self.add = ops.MatMul(), ops.Add()
        if on_host:
            self.matmul.set_device("CPU")
            self.add.set_device("CPU")

    def construct(self, x):
        return self.add(self.matmul(x, self.weight), self.bias)


def trained(on_host):
    """Losses of the sample's network, and its lowered program."""
    ms.set_seed(1)
    layers = [Dense(12, 8, on_host), nn.ReLU(), Dense(8, 8, on_host), nn.ReLU(), Dense(8, 4, on_host)]
    net = nn.SequentialCell(nn.Flatten(), *layers)
    loss = nn.WithLossCell(net, nn.CrossEntropyLoss())
    step = nn.TrainOneStepCell(loss, nn.SGD(net.trainable_params(), 1e-2)).set_train()
    image = Tensor(np.random.default_rng(0).normal(size=(6, 1, 3, 4)).astype(np.float32))
    label = Tensor(np.arange(6, dtype=np.int32) % 4)
    losses = [step(image, label).asnumpy().item() for _ in range(3)]
    return losses, step.program.lower(image, label).as_text()


def test_host_device():
    """The products and sums of the three layers, and their derivatives, are work of the host."""
    losses, text = trained(on_host=False)
    host_losses, host_text = trained(on_host=True)
    assert '_xla_compute_type = "host"' not in text
    assert host_text.count('_xla_compute_type = "host"') >= 3 * 2
    assert host_losses == losses


class Picture(nn.Cell):
    """The network of the sample about offload."""

    def __init__(self):
        super().__init__()
        self.conv1, self.relu, self.conv2 = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3)
        self.avgpool, self.dense = nn.AdaptiveAvgPool2d(1), nn.Dense(16, 10)

    def construct(self, x):
        return self.dense(self.avgpool(self.conv2(self.relu(self.conv1(x)))).squeeze())


OFFLOAD = {
    "offload_path": "./offload/",
    "auto_offload": True,
    "offload_param": "cpu",
    "offload_cpu_size": "512GB",
    "offload_disk_size": "1024GB",
    "host_mem_block_size": "1GB",
    "enable_aio": False,
    "enable_pinned_mem": False,
}


@pytest.fixture
def _offload(monkeypatch):
    monkeypatch.setattr(_memory._POOL, "max_bytes", None)
    yield
    ms.set_context(memory_offload="OFF")
    reset_offload_context()


def trained_pictures(memory_offload, max_size):
    """Losses of the sample's loop, and the Parameters that are on the host."""
    _memory._POOL.max_bytes = None
    _memory.set_memory(max_size=max_size)
    ms.set_context(memory_offload=memory_offload)
    ms.set_seed(1)
    net = Picture()
    optimizer, loss_fn = nn.SGD(net.trainable_params(), 1e-2), nn.CrossEntropyLoss()

    def forward_fn(data, target):
        logits = net(data)
        return loss_fn(logits, target), logits

    grad_fn = ms.value_and_grad(forward_fn, None, net.trainable_params(), has_aux=True)
    reducer = nn.DistributedGradReducer(optimizer.parameters, degree=1)
    draw = np.random.default_rng(0)
    image, label = Tensor(draw.normal(size=(4, 3, 8, 8)).astype(np.float32)), Tensor(np.arange(4, dtype=np.int32))
    losses = []
    for _ in range(3):
        (loss, _), grads = grad_fn(image, label)
        optimizer(reducer(grads))
        losses.append(loss.asnumpy().item())
    return losses, [
        parameter.name for parameter in net.trainable_params() if parameter.raw.sharding.memory_kind == "pinned_host"
    ]


@pytest.mark.usefixtures("_offload")
@pytest.mark.filterwarnings("ignore:For 'set_offload_context'")
def test_memory_offload():
    """Where the step does not fit what `runtime.set_memory` allows, the largest weights are on the host; losses are equal."""
    ms.set_offload_context(OFFLOAD)
    losses, away = trained_pictures("OFF", "0.00001GB")
    assert away == []
    assert trained_pictures("ON", "1GB") == (losses, [])
    tight_losses, away = trained_pictures("ON", "0.00001GB")
    assert "conv2.weight" in away
    np.testing.assert_allclose(tight_losses, losses, rtol=1e-6)


class Hidden(nn.Cell):
    """The network of the sample about subgraphs of communication, with more hidden layers, which are equal."""

    def __init__(self):
        super().__init__()
        self.flatten, self.relu = nn.Flatten(), nn.ReLU()
        self.layer1, self.last = nn.Dense(16, 8), nn.Dense(8, 8)
        self.hidden = nn.CellList([nn.Dense(8, 8) for _ in range(6)])

    def construct(self, x):
        x = self.relu(self.layer1(self.flatten(x)))
        for layer in self.hidden:
            x = self.relu(layer(x))
        return self.last(x)


def trained_in_ranks(monkeypatch, limit):
    """Losses of the sample's compiled step, and how many collectives its program has."""
    if limit is None:
        monkeypatch.delenv("MS_COMM_COMPILER_OPT", raising=False)
    else:
        monkeypatch.setenv("MS_COMM_COMPILER_OPT", limit)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", enable_parallel_optimizer=True, device_num=8)
    ms.set_seed(1)
    net = Hidden()
    optimizer, loss_fn = nn.SGD(net.trainable_params(), 1e-2), nn.CrossEntropyLoss()
    grad_fn = ms.value_and_grad(lambda data, target: loss_fn(net(data), target), None, net.trainable_params())

    @ms.jit
    def train_step(inputs, targets):
        loss, grads = grad_fn(inputs, targets)
        optimizer(grads)
        return loss

    image = Tensor(np.random.default_rng(0).normal(size=(8, 1, 4, 4)).astype(np.float32))
    label = Tensor(np.arange(8, dtype=np.int32))
    losses = [train_step(image, label).asnumpy().item() for _ in range(3)]
    text = train_step.program.lower(image, label).as_text()
    return losses, len(re.findall(r"stablehlo\.(?:all_gather|all_reduce|reduce_scatter)", text))


def test_comm_subgraph(monkeypatch):
    """Equal layers share one body, so their collectives are in the program once; results are equal."""
    try:
        losses, count = trained_in_ranks(monkeypatch, None)
        reused_losses, reused = trained_in_ranks(monkeypatch, "-1")
    finally:
        ms.reset_auto_parallel_context()
    assert reused < count
    np.testing.assert_allclose(reused_losses, losses, rtol=1e-6)
