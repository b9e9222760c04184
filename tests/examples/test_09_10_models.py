"""Models of flax.nnx and of equinox are planned and trained as their examples show; skipped where the packages are missing."""

import os
import re
import sys
from pathlib import Path

import pytest

from forked_commands import run_forked

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("package", "script"), [("flax", "09-plan-a-flax-model/plan.py"), ("equinox", "10-plan-an-equinox-model/plan.py")]
)
def test_losses_are_those_of_one_device(package, script):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    command = [sys.executable, "-m", "sporax", "run", "--local_devices", "8", str(EXAMPLES / script)]
    done = run_forked(command, timeout=200, env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "64 H100s, batch 8192: " in done.stdout
    (cut, alone) = re.findall(r"loss after 5 steps on 8 devices (\S+), on one (\S+)", done.stdout)[0]
    assert float(cut) == pytest.approx(float(alone), rel=1e-4)
    assert float(cut) < 2.0
