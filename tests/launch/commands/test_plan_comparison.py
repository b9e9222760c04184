"""`sporax plan` of several kinds and numbers of devices, and of plans that were written before."""

import json
import re

import pytest

SCRIPT = """
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn

ms.set_context(mode=ms.GRAPH_MODE)
ms.communication.init()
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", dataset_strategy="full_batch")
net = nn.Dense(512, 512)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
x = Tensor(np.ones((64, 512), np.float32))
step(x, x)
"""
TITLES = ["h100 × 4", "h100 × 8", "h200 × 4", "h200 × 8"]


@pytest.fixture
def compared(run, write, tmp_path):
    write("script.py", SCRIPT)
    done = run("plan", "--compare", "h100,h200", "--devices", "4,8", "--out", "plans.json", "script.py")
    assert done.returncode == 0, done.stderr
    return done.stdout, tmp_path / "plans.json"


@pytest.mark.full
def test_one_table_has_a_row_for_each_and_saved_plans_are_shown_again(compared, run, tmp_path):
    text, file = compared
    plans = json.loads(file.read_text())
    assert [f"{plan['headline']['hardware']} × {plan['num_devices']}" for plan in plans] == TITLES
    assert [re.match(r"\w+ × \d+", line).group() for line in text.splitlines()[2:]] == TITLES
    hours = [plan["num_devices"] * 1e6 / plan["headline"]["samples_per_second"] / 3600 for plan in plans]
    assert [float(line.split()[-1]) for line in text.splitlines()[2:]] == pytest.approx(hours, rel=0.01)
    assert {plan["headline"]["script"] for plan in plans} == {"script.py"}

    again = run("plan", "plans.json", "--out", "plans.html")
    assert (again.returncode, again.stdout) == (0, text)
    page = (tmp_path / "plans.html").read_text(encoding="utf-8")
    assert all(title in page for title in TITLES)
    assert page.count("<circle ") == 4  # a point of the plot for each
    assert page.count("<polyline ") == 2  # and a line for each kind of hardware
    assert page.count('stroke-dasharray="4 4"') == 2  # ideal scaling of each
    assert page.count(">quickest: ") == text.count("(quickest)") == 1
    assert page.count(">h100</text>") == page.count(">h200</text>") == 1  # at the end of its line
    assert page.count("<iframe ") == 2
    assert page.count("<textarea hidden>") == 4

    # One plan alone is shown whole.
    (tmp_path / "one.json").write_text(json.dumps(plans[1]))
    one = run("plan", "one.json", "--out", "one.html")
    assert one.stdout.startswith("Plan for 8 devices")
    assert "<svg" in (tmp_path / "one.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--compare", "h100,h300", "script.py"], "h300"),
        (["--compare", "h100", "--hardware", "h200", "script.py"], "--compare and --hardware name the same"),
        (["--compare", "h100,h200", "--html", "plan.html", "script.py"], "--html is for one plan"),
        (["--devices", "4,many", "script.py"], "--devices must be a number, but got 'many'"),
        (["--devices", "4,1", "script.py"], "--devices must be 2 or more for a plan to shard anything, but got 1"),
        (["--out", "plan.txt", "script.py"], "--out must end in .json or .html, but got 'plan.txt'"),
        (["plan.json"], "'plan.json' must be a file that can be read"),
        (["other.json"], "'other.json' must hold a plan of 'sporax plan'"),
    ],
)
def test_wrong_flags_and_files_are_refused(run, write, words, message):
    write("script.py", SCRIPT)
    write("other.json", '{"operators": 3}')
    done = run("plan", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_that_fails_ends_the_comparison_with_its_code(run, write):
    write("fails.py", "import sys; sys.exit(7)")
    done = run("plan", "--compare", "h100,h200", "fails.py")
    assert done.returncode == 7


def test_a_number_of_devices_that_is_refused_is_a_row_of_the_table(run, write, tmp_path):
    write("script.py", SCRIPT)
    done = run("plan", "--hardware", "h100", "--devices", "4,6", "--out", "plans.json", "script.py")
    assert done.returncode == 0
    rows = done.stdout.splitlines()[2:]
    assert re.match(r"h100 × 4 .* 100% ", rows[0])
    assert re.match(r"h100 × 6 +refused", rows[1])
    assert rows[2].startswith("h100 × 6: ")
    assert "a multiple of 8, but got 6" in " ".join(rows[2:])
    assert json.loads((tmp_path / "plans.json").read_text())["num_devices"] == 4


@pytest.mark.full
def test_a_comparison_without_any_plan_says_what_each_would_need(run, write):
    write("script.py", SCRIPT)
    done = run("plan", "--compare", "h100,h200", "--devices", "4", "--memory", "100KB", "script.py")
    assert done.returncode == 1
    for name, row in zip(("h100", "h200"), done.stdout.splitlines()[2:], strict=True):
        assert re.match(rf"{name} × 4 +[\d.]+ MB: does not fit", row)


def test_out_writes_the_file_of_one_plan(run, write, tmp_path):
    write("script.py", SCRIPT)
    assert run("plan", "--devices", "4", "--out", "plan.json", "script.py").returncode == 0
    assert json.loads((tmp_path / "plan.json").read_text())["num_devices"] == 4
