"""Saving and loading: how long `async_save` keeps training waiting, against a copy in memory; throughput against safetensors.

All of it in one process on the same arrays, each side several times in turn; the medians are compared. Both sides flush to disk.

Run: python benchmarks/checkpoint_saving.py --mib 2048
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import sporax as ms
from sporax import Parameter, Tensor
from sporax.train import load_checkpoint, save_checkpoint

PARAMETER_MIB = 32
ROUNDS = 3


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def save_with_safetensors(arrays: dict[str, np.ndarray], path: Path) -> None:
    """What the library does, and the flush that makes it durable."""
    save_file(arrays, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def main() -> None:
    """Measure and print ratios; above 1 is worse for waiting, better for throughput."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=2048)
    count = max(1, parser.parse_args().mib // PARAMETER_MIB)
    rng = np.random.default_rng(0)
    arrays = {f"w{number}": rng.random((PARAMETER_MIB * 256, 1024), np.float32) for number in range(count)}
    parameters = {name: Parameter(Tensor(value), name=name) for name, value in arrays.items()}
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours.safetensors", Path(folder) / "theirs.safetensors"

        def wait() -> None:
            while ms.async_ckpt_thread_status():
                time.sleep(0.01)

        for _ in range(ROUNDS):
            for name, work in (
                ("copy", lambda: [value.copy() for value in arrays.values()]),
                ("async", lambda: save_checkpoint(parameters, str(ours), async_save=True)),
                ("drain", wait),
                ("save", lambda: save_checkpoint(parameters, str(ours))),
                ("library save", lambda: save_with_safetensors(arrays, theirs)),
                ("load", lambda: load_checkpoint(str(ours))),
                ("library load", lambda: load_file(theirs)),
            ):
                times.setdefault(name, []).append(seconds(work))
    middle = {name: statistics.median(values) for name, values in times.items()}
    print(
        json.dumps(
            {
                "mib": count * PARAMETER_MIB,
                "waiting for async_save over a copy": middle["async"] / middle["copy"],
                "throughput of save over safetensors": middle["library save"] / middle["save"],
                "throughput of load over safetensors": middle["library load"] / middle["load"],
            }
        )
    )


if __name__ == "__main__":
    main()
