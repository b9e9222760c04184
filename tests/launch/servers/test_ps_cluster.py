"""Which processes of a job with parameter servers are started again, and when the job is over: without processes."""

import random
import signal

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

pytest.importorskip("zmq")

from invariants import check_job
from sporax.launch.jobs.supervision import (
    EARLY_SECONDS,
    PARTING_SECONDS,
    ClusterEnded,
    Finish,
    GraceExpired,
    JobReported,
    Member,
    MemberAdded,
    Notify,
    NotifyOthers,
    ProcessesEnded,
    SignalProcesses,
    SignalReceived,
    Start,
    StartGrace,
    Supervision,
)
from sporax.launch.servers.ps_cluster import POLICIES
from sporax.ps.environment import REPLACED

SCHEDULER, SERVER, WORKER = range(3)
KILLED = -signal.SIGKILL


def add(job: Supervision, role: str, index: int = 0, max_restarts: int = 100) -> int:
    number = len(job.members)
    policy = replace(POLICIES[role], max_restarts=max_restarts)
    assert job.handle(MemberAdded(number, Member(f"{role} {index}", policy))) == [Start(number, 0.0)]
    return number


def ended(number: int, status: int, seconds: float = 60.0) -> ProcessesEnded:
    return ProcessesEnded({number: status}, {number: seconds})


@pytest.fixture
def job() -> Supervision:
    """A scheduler, a server and a worker that all run, and have joined."""
    job = Supervision()
    for role in POLICIES:
        add(job, role)
    job.handle(JobReported(False, frozenset({SERVER, WORKER}), frozenset()))
    return job


def test_a_server_that_missed_the_farewell_is_not_waited_for_long(job: Supervision):
    assert job.handle(ended(WORKER, 0)) == []
    assert job.handle(ended(SCHEDULER, 0)) == [StartGrace(PARTING_SECONDS)]
    assert job.handle(GraceExpired()) == [Finish(0)]


def test_a_server_that_received_the_farewell_ends_the_job(job: Supervision):
    for number in (WORKER, SCHEDULER):
        job.handle(ended(number, 0))
    assert job.handle(ended(SERVER, 0)) == [Finish(0)]
    assert job.handle(GraceExpired()) == []


def test_a_server_that_is_killed_after_the_farewell_is_started_again_and_waited_for_no_longer(job: Supervision):
    for number in (WORKER, SCHEDULER):
        job.handle(ended(number, 0))
    assert job.handle(ended(SERVER, KILLED)) == [Start(SERVER, 0.05)]
    assert job.handle(GraceExpired()) == [Finish(0)]


def test_a_job_is_not_over_while_its_scheduler_or_a_worker_runs(job: Supervision):
    assert job.handle(ended(WORKER, 0)) == []
    assert job.handle(GraceExpired()) == []
    assert job.running == {SCHEDULER, SERVER}


def test_servers_of_a_machine_without_the_scheduler_are_waited_for():
    job = Supervision()
    server, worker = add(job, "server"), add(job, "worker")
    assert job.handle(ended(worker, 0)) == []
    assert job.handle(ended(server, 0)) == [Finish(0)]


def test_a_job_is_over_at_once_when_all_have_ended(job: Supervision):
    assert job.handle(ProcessesEnded({0: 0, 1: 0, 2: 0}, {0: 1.0, 1: 1.0, 2: 1.0}))[-1] == Finish(0)


@pytest.mark.parametrize("number", [SCHEDULER, SERVER, WORKER])
def test_a_killed_process_is_started_again_alone_twice_as_late_each_time(job: Supervision, number: int):
    pauses = []
    for _ in range(15):
        (start,) = job.handle(ended(number, KILLED, seconds=0.0))
        assert (type(start), start.number) == (Start, number)
        pauses.append(start.seconds)
    assert pauses == [0.05] * 4 + [0.1, 0.2, 0.4, 0.8, 1.6] + [2.0] * 6
    assert job.running == {SCHEDULER, SERVER, WORKER}


def test_a_process_may_be_started_thousands_of_times():
    assert replace(POLICIES["server"], max_restarts=5000).pause(5000) == 2.0


@pytest.mark.parametrize(("number", "name"), [(SCHEDULER, "scheduler 0"), (WORKER, "worker 0")])
def test_the_own_error_of_a_worker_or_scheduler_ends_the_job(job: Supervision, number: int, name: str):
    assert job.handle(ended(number, 3)) == [Notify(f"{name} ended with exit code 3"), NotifyOthers(), Finish(3)]


def test_a_server_with_an_error_is_started_again_until_it_fails_early_for_the_fourth_time(job: Supervision):
    for _ in range(3):
        assert job.handle(ended(SERVER, 1, EARLY_SECONDS / 2)) == [Start(SERVER, 0.05)]
    text = Notify("server 0 ended with exit code 1 after 4 starts")
    assert job.handle(ended(SERVER, 1, EARLY_SECONDS / 2)) == [text, NotifyOthers(), Finish(1)]


@pytest.mark.parametrize(("status", "seconds"), [(1, EARLY_SECONDS), (REPLACED, 0.0), (KILLED, 0.0)])
def test_a_server_that_fails_late_was_replaced_or_was_killed_does_not_fail_early(
    job: Supervision, status: int, seconds: float
):
    for _ in range(9):
        assert [type(item) for item in job.handle(ended(SERVER, status, seconds))] == [Start]


@pytest.mark.parametrize(("status", "exit_code"), [(KILLED, 137), (7, 7)])
def test_a_process_that_has_used_up_its_restarts_ends_the_job(status: int, exit_code: int):
    job = Supervision()
    server = add(job, "server", 4, max_restarts=1)
    assert job.handle(ended(server, status)) == [Start(server, 0.05)]
    text = Notify(f"server 4 ended with exit code {status} after 2 starts")
    assert job.handle(ended(server, status)) == [text, NotifyOthers(), Finish(exit_code)]


def test_a_process_that_was_removed_has_ended_however_it_ends(job: Supervision):
    late = add(job, "worker", 1)
    job.handle(JobReported(False, frozenset({late}), frozenset({late})))
    assert job.handle(ended(late, KILLED)) == []
    assert job.running == {SCHEDULER, SERVER, WORKER}


def test_the_end_of_a_server_after_that_of_the_job_is_no_failure(job: Supervision):
    job.handle(JobReported(True, frozenset({SERVER, WORKER}), frozenset()))
    assert job.handle(ended(SERVER, KILLED)) == []
    assert job.running == {SCHEDULER, WORKER}


@pytest.mark.parametrize("is_done", [True, False])
def test_workers_that_come_when_the_job_is_over_are_ended(job: Supervision, is_done: bool):
    """The scheduler has said so, or has ended well before it could."""
    late = add(job, "worker", 1)
    if not is_done:
        job.handle(ended(SCHEDULER, 0))
    report = JobReported(is_done, frozenset({SERVER, WORKER}), frozenset())
    assert job.handle(report) == [SignalProcesses((late,), signal.SIGKILL)]
    assert job.running == {SERVER, WORKER, SCHEDULER} - (set() if is_done else {SCHEDULER})


def test_what_has_failed_elsewhere_or_as_a_whole_ends_the_job_with_its_code(job: Supervision):
    text = "the launcher on x has ended its processes: worker 3 ended with exit code 9"
    assert job.handle(ClusterEnded(text, exit_code=9)) == [Notify(text), NotifyOthers(), Finish(9)]
    # What ends meanwhile has ended because of that.
    assert job.handle(ended(WORKER, 1)) == job.handle(ClusterEnded("other")) == []


def test_a_signal_ends_the_job_at_once(job: Supervision):
    ends = [Notify("got SIGTERM (signal 15)"), NotifyOthers(), Finish(143)]
    assert job.handle(SignalReceived(signal.SIGTERM)) == ends
    assert job.is_stopped_by_signal


@given(st.integers(0, 2**32 - 1))
def test_no_sequence_of_events_breaks_the_supervision(seed: int):
    """Whatever comes in whatever order: one end, with a good code only where nothing is left but servers."""
    dice = random.Random(seed)
    job = Supervision()
    for role in ("scheduler", "server", "server", "worker", "worker"):
        add(job, role, max_restarts=3)
    ends: list[int] = []
    for _ in range(40):
        number = dice.randrange(len(job.members))
        some = frozenset(dice.sample(range(len(job.members)), 2))
        event = dice.choice(
            [
                GraceExpired(),
                ClusterEnded("lost"),
                JobReported(dice.random() < 0.2, some, frozenset({number} if dice.random() < 0.1 else ())),
                SignalReceived(signal.SIGTERM),
                *[ended(number, dice.choice([0, 0, 1, KILLED]), dice.choice([0.0, 9.0]))]
                * 12
                * (number in job.running),
            ]
        )
        for instruction in job.handle(event):
            match instruction:
                case Finish(exit_code, pause):
                    ends.append(exit_code)
                    assert pause is None
                    assert exit_code or all(job.members[number].policy.serves for number in job.running)
                case Start(started, seconds):
                    assert not ends
                    assert started in job.running
                    assert 0 <= seconds <= 2
        check_job(job)
    assert len(ends) <= 1
