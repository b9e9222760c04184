"""The examples on several ranks end well and reach their goals."""

import os
import sys
from pathlib import Path

import pytest

from compiler_flags import COMPILER
from forked_commands import run_forked

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.full
@pytest.mark.parametrize(
    ("script", "num_ranks", "arguments", "files"),
    [
        ("02-data-parallel/train.py", 2, ["--out", "out"], ["out/curve.png"]),
        ("03-hybrid-parallel/train.py", 2, ["--steps", "10"], []),
    ],
)
def test_the_example_runs(tmp_path, script, num_ranks, arguments, files):
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("MS_", "RANK_"))}
    command = [
        sys.executable,
        "-m",
        "sporax",
        "run",
        "--worker_num",
        str(num_ranks),
        str(EXAMPLES / script),
        *arguments,
    ]
    environ["XLA_FLAGS"] = COMPILER  # one device each
    job = run_forked(command, cwd=tmp_path, env=environ, timeout=200)
    assert job.returncode == 0, job.stdout + job.stderr
    assert f"{num_ranks} ranks" in job.stdout
    for file in files:
        assert (tmp_path / file).stat().st_size > 1000
