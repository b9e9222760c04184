"""Trains the same small networks again and again on several processes and compares all runs, bit by bit.

Five kinds of jobs (`step_program.py`): operator parallelism with scattered results, optimizer parallelism with fused gradients,
pipeline stages of two processes each, data parallelism with collectives written by hand, and automatic parallelism with
recomputation. Other processes keep all cores busy, every rank sleeps now and then before it starts a program, and JAX starts
programs at once in half of the jobs and one after another in the others. A difference in one bit of a loss, a weight or a moment
ends the trial.

Run: python tools/soak_steps.py [--runs 100] [--runs-per-job 10] [--seed 0] [--only KIND] [--idle] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
        runs: how often it trains.
        seed: of the sleeps.
    """

    kind: str
    processes: int
    dispatch: str
    runs: int
    seed: int


def jobs(kinds: list[str], runs: int, runs_per_job: int, seed: int) -> Iterator[Job]:
    """Jobs of all kinds by turns, together at least `runs` runs."""
    done = 0
    for number in itertools.count():
        for kind in kinds:
            sizes = _SIZES[kind]
            # The dispatch changes slower than the size, so that each size is run with both.
            dispatch = _DISPATCH[number // len(sizes) % len(_DISPATCH)]
            yield Job(kind, sizes[number % len(sizes)], dispatch, runs_per_job, seed * 1000 + number)
            done += runs_per_job
            if done >= runs:
                return


@contextmanager
def busy_cores(wanted: bool) -> Iterator[None]:
    """Context in which a process works on every core, and nothing else does so."""
    count = len(os.sched_getaffinity(0)) if wanted else 0
    workers = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(10000))"]) for _ in range(count)]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def digests(job: Job, folder: Path) -> dict[int, str]:
    """Run a job; gives every rank's digest of its runs.

    Raises:
        AssertionError: it failed, or two of its runs were not equal.
    """
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", str(job.processes), "--log_dir", str(folder)]
    command += [str(_PROGRAM), job.kind, "--runs", str(job.runs), "--seed", str(job.seed)]
    environ = {**os.environ, "JAX_CPU_ENABLE_ASYNC_DISPATCH": job.dispatch, "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_SECONDS)
    found = {int(rank): digest for rank, _, _, digest in _RESULT.findall(ended.stdout)}
    if ended.returncode or len(found) != job.processes:
        raise AssertionError(f"{job} ended with {ended.returncode}:\n{(ended.stdout + ended.stderr)[-4000:]}")
    return found


def main(words: list[str] | None = None) -> int:
    """Run the jobs and print their figures; 1 where two runs were not equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="trainings in all, of all kinds (100)")
    parser.add_argument("--runs-per-job", type=int, default=10, help="trainings of one start (10)")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other sleeps (0)")
    parser.add_argument("--only", choices=_SIZES, help="one kind alone")
    parser.add_argument("--idle", action="store_true", help="leave the other cores alone")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args(words)
    kinds = [arguments.only] if arguments.only else list(_SIZES)
    first: dict[tuple[str, int], dict[int, str]] = {}
    runs = dict.fromkeys(kinds, 0)
    failed = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, busy_cores(not arguments.idle):
        for job in jobs(kinds, arguments.runs, arguments.runs_per_job, arguments.seed):
            runs[job.kind] += job.runs
            try:
                found = digests(job, Path(folder))
                expected = first.setdefault((job.kind, job.processes), found)
                if found != expected:
                    raise AssertionError(f"{job} gave {found}, an equal job {expected}")
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed.append(str(error))
                print(error, file=sys.stderr, flush=True)
    figures = {"seed": arguments.seed, "runs": runs, "failed": failed, "seconds": round(time.monotonic() - begun)}
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
