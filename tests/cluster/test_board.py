"""The board that ranks of one machine share, and how idle processes are told from working ones."""

import os
import subprocess
import sys
import time

import pytest

from sporax.cluster.board import Board, Idleness
from sporax.cluster.environment import RankEnvironment

SECONDS = 2
SLEEPS = "import time; time.sleep(60)"
COMPUTES = "while True: pass"
CHILD_COMPUTES = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPUTES!r}])"
POLLS = "import time\nwhile True: time.sleep(0.2)"

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system has no /proc")


@pytest.fixture
def start():
    """Start a program in a process group of its own, as the launcher does with ranks; its id."""
    started = []

    def run(program):
        process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        started.append(process)
        return process.pid

    yield run
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.fixture
def boards(tmp_path, monkeypatch):
    """The boards of two ranks of one job, both in this process."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return [Board(RankEnvironment(rank=rank, size=2, coordinator_address="here:1")) for rank in range(2)]


def test_only_who_does_nothing_is_idle(start):
    programs = {name: start(name) for name in (SLEEPS, COMPUTES, CHILD_COMPUTES, POLLS)}
    idleness = Idleness()
    sleeper = programs.pop(SLEEPS)
    deadline = time.monotonic() + 60  # on a busy machine they take long to start
    while (idle := idleness.look([sleeper, *programs.values()]))[sleeper] < SECONDS and time.monotonic() < deadline:
        time.sleep(0.25)
    assert idle[sleeper] >= SECONDS
    assert all(idle[process] < SECONDS for process in programs.values())
    idleness.forget()
    assert set(idleness.look(programs.values()).values()) == {0.0}


def test_ranks_that_wait_or_leave_are_not_at_work(boards):
    first, second = boards
    assert first.at_work() == [1]
    second.note(waits=True)
    assert first.at_work() == []
    second.note(waits=False)
    assert first.at_work() == [1]
    second.leave()
    second.note(waits=False)
    assert first.at_work() == []


def test_exchanges_are_counted(boards):
    first, second = boards
    first.begin()
    first.begin()
    second.begin()
    assert first.behind() == {1: 1}
    assert first.is_whole()
    assert first.present() == {1: os.getpid()}
    second.leave()
    assert first.present() == {}
    assert first.standing() == "rank 0 is in exchange 2, rank 1 has left after exchange 1"
    assert second.behind() == {}
    assert first.stopped() == []
