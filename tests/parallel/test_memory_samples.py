"""Networks of MindSpore's sample programs about memory: each setting changes the compiled program, and no value."""

import re

import numpy as np
import pytest

import sporax as ms
from sporax import Tensor, nn, ops
from sporax.common.initializer import One, initializer
from sporax.nn.utils import no_init_parameters
from sporax.parallel.auto_parallel import AutoParallel

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
