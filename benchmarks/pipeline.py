"""How fast is a pipeline step, next to its ideal, to hand-written JAX and to PyTorch?

A transformer of 8 layers trains in 2 stages, 2 processes with one core each, in turns:

* by Sporax, 1F1B: the network with `pipeline_stage` set, one program per task;
* by hand in JAX: one SPMD program, a scan over ticks with a ppermute, differentiated (GPipe);
* by `torch.distributed.pipelining`, 1F1B over gloo. It is left out, with a word, where no interpreter has torch.

The ideal is the slowest stage's forward and backward task times (M + S - 1), of tasks measured one by one in the same job.
The simulator is given the same tasks; its share of bubbles is compared with the measured one: 1 - busy / step.

    python benchmarks/pipeline.py [--torch PYTHON] [--rounds N] [--steps N] [--width W] [--micro M] [--json FILE]

Goals: <= 1.0 of the faster peer; the measured bubble within 10 % of the simulated one. Other work on the machine makes steps
longer, so the table has the median and the fastest steps, and the processor time per step, which other work hardly changes.
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
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sporax.ir.pipeline_schedule import TaskKind
from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.simulate import ChunkCosts, Outcome, PipelineCosts, simulate

HERE = Path(__file__).parent / "pipeline_peers"
LAUNCHER = [sys.executable, "-m", "sporax", "run", "--worker_num", "2", "--bind_core", "True"]
STAGES = 2
KINDS = {kind.value: kind for kind in TaskKind}


@dataclass(frozen=True, slots=True)
class Run:
    """One job: milliseconds of every step, processor time per step and rank, and of Sporax seconds of every task."""

    steps: list[float]
    processor: float
    tasks: dict[str, list[float]]


def main() -> None:
    options = parse()
    commands = peers(options)
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(options.rounds):
        for name, command in commands.items():
            runs[name].append(run([*command, str(options.steps), str(options.width), str(options.micro)]))
        print(f"round {number + 1} of {options.rounds} is done, load {os.getloadavg()[0]:.1f}", flush=True)
        if options.json:
            options.json.write_text(json.dumps({name: [each.steps for each in all_] for name, all_ in runs.items()}))
    show(runs, options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Pipeline steps of 2 processes, next to other frameworks.")
    parser.add_argument("--torch", help="interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--micro", type=int, default=8, help="micro batches of 4 sequences")
    parser.add_argument("--json", type=Path, help="write all measurements here")
    return parser.parse_args()


def peers(options: argparse.Namespace) -> dict[str, list[str]]:
    """How to start each; steps, width and micro batches are to be added."""
    found = {
        "Sporax": [*LAUNCHER, str(HERE / "by_names.py"), "1f1b"],
        "JAX by hand": [*LAUNCHER, str(HERE / "by_jax.py")],
    }
    if options.torch:
        found["PyTorch"] = [*LAUNCHER, options.torch, str(HERE / "by_torch.py"), "1f1b"]
    else:
        print("PyTorch is left out: --torch names no interpreter that has it.")
    return found


def run(command: list[str]) -> Run:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environ = {**os.environ, "BENCHMARK_PORT": str(probe.getsockname()[1])}
    with tempfile.TemporaryDirectory() as directory:
        job = subprocess.run(command, env=environ, cwd=directory, capture_output=True, text=True, check=False)
    output = job.stdout + job.stderr
    found = re.search(r"rank 0 milliseconds (\[.*\]) processor ([\d.]+)", output)
    if found is None:
        sys.exit(f"{' '.join(command)} gave no time:\n{output[-3000:]}")
    tasks: dict[str, list[float]] = {}
    for each in re.findall(r"rank \d+ tasks (\{.*\})", output):
        tasks |= json.loads(each)
    return Run(json.loads(found[1]), float(found[2]), tasks)


def simulated(tasks: dict[str, float], micro: int) -> Outcome:
    """The schedule with measured seconds of its tasks."""
    seconds: dict[tuple[int, int], dict[TaskKind, float]] = {}
    for name, length in tasks.items():
        stage, kind = name.split()
        seconds.setdefault((int(stage), 0), {})[KINDS[kind]] = length
    costs = PipelineCosts({place: ChunkCosts(each) for place, each in seconds.items()})
    return simulate(generate("1f1b", STAGES, micro), costs)


def show(runs: dict[str, list[Run]], options: argparse.Namespace) -> None:
    quick, ordinary = (
        {name: summary([x for r in all_ for x in r.steps])[what] for name, all_ in runs.items()} for what in (0, 1)
    )
    tasks: dict[str, list[float]] = {}
    for each in runs["Sporax"]:
        for name, lengths in each.tasks.items():
            tasks.setdefault(name, []).extend(lengths)
    for title, steps, pick in (("fastest steps (10th percentile)", quick, 0), ("median steps", ordinary, 1)):
        outcome = simulated({name: summary(lengths)[pick] for name, lengths in tasks.items()}, options.micro)
        busy = [stage.busy_seconds for stage in outcome.stages]
        ideal = 1e3 * ideal_seconds(tasks, options.micro, pick)
        table = Table("", "milliseconds", "Sporax / this", title=title)
        for name, length in [*steps.items(), ("ideal", ideal), ("simulated", 1e3 * outcome.seconds)]:
            table.add_row(name, f"{length:.1f}", f"{steps['Sporax'] / length:.2f}")
        Console(width=100).print(table)
        measured = 1 - 1e3 * sum(busy) / len(busy) / steps["Sporax"]
        print(f"bubble: measured {measured:.1%}, simulated {outcome.bubble_share:.1%}")
        others = [length for name, length in steps.items() if name != "Sporax"]
        print(f"Sporax / faster peer: {steps['Sporax'] / min(others):.2f}\n")
    cpu = {name: statistics.median(each.processor for each in all_) for name, all_ in runs.items()}
    print("processor milliseconds per step and rank: " + ", ".join(f"{name} {time:.1f}" for name, time in cpu.items()))


def summary(values: list[float]) -> tuple[float, float]:
    """10th percentile and median."""
    return sorted(values)[len(values) // 10], statistics.median(values)


def ideal_seconds(tasks: dict[str, list[float]], micro: int, pick: int) -> float:
    slowest = max(sum(summary(tasks[f"{stage} {kind}"])[pick] for kind in "FB") for stage in range(STAGES))
    return slowest * (micro + STAGES - 1)


if __name__ == "__main__":
    main()
