"""The models in MindSpore's names: run by Sporax, or by MindSpore itself when that is what `mindspore` means here.

<launcher> by_names.py MODEL STEPS
"""

import sys
import time

import numpy as np

import mindspore as ms
from mindspore import nn, ops
from mindspore.communication import get_rank, init

MODELS = {
    "mlp": (12, 128, 64),
    "mlp-deep": (48, 128, 64),
    "mlp-wide": (4, 1024, 64),
    "lenet": None,
    "transformer": None,
}
WIDTH, HEADS, LENGTH, BLOCKS, VOCABULARY = 128, 4, 64, 4, 256


class Mlp(nn.Cell):
    def __init__(self, layers, width):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(width, width) for _ in range(layers)])

    def construct(self, x):
        for layer in self.layers:
            x = ops.relu(layer(x))
        return x


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid", has_bias=True)
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True)
        self.pool = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()
        self.dense = nn.SequentialCell(nn.Dense(400, 120), nn.ReLU(), nn.Dense(120, 84), nn.ReLU(), nn.Dense(84, 10))

    def construct(self, x):
        x = self.pool(ops.relu(self.conv1(x)))
        return self.dense(self.flatten(self.pool(ops.relu(self.conv2(x)))))


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((WIDTH,)), nn.LayerNorm((WIDTH,))
        self.query, self.key, self.value = (nn.Dense(WIDTH, WIDTH) for _ in range(3))
        self.project, self.up, self.down = (
            nn.Dense(WIDTH, WIDTH),
            nn.Dense(WIDTH, 4 * WIDTH),
            nn.Dense(4 * WIDTH, WIDTH),
        )
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()

    def heads(self, x):
        return ops.transpose(ops.reshape(x, (-1, LENGTH, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))

    def construct(self, x):
        y = self.norm1(x)
        scores = self.scores(self.heads(self.query(y)), self.heads(self.key(y))) * (WIDTH // HEADS) ** -0.5
        mixed = self.mix(ops.softmax(scores, -1), self.heads(self.value(y)))
        x = x + self.project(ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, LENGTH, WIDTH)))
        return x + self.down(ops.relu(self.up(self.norm2(x))))


class Transformer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.SequentialCell(*[Block() for _ in range(BLOCKS)])
        self.head = nn.Dense(WIDTH, VOCABULARY)

    def construct(self, x):
        return ops.reshape(self.head(self.blocks(self.tokens(x))), (-1, VOCABULARY))


def build(name):
    """Network, loss and one batch."""
    rng = np.random.default_rng(get_rank())
    if name == "lenet":
        x, y = rng.normal(size=(32, 1, 32, 32)).astype(np.float32), rng.integers(0, 10, 32).astype(np.int32)
        return LeNet(), nn.CrossEntropyLoss(), ms.Tensor(x), ms.Tensor(y)
    if name == "transformer":
        x = rng.integers(0, VOCABULARY, (8, LENGTH)).astype(np.int32)
        return Transformer(), nn.CrossEntropyLoss(), ms.Tensor(x), ms.Tensor(x.reshape(-1))
    layers, width, batch = MODELS[name]
    x = rng.normal(size=(batch, width)).astype(np.float32)
    return Mlp(layers, width), nn.MSELoss(), ms.Tensor(x), ms.Tensor(0 * x)


init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
ms.set_seed(1)
network, loss_fn, inputs, targets = build(sys.argv[1])
optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
step = nn.TrainOneStepCell(nn.WithLossCell(network, loss_fn), optimizer)
step.set_train()
for _ in range(20):
    step(inputs, targets).asnumpy()
started, computed = time.perf_counter(), time.process_time()
for _ in range(int(sys.argv[2])):
    loss = step(inputs, targets)
loss.asnumpy()
wall, processor = (
    1e3 * (now - before) / int(sys.argv[2])
    for now, before in ((time.perf_counter(), started), (time.process_time(), computed))
)
print(f"rank {get_rank()} milliseconds {wall} processor {processor}", flush=True)
