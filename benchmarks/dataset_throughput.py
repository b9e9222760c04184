"""How fast is the input pipeline, next to plain grain and next to MindSpore's own?

One pipeline, three engines, side by side: MNIST-like files, shuffle, Rescale, Normalize, HWC2CHW, TypeCast, batch 32.
Each engine reads whole epochs in turn, several rounds; reported are the median rows per second and the ratios.

    python benchmarks/dataset_throughput.py [--rows 16384] [--rounds 5] [--augment] [--mindspore-python PATH]

With --augment, RandomCrop with a border of 2 pixels and RandomHorizontalFlip come first.

MindSpore runs in an interpreter of its own, named by the option or by SPORAX_MINDSPORE_PYTHON; without one that column
is left out.
"""

from __future__ import annotations

import argparse
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

import sporax.dataset as ds

BATCH = 32

MINDSPORE_PROGRAM = """
import sys, time
import mindspore as ms
import mindspore.dataset as ds
import mindspore.dataset.vision as vision
import mindspore.dataset.transforms as transforms

folder, batch, augment = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "augment"
ds.config.set_seed(1)
data = ds.MnistDataset(folder)
first = [vision.RandomCrop(28, 2), vision.RandomHorizontalFlip()] if augment else []
data = data.map([*first, vision.Rescale(1 / 255, 0.0), vision.Normalize([0.1307], [0.3081]), vision.HWC2CHW()], "image")
data = data.map(transforms.TypeCast(ms.int32), "label").batch(batch)
epochs = data.create_tuple_iterator(output_numpy=True)
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    for _ in epochs:
        pass
    print(time.perf_counter() - start, flush=True)
"""


def write_mnist(folder: Path, rows: int) -> None:
    """MNIST-like training files of random bytes."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (rows, 28, 28), np.uint8)
    labels = rng.integers(0, 10, rows, np.uint8)
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, rows, 28, 28) + images.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, rows) + labels.tobytes())


def sporax_epoch(folder: Path, augment: bool) -> Callable[[], float]:
    """Reads one epoch with Sporax; returns the seconds."""
    first = [ds.vision.RandomCrop(28, 2), ds.vision.RandomHorizontalFlip()] if augment else []
    image = [*first, ds.vision.Rescale(1 / 255, 0.0), ds.vision.Normalize([0.1307], [0.3081]), ds.vision.HWC2CHW()]
    data = ds.MnistDataset(str(folder)).map(image, "image")
    data = data.map(ds.transforms.TypeCast(np.int32), "label").batch(BATCH)
    return timed(data.create_tuple_iterator(output_numpy=True))


class MnistRows:
    """The files as a grain source of one row at a time."""

    def __init__(self, folder: Path) -> None:
        content = (folder / "train-images-idx3-ubyte").read_bytes()
        self.images = np.frombuffer(content, np.uint8, offset=16).reshape(-1, 28, 28, 1)
        self.labels = np.frombuffer((folder / "train-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {"image": self.images[index], "label": self.labels[index]}


def augmented(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A part of the image with a border, sometimes flipped, as one writes it for grain."""
    top, left = rng.integers(5, size=2)
    part = np.pad(image, [(2, 2), (2, 2), (0, 0)])[top : top + 28, left : left + 28]
    return part[:, ::-1] if rng.random() < 0.5 else part


def grain_epoch(folder: Path, threads: int, augment: bool) -> Callable[[], float]:
    """Reads one epoch with plain grain; returns the seconds."""
    mean, std = np.float32(0.1307), np.float32(0.3081)

    def transform(row: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        scaled = row["image"] * np.float32(1 / 255)
        image = np.ascontiguousarray(((scaled - mean) / std).transpose(2, 0, 1))
        return {"image": image, "label": row["label"].astype(np.int32)}

    source = grain.MapDataset.source(MnistRows(folder)).shuffle(seed=1)
    if augment:
        source = source.seed(1).random_map(lambda row, rng: {**row, "image": augmented(row["image"], rng)})
    source = source.map(transform).batch(BATCH)
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=16 if threads else 0)

    def epoch() -> float:
        start = time.perf_counter()
        for _ in source.to_iter_dataset(options):
            pass
        return time.perf_counter() - start

    return epoch


def mindspore_epoch(folder: Path, python: str, augment: bool) -> tuple[Callable[[], float], subprocess.Popen[str]]:
    """Reads one epoch with MindSpore in its own process; returns the seconds."""
    command = [python, "-c", MINDSPORE_PROGRAM, str(folder), str(BATCH), "augment" if augment else "plain"]
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
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--augment", action="store_true", help="crop and flip at random first")
    parser.add_argument("--mindspore-python", default=os.environ.get("SPORAX_MINDSPORE_PYTHON"))
    options = parser.parse_args()
    ds.config.set_seed(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_mnist(folder, options.rows)
        engines = {"sporax": sporax_epoch(folder, options.augment)}
        engines |= {f"grain, {n} threads": grain_epoch(folder, n, options.augment) for n in (0, 1, 2)}
        process = None
        if options.mindspore_python:
            engines["mindspore"], process = mindspore_epoch(folder, options.mindspore_python, options.augment)
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
    speeds = {engine: round(options.rows / statistics.median(times[1:])) for engine, times in seconds.items()}
    rivals = {engine: speed for engine, speed in speeds.items() if engine != "sporax"}
    ratios = {engine: round(speeds["sporax"] / speed, 2) for engine, speed in rivals.items()}
    print(json.dumps({"rows_per_second": speeds, "sporax_over": ratios}, indent=2))


if __name__ == "__main__":
    main()
