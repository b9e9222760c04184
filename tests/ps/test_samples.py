"""Ranges of samples that the scheduler gives out, and how long a silent worker stays a member."""

from __future__ import annotations

import queue

import pytest

from sporax.ps.client.scheduler_link import SchedulerLink
from sporax.ps.protocol.events import Received, Tick
from sporax.ps.protocol.messages import GetWanted, Heartbeat, LeaseSamples, Options, Ready, RegisterProcess, SampleRange
from sporax.ps.scheduler.journal import Journal
from sporax.ps.scheduler.scheduler_state import SchedulerState


class LateLink(SchedulerLink):
    """A connection whose scheduler answers each question with the answer to the one before, as after its restart."""

    def __init__(self) -> None:
        self._ranges = queue.SimpleQueue()
        self._outgoing = self
        self.questions: list[int] = []

    def put(self, message: LeaseSamples) -> None:
        self.questions.append(message.request)
        if message.request == 1:
            return  # the scheduler is away
        for request in dict.fromkeys((message.request - 1, message.request)):
            self._ranges.put(SampleRange(request, request, 0, 1))


def test_answers_to_earlier_questions_are_passed_over() -> None:
    """Discarding a late answer and a further request would leave every answer one question behind."""
    link = LateLink()
    assert link.request_samples(LeaseSamples(1, 0, 1, 10, 1), 0.01) is None
    answer = link.request_samples(LeaseSamples(2, 0, 1, 10, 1), 5.0)
    assert answer is not None
    assert answer.request == 2
    assert link.questions == [1, 2]


@pytest.mark.parametrize(("worker_lease", "members"), [(0.0, [0]), (60.0, [0, 1])])
def test_a_silent_worker_stays_a_member_for_its_own_lease(worker_lease: float, members: list[int]) -> None:
    options = Options(-1, "memory", 2, lease_seconds=1.0, worker_lease_seconds=worker_lease)
    state = SchedulerState(options, Journal("job", 2, 1), 0.0)

    def send(sender: bytes, message: object, now: float) -> None:
        state.handle(Received(sender, message, ()), now)

    send(b"s", RegisterProcess("server", "s", 0, "h", "1"), 0.0)
    send(b"s", Ready(0, 1, {}), 0.0)
    for rank in (0, 1):
        send(b"w%d" % rank, RegisterProcess("worker", f"w{rank}", rank, "h", "1"), 0.0)
    for now in (1.0, 2.0, 3.0):
        send(b"s", Heartbeat("server", 0, 1, now, state.journal.epoch, {}, {}, {}, None), now)
        send(b"w0", Heartbeat("worker", 0, 1, now, state.journal.epoch, {}, {}, {}), now)
        state.handle(Tick(), now)
    assert state.journal.members[-1].ranks == members


@pytest.mark.parametrize(("running", "members"), [([], [0]), (["w0"], [0]), (["w0", "w1"], [0, 1])])
def test_a_silent_worker_whose_process_runs_stays_a_member(running: list[str], members: list[int]) -> None:
    """Its launcher says so: it may be too busy for heartbeats, for longer than its lease."""
    state = SchedulerState(Options(-1, "memory", 2, lease_seconds=1.0), Journal("job", 2, 1), 0.0)

    def send(sender: bytes, message: object, now: float) -> None:
        state.handle(Received(sender, message, ()), now)

    send(b"s", RegisterProcess("server", "s", 0, "h", "1"), 0.0)
    send(b"s", Ready(0, 1, {}), 0.0)
    for rank in (0, 1):
        send(b"w%d" % rank, RegisterProcess("worker", f"w{rank}", rank, "h", "1"), 0.0)
    for now in range(1, 10):
        send(b"s", Heartbeat("server", 0, 1, now, state.journal.epoch, {}, {}, {}, None), now)
        send(b"w0", Heartbeat("worker", 0, 1, now, state.journal.epoch, {}, {}, {}), now)
        send(b"launcher", GetWanted(running), now)
        state.handle(Tick(), now)
    assert state.journal.members[-1].ranks == members
