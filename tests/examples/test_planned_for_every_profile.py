"""Every example, and every kind of sample program, is planned for every kind of device: traced once, with each profile in its request."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sporax.ir.hardware import known_profiles

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = (
    "01-train-digits/train.py",
    "02-data-parallel/train.py",
    "04-search-a-plan/train.py",
    "05-plan-a-jax-function/plan.py",
    "06-pipeline/train.py",
    "08-kubernetes/first.py",
    "09-plan-a-flax-model/plan.py",
    "10-plan-an-equinox-model/plan.py",
    "12-plan-llama-on-ascend/train.py llama2-7b --layers 2",
    "12-plan-llama-on-ascend/train.py codellama-34b-16 --layers 2",
)
SAMPLES = Path(__file__).with_name("sample_steps.py")
KINDS = re.findall(r'^    "([a-z ]+)": ', SAMPLES.read_text(encoding="utf-8"), re.MULTILINE)
"""Names of the steps there."""
EXPLAINED = """
import runpy, sporax
step, params, x = map(runpy.run_path({!r}).get, ("step", "params", "x"))
sporax.plan(step, params, x, devices=8, carry={{0: 0}})
"""
"""A program of which only collectives are explained: its step, planned."""
REFUSED = {
    "03-hybrid-parallel/train.py": "each rank must be a process",
    "07-parameter-server/train.py": "'MS_ROLE' must be one of",
}
"""Scripts whose ranks divide the work by their numbers or roles, which one process has not."""
EVERYWHERE = """
import sys
from dataclasses import replace
from sporax.ir.hardware import known_profiles, load_profile
from sporax.launch.cli import main
from sporax.planner import make_plan
from sporax.runtime.planned import function, step_passes

def planned_everywhere(request, measure=None, agreed=step_passes.agreed_plan):
    for profile in map(load_profile, known_profiles()):
        limit = request.memory_bytes and profile.memory_bytes
        settings = replace(request.settings, hardware=profile.name)
        wanted = replace(request, settings=settings, profile=profile, memory_bytes=limit)
        print("seconds", profile.name, make_plan(wanted).predicted)
    return agreed(request, measure)

function.agreed_plan = step_passes.agreed_plan = planned_everywhere
sys.exit(main(sys.argv[1:]))
"""


def planned(script: str, folder: Path, *start: str, devices: int = 8) -> subprocess.CompletedProcess[str]:
    path, *rest = script.split()
    command = [sys.executable, *start, "plan", "--devices", str(devices), str(EXAMPLES / path), *rest]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, check=False)


def check_every_profile(job: subprocess.CompletedProcess[str]) -> None:
    assert job.returncode == 0, job.stderr
    assert "predicted time of a step" in job.stdout
    assert "Traceback" not in job.stderr
    seconds = {name: float(text) for name, text in re.findall(r"^seconds (\S+) (\S+)$", job.stdout, re.MULTILINE)}
    assert sorted(seconds) == sorted(known_profiles())
    assert all(0 < value < math.inf for value in seconds.values())
    assert len(set(seconds.values())) > len(seconds) / 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("script", SCRIPTS)
def test_examples_are_planned_for_every_profile(script, tmp_path):
    check_every_profile(planned(script, tmp_path, "-c", EVERYWHERE, devices=16 if "34b" in script else 8))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_sample_programs_are_planned_for_every_profile(name, tmp_path):
    check_every_profile(planned(f"{SAMPLES} {name}", tmp_path, "-c", EVERYWHERE))


@pytest.mark.full
def test_a_program_whose_collectives_are_explained_is_planned_for_every_profile(tmp_path):
    (tmp_path / "plan.py").write_text(EXPLAINED.format(str(EXAMPLES / "11-explain-sharding/train.py")))
    check_every_profile(planned(str(tmp_path / "plan.py"), tmp_path, "-c", EVERYWHERE))


@pytest.mark.full
@pytest.mark.parametrize("script", REFUSED)
def test_examples_that_need_processes_say_so(script, tmp_path):
    job = planned(script, tmp_path, "-m", "sporax")
    assert job.returncode != 0
    assert REFUSED[script] in job.stderr
    assert "Traceback" not in job.stderr
