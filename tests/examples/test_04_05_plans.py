"""The examples that search for plans end well: losses that do not depend on the cut, and a page to look at."""

import sys
from pathlib import Path

import pytest

from forked_commands import run_forked

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "sporax", "run", "--local_devices", "8", str(EXAMPLES / script), *arguments]
    job = run_forked(command, timeout=300)
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout.splitlines()


@pytest.mark.full
def test_one_transformer_sharded_in_three_ways(tmp_path):
    lines = run(
        "04-search-a-plan/train.py", "--steps", "3", "--search", "recursive_programming", "--out", str(tmp_path)
    )
    rows = {line[:12].strip(): [float(number) for number in line.split()[-2:]] for line in lines[1:4]}
    assert list(rows) == ["one device", "by hand", "by search"]
    assert rows["one device"][1] < rows["one device"][0]
    for losses in rows.values():
        assert losses == pytest.approx(rows["one device"], rel=1e-5)
    assert (tmp_path / "plan.html").stat().st_size > 10_000


def test_a_step_in_plain_jax(tmp_path):
    lines = run("05-plan-a-jax-function/plan.py", "--out", str(tmp_path))
    assert lines[0].startswith("64 H100s, batch 1024: ")
    assert any("all_reduce" in line for line in lines)
    assert (tmp_path / "plan.html").stat().st_size > 10_000
