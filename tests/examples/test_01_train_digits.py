"""The main job, run as a user runs it."""

import os
import re
import sys
from pathlib import Path

import pytest

from compiler_flags import COMPILER
from forked_commands import run_forked

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-train-digits" / "train.py"
COMMAND = [sys.executable, "-m", "sporax", "run"]


@pytest.mark.full
def test_eight_devices_reach_the_accuracy_and_the_losses_of_one(tmp_path):
    command = [*COMMAND, "--local_devices", "8", str(EXAMPLE), "--out", str(tmp_path), "--epochs", "10"]
    done = run_forked(command, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("mlp", "lenet"):
        assert f"{name} on 1 device: test accuracy 9" in done.stdout
        assert f"{name} on 8 devices: test accuracy 9" in done.stdout
        (first,) = re.findall(rf"{name}: first 3 epochs: every loss .* up to (\S+) of its value", done.stdout)
        assert float(first) <= 1e-4
        assert re.search(rf"{name}: at the end: 9\S+% of the test images right, on one device 9\S+%", done.stdout)
    # A number that grows without bound where nothing is wrong would alarm for nothing.
    assert "over all" not in done.stdout
    assert re.search(r"hidden2.matmul .*\(2,4\) \(1,4\) \*.*all_reduce over 4", done.stdout)
    expected = {"curves.png", "lenet.ckpt", "mlp.ckpt", "lenet.plan.txt", "mlp.plan.txt"}
    assert expected <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_it_fails_when_a_network_stays_below_the_goal(tmp_path):
    command = [*COMMAND, str(EXAMPLE), "--out", str(tmp_path), "--epochs", "1", "--networks", "mlp"]
    alone = {**os.environ, "XLA_FLAGS": COMPILER}
    done = run_forked(command, timeout=120, env=alone)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "mlp on 1 device" in done.stdout
    assert "devices" not in done.stdout


def test_its_plan_can_be_seen_without_training(tmp_path):
    command = [sys.executable, "-m", "sporax", "plan", "--devices", "8", str(EXAMPLE), "--out", str(tmp_path)]
    done = run_forked([*command, "--epochs", "1"], timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Plan for 8 devices" in done.stdout
    assert not (tmp_path / "curves.png").exists()
