"""Jobs that Open MPI and Slurm start: with the variables that their manuals name, and by `mpirun` where it is installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compiler_flags import COMPILER

STEPS = Path(__file__).parent / "programs" / "steps.py"


def mpirun(number: int) -> dict[str, str]:
    """`mpirun -x MS_SCHED_HOST=10.77.0.10 -n 2 -N 1`; see mpirun(1), "Exported Environment Variables"."""
    return {
        "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "1536884737", "MS_SCHED_HOST": "10.77.0.10",
    }  # fmt: skip


def srun(number: int) -> dict[str, str]:
    """`srun -N 2 -n 2`; see srun(1), "OUTPUT ENVIRONMENT VARIABLES"."""
    return {
        "SLURM_PROCID": str(number), "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": str(number),
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_NODELIST": "node[0-1]", "SLURM_JOB_ID": "81", "SLURM_STEP_ID": "0",
    }  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "XLA_FLAGS": COMPILER, "JAX_PLATFORMS": "cpu"}


def losses(output: str) -> list[str]:
    """Of all ranks; `mpirun` may put two of them in one line."""
    return sorted(re.findall(r"step \d+ of rank \d+: -?0x[0-9a-f.]+p[+-]\d+", output))


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """The losses of a job of the launcher on one machine."""
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", "2", str(STEPS), "3", "0", "-1"]
    return losses(subprocess.run(command, capture_output=True, text=True, env=environment(), check=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [mpirun, srun])
def test_ranks_of_two_machines_meet_without_a_flag(make_machines, tmp_path, expected, engine):
    started = []
    for machine in make_machines(2):
        command = [sys.executable, "-m", "sporax", "run", str(STEPS), "3", "0", "-1"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(machine.popen(command, cwd=tmp_path, env={**environment(), **engine(machine.number)}, **pipes))
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert losses("".join(outputs)) == expected
    assert len(expected) == 6


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (Debian's openmpi-bin) is not installed")
def test_mpirun_starts_a_script(tmp_path, expected):
    """As scripts are started that were written for it: plain Python."""
    command = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        sys.executable,
        str(STEPS),
        "3",
        "0",
        "-1",
    ]
    job = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment(), cwd=tmp_path)
    assert job.returncode == 0, job.stderr
    assert losses(job.stdout) == expected
