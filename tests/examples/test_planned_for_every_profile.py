"""Every example that trains, or plans a function, is planned by `sporax plan` for every kind of device."""

import subprocess
import sys
from pathlib import Path

import pytest

from sporax.ir.hardware import known_profiles

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = (
    "01-train-digits/train.py",
    "02-data-parallel/train.py",
    "05-plan-a-jax-function/plan.py",
    "08-kubernetes/first.py",
)
REFUSED = {
    "03-hybrid-parallel/train.py": "each rank must be a process",
    "07-parameter-server/train.py": "'MS_ROLE' must be one of",
}
"""Scripts whose ranks divide the work by their numbers or roles, which one process has not."""


def planned(script: str, hardware: str, folder: Path) -> subprocess.CompletedProcess[str]:
    flags = ["--devices", "8", "--hardware", hardware, str(EXAMPLES / script)]
    command = [sys.executable, "-m", "sporax", "plan", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, check=False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hardware", known_profiles())
@pytest.mark.parametrize("script", SCRIPTS)
def test_examples_are_planned_for_every_profile(script, hardware, tmp_path):
    job = planned(script, hardware, tmp_path)
    assert job.returncode == 0, job.stderr
    assert job.stdout.startswith("Plan for 8 devices")
    assert f"\nhardware                  {hardware}\n" in job.stdout
    assert "predicted time of a step" in job.stdout
    assert "Traceback" not in job.stderr


@pytest.mark.full
@pytest.mark.parametrize("script", REFUSED)
def test_examples_that_need_processes_say_so(script, tmp_path):
    job = planned(script, "h100", tmp_path)
    assert job.returncode != 0
    assert REFUSED[script] in job.stderr
    assert "Traceback" not in job.stderr
