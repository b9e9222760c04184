"""What the launcher decides, without a process."""

import random
import signal

import pytest
from hypothesis import given, strategies as st

from invariants import check_job
from sporax.launch.jobs.supervision import (
    ELSEWHERE,
    GRACE_SECONDS,
    LAST_WORDS_SECONDS,
    OPEN_SECONDS,
    SIGNALS_SECONDS,
    BlameRank,
    ClusterEnded,
    ClusterFormed,
    Finish,
    GraceExpired,
    Notify,
    NotifyOthers,
    ProcessesEnded,
    RankJoined,
    RestartRule,
    RunPhase,
    SignalProcesses,
    SignalReceived,
    StartGrace,
    Supervision,
    exit_code_of,
    signal_name,
)


@pytest.fixture
def job() -> Supervision:
    return Supervision(running={0, 1, 2})


def join_all(job: Supervision) -> None:
    for local_rank in sorted(job.running):
        job.handle(RankJoined(local_rank))
    job.handle(ClusterFormed())


def test_all_well(job: Supervision):
    assert job.handle(ProcessesEnded({1: 0})) == []
    assert job.handle(ProcessesEnded({0: 0, 2: 0})) == [Finish(0)]


def test_the_first_failure_ends_the_job_and_is_named(job: Supervision):
    assert job.handle(ProcessesEnded({1: 3})) == [
        BlameRank(1, 3),
        NotifyOthers(),
        SignalProcesses((0, 2), signal.SIGTERM),
        StartGrace(GRACE_SECONDS),
    ]
    assert job.handle(ProcessesEnded({0: -signal.SIGTERM})) == []
    assert job.handle(ProcessesEnded({2: 77})) == [Finish(3)]


def test_who_does_not_stop_is_killed(job: Supervision):
    job.handle(ProcessesEnded({1: 3}))
    job.handle(ProcessesEnded({0: -signal.SIGTERM}))
    assert job.handle(GraceExpired()) == [SignalProcesses((2,), signal.SIGKILL)]
    assert job.handle(ProcessesEnded({2: -signal.SIGKILL})) == [Finish(3)]


def test_failures_seen_at_once_count_together(job: Supervision):
    instructions = job.handle(ProcessesEnded({0: 1, 2: -signal.SIGKILL}))
    assert instructions[:2] == [BlameRank(0, 1), BlameRank(2, -signal.SIGKILL)]
    assert job.handle(ProcessesEnded({1: 0})) == [Finish(137)]


def test_one_rank_alone_fails():
    assert Supervision(running={0}).handle(ProcessesEnded({0: 5})) == [BlameRank(0, 5), NotifyOthers(), Finish(5)]


def test_a_signal_is_passed_on_and_becomes_the_exit_code(job: Supervision):
    report, others, passed_on, grace = job.handle(SignalReceived(signal.SIGINT))
    assert report == Notify("got SIGINT (signal 2)")
    assert others == NotifyOthers()
    assert passed_on == SignalProcesses((0, 1, 2), signal.SIGINT)
    assert grace == StartGrace(GRACE_SECONDS)
    assert job.handle(ProcessesEnded({0: 1, 1: -2, 2: 0})) == [Finish(130)]


def test_a_second_signal_does_not_wait(job: Supervision):
    job.handle(SignalReceived(signal.SIGINT))
    assert job.handle(SignalReceived(signal.SIGINT)) == [SignalProcesses((0, 1, 2), signal.SIGKILL)]


@pytest.mark.parametrize("ends_first", [True, False])
def test_ranks_that_wait_for_one_that_is_gone_do_not_wait_for_the_time_out(job: Supervision, ends_first: bool):
    first, second = ProcessesEnded({1: 0}), RankJoined(0)
    assert job.handle(first if ends_first else second) == []
    answers, *rest = job.handle(second if ends_first else first)
    assert answers == Notify("local ranks [1] ended without joining the job, for which local ranks [0] wait")
    assert rest == [NotifyOthers(), SignalProcesses((0, 2), signal.SIGTERM), StartGrace(GRACE_SECONDS)]


def test_ranks_that_have_joined_may_end_one_by_one(job: Supervision):
    join_all(job)
    for local_rank in (0, 1, 2):
        assert job.handle(ProcessesEnded({local_rank: 0})) == []
    assert job.handle(ClusterEnded(None)) == [Finish(0)]


def test_a_failure_elsewhere_ends_the_job(job: Supervision):
    join_all(job)
    assert job.handle(ClusterEnded("rank 7 is gone")) == [StartGrace(LAST_WORDS_SECONDS)]
    assert job.handle(GraceExpired()) == [
        Notify("rank 7 is gone"),
        NotifyOthers(),
        SignalProcesses((0, 1, 2), signal.SIGTERM),
        StartGrace(GRACE_SECONDS),
    ]
    assert job.handle(ProcessesEnded({0: -15, 1: -15, 2: -15})) == [Finish(1)]


def test_a_failure_here_that_the_scheduler_sees_first_is_still_named_by_how_it_ended(job: Supervision):
    join_all(job)
    job.handle(ClusterEnded("rank 1 is gone", cause=1))
    assert job.handle(ProcessesEnded({1: -signal.SIGKILL}))[0] == BlameRank(1, -signal.SIGKILL)


def test_when_time_is_up_the_missing_rank_is_named_before_those_that_waited(job: Supervision):
    job.handle(RankJoined(0))
    job.handle(ClusterEnded("ranks [1, 2] never came"))
    assert job.handle(ProcessesEnded({0: 1}))[:2] == [Notify("ranks [1, 2] never came"), BlameRank(0, 1)]


def test_ranks_that_end_well_while_the_cluster_has_failed_do_not_make_it_well(job: Supervision):
    join_all(job)
    job.handle(ClusterEnded("rank 7 is gone"))
    assert job.handle(ProcessesEnded({0: 0, 1: 0, 2: 0})) == []
    assert job.handle(GraceExpired()) == [Notify("rank 7 is gone"), NotifyOthers(), Finish(1)]


EVENTS = [
    RankJoined(0),
    RankJoined(1),
    ClusterFormed(),
    ClusterEnded(None),
    ClusterEnded("lost"),
    SignalReceived(signal.SIGTERM),
    GraceExpired(),
]


@given(st.integers(0, 2**32 - 1))
def test_no_sequence_of_events_breaks_the_supervision(seed: int):
    """Whatever comes in whatever order: one end, only when nothing runs, with a bad code if anything went wrong."""
    dice = random.Random(seed)
    job = Supervision(running={0, 1, 2})
    ends: list[int] = []
    wrong = False
    for _ in range(20):
        event = dice.choice(EVENTS)
        if job.running and dice.random() < 0.3:
            event = ProcessesEnded({dice.choice(sorted(job.running)): dice.choice([0, 0, 1, -9])})
        wrong |= job.phase is RunPhase.STOPPING
        for instruction in job.handle(event):
            match instruction:
                case Finish(exit_code):
                    ends.append(exit_code)
                    assert not job.running
                case SignalProcesses(local_ranks, _):
                    assert set(local_ranks) <= job.running
        check_job(job)
    assert len(ends) <= 1
    assert not wrong or all(ends)


def test_exit_codes_and_names():
    assert [exit_code_of(status) for status in (0, 3, -9)] == [0, 3, 137]
    assert signal_name(9) == "SIGKILL (signal 9)"
    assert signal_name(63) == "signal 63"


@pytest.mark.parametrize("cause", [2, ELSEWHERE])
def test_the_rank_that_notices_is_not_the_headline(job: Supervision, cause: int):
    """It has notified the scheduler of the rank that is stopped, or has left, and ends because of that."""
    join_all(job)
    job.handle(ClusterEnded("rank 2 is stopped: rank 0 ended because it waits", cause))
    instructions = job.handle(ProcessesEnded({0: 1}))
    assert instructions[0] == Notify("rank 2 is stopped: rank 0 ended because it waits")
    assert not any(isinstance(instruction, BlameRank) for instruction in instructions)
    assert job.is_secondary_failure(0)
    assert not job.is_secondary_failure(cause)


def test_of_ranks_that_fail_together_the_first_is_the_headline(job: Supervision):
    join_all(job)
    job.handle(ClusterEnded("rank 1 ended with an exception", 1))
    assert job.handle(ProcessesEnded({0: 1, 1: 1})) == [StartGrace(SIGNALS_SECONDS)], "one more may have been killed"
    instructions = job.handle(GraceExpired())
    assert [item for item in instructions if isinstance(item, BlameRank)] == [BlameRank(1, 1)]


def test_ranks_that_save_and_leave_on_request_have_not_failed():
    job = Supervision(running={0, 1}, graceful=True)
    join_all(job)
    reported, requested, grace = job.handle(SignalReceived(signal.SIGTERM))
    assert isinstance(reported, Notify)
    assert requested == SignalProcesses((0, 1), signal.SIGTERM)
    assert isinstance(grace, StartGrace)
    assert grace.seconds > GRACE_SECONDS
    assert job.handle(ProcessesEnded({0: 0})) == []
    check_job(job)
    assert job.handle(ProcessesEnded({1: 0})) == [Finish(0)]


def test_a_rank_that_fails_while_it_leaves_has_failed():
    job = Supervision(running={0, 1}, graceful=True)
    join_all(job)
    job.handle(SignalReceived(signal.SIGTERM))
    job.handle(ProcessesEnded({0: 3}))
    assert job.handle(SignalReceived(signal.SIGTERM)) == [SignalProcesses((1,), signal.SIGKILL)]
    assert job.handle(ProcessesEnded({1: -signal.SIGKILL})) == [Finish(143)]


def test_the_headline_of_a_rank_that_left_is_what_the_others_say_however_it_ends(job: Supervision):
    join_all(job)
    job.handle(ClusterEnded("rank 1 has left the job while others needed it", 1, is_accused=True))
    instructions = job.handle(ProcessesEnded({1: 1}))
    assert instructions[0] == Notify("rank 1 has left the job while others needed it")
    assert not any(isinstance(instruction, BlameRank) for instruction in instructions)


def test_ranks_that_end_because_of_a_killed_one_are_secondary_before_the_scheduler_has_spoken(job: Supervision):
    join_all(job)
    job.handle(ProcessesEnded({1: -9}))
    assert [job.is_secondary_failure(rank) for rank in (0, 1, 2)] == [True, False, True]


def test_no_failure_is_secondary_where_no_rank_is_blamed(job: Supervision):
    join_all(job)
    job.handle(SignalReceived(signal.SIGTERM))
    assert not job.is_secondary_failure(0)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_rank_is_the_headline_however_late_its_end_is_seen(seed: int, killed: int):
    """Exceptions and aborts of the others, and what they report to the scheduler, are seen before, after, or not at all."""
    dice = random.Random(seed)
    job = Supervision(running={0, 1, 2, 3})
    join_all(job)
    others = [rank for rank in range(4) if rank != killed]
    events = [ProcessesEnded({rank: dice.choice([1, -signal.SIGABRT])}) for rank in others[: dice.randrange(4)]]
    reporter = dice.choice(others)
    events.append(
        dice.choice(
            [
                ClusterEnded(f"rank {reporter} ended with an exception", reporter, is_own_word=True),
                ClusterEnded(f"rank {killed} ended without saying goodbye", killed),
            ]
        )
    )
    events.append(ProcessesEnded({killed: -signal.SIGKILL}))
    dice.shuffle(events)
    instructions = []
    for event in events:
        instructions += job.handle(event)
        check_job(job)
    # The scheduler's word is enough where it names the killed one before anything else has failed.
    headlines = [item for item in instructions if isinstance(item, (BlameRank, Notify))]
    assert headlines in ([BlameRank(killed, -signal.SIGKILL)], [Notify(f"rank {killed} ended without saying goodbye")])


def test_an_exception_is_believed_after_a_moment(job: Supervision):
    join_all(job)
    assert job.handle(ProcessesEnded({2: 5})) == [StartGrace(SIGNALS_SECONDS)]
    assert job.handle(ClusterEnded("rank 2 ended with an exception", 2)) == []
    assert job.handle(GraceExpired())[:2] == [BlameRank(2, 5), NotifyOthers()]


def test_an_exception_is_believed_at_once_where_no_rank_is_left_that_could_have_been_killed(job: Supervision):
    join_all(job)
    job.handle(ProcessesEnded({0: 0}))
    job.handle(ProcessesEnded({1: 5}))
    assert BlameRank(1, 5) in job.handle(ProcessesEnded({2: 0}))


def test_whoever_stops_a_job_whose_rank_has_failed_is_notified(job: Supervision):
    join_all(job)
    job.handle(ProcessesEnded({1: 5}))
    assert job.handle(SignalReceived(signal.SIGINT))[0] == BlameRank(1, 5)


def test_the_exit_code_of_a_rank_elsewhere_is_waited_for_and_becomes_the_launchers(job: Supervision):
    """Ranks here end because of it meanwhile; its launcher speaks a moment later."""
    join_all(job)
    assert job.handle(ClusterEnded("rank 7 ended", ELSEWHERE, is_open=True)) == [StartGrace(OPEN_SECONDS)]
    assert job.handle(ProcessesEnded({0: 1, 1: -signal.SIGABRT})) == []
    instructions = job.handle(ClusterEnded("rank 7 ended with exit code 3", ELSEWHERE, exit_code=3))
    assert instructions[:2] == [Notify("rank 7 ended with exit code 3"), NotifyOthers()]
    assert job.handle(ProcessesEnded({2: -15})) == [Finish(3)]


def test_a_launcher_elsewhere_that_says_nothing_more_is_waited_for_no_longer_than_the_grace(job: Supervision):
    join_all(job)
    job.handle(ClusterEnded("rank 7 ended", ELSEWHERE, is_open=True))
    assert job.handle(ProcessesEnded({0: 1, 1: 1, 2: 1})) == []
    assert job.handle(GraceExpired()) == [Notify("rank 7 ended"), NotifyOthers(), Finish(1)]


def test_the_exit_code_is_that_of_the_rank_that_failed_first(job: Supervision):
    join_all(job)
    job.handle(ClusterEnded("rank 1 ended by sys.exit", 1, is_own_word=True))
    job.handle(ProcessesEnded({1: 3, 0: -signal.SIGABRT}))
    assert BlameRank(1, 3) in job.handle(GraceExpired())
    assert job.handle(ProcessesEnded({2: 0})) == [Finish(3)]


def restarting(starts: int = 1, max_restarts: int = 2) -> Supervision:
    return Supervision({0, 1}, RestartRule(max_restarts, 1.0, 1.0), starts)


@pytest.mark.parametrize(("starts", "pause"), [(1, 1.0), (2, 1.0), (3, None)])
def test_ranks_start_again_together_until_their_restarts_are_used_up(starts: int, pause: float | None):
    job = restarting(starts)
    job.handle(ProcessesEnded({1: 3}))
    assert job.handle(ProcessesEnded({0: -signal.SIGTERM})) == [Finish(3, pause)]


def test_ranks_that_have_ended_well_do_not_start_again():
    assert restarting().handle(ProcessesEnded({0: 0, 1: 0})) == [Finish(0)]


@pytest.mark.parametrize("is_local", [True, False])
def test_ranks_that_were_signaled_to_stop_do_not_start_again(is_local: bool):
    """By a signal to this launcher, or to that of another node."""
    job = restarting()
    if is_local:
        job.handle(SignalReceived(signal.SIGTERM))
    else:
        job.is_stopped_by_signal = True
        job.handle(ProcessesEnded({1: 1}))
    assert job.handle(ProcessesEnded(dict.fromkeys(job.running, -signal.SIGTERM)))[-1].pause is None
