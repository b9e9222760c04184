"""Train two networks on 1,797 real handwritten digits: cut over all devices, and on one of them.

    sporax run --local_devices 8 examples/01-train-digits/train.py [--epochs 15] [--out outputs/01-train-digits]

The first run is semi-automatic parallel: the MLP's first layer is cut by columns and its second by rows, LeNet's batch is
cut, and everything else follows. Prints the MLP's plan and how the run compares to the one on one device; writes the curves as
curves.png, the plans, and a checkpoint of each network. Ends with an error when a network stays below 97 % on the test images,
or a loss of the first three epochs differs by more than 1e-4 of its value. With one device there is the second run alone.

Why only the first epochs are compared step by step: eight devices round their sums in another order, to the last bit of a
float32. Each step multiplies such a difference, and after some hundred steps two runs are two different solutions that are
equally good. Their losses are then close to 0 (0.0001 here, 0.0005 there), so the difference of a single step, relative to the
loss, says nothing: it has been seen from 2e-4 to 6, depending on the processor, whose instructions decide how sums are rounded.
What is comparable to the end is how good the networks are: their test accuracies.
"""

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from networks import NETWORKS
from rich.progress import Progress

import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn
from mindspore.communication import init
from mindspore.dataset import transforms, vision
from sporax.mindspore.parallel import plan_of, show_plan

DATA = Path(__file__).parents[1] / "data" / "digits"
GOAL = 0.97
TOLERANCE, COMPARED_EPOCHS = 1e-4, 3


@dataclass
class Curve:
    """What happened while one network trained: loss of every step, test accuracy after every epoch."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def difference(self, other: "Curve", steps: int) -> float:
        """The largest difference between losses of the same step, relative to the other's, over the first `steps`."""
        pairs = list(zip(self.losses, other.losses, strict=True))[:steps]
        return max(abs(mine - theirs) / abs(theirs) for mine, theirs in pairs)


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


def train(name: str, num_devices: int, epochs: int, batch_size: int, out: Path) -> tuple[nn.Cell, Curve]:
    """Train the network called `name` on so many devices; returns it with its curve."""
    mode = "stand_alone" if num_devices == 1 else "semi_auto_parallel"
    ms.set_auto_parallel_context(parallel_mode=mode, device_num=num_devices)
    ms.set_seed(1)
    net = NETWORKS[name](num_devices)
    data = digits("train", batch_size)
    num_steps = epochs * data.get_dataset_size()
    rate = nn.CosineDecayLR(min_lr=0.0, max_lr=0.04, decay_steps=num_steps)
    optimizer = nn.Momentum(net.trainable_params(), learning_rate=rate, momentum=0.9, weight_decay=1e-4)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    step.set_train()
    if num_devices > 1:
        show(name, plan_of(step, *next(digits("train", batch_size).create_tuple_iterator())), out)
    batches = data.create_tuple_iterator(num_epochs=epochs)  # one iterator, so every epoch has an order of its own
    curve = Curve()
    started = time.perf_counter()
    with Progress() as progress:
        title = f"{name} on {num_devices}"
        task = progress.add_task(title, total=num_steps)
        for epoch in range(epochs):
            step.set_train()
            for image, label in batches:
                curve.losses.append(float(step(image, label)))
                progress.advance(task)
            curve.accuracies.append(accuracy(net))
            progress.update(task, description=f"{title}, epoch {epoch + 1}: test accuracy {curve.accuracies[-1]:.1%}")
    curve.seconds = time.perf_counter() - started
    return net, curve


def show(name: str, planned: object, out: Path) -> None:
    """Print the MLP's plan, and write every plan to a file."""
    summary = planned.summary()
    if name == "mlp":
        show_plan(summary)
    (out / f"{name}.plan.txt").write_text(f"{summary}\n")


def plot(curves: dict[tuple[str, int], Curve], file: Path) -> None:
    """Loss per step and accuracy per epoch, side by side; the run on many devices as dots over the one on one."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    colours = {name: f"C{number}" for number, name in enumerate(NETWORKS)}
    for (name, num_devices), curve in sorted(curves.items(), key=lambda item: item[0][1]):
        label = f"{name} on {num_devices} device{'s' * (num_devices > 1)}"
        style = {"color": colours[name], "label": label, "linestyle": "-" if num_devices == 1 else ":"}
        means = [sum(curve.losses[i : i + 10]) / 10 for i in range(len(curve.losses) - 9)]
        left.plot(means, linewidth=1 if num_devices == 1 else 3, **style)
        marker = {} if num_devices == 1 else {"marker": "o", "markersize": 4}
        right.plot(range(1, len(curve.accuracies) + 1), curve.accuracies, **marker, **style)
    left.set(xlabel="step", ylabel="training loss (mean of 10 steps)", yscale="log")
    right.set(xlabel="epoch", ylabel="test accuracy", ylim=(0.8, 1.0))
    right.axhline(GOAL, color="grey", linestyle="--", linewidth=1, label=f"goal {GOAL:.0%}")
    for axes in (left, right):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.suptitle("UCI handwritten digits, 1,437 training and 360 test images")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def report(curves: dict[tuple[str, int], Curve]) -> bool:
    """Print what came out; returns whether it is as good as it should be."""
    good = True
    for (name, num_devices), curve in curves.items():
        print(
            f"{name} on {num_devices} device{'s' * (num_devices > 1)}: test accuracy {curve.accuracies[-1]:.2%} after "
            f"{len(curve.losses)} steps in {curve.seconds:.1f} s"
        )
        good &= curve.accuracies[-1] >= GOAL
        if num_devices > 1:
            alone = curves[name, 1]
            first = curve.difference(alone, COMPARED_EPOCHS * len(curve.losses) // len(curve.accuracies))
            print(
                f"{name}: first {COMPARED_EPOCHS} epochs: every loss is that of the run on one device up to {first:.1e} of its "
                f"value (allowed: {TOLERANCE:.0e})"
            )
            print(
                f"{name}: at the end: {curve.accuracies[-1]:.2%} of the test images right, on one device "
                f"{alone.accuracies[-1]:.2%} (rounding makes long runs differ)"
            )
            good &= first <= TOLERANCE
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="Train two networks on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--out", type=Path, default=Path("outputs/01-train-digits"))
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    num_devices = ms.get_auto_parallel_context("device_num")
    options.out.mkdir(parents=True, exist_ok=True)
    curves = {}
    for name in options.networks:
        net, curves[name, num_devices] = train(name, num_devices, options.epochs, options.batch_size, options.out)
        ms.save_checkpoint(net, str(options.out / f"{name}.ckpt"))
        if num_devices > 1:
            _, curves[name, 1] = train(name, 1, options.epochs, options.batch_size, options.out)
    plot(curves, options.out / "curves.png")
    good = report(curves)
    print(f"curves, plans and checkpoints are in {options.out}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
