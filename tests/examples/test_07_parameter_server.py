"""Wide & deep on parameter servers: the losses with a server killed in the middle are those without, to the last bit."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from compiler_flags import COMPILER
from forked_commands import run_forked

TRAIN = Path(__file__).parents[2] / "examples/07-parameter-server/train.py"


def losses(folder: Path, *flags: str) -> list[float]:
    """Of rank 0."""
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "sporax",
        "run",
        "--server_num",
        "2",
        "--worker_num",
        "2",
        "--log_dir",
        str(folder),
    ]
    command += [str(TRAIN), "--steps", "12", "--out", str(folder / "losses"), *flags]
    done = run_forked(command, timeout=140, env={**os.environ, "XLA_FLAGS": COMPILER}, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("killed server 0" in done.stdout) is bool(flags)
    return json.loads((folder / "losses").read_text("utf-8"))


@pytest.mark.full
def test_a_killed_server_changes_no_bit_of_the_losses(tmp_path: Path) -> None:
    calm = losses(tmp_path / "calm")
    assert losses(tmp_path / "killed", "--kill", "5") == calm
    assert len(calm) == 12
