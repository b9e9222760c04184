"""How fast is the input pipeline, next to plain grain and next to MindSpore's own?

One pipeline, three engines, side by side: files like MNIST's (28 x 28) or CIFAR-10's (32 x 32 x 3), shuffle, Rescale,
Normalize, HWC2CHW, TypeCast, batch 32. Each engine reads whole epochs in turn, several rounds; reported are the median
rows per second and the ratios.

    python benchmarks/dataset_throughput.py [--data cifar] [--augment] [--rounds 5] [--mindspore-python PATH]

With --augment, RandomCrop with a border and RandomHorizontalFlip come first.

MindSpore runs in an interpreter of its own, named by the option or by SPORAX_MINDSPORE_PYTHON; without one that column
is left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import grain
import numpy as np

import sporax.mindspore.dataset as ds

BATCH = 32
ROWS = 10000  # MindSpore reads CIFAR files of this length only


@dataclasses.dataclass(frozen=True)
class Data:
    """Files, and what is done to them."""

    dataset: str
    size: int
    border: int
    mean: list[float]
    std: list[float]
    write: Callable[[Path], tuple[np.ndarray, np.ndarray]]

    def text(self) -> str:
        """What the other process needs to know."""
        return json.dumps([self.dataset, self.size, self.border, self.mean, self.std])


MINDSPORE_PROGRAM = """
import json, sys, time
import mindspore as ms
import mindspore.dataset as ds
import mindspore.dataset.vision as vision
import mindspore.dataset.transforms as transforms

folder, batch, augment = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "augment"
name, size, border, mean, std = json.loads(sys.argv[4])
ds.config.set_seed(1)
data = getattr(ds, name)(folder)
first = [vision.RandomCrop(size, border), vision.RandomHorizontalFlip()] if augment else []
data = data.map([*first, vision.Rescale(1 / 255, 0.0), vision.Normalize(mean, std), vision.HWC2CHW()], "image")
data = data.map(transforms.TypeCast(ms.int32), "label").batch(batch)
epochs = data.create_tuple_iterator(output_numpy=True)
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    for _ in epochs:
        pass
    print(time.perf_counter() - start, flush=True)
"""


def write_mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """MNIST-like training files of random bytes; returns images (n, 28, 28, 1) and labels."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (ROWS, 28, 28), np.uint8)
    labels = rng.integers(0, 10, ROWS, np.uint8)
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, ROWS, 28, 28) + images.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, ROWS) + labels.tobytes())
    return images[..., None], labels


def write_cifar(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """A CIFAR-10-like training file of random bytes; returns images (n, 32, 32, 3) and labels."""
    records = np.random.default_rng(0).integers(0, 256, (ROWS, 3073), np.uint8)
    records[:, 0] %= 10
    (folder / "data_batch_1.bin").write_bytes(records.tobytes())
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), records[:, 0]


DATA = {
    "digits": Data("MnistDataset", 28, 2, [0.1307], [0.3081], write_mnist),
    "cifar": Data("Cifar10Dataset", 32, 4, [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616], write_cifar),
}


def sporax_epoch(data: Data, folder: Path, augment: bool) -> Callable[[], float]:
    """Reads one epoch with Sporax; returns the seconds."""
    first = [ds.vision.RandomCrop(data.size, data.border), ds.vision.RandomHorizontalFlip()] if augment else []
    image = [*first, ds.vision.Rescale(1 / 255, 0.0), ds.vision.Normalize(data.mean, data.std), ds.vision.HWC2CHW()]
    rows = getattr(ds, data.dataset)(str(folder)).map(image, "image")
    rows = rows.map(ds.transforms.TypeCast(np.int32), "label").batch(BATCH)
    return timed(rows.create_tuple_iterator(output_numpy=True))


class Rows:
    """Images and labels as a grain source of one row at a time."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {"image": self.images[index], "label": self.labels[index]}


def augmented(data: Data, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A part of the image with a border, sometimes flipped, as one writes it for grain."""
    top, left = rng.integers(2 * data.border + 1, size=2)
    border = (data.border, data.border)
    part = np.pad(image, [border, border, (0, 0)])[top : top + data.size, left : left + data.size]
    return part[:, ::-1] if rng.random() < 0.5 else part


def grain_epoch(data: Data, rows: Rows, threads: int, augment: bool) -> Callable[[], float]:
    """Reads one epoch with plain grain; returns the seconds."""
    mean, std = np.array(data.mean, np.float32), np.array(data.std, np.float32)

    def transform(row: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        scaled = row["image"] * np.float32(1 / 255)
        image = np.ascontiguousarray(((scaled - mean) / std).transpose(2, 0, 1))
        return {"image": image, "label": row["label"].astype(np.int32)}

    source = grain.MapDataset.source(rows).shuffle(seed=1)
    if augment:
        source = source.seed(1).random_map(lambda row, rng: {**row, "image": augmented(data, row["image"], rng)})
    source = source.map(transform).batch(BATCH)
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=16 if threads else 0)

    def epoch() -> float:
        start = time.perf_counter()
        for _ in source.to_iter_dataset(options):
            pass
        return time.perf_counter() - start

    return epoch


def mindspore_epoch(
    data: Data, folder: Path, python: str, augment: bool
) -> tuple[Callable[[], float], subprocess.Popen[str]]:
    """Reads one epoch with MindSpore in its own process; returns the seconds."""
    how = "augment" if augment else "plain"
    command = [python, "-c", MINDSPORE_PROGRAM, str(folder), str(BATCH), how, data.text()]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    given, answers = process.stdin, process.stdout
    if "ready" not in answers.readline():
        raise SystemExit(f"MindSpore did not start under {python}")

    def epoch() -> float:
        given.write("epoch\n")
        given.flush()
        return float(answers.readline())

    return epoch, process


def timed(epochs: ds.Dataset) -> Callable[[], float]:
    def epoch() -> float:
        start = time.perf_counter()
        for _ in epochs:
            pass
        return time.perf_counter() - start

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=DATA, default="digits")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--augment", action="store_true", help="crop and flip at random first")
    parser.add_argument("--mindspore-python", default=os.environ.get("SPORAX_MINDSPORE_PYTHON"))
    options = parser.parse_args()
    ds.config.set_seed(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = DATA[options.data]
        rows = Rows(*data.write(folder))
        engines = {"sporax": sporax_epoch(data, folder, options.augment)}
        engines |= {f"grain, {n} threads": grain_epoch(data, rows, n, options.augment) for n in (0, 1, 2)}
        process = None
        if options.mindspore_python:
            engines["mindspore"], process = mindspore_epoch(data, folder, options.mindspore_python, options.augment)
        else:
            print("mindspore: left out, no interpreter given (--mindspore-python)", file=sys.stderr)
        seconds: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(options.rounds + 1):
            for engine, epoch in engines.items():
                seconds[engine].append(epoch())
        if process is not None:
            process.kill()
            process.wait()
    # The first round warms up.
    speeds = {engine: round(ROWS / statistics.median(times[1:])) for engine, times in seconds.items()}
    rivals = {engine: speed for engine, speed in speeds.items() if engine != "sporax"}
    ratios = {engine: round(speeds["sporax"] / speed, 2) for engine, speed in rivals.items()}
    print(json.dumps({"rows_per_second": speeds, "sporax_over": ratios}, indent=2))


if __name__ == "__main__":
    main()
