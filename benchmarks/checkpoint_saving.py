"""Saving and loading: how long `async_save` keeps training waiting; throughput against safetensors and Orbax.

Waiting is compared with a copy in memory. All in one process on the same arrays, each side several times in turn; the fastest
rounds are compared, since whatever else runs on the machine only adds. All sides flush to disk. Processor time, with that of the
kernel, is compared as well. Orbax takes part where it is installed.

Run: python benchmarks/checkpoint_saving.py --mib 2048 --rounds 5
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import load_file, save_file

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor
from sporax.mindspore.train import load_checkpoint, save_checkpoint

PARAMETER_MIB = 32

Work = Callable[[], object]


def seconds(work: Work) -> tuple[float, float]:
    """Wall-clock and processor time of one call; what it gives is let go of afterwards."""
    start, busy = time.perf_counter(), sum(os.times()[:2])
    result = work()
    times = time.perf_counter() - start, sum(os.times()[:2]) - busy
    del result
    return times


def save_with_safetensors(arrays: dict[str, np.ndarray], path: Path) -> None:
    """What the library does, and the flush that makes it durable."""
    save_file(arrays, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def orbax_sides(arrays: dict[str, Any], folder: Path) -> dict[str, Work]:
    """Saving and loading with Orbax; none where it is not installed."""
    if importlib.util.find_spec("orbax") is None:
        return {}
    import orbax.checkpoint

    checkpointer = orbax.checkpoint.PyTreeCheckpointer()
    restore = orbax.checkpoint.RestoreArgs(restore_type=np.ndarray)
    return {
        "orbax save": lambda: checkpointer.save(folder, arrays, force=True),
        "orbax load": lambda: checkpointer.restore(folder, restore_args=dict.fromkeys(arrays, restore)),
    }


def main() -> None:
    """Measure and print ratios; above 1 is worse for waiting, better for throughput."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", choices=("safetensors", "ckpt"), default="safetensors")
    parser.add_argument("--directory", default=None, help="where the files go (default: the temporary directory)")
    arguments = parser.parse_args()
    count = max(1, arguments.mib // PARAMETER_MIB)
    rng = np.random.default_rng(0)
    arrays = {f"w{number}": rng.random((PARAMETER_MIB * 256, 1024), np.float32) for number in range(count)}
    parameters = {name: Parameter(Tensor(value), name=name) for name, value in arrays.items()}
    on_devices = {name: jax.device_put(value) for name, value in arrays.items()}
    folder = Path(tempfile.mkdtemp(dir=arguments.directory))
    ours, theirs = folder / f"ours.{arguments.format}", folder / "theirs.safetensors"

    def wait() -> None:
        while ms.async_ckpt_thread_status():
            time.sleep(0.01)

    sides: dict[str, Work] = {
        "copy": lambda: [value.copy() for value in arrays.values()],
        "async": lambda: save_checkpoint(parameters, str(ours), async_save=True, format=arguments.format),
        "drain": wait,
        "save": lambda: save_checkpoint(parameters, str(ours), format=arguments.format),
        "library save": lambda: save_with_safetensors(arrays, theirs),
        "load": lambda: load_checkpoint(str(ours), format=arguments.format),
        "library load": lambda: load_file(theirs),
        **orbax_sides(on_devices, folder / "orbax"),
    }
    times: dict[str, list[tuple[float, float]]] = {}
    try:
        for _ in range(arguments.rounds):
            for name, work in sides.items():
                times.setdefault(name, []).append(seconds(work))
    finally:
        wait()
        shutil.rmtree(folder)
    report = {"mib": count * PARAMETER_MIB, "seconds": {}, "processor seconds": {}}
    for key, index in (("seconds", 0), ("processor seconds", 1)):
        least = {name: min(values[index] for values in measured) for name, measured in times.items()}
        report[key] = {name: round(value, 3) for name, value in least.items()}
        if index == 0:
            report["waiting for async_save over a copy"] = least["async"] / least["copy"]
        for what in ("save", "load"):
            others = [least[name] for name in least if name.endswith(f" {what}")]
            report[f"{key}: throughput of {what} over the faster of the others"] = min(others) / least[what]
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
