"""The main job, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-train-digits" / "train.py"


@pytest.mark.slow
def test_it_reaches_its_accuracy_and_leaves_curves_and_checkpoints(tmp_path):
    command = [sys.executable, "-m", "sporax", "run", str(EXAMPLE), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test accuracy 9" in done.stdout
    assert {"curves.png", "lenet.ckpt", "mlp.ckpt"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_it_fails_when_a_network_stays_below_the_goal(tmp_path):
    command = [sys.executable, "-m", "sporax", "run", str(EXAMPLE), "--out", str(tmp_path)]
    done = subprocess.run([*command, "--epochs", "1", "--networks", "mlp"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
