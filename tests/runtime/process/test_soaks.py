"""The tools that kill, change and compare for minutes (`make soak`) begin: a few cases of each."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"


@pytest.mark.full
@pytest.mark.parametrize(
    "words", ["soak.py --cases 8", "soak_steps.py --runs 2 --runs-per-job 2", "soak_collectives.py --runs 8"]
)
def test_a_few_cases_end_well(words, tmp_path):
    tool, *flags = words.split()
    done = subprocess.run(
        [sys.executable, TOOLS / tool, *flags], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
