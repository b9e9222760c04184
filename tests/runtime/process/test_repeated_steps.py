"""The same training again and again on several processes: all runs are equal, bit by bit. `make soak` runs many more of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "soak_steps.py"


@pytest.mark.full
@pytest.mark.parametrize("kind", [pytest.param("optimizer", marks=pytest.mark.soak), "pipeline"])
def test_runs_under_delays_are_equal(tmp_path, kind):
    figures = tmp_path / "figures.json"
    command = [sys.executable, TOOL, "--only", kind, "--runs", "6", "--runs-per-job", "6", "--idle", "--json", figures]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(figures.read_text())["runs"] == {kind: 6}
