"""Ranks that are killed at drawn moments, in steps and within saves: the job that starts again is one that never stopped."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("killed_job.py")
KINDS = [("zero", 1), ("zero", 2), ("zero", 4), ("pipeline", 2), ("pipeline", 4), ("data", 2)]
STEPS = 12
NUM_CASES = 60
_OF_THIS_PROCESS = ("XLA_FLAGS", "JAX_PLATFORMS", "MS_", "RANK_")


def run(kind: str, ranks: int, folder: Path, victim: int, moment: int, *flags: object) -> dict[int, float]:
    """Losses by step, as the last start of the rank 0 that went on saw them, those of the starts before below them."""
    folder.mkdir(exist_ok=True)
    logs = folder.with_name(f"{folder.name}-logs")
    words = ["run", "--worker_num", ranks, "--log_dir", logs, *flags, JOB, kind, folder, victim, moment]
    command = [sys.executable, "-m", "sporax", *map(str, words)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THIS_PROCESS)}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env={**environ, "JAX_PLATFORMS": "cpu"}
    )
    assert result.returncode == (0 if flags or not moment else 137), result.stdout + result.stderr
    if flags:
        assert "starts all ranks again (1 of 1)" in result.stderr, "nobody was killed"
    text = (logs / f"worker_{ranks - 1 if kind == 'pipeline' else 0}.log").read_text()
    return {int(step): float.fromhex(value) for step, value in re.findall(r"loss (\d+) (\S+)", text)}


@cache
def uninterrupted(kind: str, ranks: int, folder: Path) -> dict[int, float]:
    return run(kind, ranks, folder / f"{kind}-{ranks}", 0, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.mark.soak
@pytest.mark.parametrize("case", range(int(os.environ.get("SPORAX_KILLS", NUM_CASES))))
def test_a_killed_job_ends_as_one_that_was_never_killed(folder: Path, case: int) -> None:
    draw = random.Random(case)
    kind, ranks = KINDS[case % len(KINDS)]
    victim, moment = draw.randrange(ranks), draw.randint(1, STEPS * 2)
    expected = uninterrupted(kind, ranks, folder)
    assert set(expected) == set(range(1, STEPS + 1))
    killed = run(kind, ranks, folder / f"case-{case}", victim, moment, "--max_restarts", 1)
    assert killed == expected, f"rank {victim} of {kind} on {ranks} ranks, killed at its event {moment}"
    with open(folder / "kills.json", "a") as file:
        file.write(json.dumps([kind, ranks, victim, moment]) + "\n")


@pytest.mark.soak
@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (2, 1), (1, 4)])
def test_a_killed_job_goes_on_with_another_number_of_ranks(folder: Path, before: int, after: int) -> None:
    expected = uninterrupted("zero", after, folder)
    place = folder / f"elastic-{before}-{after}"
    first = run("zero", before, place, before - 1, 9)
    second = run("zero", after, place, 0, 0)
    assert min(second) > 1
    assert first | second == pytest.approx(expected, rel=1e-6)
