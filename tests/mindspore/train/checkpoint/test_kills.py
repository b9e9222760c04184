"""Jobs that are killed at drawn moments, in steps, saves and conversions: what starts again ends as what never stopped."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_environment import job_environment
from sharded_recipes import STRATEGIES

from sporax.mindspore.train import load_checkpoint
from sporax.mindspore.train.checkpoint.stores import latest_checkpoint
from sporax.runtime.storage.slice_directory import open_directory

JOB = Path(__file__).with_name("killed_job.py")
KINDS = [("zero", 1), ("zero", 2), ("zero", 4), ("pipeline", 2), ("pipeline", 4), ("data", 2)]
CONVERSION = Path(__file__).with_name("killed_conversion.py")
STEPS = 12
NUM_CASES, NUM_CONVERSIONS = 60, 12


def run(kind: str, ranks: int, folder: Path, victim: int, moment: int, *flags: object) -> dict[int, float]:
    """Losses by step, as the last start of the rank 0 that went on saw them, those of the starts before below them."""
    folder.mkdir(exist_ok=True)
    logs = folder.with_name(f"{folder.name}-logs")
    words = ["run", "--worker_num", ranks, "--log_dir", logs, *flags, JOB, kind, folder, victim, moment]
    command = [sys.executable, "-m", "sporax", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, env=job_environment())
    assert result.returncode == (0 if flags or not moment else 137), result.stdout + result.stderr
    if flags:
        assert "starts all ranks again (1 of 1)" in result.stderr, "nobody was killed"
    text = (logs / f"worker_{ranks - 1 if kind == 'pipeline' else 0}.log").read_text()
    return {int(step): float.fromhex(value) for step, value in re.findall(r"loss (\d+) (\S+)", text)}


@cache
def uninterrupted(kind: str, ranks: int, folder: Path) -> tuple[dict[int, float], dict[str, Any]]:
    place = folder / f"{kind}-{ranks}"
    return run(kind, ranks, place, 0, 0), final_state(kind, place)


def final_state(kind: str, folder: Path) -> dict[str, Any]:
    """Weights, optimizer state and random numbers of the last checkpoint, whose checksums are compared."""
    if kind == "data":
        parameters = load_checkpoint(str(folder / "rank_0" / "net-3_4.ckpt"))
        return {name: parameter.asnumpy() for name, parameter in parameters.items()}
    newest = latest_checkpoint(folder)
    assert newest is not None
    assert newest.name == f"step_{STEPS}"
    source = open_directory("ResumableCheckpoint", newest)
    return {name: source.read(name) for name in source.names()} | {"random": np.asarray(source.facts[0]["random"])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.mark.soak
@pytest.mark.parametrize("case", range(int(os.environ.get("SPORAX_KILLS", NUM_CASES))))
def test_a_killed_job_ends_as_one_that_was_never_killed(folder: Path, case: int) -> None:
    draw = random.Random(case)
    kind, ranks = KINDS[case % len(KINDS)]
    victim, moment = draw.randrange(ranks), draw.randint(1, STEPS * 2)
    expected, state = uninterrupted(kind, ranks, folder)
    assert set(expected) == set(range(1, STEPS + 1))
    place = folder / f"case-{case}"
    killed = run(kind, ranks, place, victim, moment, "--max_restarts", 1)
    assert killed == expected, f"rank {victim} of {kind} on {ranks} ranks, killed at its event {moment}"
    ended = final_state(kind, place)
    assert set(ended) == set(state)
    for name, value in state.items():
        np.testing.assert_array_equal(ended[name], value, err_msg=name)


@pytest.mark.soak
@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (2, 1), (1, 4)])
def test_a_killed_job_goes_on_with_another_number_of_ranks(folder: Path, before: int, after: int) -> None:
    expected, state = uninterrupted("zero", after, folder)
    place = folder / f"elastic-{before}-{after}"
    first = run("zero", before, place, before - 1, 9)
    second = run("zero", after, place, 0, 0)
    assert min(second) > 1
    assert first | second == pytest.approx(expected, rel=1e-6)
    for name, value in final_state("zero", place).items():
        np.testing.assert_allclose(value, state[name], rtol=1e-6, atol=1e-6, err_msg=name)


def convert(source: Path, target: Path, moment: int) -> int:
    """Exit code of a conversion that kills itself at its so-many-th flush or renaming; 0 is never."""
    command = [sys.executable, CONVERSION, moment, source, target, STRATEGIES / "a.ckpt", STRATEGIES / "b.ckpt"]
    return subprocess.run([str(word) for word in command], timeout=200, check=False).returncode


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.soak
@pytest.mark.parametrize("case", range(NUM_CONVERSIONS))
def test_a_killed_conversion_leaves_whole_files_and_is_done_again(tmp_path: Path, save_ranks: Any, case: int) -> None:
    format = ("ckpt", "safetensors")[case % 2]
    source = save_ranks("src", str(STRATEGIES / "a.ckpt"), format)
    assert convert(source, tmp_path / "whole", 0) == 0
    expected = contents(tmp_path / "whole")
    target, moment = tmp_path / "killed", random.Random(case).randint(1, 3 * len(expected))
    assert convert(source, target, moment) == -9
    left = {name: content for name, content in contents(target).items() if not name.endswith(".tmp")}
    assert left.items() < expected.items(), f"killed at event {moment}"
    assert convert(source, target, 0) == 0
    assert contents(target) == expected
