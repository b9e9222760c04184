"""A real job of two processes is killed, and goes on: with the losses of a run that was never killed, also on other ranks."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sporax.train.checkpoint.directory import open_directory

JOB = Path(__file__).with_name("resumed_job.py")


def start(directory: Path, kill_at: int, ranks: int, kind: str) -> subprocess.CompletedProcess[str]:
    logs = directory.with_name(f"{directory.name}_{kill_at}_{ranks}_logs")
    job = ["run", "--worker_num", ranks, "--log_dir", logs, JOB, directory, kill_at, kind]
    command = [sys.executable, "-m", "sporax", *map(str, job)]
    environ = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}  # one device per rank
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environ)


def run(directory: Path, kill_at: int, ranks: int, *, succeeds: bool = True, kind: str = "files") -> dict[int, float]:
    """Losses by step, as rank 0 saw them, and the sum of the weights as step 0 where the job came to its end."""
    return losses_of(start(directory, kill_at, ranks, kind), succeeds=succeeds)


def losses_of(result: subprocess.CompletedProcess[str], *, succeeds: bool = True) -> dict[int, float]:
    assert (result.returncode == 0) == succeeds, result.stdout + result.stderr
    text = re.sub(r"^\[[1-9]\].*$", "", result.stdout, flags=re.MULTILINE)
    values = {int(step): float.fromhex(value) for step, value in re.findall(r"loss (\d+) (\S+)", text)}
    weights = re.search(r"weights (\S+)", text)
    if weights:
        values[0] = float.fromhex(weights[1])
    return values


def test_a_killed_job_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    expected = run(tmp_path / "whole", 0, 2)
    assert set(expected) == set(range(9))
    run(tmp_path / "killed", 5, 2, succeeds=False)
    assert {path.name for path in (tmp_path / "killed" / "step_3").iterdir()} == {
        "complete.json",
        "rank_0.safetensors",
        "rank_1.safetensors",
    }
    shutil.copytree(tmp_path / "killed", tmp_path / "other")
    saved = open_directory(tmp_path / "killed" / "step_3")
    needed_bytes = sum(saved.read(name).nbytes // len(saved.slices(name)) for name in saved.names())
    again = start(tmp_path / "killed", 0, 2, "files")
    assert losses_of(again) == {step: expected[step] for step in (0, *range(4, 9))}
    read = {rank: int(count) for rank, count in re.findall(r"read (\d) (\d+)", again.stdout)}
    assert read == {"0": needed_bytes, "1": needed_bytes}, "each rank reads its own slices, and what all hold"
    assert any(len(saved.slices(name)) == 2 for name in saved.names())
    elastic = run(tmp_path / "other", 0, 1)
    assert elastic == {step: pytest.approx(expected[step], rel=1e-6) for step in (0, *range(4, 9))}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("orbax") is None, reason="needs sporax[orbax]")
def test_a_killed_job_goes_on_from_what_orbax_wrote(tmp_path: Path) -> None:
    expected = run(tmp_path / "whole", 0, 2)
    run(tmp_path / "killed", 5, 2, succeeds=False, kind="orbax")
    assert run(tmp_path / "killed", 0, 2, kind="orbax") == {step: expected[step] for step in (0, *range(4, 9))}


@pytest.mark.slow
def test_the_number_of_ranks_changes_while_the_batch_divides(tmp_path: Path) -> None:
    """A batch of 4 over 2, 1, 3 and 4 ranks."""
    folder = tmp_path / "run"
    (expected,) = [value for step, value in run(tmp_path / "whole", 0, 2, kind="data").items() if step == 0]
    run(folder, 5, 2, succeeds=False, kind="data")
    shutil.copytree(folder, tmp_path / "four")
    refused = start(folder, 0, 3, "data")
    assert refused.returncode != 0
    report = (
        r"an epoch must have 4 steps, as when step 3 was saved by 2 rank\(s\), but the data set has \d for each of 3"
    )
    assert re.search(report, refused.stdout + refused.stderr), refused.stdout + refused.stderr
    for place, ranks in ((folder, 1), (tmp_path / "four", 4)):
        losses = run(place, 0, ranks, kind="data")
        assert sorted(losses) == [0, 4, 5, 6, 7, 8]
        assert losses[0] == pytest.approx(expected, rel=1e-6)
