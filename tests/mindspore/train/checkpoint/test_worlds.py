"""What 8 devices have saved is used on 8 devices, of one process, of eight, or of two or four with several each."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from job_environment import job_environment

from forked_commands import run_forked

JOB = str(Path(__file__).with_name("world_job.py"))
WORLDS = {
    "one process": ["--local_devices", "8"],
    "two processes": ["--worker_num", "2", "--local_devices", "4"],
    "four processes": ["--worker_num", "4", "--local_devices", "2"],
    "eight processes": ["--worker_num", "8"],
}


def run(world: str, what: str, folder: Path, saved: str) -> None:
    logs = [] if world == "one process" else ["--log_dir", str(folder / f"logs_{what}")]
    words = ["-m", "sporax", "run", *WORLDS[world], *logs, JOB, what, str(folder), saved]
    result = run_forked([sys.executable, *words], timeout=250, env=job_environment())
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"done {what} 0" in result.stdout


@pytest.mark.parametrize("saved", ["whole", "slices"])
@pytest.mark.parametrize(("trained", "used"), list(itertools.product(WORLDS, repeat=2)))
@pytest.mark.sampled(3)
def test_a_checkpoint_of_one_world_is_used_in_another(trained: str, used: str, saved: str, tmp_path: Path) -> None:
    run(trained, "train", tmp_path, saved)
    run(used, "use", tmp_path, saved)
