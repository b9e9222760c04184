"""Run MindSpore's sample programs of parameter servers and of graph partition, unchanged, on this machine.

    git clone https://gitee.com/mindspore/docs.git /tmp/docs
    python tools/run_samples.py --repository /tmp/docs [--branch r2.3]

The programs are read out of the repository and not kept. They train on small made-up data in MNIST's format. A program
passes when all its processes end with exit code 0 and every worker has printed losses, the same ones in all workers.
"""

from __future__ import annotations

import argparse
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_PROGRAMS = {
    "parameter_server": ("train.py", ["--server_num", "2", "--worker_num", "2"], "train"),
    "distributed_graph_partition": ("train.py", ["--worker_num", "5", "--local_worker_num", "5", "--join", "True"], ""),
}
"""File, flags of `sporax run` (the second program places Cells on five workers), and the data folder below DATA_PATH."""
_SECONDS = 900
_SAMPLES = {"train": ("train", 64), "test": ("t10k", 32)}


def write_data(folder: Path) -> None:
    """Images and labels in MNIST's format."""
    rng = np.random.default_rng(0)
    for split, (prefix, count) in _SAMPLES.items():
        place = folder / split
        place.mkdir(parents=True)
        images = rng.integers(0, 255, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        (place / f"{prefix}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes()
        )
        (place / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def program(repository: str, branch: str, name: str, folder: Path) -> Path:
    """The files of a program, as they are in the repository."""
    prefix = f"docs/sample_code/{name}/"
    listed = subprocess.run(
        ["git", "-C", repository, "ls-tree", "--name-only", branch, prefix], capture_output=True, text=True, check=True
    )
    for path in listed.stdout.split():
        if path.endswith(".py"):
            text = subprocess.run(
                ["git", "-C", repository, "show", f"{branch}:{path}"], capture_output=True, check=True
            )
            (folder / Path(path).name).write_bytes(text.stdout)
    return folder / _PROGRAMS[name][0]


def losses(output: str) -> dict[str, list[str]]:
    """What each worker has printed of its losses."""
    result: dict[str, list[str]] = {}
    for rank, value in re.findall(r"^\[(\d+)\].*loss is:? ([-+0-9.e]+|nan|inf)", output, re.MULTILINE):
        result.setdefault(rank, []).append(value)
    return result


def run(repository: str, branch: str, name: str) -> str:
    """Run one program; gives what is wrong, or nothing."""
    _, flags, split = _PROGRAMS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_data(folder / "data")
        script = program(repository, branch, name, folder)
        variables = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
        variables["DATA_PATH"] = str(folder / "data" / split)
        command = [sys.executable, "-m", "sporax", "run", *flags, "--log_dir", str(folder / "logs"), str(script)]
        done = subprocess.run(
            command, env=variables, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        output = done.stdout
    if done.returncode:
        return f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    by_worker = losses(output)
    if len(by_worker) != int(flags[flags.index("--worker_num") + 1]):
        return f"losses of {len(by_worker)} workers only\n{output[-2000:]}"
    if len({tuple(values) for values in by_worker.values()}) != 1:
        return f"workers print different losses: {by_worker}"
    first, *_, last = next(iter(by_worker.values()))
    print(f"{name} ({branch}): {len(by_worker)} workers, loss {first} -> {last}")
    return ""


def main() -> int:
    """Run both programs; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", required=True, help="a clone of MindSpore's docs, bare or not")
    parser.add_argument("--branch", default="r2.3")
    arguments = parser.parse_args()
    problems = {name: run(arguments.repository, arguments.branch, name) for name in _PROGRAMS}
    for name, problem in problems.items():
        if problem:
            print(f"{name} ({arguments.branch}): {problem}", file=sys.stderr)
    return int(any(problems.values()))


if __name__ == "__main__":
    sys.exit(main())
