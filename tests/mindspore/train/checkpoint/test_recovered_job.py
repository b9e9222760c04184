"""A rank is killed: the launcher starts the job again, or, without one, the others wait until the rank is started again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job_environment import job_environment

from forked_commands import run_forked
from sporax.cluster import ports

JOB = Path(__file__).with_name("recovered_job.py")


def losses(text: str) -> dict[int, str]:
    return {int(step): value for step, value in re.findall(r"loss (\d+) (\S+)", text)}


def numbers(text: str) -> list[float]:
    """Losses by step, then the weights."""
    (weights,) = re.findall(r"weights (\S+)", text)
    return [float.fromhex(value) for _, value in sorted(losses(text).items())] + [float.fromhex(weights)]


def launch(folder: Path, kill_at: int, *flags: object, **variables: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    words = ["run", "--worker_num", 2, "--log_dir", folder / "logs", *flags, JOB, folder, kill_at]
    command = [sys.executable, "-m", "sporax", *map(str, words)]
    return run_forked(command, timeout=250, env={**job_environment(), **variables})


def log_of(folder: Path, rank: int) -> str:
    return (folder / "logs" / f"worker_{rank}.log").read_text()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What rank 0 writes in a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("jobs") / "whole"
    result = launch(folder, 0)
    assert result.returncode == 0, result.stderr
    return log_of(folder, 0)


@pytest.mark.full
def test_the_launcher_starts_a_failed_job_again(tmp_path: Path, expected: str) -> None:
    assert set(losses(expected)) == set(range(1, 13))
    once = launch(tmp_path / "killed", 7, "--max_restarts", 2)
    assert once.returncode == 0, once.stderr
    assert "starts all ranks again (1 of 2)" in once.stderr
    second = log_of(tmp_path / "killed", 0)
    assert losses(second) == losses(expected)
    assert "loss 7" in second.rpartition("weights")[0]
    assert "loss 6" not in second[second.rindex("loss 7") :]
    assert re.findall("weights .*", second) == re.findall("weights .*", expected)


@pytest.mark.full
def test_ranks_that_get_a_signal_save_at_one_step_and_exit_well(tmp_path: Path, expected: str) -> None:
    """Files every 100 steps: what is resumed from is what `OnRequestExit` has saved."""
    settings = {"MS_ENABLE_GRACEFUL_EXIT": "1", "SAVE_STEPS": "100"}
    report = launch(tmp_path / "signaled", 0, **settings)
    assert report.returncode == 0, report.stderr
    assert "ranks save and leave" in report.stderr
    before = losses(log_of(tmp_path / "signaled", 0))
    assert 5 <= max(before) < 12
    for number in (0, 1):
        assert (tmp_path / "signaled" / "exit" / f"rank_{number}" / "Net_train.ckpt").is_file()
        for file in (tmp_path / "signaled" / f"rank_{number}").glob("*.ckpt"):
            file.unlink()  # written at the end of the first run
    again = launch(tmp_path / "signaled", 0, **settings)
    assert again.returncode == 0, again.stderr
    after = losses(log_of(tmp_path / "signaled", 0))
    assert min(after) == max(before) + 1
    assert {**before, **after} == losses(expected)


def process(rank: int | None, port: int, folder: Path, kill_at: int) -> subprocess.Popen[bytes]:
    """A scheduler (None) or worker as `run.sh` of MindSpore's sample starts it."""
    name = "scheduler" if rank is None else f"worker_{rank}"
    role = {"MS_ROLE": "MS_SCHED"} if rank is None else {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank)}
    variables = job_environment() | {
        **role,
        "MS_WORKER_NUM": "2",
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": str(port),
        "MS_ENABLE_RECOVERY": "1",
        "SPORAX_JOB_ID": "5f0c",
        "MS_RECOVERY_PATH": str(folder),
        "SPORAX_TOKEN": "0123456789abcdef0123456789abcdef",
        "PYTHONUNBUFFERED": "1",
    }
    with open(folder / "logs" / f"{name}.log", "ab") as log:
        command: list[Any] = [sys.executable, JOB, folder, kill_at]
        return subprocess.Popen([str(word) for word in command], env=variables, stdout=log, stderr=log)


@pytest.mark.full
def test_a_rank_that_is_started_again_rejoins(tmp_path: Path, expected: str) -> None:
    folder = tmp_path / "killed"
    (folder / "logs").mkdir(parents=True)
    with ports.listen("127.0.0.1", None) as free:
        port = free.getsockname()[1]
    processes = {rank: process(rank, port, folder, 7) for rank in (None, 0, 1)}
    try:
        assert processes[1].wait(120) == -9
        processes[1] = process(1, port, folder, 7)
        for rank in (0, 1, None):
            assert processes[rank].wait(120) == 0, (folder / "logs" / "worker_0.log").read_text()
    finally:
        for child in processes.values():
            child.kill()
            child.wait()
    again = log_of(folder, 0)
    assert "begins again because" in again
    # Without the launcher, which deals out cores, sums are made in another order.
    assert numbers(again) == pytest.approx(numbers(expected), rel=1e-5)
