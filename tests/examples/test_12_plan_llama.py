"""Models of published Ascend runs are planned from the settings of their scripts, and come near what was published."""

import re
import sys
from pathlib import Path

import pytest

from forked_commands import run_forked

SCRIPT = Path(__file__).parents[2] / "examples" / "12-plan-llama-on-ascend" / "train.py"


def planned(name, devices, *flags, hardware="ascend910b-800ta2"):
    """Published and predicted tokens per second (with transfers hidden, where the head says so), and gigabytes of a device."""
    command = [sys.executable, "-m", "sporax", "plan", "--devices", str(devices), "--hardware", hardware]
    done = run_forked([*command, str(SCRIPT), name, *flags], timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    tokens = [float(text.replace(",", "")) for text in re.findall(r"([\d,]+) tokens/s", done.stdout)]
    return tokens[0], tokens[-1], float(re.search(r"peak memory of a device +([\d.]+) GB", done.stdout)[1])


def test_two_layers_of_a_data_parallel_run():
    published, predicted, gigabytes = planned("llama2-7b", 8, "--layers", "2")
    assert predicted > 4 * published
    assert gigabytes < 10


@pytest.mark.full
def test_stages_keep_little_of_a_micro_batch():
    _, _, two = planned("llama2-70b", 32, "--layers", "16")
    assert two < 13


@pytest.mark.full
def test_logits_stay_sharded():
    """The last stage's products and loss take 30 s of a step, 38 s more where logits are gathered."""
    published, predicted, _ = planned("qwen1.5-32b", 32, "--layers", "4", hardware="ascend910b-900a2")
    assert predicted > 5 * published


RUNS = [
    ("llama2-7b", 8, "800ta2"), ("llama2-13b", 8, "800ta2"), ("codellama-34b-32", 32, "800ta2"),
    ("llama2-70b", 32, "800ta2"), ("yi-34b", 16, "800ta2"), ("qwen1.5-32b", 32, "900a2"),
]  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(2000)
@pytest.mark.parametrize(("name", "devices", "chip"), RUNS)
def test_published_runs_are_near_and_fit(name, devices, chip):
    published, predicted, gigabytes = planned(name, devices, hardware=f"ascend910b-{chip}")
    assert predicted == pytest.approx(published, rel=0.15)
    assert gigabytes <= 64
