"""How fast is a data-parallel step, next to hand-written JAX, PyTorch DDP and MindSpore?

Five models train on 2 ranks, one core each, with Momentum; every framework runs the same model and batch in processes of
its own, in turns. The tables give the median milliseconds of a step and of a rank's processor time in it (which other work
on the machine hardly changes), and their ratio to Sporax's. Then 200 small gradients, fused and not.

    python benchmarks/data_parallel.py [--torch PYTHON] [--mindspore PYTHON] [--rounds N] [--models NAME ...] [--json FILE]

Goals: <= 1.0 of the fastest peer, >= 10 times faster than MindSpore, fused >= 20 times faster than unfused. A framework
whose interpreter is not given is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent / "data_parallel_peers"
MODELS = {"mlp": 200, "mlp-deep": 100, "mlp-wide": 40, "lenet": 200, "transformer": 30}
Times = tuple[float, float]
LAUNCHER = [sys.executable, "-m", "sporax", "run", "--worker_num", "2", "--bind_core", "True"]


def main() -> None:
    options = parse()
    frameworks = commands(options)
    fusion = {how: run([*LAUNCHER, str(HERE / "fusion.py"), how, "30"])[0] for how in ("unfused", "fused")}
    times: dict[str, dict[str, list[Times]]] = {model: {name: [] for name in frameworks} for model in options.models}
    for number in range(options.rounds):
        for model in options.models:
            for name, command in frameworks.items():
                steps = MODELS[model] if name != "MindSpore" else max(MODELS[model] // 10, 5)
                times[model][name].append(run([*command, model, str(steps)]))
        print(f"round {number + 1} of {options.rounds} is done", flush=True)
        if options.json:
            options.json.write_text(json.dumps({"steps": times, **fusion}, indent=1))
    for what, title in enumerate(("milliseconds per step", "milliseconds of processor time per step and rank")):
        show(title, {model: {name: median(each, what) for name, each in row.items()} for model, row in times.items()})
    fused, unfused = fusion["fused"], fusion["unfused"]
    print(f"200 small gradients: unfused {unfused:.2f} ms, fused {fused:.2f} ms, {unfused / fused:.0f} times faster")


def median(times: list[Times], what: int) -> float:
    return statistics.median(each[what] for each in times)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Data-parallel steps on 2 ranks, next to other frameworks.")
    parser.add_argument("--torch", help="interpreter that has torch")
    parser.add_argument("--mindspore", type=Path, help="interpreter that has mindspore, with msrun beside it")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--json", type=Path, help="write all measurements here")
    return parser.parse_args()


def commands(options: argparse.Namespace) -> dict[str, list[str]]:
    """How to start each framework; model and number of steps are to be added."""
    found = {"Sporax": [*LAUNCHER, str(HERE / "by_names.py")], "JAX by hand": [*LAUNCHER, str(HERE / "by_jax.py")]}
    if options.torch:
        found["PyTorch DDP"] = [*LAUNCHER, options.torch, str(HERE / "by_torch.py")]
    if options.mindspore:
        msrun = str(options.mindspore.with_name("msrun"))
        flags = [
            "--worker_num=2",
            "--local_worker_num=2",
            "--join=True",
            "--bind_core=True",
            f"--master_port={free_port()}",
        ]
        found["MindSpore"] = [msrun, *flags, str(HERE / "by_names.py")]
    for name, given in (("PyTorch DDP", options.torch), ("MindSpore", options.mindspore)):
        if not given:
            print(f"{name} is left out: no interpreter was given.")
    return found


def run(command: list[str]) -> Times:
    """Milliseconds of a step at rank 0, and of its processor time."""
    environ = {**os.environ, "BENCHMARK_PORT": str(free_port())}
    if "msrun" in command[0]:
        environ["PATH"] = f"{Path(command[0]).parent}:{environ['PATH']}"
    with tempfile.TemporaryDirectory() as directory:
        job = subprocess.run(command, env=environ, cwd=directory, capture_output=True, text=True, check=False)
        output = job.stdout + job.stderr + "".join(log.read_text() for log in Path(directory).glob("worker_*.log"))
    found = re.search(r"rank 0 milliseconds ([\d.]+) processor ([\d.]+)", output)
    if found is None:
        sys.exit(f"{' '.join(command)} gave no time:\n{output[-3000:]}")
    return float(found[1]), float(found[2])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def show(title: str, medians: dict[str, dict[str, float]]) -> None:
    table = Table("model", *next(iter(medians.values())), "Sporax / fastest peer", title=f"{title}, 2 ranks")
    for model, row in medians.items():
        ours, peers = row["Sporax"], [value for name, value in row.items() if name != "Sporax"]
        cells = [f"{value:.2f} ({value / ours:.2f}x)" for value in row.values()]
        table.add_row(model, *cells, f"{ours / min(peers):.2f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
