"""A real job of two processes is killed, and goes on: with the losses of a run that was never killed, also on other ranks.

A job trains in several ways, one after another, as most of its cost is that of starting processes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from job_environment import job_environment

from forked_commands import run_forked
from sporax.runtime.storage.slice_directory import open_directory

JOB = Path(__file__).with_name("resumed_job.py")
STORES = ("files", "orbax") if importlib.util.find_spec("orbax") else ("files",)


def start(ranks: int, folder: Path, *ways: str, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
    words = ["run", "--worker_num", ranks, "--log_dir", folder / f"logs_of_{ranks}", JOB, kill_at]
    command = [sys.executable, "-m", "sporax", *map(str, words), *(f"{way}={folder}" for way in ways)]
    return run_forked(command, timeout=200, env=job_environment())


def losses_of(result: subprocess.CompletedProcess[str], way: str) -> dict[int, float]:
    """Losses by step, as rank 0 saw them, and the sum of the weights as step 0 where the job came to its end."""
    assert result.returncode == 0, result.stdout + result.stderr
    text = re.sub(r"^\[[1-9]\].*$", "", result.stdout, flags=re.MULTILINE)
    values = {int(step): float.fromhex(value) for step, value in re.findall(rf"{way} loss (\d+) (\S+)", text)}
    weights = re.search(rf"{way} weights (\S+)", text)
    if weights:
        values[0] = float.fromhex(weights[1])
    return values


Job = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Job]:
    """Two ranks that are never killed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, start(2, folder, "files", "data")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks leave that are killed after step 5."""
    folder = tmp_path_factory.mktemp("killed")
    result = start(2, folder, "+".join(STORES), kill_at=5)
    assert result.returncode != 0, result.stdout + result.stderr
    assert "loss 5" in result.stdout
    assert "weights" not in result.stdout
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, whole: tuple[Path, Job], killed: Path) -> tuple[Path, Job]:
    """One rank goes on from what two have saved."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copytree(killed / "files", folder / "files")
    shutil.copytree(whole[0] / "data" / "step_3", folder / "data" / "step_3")
    return folder, start(1, folder, "files", "data")


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory, killed: Path, alone: tuple[Path, Job]) -> Job:
    """Two ranks go on, from what two have saved and from what one has."""
    folder = tmp_path_factory.mktemp("again")
    for store in STORES:
        shutil.copytree(killed / store, folder / store)
    shutil.copytree(alone[0] / "data" / "step_6", folder / "data" / "step_6")
    return start(2, folder, *STORES, "data")


def test_a_killed_job_goes_on_as_if_nothing_had_happened(
    whole: tuple[Path, Job], killed: Path, alone: tuple[Path, Job], again: Job
) -> None:
    expected = losses_of(whole[1], "files")
    assert set(expected) == set(range(9))
    assert {path.name for path in (killed / "files" / "step_3").iterdir()} == {
        "complete.json",
        "rank_0.safetensors",
        "rank_1.safetensors",
    }
    saved = open_directory("ResumableCheckpoint", killed / "files" / "step_3")
    needed_bytes = sum(saved.read(name).nbytes // len(saved.slices(name)) for name in saved.names())
    assert losses_of(again, "files") == {step: expected[step] for step in (0, *range(4, 9))}
    read = {rank: int(count) for rank, count in re.findall(r"files read (\d) (\d+)", again.stdout)}
    assert read == {"0": needed_bytes, "1": needed_bytes}, "each rank reads its own slices, and what all hold"
    assert any(len(saved.slices(name)) == 2 for name in saved.names())
    elastic = losses_of(alone[1], "files")
    assert elastic == {step: pytest.approx(expected[step], rel=1e-6) for step in (0, *range(4, 9))}


@pytest.mark.skipif("orbax" not in STORES, reason="needs sporax[orbax]")
def test_a_killed_job_goes_on_from_what_orbax_wrote(whole: tuple[Path, Job], again: Job) -> None:
    expected = losses_of(whole[1], "files")
    assert losses_of(again, "orbax") == {step: expected[step] for step in (0, *range(4, 9))}


@pytest.mark.full
def test_the_number_of_ranks_changes_while_the_batch_divides(
    tmp_path: Path, whole: tuple[Path, Job], alone: tuple[Path, Job], again: Job
) -> None:
    """A batch of 4 over 2, 1 and 2 ranks, and not over 3."""
    expected = losses_of(whole[1], "data")
    shutil.copytree(whole[0] / "data" / "step_3", tmp_path / "data" / "step_3")
    refused = start(3, tmp_path, "data")
    assert refused.returncode != 0
    report = (
        r"an epoch must have 4 steps, as when step 3 was saved by 2 rank\(s\), but the data set has \d for each of 3"
    )
    assert re.search(report, refused.stdout + refused.stderr), refused.stdout + refused.stderr
    for result, first in ((alone[1], 4), (again, 7)):
        losses = losses_of(result, "data")
        assert sorted(losses) == [0, *range(first, 9)]
        assert losses[0] == pytest.approx(expected[0], rel=1e-6)


@pytest.mark.soak
def test_four_ranks_go_on_from_what_two_have_saved(tmp_path: Path, whole: tuple[Path, Job]) -> None:
    expected = losses_of(whole[1], "data")
    shutil.copytree(whole[0] / "data" / "step_3", tmp_path / "data" / "step_3")
    losses = losses_of(start(4, tmp_path, "data"), "data")
    assert sorted(losses) == [0, *range(4, 9)]
    assert losses[0] == pytest.approx(expected[0], rel=1e-6)
