"""Cut a layer over the ranks by hand, train it, and get what one rank gets.

    sporax run --worker_num 4 examples/03-hybrid-parallel/train.py [--steps 40]

The network is  x -> Dense(64, 64) -> [Dense(64, 256) -> ReLU -> Dense(256, 64)] -> Dense(64, 10). The part in brackets is
cut: each rank holds 256/n hidden units, that is rows of the first weight and columns of the second, and an AllReduce adds
up what the ranks computed. All ranks see the same batch.

What hybrid parallel mode does, and what it leaves to the program:

* Parameters with ``layerwise_parallel=True`` belong to their rank: they are neither broadcast nor reduced.
* Gradients of all other Parameters are summed over the ranks.
* The derivative of AllReduce is AllReduce, so the loss counts once for every rank. It is divided by their number; then
  each rank's gradient of a shared Parameter is its part of the whole, and the sum is right without taking the mean.

Every rank trains the uncut network beside it, and the losses must agree.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init
from mindspore.dataset import transforms, vision

DATA = Path(__file__).parents[1] / "data" / "digits"
WIDTH, HIDDEN, CLASSES = 64, 256, 10


def weights(name: str) -> np.ndarray:
    """The same values on every rank: weights of the uncut layers."""
    shape = {"first": (WIDTH, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN), "head": (CLASSES, WIDTH)}[name]
    return (np.random.default_rng(len(name)).normal(size=shape) / np.sqrt(shape[1])).astype(np.float32)


class Cut(nn.Cell):
    """Dense(64, 256) -> ReLU -> Dense(256, 64), of which this rank computes its share of the hidden units."""

    def __init__(self, rank: int, num_ranks: int) -> None:
        super().__init__()
        own = slice(rank * HIDDEN // num_ranks, (rank + 1) * HIDDEN // num_ranks)
        self.up = ms.Parameter(ms.Tensor(weights("up")[own]), name="up", layerwise_parallel=True)
        self.down = ms.Parameter(ms.Tensor(weights("down")[:, own]), name="down", layerwise_parallel=True)
        self.matmul = ops.MatMul(transpose_b=True)
        self.all_reduce = ops.AllReduce() if num_ranks > 1 else None

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        hidden = ops.relu(self.matmul(x, self.up))
        part = self.matmul(hidden, self.down)
        return part if self.all_reduce is None else self.all_reduce(part)


def network(rank: int, num_ranks: int) -> nn.Cell:
    first, head = (
        nn.Dense(WIDTH, size, weight_init=ms.Tensor(weights(name)), bias_init="zeros")
        for name, size in (("first", WIDTH), ("head", CLASSES))
    )
    return nn.SequentialCell(nn.Flatten(), first, nn.ReLU(), Cut(rank, num_ranks), head)


class Share(nn.Cell):
    """The loss, divided by the number of ranks that compute it."""

    def __init__(self, net: nn.Cell, num_ranks: int) -> None:
        super().__init__(auto_prefix=False)
        self.net = nn.WithLossCell(net, nn.CrossEntropyLoss())
        self.num_ranks = num_ranks

    def construct(self, image: ms.Tensor, label: ms.Tensor) -> ms.Tensor:
        return self.net(image, label) / self.num_ranks


def losses(mode: str, rank: int, num_ranks: int, steps: int) -> np.ndarray:
    """Train in a parallel mode; returns the loss of every step."""
    ms.set_auto_parallel_context(parallel_mode=mode, gradients_mean=False)
    net = network(rank, num_ranks)
    step = nn.TrainOneStepCell(Share(net, num_ranks), nn.Momentum(net.trainable_params(), 0.05, 0.9))
    data = ds.MnistDataset(str(DATA), usage="train", shuffle=False)
    scale = [vision.Rescale(1.0 / 255.0, 0.0), vision.HWC2CHW()]
    data = data.map(scale, input_columns="image").map(transforms.TypeCast(ms.int32), input_columns="label").batch(32)
    batches = data.create_tuple_iterator()
    return np.array([num_ranks * float(step(*batch)) for batch, _ in zip(batches, range(steps), strict=False)])


def main() -> int:
    parser = argparse.ArgumentParser(description="A layer cut by hand over several ranks.")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    init()
    rank, num_ranks = get_rank(), get_group_size()
    ms.set_context(mode=ms.GRAPH_MODE)
    cut = losses(ms.ParallelMode.HYBRID_PARALLEL, rank, num_ranks, options.steps)
    whole = losses(ms.ParallelMode.STAND_ALONE, 0, 1, options.steps)
    error = float(np.max(np.abs(cut - whole) / whole))
    if rank == 0:
        print(
            f"{num_ranks} ranks, {len(cut)} steps: loss {cut[0]:.4f} -> {cut[-1]:.4f}; largest difference {error:.1e}"
        )
    return 0 if error <= 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
