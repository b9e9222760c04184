"""Converting a distributed checkpoint: peak memory against the size of the checkpoint, and speed against copying the file.

A checkpoint of `--gib` in slices of columns (4 ranks) becomes one in slices of rows (2 ranks) in a process of its own, whose
peak of private memory is measured. Copying the same files, with the same fsync, is the other half of the ratio.

Run: python benchmarks/checkpoint_conversion.py --gib 4
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PARAMETER_MIB = 64
SOURCE = {"dev_matrix": [4], "tensor_map": [-1, 0]}
TARGET = {"dev_matrix": [2], "tensor_map": [0, -1]}
NOTHING = {"field": 0, "opt_weight_shard_size": 0, "opt_weight_shard_step": 0}

CONVERT = """
import sys, threading, time
from sporax.mindspore.train import transform_checkpoints
import sporax.mindspore.train.checkpoint.transform

def private_kib():
    return sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith(("Anonymous", "Private_D")))

peak, done, before = 0, False, private_kib()
def watch():
    global peak
    while not done:
        peak = max(peak, private_kib())
        time.sleep(0.01)
thread = threading.Thread(target=watch); thread.start()
start = time.perf_counter()
transform_checkpoints(sys.argv[1], sys.argv[2], "new", sys.argv[3], sys.argv[4], output_format=sys.argv[5])
seconds = time.perf_counter() - start
done = True; thread.join()
print(seconds, (peak - before) / 1024)
"""


def write_source(folder: Path, num_parameters: int, format: str) -> None:
    """Slices of columns of square float32 matrices."""
    from sporax.mindspore.train._stored import write_stream
    from sporax.runtime.storage.tensor_files import StoredTensor

    side = int((PARAMETER_MIB * 2**20 / 4) ** 0.5)
    values = np.random.default_rng(0).random((side, side // 4), np.float32)
    specs = [StoredTensor(f"layer{number}.w", values.shape, values.dtype) for number in range(num_parameters)]
    for rank in range(4):
        (folder / f"rank_{rank}").mkdir(parents=True)
        write_stream(folder / f"rank_{rank}" / f"net.{format}", specs, lambda spec: values)


def write_strategy(path: Path, num_parameters: int, layout: dict[str, list[int]]) -> None:
    """One layout for all Parameters."""
    items = {f"layer{number}.w": {**layout, **NOTHING} for number in range(num_parameters)}
    path.write_text(json.dumps({"current_stage": 0, "parallel_layout_item": items, "parallel_strategy_item": {}}))


def copy_seconds(source: Path, target: Path) -> float:
    """Time to copy all files, forced to disk."""
    start = time.perf_counter()
    shutil.copytree(source, target)
    for path in target.rglob("net.*"):
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - start


def main() -> None:
    """Measure and print one line per format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--directory", default=None, help="where the files go (default: the temporary directory)")
    arguments = parser.parse_args()
    number = max(1, int(arguments.gib * 1024 / PARAMETER_MIB))
    for format in ("ckpt", "safetensors"):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
            folder = Path(name)
            write_source(folder / "src", number, format)
            write_strategy(folder / "a.json", number, SOURCE)
            write_strategy(folder / "b.json", number, TARGET)
            copied = copy_seconds(folder / "src", folder / "copy")
            shutil.rmtree(folder / "copy")
            words = (folder / "src", folder / "dst", folder / "a.json", folder / "b.json", format)
            result = subprocess.run(
                [sys.executable, "-c", CONVERT, *map(str, words)], capture_output=True, text=True, check=True
            )
            seconds, peak = map(float, result.stdout.split())
            print(
                f"{format}: {number * PARAMETER_MIB} MiB in {number} parameters of {PARAMETER_MIB} MiB: {seconds:.1f} s, "
                f"{copied / seconds:.2f} of the speed of a copy; peak of private memory {peak:.0f} MiB"
            )


if __name__ == "__main__":
    main()
