"""What is shown of logs."""

import os

import pytest

from sporax.launch.jobs.logs import ENDED_BY_JAX, LogTail, last_lines, write_problem

ABORTED = """step 3
W1122 19:18:02.236213   18323 preemption_sync_manager.cc:147] Failed to retrieve preemption notice: UNAVAILABLE: Socket closed
Additional GRPC error information from remote target coordination_service while calling /xla.coordination.CoordinationService:
:UNKNOWN:Error received from peer  {grpc_message:"Socket closed", grpc_status:14}. This is only expected if one is unhealthy.
E1122 18:52:11.385331   28344 coordination_service_agent.cc:289] Polled an error from coordination service (this can be an error).
F1122 18:52:11.385385   28344 client.h:80] Terminating process because the JAX distributed service detected fatal errors. Most likely
Additional GRPC error information from remote target coordination_service while calling /xla.coordination.CoordinationService:
:UNKNOWN:Error received from peer  {grpc_message:"Socket closed", grpc_status:14}
*** Check failure stack trace: ***
    @     0x7f03c9d98634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
the script's own last words
    @     0x7f03d64a71f5  (unknown)
"""


def test_stack_traces_of_the_coordinator_are_one_line_wherever_logs_are_shown(tmp_path):
    log = tmp_path / "worker_1.log"
    shown = ["step 3", ENDED_BY_JAX, "the script's own last words"]
    log.write_text(ABORTED)
    assert last_lines(str(log), 20) == shown
    assert last_lines(str(log), 2) == shown[1:]
    tail = LogTail(str(log), "[1] ")
    assert [*tail.new_lines(), *tail.close()] == [f"[1] {line}" for line in shown]


def test_a_trace_that_comes_in_pieces_is_one_line(tmp_path):
    log = tmp_path / "worker_1.log"
    log.touch()
    tail = LogTail(str(log), "")
    shown = []
    for start in range(0, len(ABORTED), 50):
        with open(log, "a") as file:
            file.write(ABORTED[start : start + 50])
        shown += tail.new_lines()
    assert [*shown, *tail.close()] == ["step 3", ENDED_BY_JAX, "the script's own last words"]


def test_the_users_own_stack_traces_are_shown(tmp_path):
    log = tmp_path / "worker_1.log"
    text = "*** Check failure stack trace: ***\n    @     0x7f03c9d98634  users_library()\n"
    log.write_text(text)
    assert last_lines(str(log), 20) == text.splitlines()


def test_what_gloo_says_of_its_connections_is_shown_in_verbose_jobs_alone(tmp_path):
    log = tmp_path / "worker_1.log"
    chatter = "[Gloo] Rank 1 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3"
    log.write_text(f"{chatter}\n[Gloo] of the user's\n{ABORTED}")
    assert [*LogTail(str(log), "").close()][:2] == ["[Gloo] of the user's", "step 3"]
    assert [*LogTail(str(log), "", is_verbose=True).close()] == log.read_text().splitlines()


def test_looking_for_a_problem_leaves_a_log_as_it_is(tmp_path):
    log = tmp_path / "worker_1.log"
    log.write_text("all")
    assert write_problem(str(log)) is None
    assert log.read_text() == "all"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_a_problem():
    assert write_problem("/dev/full") == "No space left on device"
