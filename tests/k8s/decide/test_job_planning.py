"""What is decided for a job, case by case; time and pods are given, nothing runs."""

from datetime import timedelta

import pytest
from msgspec.structs import replace
from support_k8s.jobs import job
from support_k8s.simulation import START, Simulation

from sporax.k8s.decide.actions import (
    CreatePod,
    DeletePod,
    DeletePodGroup,
    EnsureShared,
    LimitEvictions,
    Report,
    ResizeJob,
)
from sporax.k8s.decide.job_planning import refuse
from sporax.k8s.decide.observed import Gang, PodPhase, ReportedMembership
from sporax.k8s.resource.job_status import PodRecord, Status, read_status, status_patch, write_status


def running(body, **extras) -> Simulation:
    simulation = Simulation(body, **extras)
    simulation.settle()
    assert simulation.state == "Running"
    return simulation


def policies(body, policy: str, *roles: str):
    for role in roles or body["spec"]["msReplicaSpecs"]:
        body["spec"]["msReplicaSpecs"][role]["restartPolicy"] = policy
    return body


def test_pods_start_in_order_scheduler_then_servers_then_workers():
    simulation = Simulation(job(servers=2))
    order = []
    while simulation.state != "Running":
        actions = simulation.step()
        if created := [a for a in actions if isinstance(a, CreatePod)]:
            assert isinstance(actions[[isinstance(a, EnsureShared) for a in actions].index(True)], EnsureShared)
            order.append([(a.role.value, a.index) for a in created])
        simulation.advance()
    assert order == [[("Scheduler", 0)], [("PS", 0), ("PS", 1)], [("Worker", 0), ("Worker", 1)]]


def test_a_role_waits_until_the_one_before_it_is_ready():
    simulation = Simulation(job())
    simulation.step()
    assert simulation.names() == ["job-scheduler-0"]
    simulation.step()  # the scheduler is still pending
    assert simulation.names() == ["job-scheduler-0"]


def test_a_settled_job_requests_nothing_and_writes_nothing():
    simulation = running(job(servers=2))
    before = simulation.status
    simulation.wait(1)
    assert simulation.plan().actions == ()
    assert simulation.plan().status == before


def test_worker_0_decides_by_default():
    simulation = running(job())
    simulation.end("job-worker-1")
    simulation.settle()
    assert simulation.state == "Running"
    simulation.end("job-worker-0")
    simulation.settle()
    assert simulation.state == "Succeeded"
    assert simulation.status.completion_time == START


def test_all_workers_decide_where_requested():
    simulation = running(job(successPolicy="AllWorkers"))
    simulation.end("job-worker-0")
    simulation.settle()
    assert simulation.state == "Running"
    simulation.end("job-worker-1")
    simulation.settle()
    assert simulation.condition("Succeeded") == "MSJobSucceeded"


def test_a_worker_that_is_done_stays_done_when_its_pod_is_deleted():
    simulation = running(job(successPolicy="AllWorkers"))
    simulation.end("job-worker-0")
    simulation.step()
    del simulation.pods["job-worker-0"]
    simulation.settle()
    assert simulation.names("Worker") == ["job-worker-1"]


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("All", []),
        ("Running", ["job-worker-0"]),
        ("None", ["job-ps-0", "job-scheduler-0", "job-worker-0", "job-worker-1"]),
    ],
)
def test_clean_up_deletes_what_the_policy_says(policy, left):
    simulation = running(job(servers=1, runPolicy={"cleanPodPolicy": policy}))
    simulation.end("job-worker-0")
    simulation.settle()
    assert simulation.state == "Succeeded"
    assert simulation.names() == left


def test_a_worker_that_fails_ends_the_job_by_default():
    simulation = running(job())
    simulation.end("job-worker-1", 3)
    simulation.settle()
    assert simulation.condition("Failed") == "MSJobFailed"
    assert "job-worker-1 failed: exit code 3" in simulation.status.condition("Failed").message


@pytest.mark.parametrize(("code", "state"), [(1, "Failed"), (127, "Failed"), (137, "Running"), (255, "Running")])
def test_exit_codes_from_128_on_are_tried_again(code, state):
    simulation = running(policies(job(), "ExitCode"))
    simulation.end("job-worker-1", code)
    simulation.settle()
    assert simulation.state == state
    assert simulation.status.restarts == (state == "Running")


def test_each_end_of_a_pod_is_counted_once_however_often_it_is_seen():
    simulation = running(policies(job(), "ExitCode"))
    simulation.end("job-worker-1", 137)
    first = simulation.plan()
    simulation.status = first.status  # stored, but the operator dies before it deletes the pod
    again = simulation.plan()
    assert again.status.failures == first.status.failures == 1
    assert DeletePod("job-worker-1", simulation.pods["job-worker-1"].uid) in again.actions


def test_a_server_that_is_killed_is_replaced_and_the_job_stays_running():
    simulation = running(job(servers=2))
    simulation.end("job-ps-1", 137)
    simulation.step()
    assert simulation.state == "Restarting"
    assert simulation.names("Worker") == ["job-worker-0", "job-worker-1"]
    simulation.settle()
    assert simulation.state == "Running"
    assert simulation.pods["job-ps-1"].phase is PodPhase.RUNNING


def test_a_server_whose_node_is_lost_is_replaced():
    simulation = running(job(servers=2))
    simulation.end("job-ps-0", None, "NodeLost")
    simulation.settle()
    assert simulation.state == "Running"
    assert simulation.status.pods["job-ps-0"].restarts == 1


def test_a_server_that_ends_with_an_error_of_its_own_fails_the_job():
    simulation = running(job(servers=2))
    simulation.end("job-ps-0", 1)
    simulation.settle()
    assert simulation.state == "Failed"


def test_a_pod_that_somebody_deletes_comes_back_and_is_no_failure():
    simulation = running(job(runPolicy={"backoffLimit": 0}))
    del simulation.pods["job-worker-1"]
    simulation.settle()
    assert simulation.state == "Running"
    assert (simulation.status.restarts, simulation.status.failures) == (1, 0)
    assert "PodVanished" in simulation.events


def test_a_pod_that_is_being_deleted_and_so_ends_with_a_signal_does_not_fail_the_job():
    simulation = running(job())
    simulation._carry_out(DeletePod("job-worker-1", simulation.pods["job-worker-1"].uid))
    simulation.end("job-worker-1", 143)
    simulation.settle()
    assert simulation.state == "Running"


def test_the_limit_of_failures_ends_the_job():
    simulation = running(policies(job(runPolicy={"backoffLimit": 1}), "ExitCode"))
    simulation.end("job-worker-1", 137)
    simulation.settle()
    assert simulation.state == "Running"
    simulation.end("job-worker-1", 137)
    simulation.step()
    assert simulation.condition("Failed") == "BackoffLimitExceeded"


def test_restarts_inside_a_pod_count_as_failures():
    simulation = running(policies(job(runPolicy={"backoffLimit": 2}), "OnFailure"))
    for count, state in ((2, "Running"), (3, "Failed")):
        simulation.pods["job-worker-1"] = replace(simulation.pods["job-worker-1"], restarts=count)
        simulation.step()
        assert simulation.state == state
    assert simulation.status.failures == 3


def test_pods_that_fail_again_and_again_are_replaced_with_growing_delays():
    simulation = running(policies(job(), "ExitCode"))
    delays = []
    for _ in range(6):
        simulation.end("job-worker-1", 137)
        simulation.step()
        simulation.advance()
        result = simulation.plan()
        delays.append(0.0 if result.wake_at is None else (result.wake_at - simulation.now).total_seconds())
        simulation.wait(delays[-1])
        simulation.settle()
    assert delays == [0, 1, 2, 4, 8, 16]


def test_a_pod_that_lived_a_while_is_replaced_at_once():
    simulation = running(policies(job(), "ExitCode"))
    for _ in range(4):
        simulation.wait(60)
        simulation.end("job-worker-1", 137)
        simulation.settle()
        assert "job-worker-1" in simulation.pods


def test_a_job_that_is_too_late_fails_and_the_time_is_known_beforehand():
    simulation = running(job(runPolicy={"activeDeadlineSeconds": 60}))
    assert (simulation.plan().wake_at - START).total_seconds() == 60
    simulation.wait(60)
    simulation.settle()
    assert simulation.condition("Failed") == "DeadlineExceeded"


def test_a_finished_job_is_deleted_after_its_time():
    simulation = running(job(runPolicy={"ttlSecondsAfterFinished": 10}))
    simulation.end("job-worker-0")
    simulation.step()
    assert (simulation.plan().wake_at - START).total_seconds() == 10
    simulation.wait(10)
    simulation.step()
    assert simulation.is_deleted


def test_suspending_deletes_the_pods_and_resuming_brings_them_back():
    simulation = running(job(servers=1, runPolicy={"activeDeadlineSeconds": 60}))
    simulation.spec(runPolicy={"suspend": True})
    simulation.settle()
    assert simulation.state == "Suspended"
    assert simulation.names() == []
    assert simulation.status.start_time is None
    simulation.wait(1000)
    simulation.spec(runPolicy={"suspend": False, "activeDeadlineSeconds": 60})
    simulation.settle()
    assert simulation.state == "Running"
    assert simulation.status.restarts == 0
    assert simulation.status.start_time == simulation.now


def test_elastic_workers_follow_the_requested_number():
    simulation = running(job(enableDynamicWorker=True))
    simulation.scale("Worker", 4)
    simulation.settle()
    assert simulation.names("Worker") == [f"job-worker-{n}" for n in range(4)]
    simulation.scale("Worker", 1)
    simulation.settle()
    assert simulation.names("Worker") == ["job-worker-0"]
    assert simulation.status.restarts == 0
    assert set(simulation.status.pods) == {"job-worker-0", "job-scheduler-0"}


def test_elastic_workers_stay_within_their_limits():
    body = job(enableDynamicWorker=True)
    body["spec"]["msReplicaSpecs"]["Worker"] |= {"minReplicas": 1, "maxReplicas": 3}
    simulation = running(body)
    simulation.scale("Worker", 9)
    simulation.settle()
    assert len(simulation.names("Worker")) == 3
    assert "9 replicas requested, 3 within its limits" in simulation.status.condition("Scaled").message
    simulation.scale("Worker", 2)
    simulation.settle()
    assert simulation.condition("Scaled") == "AsRequested"


def test_a_job_that_is_not_elastic_keeps_its_size_and_says_so():
    simulation = running(job(servers=2))
    for role in ("Worker", "PS"):
        simulation.scale(role, 5)
        simulation.settle()
        assert len(simulation.names(role)) == 2
    message = simulation.status.condition("Scaled").message
    assert "PS: 5 replicas requested, but the job runs with 2 and enableDynamicServer is not true" in message
    assert simulation.events.count("NotScaled") == 2


def test_an_encrypted_job_keeps_its_size_since_its_scheduler_cannot_be_notified():
    policy = {"curve": {"secretRef": {"name": "keys"}}}
    simulation = running(job(servers=2, enableDynamicWorker=True, enableDynamicServer=True, securityPolicy=policy))
    for role in ("Worker", "PS"):
        simulation.scale(role, 1)
        simulation.settle()
        assert len(simulation.names(role)) == 2
    assert "answers only those who have the job's keys" in simulation.status.condition("Scaled").message


def test_an_elastic_job_goes_on_without_a_failed_worker_but_not_without_all():
    simulation = running(job(enableDynamicWorker=True))
    simulation.end("job-worker-1", 1)
    simulation.settle()
    assert simulation.state == "Running"
    assert simulation.status.replica_statuses["Worker"].failed == 1
    simulation.end("job-worker-0", 1)
    simulation.settle()
    assert simulation.condition("Failed") == "TooFewWorkers"


def test_an_elastic_job_fails_below_its_least_number_of_workers():
    body = job(workers=3, enableDynamicWorker=True)
    body["spec"]["msReplicaSpecs"]["Worker"]["minReplicas"] = 2
    simulation = running(body)
    for name, state in (("job-worker-1", "Running"), ("job-worker-2", "Failed")):
        simulation.end(name, 1)
        simulation.settle()
        assert simulation.state == state


def test_servers_leave_one_by_one_and_only_once_they_are_drained():
    membership = ReportedMembership(True, 2, 3)
    simulation = running(job(servers=3, enableDynamicServer=True), membership=membership)
    simulation.scale("PS", 1)
    actions = simulation.step()
    assert ResizeJob(2, 1) in actions
    assert not any(isinstance(action, DeletePod) for action in actions)
    simulation.extras["membership"] = ReportedMembership(True, 2, 1, frozenset({"job-ps-1", "job-ps-2"}))
    deleted = [action.name for action in simulation.step() if isinstance(action, DeletePod)]
    assert deleted == ["job-ps-2"]
    assert not [a for a in simulation.step() if isinstance(a, DeletePod)]  # the first is still going
    simulation.advance()
    simulation.extras["membership"] = ReportedMembership(False, 2, 1, frozenset({"job-ps-1"}))
    assert not [a for a in simulation.step() if isinstance(a, DeletePod)]  # copies are being made
    simulation.extras["membership"] = ReportedMembership(True, 2, 1, frozenset({"job-ps-1"}))
    simulation.settle()
    assert simulation.names("PS") == ["job-ps-0"]
    assert simulation.status.restarts == 0


@pytest.mark.parametrize("exit_code", [0, 75])
def test_a_server_that_ends_by_itself_once_it_is_drained_is_reported_and_deleted(exit_code):
    simulation = running(job(servers=3, enableDynamicServer=True), membership=ReportedMembership(True, 2, 3))
    simulation.scale("PS", 2)
    simulation.step()
    simulation.extras["membership"] = ReportedMembership(
        True, 2, 2, frozenset({"job-ps-2"}) if exit_code else frozenset()
    )
    simulation.end("job-ps-2", exit_code)
    actions = simulation.step()
    assert [action.name for action in actions if isinstance(action, DeletePod)] == ["job-ps-2"]
    assert [action.reason for action in actions if isinstance(action, Report)] == ["ServerDrained"]
    assert simulation.status.restarts == 0


def test_a_server_that_joined_after_the_scheduler_was_notified_makes_it_be_notified_again():
    simulation = running(job(servers=3, enableDynamicServer=True), membership=ReportedMembership(True, 2, 3))
    simulation.scale("PS", 2)
    simulation.extras["membership"] = ReportedMembership(True, 2, 2)  # it aims at two, but knew of no third then
    assert ResizeJob(2, 2) in simulation.step()
    assert ResizeJob(2, 2) in simulation.step()
    simulation.extras["membership"] = ReportedMembership(True, 2, 2, frozenset({"job-ps-2"}))
    assert ResizeJob(2, 2) not in simulation.step()
    assert simulation.pods["job-ps-2"].is_deleting


def test_no_server_is_deleted_while_the_scheduler_does_not_answer():
    simulation = running(job(servers=2, enableDynamicServer=True))
    simulation.scale("PS", 1)
    for _ in range(5):
        simulation.step()
        simulation.advance()
    assert simulation.names("PS") == ["job-ps-0", "job-ps-1"]
    assert simulation.plan().wake_at is not None


def test_evictions_are_held_while_copies_are_made():
    simulation = running(job(servers=2), membership=ReportedMembership(True, 2, 2))
    simulation.extras["membership"] = ReportedMembership(False, 2, 2)
    result = simulation.plan()
    assert LimitEvictions(False) in result.actions
    assert result.wake_at is not None
    simulation.step()
    simulation.extras["membership"] = ReportedMembership(True, 2, 2)
    assert LimitEvictions(True) in simulation.step()


def test_the_first_rule_of_the_failure_policy_that_matches_decides():
    rules = [
        {"action": "Ignore", "roles": ["Worker"], "exitCodes": [7]},
        {"action": "Restart", "exitCodes": [7, 8]},
        {"action": "FailJob", "reasons": ["OOMKilled"]},
    ]
    simulation = running(policies(job(failurePolicy={"rules": rules}), "ExitCode"))
    simulation.end("job-worker-1", 7)
    simulation.settle()
    assert simulation.status.pods["job-worker-1"].result == "Failed"
    simulation.end("job-worker-0", 8)
    simulation.settle()
    assert (simulation.state, simulation.status.restarts) == ("Running", 1)
    simulation.end("job-worker-0", 137, "OOMKilled")
    simulation.settle()
    assert simulation.state == "Failed"


def test_a_gang_starts_all_at_once():
    simulation = Simulation(job(runPolicy={"schedulingPolicy": {"queue": "q"}}), gang=Gang.VOLCANO)
    actions = simulation.step()
    assert EnsureShared(Gang.VOLCANO, 3) in actions
    assert len([a for a in actions if isinstance(a, CreatePod)]) == 3
    simulation.settle()
    simulation.end("job-worker-0")
    assert DeletePodGroup() in simulation.step()
    assert DeletePodGroup() not in simulation.step()


def test_a_gang_that_no_scheduler_can_make_is_a_condition_and_the_job_starts_in_order():
    simulation = running(job(runPolicy={"schedulingPolicy": {"queue": "q"}}))
    condition = simulation.status.condition("GangScheduled")
    assert (condition.status, condition.reason) == ("False", "SchedulerAbsent")
    assert simulation.events.count("GangSchedulerAbsent") == 1


def test_a_spec_that_cannot_run_fails_the_job_and_a_corrected_one_starts():
    result = refuse("job", 1, Status(), "spec.x: wrong", START)
    assert result.status.condition("Failed").message == "spec.x: wrong"
    assert result.status.condition("Failed").reason == "InvalidSpec"
    assert any(isinstance(action, Report) for action in result.actions)
    simulation = Simulation(job())
    simulation.status = result.status
    simulation.body["metadata"]["generation"] = 2
    simulation.settle()
    assert simulation.state == "Running"


def test_a_running_job_that_is_edited_into_nonsense_keeps_running_and_says_so():
    simulation = running(job())
    result = refuse("job", 2, simulation.status, "spec.x: wrong", START)
    assert not result.status.is_finished
    assert result.status.condition("SpecAccepted").message == "spec.x: wrong"
    simulation.status = result.status
    simulation.settle()
    assert simulation.condition("SpecAccepted") == "Valid"
    assert simulation.state == "Running"


def test_a_status_survives_being_stored_and_a_patch_says_what_changed():
    simulation = running(job(servers=1))
    stored = write_status(simulation.status)
    assert read_status(stored) == simulation.status
    after = read_status(stored | {"pods": {"job-ps-0": {"uid": "x"}}})
    patch = status_patch(simulation.status, after)
    assert patch["pods"]["job-worker-0"] is None
    assert after.pods == {"job-ps-0": PodRecord(uid="x")}


def test_a_condition_of_unknown_truth_leaves_an_ended_job_ended_and_foreign_conditions_are_kept():
    simulation = running(job())
    simulation.end("job-worker-0")
    simulation.settle()
    stored = write_status(simulation.status)
    foreign = {"type": "QuotaReserved", "status": "Unknown", "reason": "Waiting", "observedGeneration": 4}
    stored["conditions"].append(foreign)
    simulation.status = read_status(stored)
    assert simulation.status.is_finished
    simulation.settle()
    assert simulation.names("Scheduler") == []
    conditions = write_status(simulation.status)["conditions"]
    assert conditions[0] == foreign
    assert conditions[-1]["type"] == "Succeeded"


def test_a_part_of_a_status_that_cannot_be_read_takes_no_other_part_with_it():
    simulation = running(job(servers=1))
    stored = write_status(simulation.status)
    stored["conditions"].insert(0, {"type": "Strange", "status": "Perhaps"})
    stored["pods"]["job-worker-0"]["restarts"] = "many"
    stored["startTime"] = "yesterday"
    actual = read_status(stored)
    assert actual.conditions == simulation.status.conditions
    assert set(actual.pods) == set(simulation.status.pods) - {"job-worker-0"}
    assert (actual.start_time, actual.sizes) == (None, simulation.status.sizes)


def test_conditions_name_the_edition_of_the_spec_that_they_are_about():
    simulation = running(job(enableDynamicWorker=True))
    simulation.scale("Worker", 3)
    simulation.settle()
    assert {item.observed_generation for item in simulation.status.conditions if item.status == "True"} == {2}
    assert simulation.events.count("MSJobRunning") == 1


def test_no_empty_text_is_written_since_some_api_servers_take_it_for_null():
    simulation = running(job())
    simulation.scale("Worker", 5)
    simulation.settle()
    simulation.scale("Worker", 2)
    simulation.settle()
    simulation.status = refuse("job", 4, simulation.status, "spec.x: wrong", simulation.now).status
    simulation.settle()
    texts = [value for item in write_status(simulation.status)["conditions"] for value in item.values()]
    assert simulation.condition("Scaled") == "AsRequested"
    assert simulation.condition("SpecAccepted") == "Valid"
    assert "" not in texts


def test_no_server_may_be_evicted_before_all_serve_and_the_scheduler_says_that_all_copies_exist():
    simulation = running(job(servers=2), membership=ReportedMembership(True, 2, 2))
    assert simulation.status.servers_may_be_evicted
    simulation.end("job-ps-1", 137)
    assert LimitEvictions(False) in simulation.step()  # the scheduler does not know of the loss yet
    for _ in range(3):
        simulation.advance()
        simulation.step()
    simulation.pods["job-ps-1"] = replace(simulation.pods["job-ps-1"], is_ready=False)  # it is importing
    simulation.step()
    assert not simulation.status.servers_may_be_evicted
    assert simulation.plan().wake_at is not None
    simulation.pods["job-ps-1"] = replace(simulation.pods["job-ps-1"], is_ready=True)
    simulation.extras["membership"] = None  # the scheduler is silent for a moment
    assert LimitEvictions(True) not in simulation.step()
    simulation.extras["membership"] = ReportedMembership(False, 2, 2)
    assert LimitEvictions(True) not in simulation.step()
    assert simulation.plan().wake_at is not None
    simulation.extras["membership"] = ReportedMembership(True, 2, 2)
    assert LimitEvictions(True) in simulation.step()


def test_a_server_that_its_scheduler_has_replaced_is_started_again_and_has_not_failed():
    simulation = running(job(servers=2, runPolicy={"backoffLimit": 0}))
    simulation.end("job-ps-1", 75)
    simulation.settle()
    assert (simulation.state, simulation.status.restarts, simulation.status.failures) == ("Running", 1, 0)


def test_a_rule_of_the_user_about_a_replaced_server_wins():
    rules = [{"action": "FailJob", "roles": ["PS"], "exitCodes": [75]}]
    simulation = running(job(servers=2, failurePolicy={"rules": rules}))
    simulation.end("job-ps-1", 75)
    simulation.settle()
    assert simulation.state == "Failed"


def test_a_container_that_fails_in_place_of_the_trainer_is_named_with_its_code():
    simulation = running(policies(job(), "ExitCode"))
    simulation.end("job-worker-1", 3, "Error")
    simulation.pods["job-worker-1"] = replace(simulation.pods["job-worker-1"], failed_container="setup")
    simulation.settle()
    message = simulation.status.condition("Failed").message
    assert message == "Pod job-worker-1 failed: container 'setup' ended with exit code 3, Error."


def test_a_pod_on_a_node_that_does_not_answer_is_not_said_to_run_and_goes_on_when_the_node_is_back():
    simulation = running(job())
    there = simulation.pods["job-worker-1"]
    simulation.pods["job-worker-1"] = replace(there, is_unreachable=True, is_ready=False, node="node-7")
    simulation.step()
    assert simulation.status.condition("Running").status == "False"
    condition = simulation.status.condition("PodsReachable")
    assert (condition.status, condition.reason) == ("False", "NodeNotReady")
    assert "job-worker-1 (node node-7)" in condition.message
    assert "out-of-service" in condition.message
    assert simulation.step() == ()  # said once
    simulation.pods["job-worker-1"] = there
    simulation.settle()
    assert simulation.state == "Running"
    assert (simulation.condition("PodsReachable"), simulation.status.restarts) == ("NodesAnswer", 0)


def test_a_pod_that_does_not_end_long_after_its_deletion_is_reported_with_what_to_do():
    simulation = running(job())
    end = simulation.now + timedelta(seconds=30)
    simulation.pods["job-worker-1"] = replace(simulation.pods["job-worker-1"], is_deleting=True, deleted_by=end)
    simulation.step()
    assert simulation.status.condition("PodsReachable") is None
    assert end < simulation.plan().wake_at < end + timedelta(seconds=10)
    simulation.wait(38)
    simulation.step()
    assert "job-worker-1" in simulation.status.condition("PodsReachable").message
    simulation.advance()  # the user deletes it with --force
    simulation.settle()
    assert simulation.state == "Running"


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_a_server_that_is_evicted_right_after_it_was_replaced_is_replaced_again(phase):
    simulation = running(job(servers=2), membership=ReportedMembership(True, 2, 2))
    simulation.end("job-ps-1", 137)
    simulation.settle()
    # Evicted before anyone has looked at the new one: it hands over, and its pod ends.
    pod = simulation.pods["job-ps-1"]
    simulation.pods["job-ps-1"] = replace(pod, uid="new", phase=phase, exit_code=0, is_deleting=True)
    simulation.step()
    del simulation.pods["job-ps-1"]
    simulation.settle()
    assert simulation.names("PS") == ["job-ps-0", "job-ps-1"]
    assert simulation.state == "Running"
    assert simulation.status.pods["job-ps-1"].result == ""


def test_what_pods_wait_for_is_a_condition_until_they_start():
    simulation = running(job())
    waiting = "mindspore: ImagePullBackOff, no such image"
    for name in ("job-worker-0", "job-worker-1"):
        simulation.pods[name] = replace(simulation.pods[name], phase=PodPhase.PENDING, waits_for=waiting)
    simulation.step()
    condition = simulation.status.condition("PodsStarted")
    assert (condition.status, condition.reason) == ("False", "PodsWait")
    assert condition.message == f"Pod job-worker-0 waits: {waiting} (1 other pods wait, too)."
    for name in ("job-worker-0", "job-worker-1"):
        simulation.pods[name] = replace(simulation.pods[name], phase=PodPhase.RUNNING, waits_for="")
    simulation.step()
    assert simulation.condition("PodsStarted") == "NoPodWaits"


def test_the_size_of_a_gang_follows_the_size_of_the_job():
    body = job(workers=3, enableDynamicWorker=True, runPolicy={"schedulingPolicy": {"minAvailable": 3}})
    simulation = running(body, gang=Gang.VOLCANO)
    assert simulation.gang_members == 3  # of four pods
    simulation.scale("Worker", 1)
    simulation.settle()
    assert simulation.gang_members == 2


def test_a_pod_group_that_is_deleted_comes_back_and_suspended_or_ended_jobs_have_none():
    simulation = running(job(runPolicy={"schedulingPolicy": {"queue": "q"}}), gang=Gang.VOLCANO)
    simulation.gang_members = None
    simulation.settle()
    assert simulation.gang_members == 3
    simulation.spec(runPolicy={"schedulingPolicy": {"queue": "q"}, "suspend": True})
    simulation.status = simulation.plan().status  # the operator dies before it acts
    simulation.settle()
    assert simulation.gang_members is None
    simulation.spec(runPolicy={"schedulingPolicy": {"queue": "q"}})
    simulation.settle()
    assert simulation.gang_members == 3
    simulation.end("job-worker-0")
    simulation.status = simulation.plan().status
    simulation.settle()
    assert simulation.gang_members is None


@pytest.mark.parametrize("ends", ["job-worker-1", "job-scheduler-0"])
def test_the_whole_job_starts_again_as_often_as_is_allowed(ends):
    simulation = running(job(runPolicy={"maxRestarts": 2}))
    for number, delay in ((1, 1), (2, 2)):
        before = {name: pod.uid for name, pod in simulation.pods.items()}
        simulation.end(ends, 3)
        actions = simulation.step()
        assert {action.name for action in actions if isinstance(action, DeletePod)} == set(before)
        assert simulation.status.job_restarts == number
        assert simulation.condition("Restarting") == "MSJobRestarting"
        assert f"({number} of 2, spec.runPolicy.maxRestarts): Pod {ends} failed: exit code 3" in (
            simulation.status.condition("Restarting").message
        )
        simulation.advance()
        assert simulation.names() == []
        assert simulation.plan().wake_at == simulation.now + timedelta(seconds=delay)
        assert simulation.plan().actions == ()
        simulation.wait(delay)
        simulation.settle()
        assert simulation.state == "Running"
        assert simulation.names() == sorted(before)
        assert not set(before.values()) & {pod.uid for pod in simulation.pods.values()}
    assert (simulation.status.restarts, simulation.status.failures) == (6, 2)
    simulation.end(ends, 3)
    simulation.settle()
    assert simulation.condition("Failed") == "MSJobFailed"


def test_a_whole_restart_is_counted_once_although_the_operator_dies_before_it_deletes():
    simulation = running(job(runPolicy={"maxRestarts": 5}))
    simulation.end("job-worker-0", 1)
    simulation.status = simulation.plan().status  # stored, nothing carried out
    simulation.settle()
    assert simulation.status.job_restarts == 1
    assert simulation.names() == []
    reason = simulation.status.condition("Restarting").message
    assert reason.startswith("The whole job starts again (1 of 5")
    simulation.wait(1)
    simulation.step()  # the first of the new pods is created
    simulation.advance()
    simulation.step()
    assert simulation.status.condition("Restarting").message.startswith("Being replaced: ")
    simulation.settle()
    assert simulation.state == "Running"
    assert (simulation.status.job_restarts, simulation.status.restarts) == (1, 3)


def test_no_pod_starts_again_with_the_job_before_all_old_ones_are_gone():
    """A worker that takes its time to end would take part in the job that starts again, in the place of the new one."""
    simulation = running(job(runPolicy={"maxRestarts": 1}))
    simulation.end("job-worker-1", 1)
    simulation.step()
    slow = simulation.pods["job-worker-0"]
    simulation.wait(10)
    for _ in range(3):
        simulation.advance()
        simulation.pods["job-worker-0"] = slow
        assert not [action for action in simulation.step() if isinstance(action, CreatePod)]
    simulation.advance()
    simulation.settle()
    assert simulation.state == "Running"
    assert simulation.pods["job-worker-0"].uid != slow.uid


def test_workers_that_had_succeeded_run_again_with_the_whole_job():
    simulation = running(job(successPolicy="AllWorkers", runPolicy={"maxRestarts": 1}))
    simulation.end("job-worker-0", 0)
    simulation.settle()
    simulation.end("job-worker-1", 1)
    simulation.settle()
    simulation.wait(1)
    simulation.settle()
    assert simulation.names("Worker") == ["job-worker-0", "job-worker-1"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"failurePolicy": {"rules": [{"action": "FailJob", "exitCodes": [3]}]}}, "MSJobFailed"),
        ({"runPolicy": {"maxRestarts": 5, "backoffLimit": 0}}, "MSJobFailed"),
    ],
)
def test_a_rule_and_a_limit_end_a_job_for_good(spec, reason):
    simulation = running(job(**{"runPolicy": {"maxRestarts": 5}, **spec}))
    simulation.end("job-worker-1", 3)
    simulation.settle()
    simulation.wait(5)
    simulation.settle()
    assert (simulation.condition("Failed"), simulation.state) == (reason, "Failed")
    assert simulation.status.job_restarts == 0
