"""Runs a program of `programs/` on real ranks, one process each, started by the real launcher."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from compiler_flags import COMPILER
from forked_commands import run_forked

PROGRAMS = Path(__file__).parent / "programs"
_JOB_VARIABLES = ("MS_", "RANK_", "LOCAL_RANK", "DEVICE_ID", "OMPI_", "PYTHONPATH", "XLA_FLAGS")

Job = subprocess.CompletedProcess[str]


TOGETHER = {
    "layers": (
        "messages.py",  # first: it makes a Tensor before the ranks know of each other
        "placed.py {folder}",
        "placed_refusals.py",
        "mint_layers.py",
        "layers.py",
        "thor.py",
        "dry_run.py {folder}/cut.json",
        "dry_run.py {folder}/whole.json whole",
    ),
    "training": (
        "late.py",  # first: it makes training Cells before the ranks know of each other
        "data_parallel.py equal",
        "data_parallel.py rest",
        "golden_curves.py",
        "fusion.py",
        "dealt.py {folder}",
        "first_values.py",
        "offload.py",
    ),
}
"""Programs for two ranks, by the job that runs them one after another."""


def _environ() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(_JOB_VARIABLES)}


def start_job(
    folder: Path,
    program: str,
    num_ranks: int,
    *arguments: object,
    seconds: float,
    local_devices: int = 0,
    **variables: str,
) -> Job:
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", str(num_ranks), "--log_dir", str(folder)]
    command += ["--local_devices", str(local_devices)] if local_devices else []
    return run_forked(
        [*command, str(PROGRAMS / program), *map(str, arguments)],
        env={**_environ(), "XLA_FLAGS": COMPILER, **variables},
        timeout=seconds,
        cwd=folder,
    )


@pytest.fixture
def start_command(tmp_path: Path) -> Callable[[str], Job]:
    """Run `sporax` with these words, among them the name of a program."""

    def start(words: str) -> Job:
        command = [str(PROGRAMS / word) if word.endswith(".py") else word for word in words.split()]
        return run_forked(
            [sys.executable, "-m", "sporax", *command],
            env={**_environ(), "XLA_FLAGS": COMPILER, "JAX_PLATFORMS": "cpu"},
            timeout=280,
            cwd=tmp_path,
        )

    return start


@pytest.fixture
def run_ranks(tmp_path: Path) -> Callable[..., Job]:
    """`run_ranks(program, num_ranks, *arguments, **variables)`: run to the end and return what it printed."""

    def run(program: str, num_ranks: int, *arguments: object, seconds: float = 120, **options: Any) -> Job:
        return start_job(tmp_path, program, num_ranks, *arguments, seconds=seconds, **options)

    return run


@pytest.fixture
def check_ranks(run_ranks: Callable[..., Job]) -> Callable[..., Job]:
    """As `run_ranks`, for programs that must end well on all ranks."""

    def check(program: str, num_ranks: int, *arguments: object, **options: object) -> Job:
        job = run_ranks(program, num_ranks, *arguments, **options)
        assert job.returncode == 0, job.stdout + job.stderr
        assert job.stdout.count("all is well") == num_ranks, job.stdout + job.stderr
        return job

    return check


def outcomes(programs: Sequence[str], folder: Path) -> dict[str, tuple[bool, str]]:
    """Of each program, whether it ended well on both ranks, and what they printed.

    A program that fails ends its job: those behind it get another one.
    """
    found: dict[str, tuple[bool, str]] = {}
    while len(found) < len(programs):
        left = programs[len(found) :]
        job = start_job(folder, "in_turn.py", 2, *(program.format(folder=folder) for program in left), seconds=280)
        for number, program in enumerate(left):
            parts = [
                re.findall(rf"^\[{rank}\] begins {number}:$(.*)^\[{rank}\] ends {number}\.$", job.stdout, re.M | re.S)
                for rank in range(2)
            ]
            printed = "".join(
                line
                for rank, part in enumerate(parts)
                for line in "".join(part).splitlines(True)
                if f"[{rank}]" in line
            )
            well = printed.count("all is well") == 2 and (job.returncode == 0 or number + 1 < len(left))
            found[program] = (well, printed if well else job.stdout + job.stderr)
            if not well:
                break
    return found


@pytest.fixture(scope="session")
def _jobs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, tuple[bool, str]]]]:
    @cache
    def job(name: str) -> tuple[Path, dict[str, tuple[bool, str]]]:
        folder = tmp_path_factory.mktemp(name)
        return folder, outcomes(TOGETHER[name], folder)

    return job


@pytest.fixture
def check_in_turn(
    _jobs: Callable[[str], tuple[Path, dict[str, tuple[bool, str]]]],
) -> Callable[[str], tuple[Path, str]]:
    """The folder and the output of a program of `TOGETHER`, which must end well on both ranks."""

    def check(program: str) -> tuple[Path, str]:
        folder, found = _jobs(next(name for name, programs in TOGETHER.items() if program in programs))
        well, printed = found[program]
        assert well, printed
        return folder, printed

    return check
