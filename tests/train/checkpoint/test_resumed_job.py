"""Ranks that are killed, and the job that is started again: with as many ranks, and with another number."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("resumed_job.py")


def run(directory: Path, kill_at: int, ranks: int, *, succeeds: bool = True) -> dict[int, float]:
    """Losses by step, as rank 0 saw them."""
    logs = directory.with_name(f"{directory.name}_{kill_at}_{ranks}_logs")
    words = [
        "-m",
        "sporax",
        "run",
        "--worker_num",
        str(ranks),
        "--log_dir",
        str(logs),
        str(JOB),
        str(directory),
        str(kill_at),
    ]
    result = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=200)
    assert (result.returncode == 0) == succeeds, result.stdout + result.stderr
    output = result.stdout + (logs / "worker_0.log").read_text() if (logs / "worker_0.log").exists() else result.stdout
    return {int(step): float.fromhex(value) for step, value in re.findall(r"loss (\d+) (\S+)", output)}


def test_a_killed_job_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    expected = run(tmp_path / "whole", 0, 2)
    assert set(expected) == set(range(1, 9))
    run(tmp_path / "killed", 5, 2, succeeds=False)
    assert {path.name for path in (tmp_path / "killed" / "step_3").iterdir()} == {
        "complete.json",
        "rank_0.safetensors",
        "rank_1.safetensors",
    }
    shutil.copytree(tmp_path / "killed", tmp_path / "other")
    assert run(tmp_path / "killed", 0, 2) == {step: expected[step] for step in range(4, 9)}
    elastic = run(tmp_path / "other", 0, 1)
    assert elastic == {step: pytest.approx(expected[step], rel=1e-6) for step in range(4, 9)}
