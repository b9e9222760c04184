"""The same training again and again on several processes: all runs are equal, bit by bit. `make soak` runs many more of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "soak.py"


@pytest.mark.full
@pytest.mark.parametrize(("number", "kind"), [pytest.param(1, "optimizer", marks=pytest.mark.soak), (2, "pipeline")])
def test_runs_under_delays_are_equal(tmp_path, number, kind):
    figures = tmp_path / "figures.json"
    case = ["--first", str(number), "--cases", "1", "--size", "6", "--load", "0"]
    command = [sys.executable, TOOL, "steps", *case, "--json", figures]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    steps = json.loads(figures.read_text())["scenarios"]["steps"]
    assert steps["kinds"] == {kind: {"tried": 1, "outcomes": {"equal": 1}, "failed": []}}
    assert steps["faults"] == {f"trainings of kind {kind}": 6}
