"""Train one network on handwritten digits with several ranks, each on its share of every batch.

    sporax run --worker_num 2 examples/02-data-parallel/train.py [--epochs 10] [--out outputs/02-data-parallel]
    sporax run --local_devices 2 examples/02-data-parallel/train.py

What makes it data parallel: `init`, the parallel mode, and a dataset that is cut into shards. The ranks' gradients are
averaged inside the compiled step, in one all-reduce. Rank 0 writes the loss curve as curve.png; the program ends with an
error when the network stays below 96 % on the test images. One process with several devices acts for as many ranks, and one
rank (neither flag) gives the same result.
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
GLOBAL_BATCH = 64
GOAL = 0.96


def digits(usage: str, batch_size: int, **shard: int) -> ds.MnistDataset:
    """Images (N, 1, 8, 8) float32 and labels (N,) int32, those of one shard or all."""
    data = ds.MnistDataset(str(DATA), usage=usage, shuffle=usage == "train", **shard)
    scale = [vision.Rescale(1.0 / 255.0, 0.0), vision.Normalize(mean=(0.31,), std=(0.38,)), vision.HWC2CHW()]
    data = data.map(scale, input_columns="image").map(transforms.TypeCast(ms.int32), input_columns="label")
    return data.batch(batch_size, drop_remainder=usage == "train")


def network() -> nn.Cell:
    return nn.SequentialCell(nn.Flatten(), nn.Dense(64, 128), nn.ReLU(), nn.Dense(128, 64), nn.ReLU(), nn.Dense(64, 10))


def accuracy(net: nn.Cell) -> float:
    """Share of the test images that `net` labels correctly. Every rank looks at all of them."""
    net.set_train(False)
    right = [int((net(image).argmax(1) == label).sum()) for image, label in digits("test", 120).create_tuple_iterator()]
    return sum(right) / 360


def plot(losses: np.ndarray, num_ranks: int, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot(losses)
    axes.set(
        xlabel="step", ylabel="loss, mean over ranks", yscale="log", title=f"Handwritten digits, {num_ranks} ranks"
    )
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("outputs/02-data-parallel"))
    options = parser.parse_args()

    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    rank, num_ranks = (
        get_rank(),
        get_group_size(),
    )  # after the mode, which decides about ranks where there is one process
    ms.set_seed(1)  # the same weights and the same order of images on all ranks

    net = network()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    data = digits("train", GLOBAL_BATCH // num_ranks, num_shards=num_ranks, shard_id=rank)
    batches = data.create_tuple_iterator(num_epochs=options.epochs)  # one iterator: every epoch has an order of its own
    losses = [step(image, label) for _ in range(options.epochs) for image, label in batches]

    own = ms.Tensor(np.array([float(loss) for loss in losses], np.float32))
    mean = (ops.AllReduce()(own) / num_ranks).asnumpy()
    reached = accuracy(net)
    if rank == 0:
        options.out.mkdir(parents=True, exist_ok=True)
        plot(mean, num_ranks, options.out / "curve.png")
        print(
            f"{num_ranks} ranks, {len(mean)} steps: loss {mean[0]:.3f} -> {mean[-1]:.4f}, test accuracy {reached:.2%}"
        )
    return 0 if reached >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
