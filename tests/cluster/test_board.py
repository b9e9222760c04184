"""The board that ranks of one machine share, and how idle processes are distinguished from working ones."""

import os
import signal
import subprocess
import sys
import time

import pytest

from sporax.cluster.board import Idleness, RankBoard
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
def boards(tmp_path):
    """The boards of two ranks of one job, both in this process."""
    return [board(tmp_path, rank) for rank in range(2)]


def board(directory, rank, address="here:1"):
    return RankBoard(RankEnvironment(rank=rank, size=2, coordinator_address=address), directory)


def test_only_who_does_nothing_is_idle(start):
    programs = {name: start(name) for name in (SLEEPS, COMPUTES, CHILD_COMPUTES, POLLS)}
    idleness = Idleness()
    sleeper = programs.pop(SLEEPS)
    deadline = time.monotonic() + 60  # on a busy machine they take long to start, and to get a core

    def only_the_sleeper_is_idle():
        idle = idleness.look([sleeper, *programs.values()])
        return idle[sleeper] >= SECONDS and all(idle[process] < SECONDS for process in programs.values())

    while not (found := only_the_sleeper_is_idle()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert found
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
    first.begin((0, 1))
    first.begin((0, 1))
    second.begin((0, 1))
    assert first.behind() == {1: 1}
    assert first.is_complete()
    assert first.present() == {1: os.getpid()}
    second.leave()
    assert first.present() == {}
    assert first.standing() == "rank 0 is in exchange 2, rank 1 has left after exchange 1"
    assert second.behind() == {}
    assert first.stopped() == []


def test_a_rank_that_left_too_early_is_distinguished_from_one_that_is_behind(boards):
    first, second = boards
    first.begin((0, 1))
    assert first.left_behind() == []
    second.leave()
    assert first.left_behind() == [1]
    assert second.left_behind() == []


def test_exchanges_without_a_rank_put_no_one_behind(tmp_path):
    first, second, third = (RankBoard(RankEnvironment(rank=rank, size=3), tmp_path) for rank in range(3))
    for own in (first, second):
        own.begin((0, 1))
    assert [own.begin(range(3)) for own in (first, second, third)] == [None] * 3
    third.leave()
    assert (first.behind(), first.left_behind()) == ({}, [])  # it had begun one exchange, of which it was a member
    second.begin((1, 2))
    assert (second.left_behind(), first.left_behind()) == ([2], [])
    first.begin(range(3))
    second.note(waits=True)
    first.note(waits=True)
    assert (first.behind(), second.awaiting()) == ({1: 1, 2: 1}, [0])


def test_a_stopped_rank_is_seen(boards, start):
    process = start(SLEEPS)
    boards[0].entries[1, 0] = process
    os.kill(process, signal.SIGSTOP)
    deadline = time.monotonic() + 30
    while not boards[0].stopped() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert boards[0].stopped() == [1]
    assert boards[0].traced() == []


def test_boards_of_killed_jobs_are_removed_and_those_of_others_are_not(tmp_path, start):
    process = start(SLEEPS)
    lost, kept = board(tmp_path, 0, "lost:1"), board(tmp_path, 0, "kept:1")
    lost.entries[0, 0] = process
    os.killpg(process, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while lost.path.exists() and time.monotonic() < deadline:
        board(tmp_path, 0, "next:1")
        time.sleep(0.05)
    assert not lost.path.exists()
    assert kept.path.exists()
