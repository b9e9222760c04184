"""Train a network whose layers are placed on several workers; every rank writes its losses and the operators it compiled."""

import json
import sys
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import nn, ops
from sporax.mindspore.communication import get_group_size, get_rank, init

ms.set_context(mode=ms.GRAPH_MODE)
init()
out = Path(sys.argv[1])
rank, size = get_rank(), get_group_size()


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(rank)  # ranks start from other values: those of rank 0 count
        self.first = nn.Dense(6, 8, ms.Tensor(rng.normal(size=(8, 6)).astype(np.float32)))
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(p=0.5)
        self.last = nn.Dense(8, 3, ms.Tensor(rng.normal(size=(3, 8)).astype(np.float32)))
        self.tanh = ops.Tanh()

    def construct(self, x):
        return self.last(self.dropout(self.tanh(self.norm(self.first(x)))))


ms.set_seed(1)
net = Net()
if size > 1:
    net.first.place("MS_WORKER", 0)
    net.norm.place("MS_WORKER", 1)
    net.dropout.place("MS_WORKER", 1)
    net.tanh.place("MS_WORKER", 0)
    net.last.place("MS_WORKER", 1)
step = nn.TrainOneStepCell(
    nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")),
    nn.Momentum(net.trainable_params(), 0.1, 0.9),
).set_train()
rng = np.random.default_rng(100 + rank)  # other data, too
losses = []
for _ in range(4):
    x = ms.Tensor(rng.normal(size=(4, 6)).astype(np.float32))
    label = ms.Tensor(rng.integers(0, 3, 4).astype(np.int32))
    losses.append(float(step(x, label)))
products = step.program.lower(x, label).compile().as_text().count(" dot(")
(out / f"{size}-{rank}.json").write_text(json.dumps({"losses": losses, "products": products}))
ms.save_checkpoint(net, str(out / f"{size}-{rank}.ckpt"))
print("all is well")
