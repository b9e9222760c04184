"""Training steps of the kinds that MindSpore's sample programs of parallel training have, by name; for `sporax plan`.

sporax plan --devices 8 tests/examples/sample_steps.py pipeline
"""

import sys

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, mint, nn, ops
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.communication import init
from sporax.mindspore.nn.utils import no_init_parameters
from sporax.mindspore.parallel import Layout
from sporax.mindspore.parallel.auto_parallel import AutoParallel
from sporax.mindspore.parallel.nn import GradAccumulation, MicroBatchInterleaved, Pipeline, PipelineCell

IMAGES, LABELS = Tensor(np.ones((32, 1, 28, 28), np.float32)), Tensor(np.zeros(32, np.int32))


class Dense(nn.Cell):
    """Three layers, as most samples have them."""

    def __init__(self):
        super().__init__()
        self.flatten, self.relu1, self.relu2 = nn.Flatten(), nn.ReLU(), nn.ReLU()
        self.layer1, self.layer2, self.layer3 = nn.Dense(784, 512), nn.Dense(512, 512), nn.Dense(512, 10)

    def construct(self, x):
        return self.layer3(self.relu2(self.layer2(self.relu1(self.layer1(self.flatten(x))))))


class Products(nn.Cell):
    """The same of operators, so that each can have a strategy."""

    def __init__(self):
        super().__init__()
        shapes = [784, 512], [512, 512], [512, 10]
        self.fc1, self.fc2, self.fc3 = (Parameter(initializer("normal", shape, ms.float32)) for shape in shapes)
        self.matmul1, self.matmul2, self.matmul3 = ops.MatMul(), ops.MatMul(), ops.MatMul()
        self.relu1, self.relu2 = ops.ReLU(), ops.ReLU()

    def construct(self, x):
        x = self.relu1(self.matmul1(x.reshape(32, -1), self.fc1))
        return self.matmul3(self.relu2(self.matmul2(x, self.fc2)), self.fc3)


def sharded(net):
    """Strategies by hand: a sharded contraction, then weights sharded by columns."""
    net.matmul1.shard(((2, 4), (4, 1)))
    net.relu1.shard(((4, 1),))
    net.matmul2.shard(((1, 8), (8, 1)))
    net.relu2.shard(((8, 1),))
    return net


def laid_out(net):
    """The same by layouts with names."""
    grid, line = Layout((2, 2, 2), ("dp", "sp", "mp")), Layout((8,), ("tp",))
    net.matmul1.shard((grid("mp", ("sp", "dp")), grid(("sp", "dp"), "None")))
    net.matmul2.shard((line("None", "tp"), line("tp", "None")))
    return net


class Mint(Products):
    """Functions with strategies."""

    def __init__(self):
        super().__init__()
        self.matmul1 = ms.parallel.shard(mint.matmul, in_strategy=((2, 4), (4, 1)))
        self.relu1 = ms.parallel.shard(mint.nn.functional.relu, in_strategy=((4, 1),))


def grid_of_two(net):
    """Products on a grid of two axes."""
    grid = Layout((2, 4), ("x", "y"))
    net.matmul2.add_prim_attr("enable_nd_tp", True)
    net.matmul2.shard(in_strategy=(grid("None", ("x", "y")), grid("x", "y")))
    net.relu2.shard(in_strategy=(grid("None", ("y", "x")),))
    return net


def fused(net):
    """Gradients of layers in two groups."""
    net.layer1.set_comm_fusion(0)
    net.layer2.set_comm_fusion(1)
    net.layer3.set_comm_fusion(2)
    return net


def staged(net):
    for number, cell in enumerate((net.layer1, net.relu1, net.layer2, net.relu2, net.layer3)):
        cell.pipeline_stage = number // 3
    return net


def step_of(net):
    """One call of a training step: gradients, then an optimizer."""
    net.set_train()
    trained = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 1e-2))
    return lambda: trained.set_train()(IMAGES, LABELS)


def with_context(make, **context):
    def run():
        ms.set_auto_parallel_context(**context)
        step_of(make())()

    return run


def with_auto_parallel(make, wrap, mode="semi_auto", setting=lambda parallel: None):
    """As samples of newer versions: `Model` trains a network inside of `AutoParallel`."""

    def run():
        with no_init_parameters():
            net = make()
            optimizer = nn.SGD(net.trainable_params(), 1e-2)
        parallel = AutoParallel(wrap(nn.WithLossCell(net, nn.CrossEntropyLoss())), parallel_mode=mode)
        setting(parallel)
        rows = ms.dataset.NumpySlicesDataset((IMAGES.asnumpy(), LABELS.asnumpy()), shuffle=False).batch(32)
        ms.Model(parallel, optimizer=optimizer).train(1, rows)

    return run


def recomputed(net):
    net.relu1.recompute()
    net.relu2.recompute()
    return net


def pipeline():
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", pipeline_stages=2)
    net = staged(Dense())
    whole = PipelineCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), 4).set_train()
    optimizer = nn.SGD(net.trainable_params(), 1e-2)
    gradients = ms.value_and_grad(whole, None, optimizer.parameters)
    reduced = nn.PipelineGradReducer(optimizer.parameters)

    @ms.jit
    def step(images, labels):
        loss, grads = gradients(images, labels)
        return loss, optimizer(reduced(grads))

    step(IMAGES, LABELS)


STAGES = {
    "_backbone.layer1": 0,
    "_backbone.relu1": 0,
    "_backbone.layer2": 1,
    "_backbone.relu2": 1,
    "_backbone.layer3": 1,
}
STEPS = {
    "data parallel": with_context(Dense, parallel_mode="data_parallel", gradients_mean=True),
    "optimizer parallel": with_context(Dense, parallel_mode="semi_auto_parallel", enable_parallel_optimizer=True),
    "fused gradients": with_context(lambda: fused(Dense()), parallel_mode="semi_auto_parallel"),
    "operator parallel": with_context(lambda: sharded(Products()), parallel_mode="semi_auto_parallel"),
    "layouts": with_context(lambda: laid_out(Products()), parallel_mode="semi_auto_parallel"),
    "functions": with_context(Mint, parallel_mode="semi_auto_parallel"),
    "two axes": with_context(lambda: grid_of_two(Products()), parallel_mode="semi_auto_parallel"),
    "slices of images": with_context(
        Dense, parallel_mode="semi_auto_parallel", dataset_strategy=((1, 1, 1, 4), (1,))
    ),
    "recursive search": with_context(Dense, parallel_mode="auto_parallel", search_mode="recursive_programming"),
    "propagation": with_context(
        lambda: sharded(Products()), parallel_mode="auto_parallel", search_mode="sharding_propagation"
    ),
    "accumulation": with_auto_parallel(Dense, lambda net: GradAccumulation(net, 4), setting=AutoParallel.hsdp),
    "interleaved": with_auto_parallel(Dense, lambda net: MicroBatchInterleaved(net, 2)),
    "pipeline": pipeline,
    "searched pipeline": with_auto_parallel(
        lambda: recomputed(Dense()),
        lambda net: Pipeline(net, 4, stage_config=STAGES),
        "recursive_programming",
        lambda parallel: parallel.pipeline(stages=2, scheduler="1f1b"),
    ),
}  # fmt: skip

if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    init()
    ms.set_seed(1)
    STEPS[" ".join(sys.argv[1:])]()
