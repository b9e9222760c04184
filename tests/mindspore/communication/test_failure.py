"""A rank that is killed, raises, stands still or hangs ends the job, which says which rank it was. One that works does not."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler_flags import COMPILER
from forked_commands import ForkedCommand
from sporax.cluster import ports

PROGRAM = Path(__file__).parent / "programs" / "failing.py"
SECONDS = 15


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("how", "expected", "variables"),
    [
        ("killed", "rank 1 (process", {}),
        ("ended", "rank 1 (process", {}),
        ("raises", "ValueError: the data is spoiled", {}),
        ("stops", "for rank 1, which is stopped", {}),
        (
            "waits",
            "rank 1 ends because rank 0 waits for it in an exchange, and it has done nothing for 2 s",
            {"SPORAX_IDLE_TIMEOUT": "2"},
        ),
        ("leaves", "rank 1, which has left the job: rank 0 is in exchange 5, rank 1 has left after exchange 4", {}),
        ("counts", "for rank 1 for longer than SPORAX_EXCHANGE_TIMEOUT=8 s", {"SPORAX_EXCHANGE_TIMEOUT": "8"}),
    ],
)
def test_the_job_ends_soon_and_names_the_rank(run_ranks, how, expected, variables):
    started = time.time()
    job = run_ranks("failing.py", 2, how, **variables)
    ended = time.time()
    output = job.stdout + job.stderr
    assert job.returncode != 0
    headline = next(line for line in job.stderr.splitlines()[1:] if line.startswith("sporax run: "))
    assert headline.startswith("sporax run: rank 1 ")
    assert "Traceback" not in output or how == "raises"
    assert expected in output
    assert "rank 1" in output
    begun = next(float(line.split()[-1]) for line in output.splitlines() if "the end begins at" in line)
    # On a busy machine, where starting takes long, the end may take as many times as long.
    assert ended - begun < max(SECONDS, 5 * (begun - started)), output


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["exits", "ends"])
def test_the_launcher_ends_with_the_code_of_the_rank_that_ended_first(run_ranks, how):
    """It says so itself, or its process does: the other rank need not find out that it has left."""
    job = run_ranks("failing.py", 2, how)
    assert job.returncode == 3, job.stderr
    headline = next(line for line in job.stderr.splitlines()[1:] if line.startswith("sporax run: "))
    assert re.match(r"sporax run: rank 1 \(process \d+\) ended with exit code 3 after", headline)
    assert "has left the job" not in job.stdout + job.stderr


@pytest.mark.full
def test_a_rank_that_is_behind_and_alive_is_left_alone(check_ranks):
    """As long as one that stands in a debugger, by default: the time-out of an exchange decides, and nothing else."""
    check_ranks("paused.py", 2)


@pytest.mark.full
def test_a_rank_that_works_or_sleeps_while_nobody_waits_is_left_alone(check_ranks):
    check_ranks("patient.py", 2, SPORAX_IDLE_TIMEOUT="2", OPENBLAS_NUM_THREADS="1")


@pytest.mark.full
def test_a_rank_that_sleeps_on_another_machine_is_found(tmp_path):
    """Each launcher has a directory of its own for the boards of its ranks, as two machines have."""
    with ports.reserve_port("127.0.0.1") as held:
        port = held.getsockname()[1]
    jobs = []
    for node in (0, 1):
        (tmp_path / f"node{node}").mkdir()
        variables = {
            "TMPDIR": str(tmp_path / f"node{node}"),
            "MS_WORKER_IP": f"127.0.0.{1 + node}",
            "SPORAX_IDLE_TIMEOUT": "2",
        }
        flags = f"--worker_num 2 --local_worker_num 1 --node_rank {node} --master_port {port} --log_dir node{node}"
        command = [sys.executable, "-m", "sporax", "run", *flags.split(), str(PROGRAM), "sleeps"]
        jobs.append(
            ForkedCommand(
                command,
                env={**os.environ, "XLA_FLAGS": COMPILER, **variables},  # one device each
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    here, there = (job.communicate(timeout=100)[0] for job in jobs)
    assert "rank 1 ends because rank 0 waits for it in an exchange, and it has done nothing for 2 s" in there
    assert "rank 1 (worker '1') on 127.0.0.2 ended because rank 0 waits for it in an exchange" in here
    assert all(job.returncode for job in jobs)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("view", ["ranks", "plan"])
def test_a_program_that_is_unequal_on_one_rank_ends_all_of_them(check_ranks, view):
    check_ranks("unequal.py", 2, view, JAX_PLATFORMS="cpu", SPORAX_VERIFY_STEPS="2")
