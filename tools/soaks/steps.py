"""Trains the same small networks again and again on several processes and compares all runs, bit by bit.

Five kinds of jobs (`step_program.py`): operator parallelism with scattered results, optimizer parallelism with fused gradients,
pipeline stages of two processes each, data parallelism with collectives written by hand, and automatic parallelism with
recomputation. Other processes keep all cores busy, every rank sleeps now and then before it starts a program, and JAX starts
programs at once in half of the jobs and one after another in the others. A difference in one bit of a loss, a weight or a moment
ends the trial.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from soaks.scenario import Scenario, Trial

_PROGRAM = Path(__file__).parent / "step_program.py"
_SIZES = {"operator": (4, 2), "optimizer": (2, 4), "pipeline": (4,), "data": (2, 3, 4), "automatic": (4, 2)}
"""How many processes the jobs of a kind have, by turns."""
_DISPATCH = ("true", "false")
_SECONDS = 900
_RESULT = re.compile(r"\[(\d+)\] (\w+): (\d+) runs gave (\w+)")


@dataclass(frozen=True, slots=True)
class Job:
    """One start of a program.

    Attributes:
        kind: of training.
        processes: how many.
        dispatch: what JAX_CPU_ENABLE_ASYNC_DISPATCH is.
        seed: of the sleeps.
    """

    kind: str
    processes: int
    dispatch: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}, {self.processes} processes, asynchronous {self.dispatch}"


def job_of(seed: int, number: int) -> Job:
    """Kinds by turns; the dispatch changes slower than the size, so that each size is run with both."""
    kind = list(_SIZES)[number % len(_SIZES)]
    turn = number // len(_SIZES)
    sizes = _SIZES[kind]
    dispatch = _DISPATCH[turn // len(sizes) % len(_DISPATCH)]
    return Job(kind, sizes[turn % len(sizes)], dispatch, seed * 1000 + turn)


def digests(job: Job, runs: int, folder: Path) -> dict[int, str]:
    """Run a job that trains so often; gives every rank's digest of its runs.

    Raises:
        AssertionError: it failed, or two of its runs were not equal.
    """
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", str(job.processes), "--log_dir", str(folder)]
    command += [str(_PROGRAM), job.kind, "--runs", str(runs), "--seed", str(job.seed)]
    environ = {**os.environ, "JAX_CPU_ENABLE_ASYNC_DISPATCH": job.dispatch, "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_SECONDS)
    found = {int(rank): digest for rank, _, _, digest in _RESULT.findall(ended.stdout)}
    if ended.returncode or len(found) != job.processes:
        raise AssertionError(f"{job} ended with {ended.returncode}:\n{(ended.stdout + ended.stderr)[-4000:]}")
    return found


def repeat(trial: Trial, job: Job) -> str:
    """The same training, again and again in one job and in equal jobs, gives the same bits."""
    found = digests(job, trial.size, trial.folder)
    expected = trial.memory.setdefault((job.kind, job.processes), found)
    if found != expected:
        raise AssertionError(f"{job} gave {found}, an equal job {expected}")
    trial.faults.counts[f"trainings of kind {job.kind}"] += trial.size
    return "equal"


STEPS_SCENARIO = Scenario(
    "steps",
    repeat,
    cases=10,
    case=job_of,
    kind=lambda job: job.kind,
    kinds=tuple(_SIZES),
    size=10,
    unit="trainings",
    load=-1,
)
