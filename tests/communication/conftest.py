"""Runs a program of `programs/` on real ranks, one process each, started by the real launcher."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
_JOB_VARIABLES = ("MS_", "RANK_", "LOCAL_RANK", "DEVICE_ID", "OMPI_", "PYTHONPATH", "XLA_FLAGS")
_COMPILER = " ".join(flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag)
"""The session's settings of the compiler; each rank has one device, or as many as the launcher is told."""

Job = subprocess.CompletedProcess[str]


@pytest.fixture
def run_ranks(tmp_path: Path) -> Callable[..., Job]:
    """`run_ranks(program, num_ranks, *arguments, **variables)`: run to the end and return what it printed."""

    def run(
        program: str, num_ranks: int, *arguments: object, seconds: float = 120, local_devices: int = 0, **variables: str
    ) -> Job:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(_JOB_VARIABLES)}
        command = [sys.executable, "-m", "sporax", "run", "--worker_num", str(num_ranks), "--log_dir", str(tmp_path)]
        command += ["--local_devices", str(local_devices)] if local_devices else []
        return subprocess.run(
            [*command, str(PROGRAMS / program), *map(str, arguments)],
            env={**environ, "XLA_FLAGS": _COMPILER, **variables},
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=tmp_path,
        )

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
