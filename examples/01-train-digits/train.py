"""Train two networks on 1,797 real handwritten digits, with MindSpore's names.

    sporax run examples/01-train-digits/train.py [--epochs 15] [--out outputs/01-train-digits]

Writes the loss and accuracy curves as curves.png and a checkpoint of each network, and ends with an error when a network
stays below 97 % on the test images.
"""

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn
from mindspore.dataset import transforms, vision
from networks import NETWORKS
from rich.progress import Progress

DATA = Path(__file__).parents[1] / "data" / "digits"
GOAL = 0.97


@dataclass
class Curve:
    """What happened while one network trained: loss of every step, test accuracy after every epoch."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0


def digits(usage: str, batch_size: int) -> ds.MnistDataset:
    """The training or test images, normalised, in batches of (N, 1, 8, 8) float32 and (N,) int32."""
    data = ds.MnistDataset(str(DATA), usage=usage, shuffle=usage == "train")
    data = data.map(
        [vision.Rescale(1.0 / 255.0, 0.0), vision.Normalize(mean=(0.31,), std=(0.38,)), vision.HWC2CHW()],
        input_columns="image",
    )
    data = data.map(transforms.TypeCast(ms.int32), input_columns="label")
    return data.batch(batch_size, drop_remainder=usage == "train")


def accuracy(net: nn.Cell) -> float:
    """Share of the test images that `net` labels correctly."""
    net.set_train(False)
    right = total = 0
    for image, label in digits("test", 120).create_tuple_iterator():
        right += int((net(image).argmax(1) == label).sum())
        total += label.shape[0]
    return right / total


def train(name: str, epochs: int, batch_size: int) -> tuple[nn.Cell, Curve]:
    """Train the network called `name`; returns it with its curve."""
    net = NETWORKS[name]()
    data = digits("train", batch_size)
    num_steps = epochs * data.get_dataset_size()
    rate = nn.CosineDecayLR(min_lr=0.0, max_lr=0.05, decay_steps=num_steps)
    optimizer = nn.Momentum(net.trainable_params(), learning_rate=rate, momentum=0.9, weight_decay=1e-4)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    batches = data.create_tuple_iterator(num_epochs=epochs)  # one iterator, so every epoch has an order of its own
    curve = Curve()
    started = time.perf_counter()
    with Progress() as progress:
        task = progress.add_task(name, total=num_steps)
        for epoch in range(epochs):
            step.set_train()
            for image, label in batches:
                curve.losses.append(float(step(image, label)))
                progress.advance(task)
            curve.accuracies.append(accuracy(net))
            progress.update(task, description=f"{name}, epoch {epoch + 1}: test accuracy {curve.accuracies[-1]:.1%}")
    curve.seconds = time.perf_counter() - started
    return net, curve


def plot(curves: dict[str, Curve], file: Path) -> None:
    """Loss per step and accuracy per epoch, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for name, curve in curves.items():
        left.plot([sum(curve.losses[i : i + 10]) / 10 for i in range(len(curve.losses) - 9)], label=name)
        right.plot(range(1, len(curve.accuracies) + 1), curve.accuracies, marker="o", markersize=3, label=name)
    left.set(xlabel="step", ylabel="training loss (mean of 10 steps)", yscale="log")
    right.set(xlabel="epoch", ylabel="test accuracy", ylim=(0.8, 1.0))
    right.axhline(GOAL, color="grey", linestyle=":", label=f"goal {GOAL:.0%}")
    for axes in (left, right):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.suptitle("UCI handwritten digits, 1,437 training and 360 test images")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description="Train two networks on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=sorted(NETWORKS))
    parser.add_argument("--out", type=Path, default=Path("outputs/01-train-digits"))
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    options.out.mkdir(parents=True, exist_ok=True)
    curves = {}
    for name in options.networks:
        net, curves[name] = train(name, options.epochs, options.batch_size)
        ms.save_checkpoint(net, str(options.out / f"{name}.ckpt"))
    plot(curves, options.out / "curves.png")
    for name, curve in curves.items():
        print(
            f"{name}: test accuracy {curve.accuracies[-1]:.2%} after {len(curve.losses)} steps in {curve.seconds:.1f} s"
        )
    print(f"curves and checkpoints are in {options.out}")
    return 0 if min(curve.accuracies[-1] for curve in curves.values()) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
