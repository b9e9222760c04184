import os
import subprocess
import sys
from pathlib import Path

import pytest

from sporax.launch.jobs import rank
from sporax.launch.target import Target, TargetKind

KILLED = -9
WATCH = """
import fcntl, os, subprocess, sys, time
from sporax.launch.jobs import rank
if sys.argv[2] == "thread":
    vars(fcntl).pop("F_SETSIG", None)
rank.end_with_launcher(int(sys.argv[1]), inherit=False)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print(child.pid, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("way", ["kernel", "thread"])
def test_the_group_ends_when_the_writer_is_gone(way: str, wait_until):
    reader, writer = os.pipe()
    command = [sys.executable, "-c", WATCH, str(reader), way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[reader], start_new_session=True) as process:
        os.close(reader)
        child = int(process.stdout.readline())
        assert process.poll() is None
        os.close(writer)
        assert process.wait(timeout=30) == KILLED
    wait_until(lambda: not Path(f"/proc/{child}").exists() or ") Z" in Path(f"/proc/{child}/stat").read_text())


def test_a_rank_that_starts_after_the_launcher_has_gone_ends_at_once():
    reader, writer = os.pipe()
    os.close(writer)
    command = [sys.executable, "-c", WATCH, str(reader), "kernel"]
    process = subprocess.run(command, stdout=subprocess.PIPE, pass_fds=[reader], start_new_session=True)
    os.close(reader)
    assert (process.returncode, process.stdout) == (KILLED, b"")


def test_rank_command():
    command = rank.rank_command(Target(TargetKind.SCRIPT, "a.py", ("--x",)), 7, (1, 2))
    assert command == [sys.executable, "-m", "sporax.launch.jobs.rank", "7", "1,2", "script", "a.py", "--x"]
    assert rank.rank_command(Target(TargetKind.MODULE, "a"), 7, None)[4] == "-"


def test_a_target_that_cannot_start_says_so_in_the_log(run, tmp_path):
    (tmp_path / "tool").write_bytes(b"\x00\x01")
    (tmp_path / "tool").chmod(0o755)
    done = run("run", "--worker_num", 1, "./tool")
    assert done.returncode == 126
    assert "Exec format error" in (tmp_path / "worker_0.log").read_text()
