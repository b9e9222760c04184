"""Forks of a nursery are like new processes."""

import os
import signal
import subprocess
import sys

import pytest

from forked_commands import ForkedCommand, run_forked

SCRIPT = """
import json, os, random, signal, sys
import numpy as np
how = sys.argv[1]
if how == "is killed":
    os.kill(os.getpid(), signal.SIGTERM)
names = {"NEW": os.environ.get("NEW"), "OLD": os.environ.get("OLD")}
handler = str(signal.getsignal(signal.SIGTERM))
print(json.dumps([sys.argv[1:], os.getcwd(), names, random.random(), np.random.rand(), handler, os.getsid(0) == os.getpid()]))
if how == "raises":
    raise ValueError("of the script")
sys.exit({"ends": 0, "counts": 7, "says": "a last word"}[how])
"""


@pytest.fixture
def command(write):
    return [sys.executable, "-m", "sporax", "run", str(write("script.py", SCRIPT))]


@pytest.mark.skipif(sys.platform != "linux", reason="adoption of orphans")
@pytest.mark.parametrize(
    ("how", "code", "error"),
    [
        ("ends", 0, ""),
        ("counts", 7, ""),
        ("says", 1, "a last word\n"),
        ("raises", 1, "of the script"),
        ("is killed", -signal.SIGTERM, ""),
    ],
)
def test_it_ends_as_a_new_process(command, environ, tmp_path, how, code, error):
    forked = run_forked([*command, how], timeout=60, env=environ, cwd=tmp_path)
    assert forked.returncode == code, forked.stderr
    assert error in forked.stderr
    assert forked.stderr.count("Traceback") == (how == "raises")


@pytest.mark.skipif(sys.platform != "linux", reason="adoption of orphans")
def test_nothing_of_the_process_before_is_left(command, environ, tmp_path):
    os.environ["OLD"] = "of the session"
    try:
        command = [*command[:-1], "--worker_num", "2", "--log_dir", str(tmp_path / "logs"), command[-1], "ends"]
        outputs = [run_forked(command, timeout=60, env=environ | {"NEW": "1"}, cwd=tmp_path).stdout for _ in range(2)]
    finally:
        del os.environ["OLD"]
    lines = [line.split("] ", 1)[1] for output in outputs for line in output.splitlines()]
    assert len(lines) == 4
    shown = [eval(line, {"null": None, "true": True, "false": False}) for line in lines]
    for arguments, folder, names, _, _, handler, leads in shown:
        assert (arguments, folder, names) == (["ends"], str(tmp_path), {"NEW": "1", "OLD": None})
        assert (handler, leads) == ("0", True)
    assert len({numbers[3] for numbers in shown}) == len({numbers[4] for numbers in shown}) == 4


def test_other_programs_start_as_always(tmp_path):
    with ForkedCommand([sys.executable, "-c", "print(1)"], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.communicate(timeout=60)[0] == "1\n"
