"""Processes that end with the process that started them, together with their children."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sporax.launch.jobs.rank import BoundProcess

PARENT = "import subprocess, sys; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"


def started(tmp_path, script):
    with open(tmp_path / "output", "wb") as output:
        return BoundProcess(lambda watched: [sys.executable, "-S", "-c", script], os.environ, output)


def written(tmp_path):
    path = tmp_path / "output"
    while not path.read_text().endswith("\n"):
        time.sleep(0.01)
    return path.read_text().strip()


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_its_end_is_the_end_of_what_it_has_started(tmp_path):
    process = started(tmp_path, PARENT)
    child = int(written(tmp_path))
    process.end()
    assert process.returncode == -signal.SIGKILL
    while is_there(child):
        time.sleep(0.01)
    process.end()  # a second time does no harm


def test_a_stopped_process_heeds_a_signal(tmp_path):
    process = started(tmp_path, "import time; print('here', flush=True); time.sleep(60)")
    written(tmp_path)
    process.signal_group(signal.SIGSTOP)
    process.signal_group(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM
    process.release()


def test_the_pipe_stays_open_until_it_is_released(tmp_path):
    script = "import select, sys; print('here', flush=True); select.select([int(sys.argv[1])], [], []); print('over')"
    with open(tmp_path / "output", "wb") as output:
        process = BoundProcess(lambda watched: [sys.executable, "-S", "-c", script, str(watched)], os.environ, output)
    assert written(tmp_path) == "here"
    assert process.poll() is None
    process.release()
    assert process.wait(10) == 0
    assert written(tmp_path) == "here\nover"


def test_a_command_that_cannot_be_started_leaves_no_descriptor():
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):
        BoundProcess(lambda watched: ["/nowhere/at/all"], os.environ, subprocess.DEVNULL)
    assert set(os.listdir("/proc/self/fd")) == before
