"""The tools that kill, change and compare for minutes (`make soak`) begin: a few cases of each."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        "kills files --cases 3",
        "fuzz --cases 2",
        "jobs --cases 1",
        "steps --cases 1 --size 2",
        "collectives --size 1",
        "control --cases 1 --size 1",
        "servers --cases 1 --size 2",
        "removals --cases 1 --size 2",
        "memory --cases 2",
    ],
)
def test_a_few_cases_end_well(words, tmp_path):
    command = [sys.executable, TOOLS / "soak.py", *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
