"""What to do next for a job: one pure function of what is wanted, remembered and seen.

`plan` is level-triggered: it looks at the present state alone and never at what happened to change it, so a lost, late or
doubled notice does no harm, and an operator that starts again goes on where it was. Carrying a plan out and planning
again ends in a plan without actions (tests/k8s/test_planning_properties.py proves it on random states).

A job's life::

    Created ──► Running ◄──► Restarting        a fault of a pod: it is replaced, counted, maybe delayed
                  │  ▲
        suspend   ▼  │ resume
                Suspended          Running ──► Succeeded | Failed ──► clean-up ──► (time to live) deleted

Pods start in order: the scheduler, then servers once it is ready, then workers once the servers are. With gang
scheduling all are created at once, since a gang starts only when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sporax.k8s.decide.actions import (
    CreatePod,
    DeleteJob,
    DeletePod,
    DeletePodGroup,
    EnsureShared,
    LimitEvictions,
    Plan,
    ResizeJob,
)
from sporax.k8s.decide.draft import Draft
from sporax.k8s.decide.faults import settle_faults
from sporax.k8s.decide.observed import Gang, Membership, Phase, Pod
from sporax.k8s.resource import job_status as facts
from sporax.k8s.resource import names
from sporax.k8s.resource.job_status import ReplicaStatus, Status
from sporax.k8s.resource.spec import CleanPodPolicy, Job, Role, SuccessPolicy

_POLL_SECONDS = 1.0  # how often the job's scheduler is asked while servers copy or drain


def plan(
    job: Job,
    status: Status,
    pods: Iterable[Pod],
    now: datetime,
    *,
    membership: Membership | None = None,
    gang: Gang | None = None,
) -> Plan:
    """Decide what to do for a job.

    Args:
        job: what the user wants; valid.
        status: what was remembered last.
        pods: every pod that carries the job's labels.
        now: the time, with its zone.
        membership: what the job's scheduler says; None if it cannot be asked or says nothing.
        gang: the gang scheduler that the cluster has; None if it has none.
    """
    # A job that was refused begins without a past.
    draft = Draft(job, _forgotten_refusal(job, status), pods, now, membership, gang)
    draft.update(
        # Users see by this number which edition of the spec the status is about.
        observed_generation=job.generation,
        selector=names.selector_text(names.job_selector(job.name, Role.WORKER.value)),
    )
    if draft.state(facts.CREATED, "True", "MSJobCreated", f"MSJob {job.name} is created."):
        draft.report("Normal", "MSJobCreated", f"MSJob {job.name} is created.")
    if draft.status.condition(facts.SPEC_ACCEPTED) is not None:
        draft.state(facts.SPEC_ACCEPTED, "True", "Valid", "")
    if not draft.status.is_finished:
        _advance(draft)
    # Also at once after the end, so that one look is enough.
    if draft.status.is_finished:
        _clean_up(draft)
    _count_pods(draft)
    return draft.finish()


def refuse(name: str, generation: int, status: Status, problem: str, now: datetime) -> Plan:
    """What to do for a job whose spec cannot run.

    A job that never started has failed. One that runs was edited: it keeps running as it is, and says so.
    """
    # Only the name is needed: the spec could not be read.
    placeholder: Job = Job(name=name, namespace="", uid="", generation=generation, spec=None)  # type: ignore[arg-type]  # a job without a specification, for its name alone
    draft = Draft(placeholder, status, (), now, None, None)
    if status.is_finished:
        return draft.finish()
    draft.update(observed_generation=generation)
    if status.start_time is None:
        draft.fail(facts.INVALID_SPEC, problem)
    elif draft.state(facts.SPEC_ACCEPTED, "False", facts.INVALID_SPEC, problem):
        draft.report("Warning", facts.INVALID_SPEC, f"The job keeps running as it was: {problem}")
    return draft.finish()


def _forgotten_refusal(job: Job, status: Status) -> Status:
    """A job that failed only because its spec was wrong starts again once the spec is right."""
    failed = status.condition(facts.FAILED)
    refused = failed is not None and failed.reason == facts.INVALID_SPEC and status.start_time is None
    # The generation grows with each change of the spec.
    return Status() if refused and job.generation != status.observed_generation else status


def _advance(draft: Draft) -> None:
    """One step of a job that is not over."""
    # A suspended job keeps its status and gives its pods back.
    if draft.spec.run_policy.suspend:
        _suspend(draft)
        return
    draft.retract(facts.SUSPENDED, "MSJobResumed", "The job runs again.")
    if draft.status.start_time is None:
        draft.update(start_time=draft.now)
    _decide_sizes(draft)
    fault = settle_faults(draft)
    # Success first: a fault after the last worker's end does not matter.
    if success := _success(draft):
        draft.succeed(success)
    elif fault is not None:
        draft.fail(*fault)
    elif (late := _deadline(draft)) is not None and draft.now >= late:
        # The deadline counts time in which the job was active.
        seconds = draft.spec.run_policy.active_deadline_seconds
        draft.fail("DeadlineExceeded", f"The job was active longer than activeDeadlineSeconds, {seconds}.")
    else:
        if late is not None:
            draft.wake_at(late)
        _tell_sizes(draft)
        _shrink(draft)
        _grow(draft)
        _guard_servers(draft)
        _state_progress(draft)


def _suspend(draft: Draft) -> None:
    """Delete all pods, keep the job."""
    draft.actions += [DeletePod(pod.name, pod.uid) for pod in draft.pods.values() if not pod.is_deleting]
    # Workers that have succeeded stay so after the job is resumed.
    done = {name: record for name, record in draft.status.pods.items() if record.result == "Succeeded"}
    draft.update(start_time=None, sizes={}, pods=done, servers_may_be_evicted=None)
    draft.retract(facts.RUNNING, "MSJobSuspended", "The job is suspended.")
    draft.retract(facts.RESTARTING, "MSJobSuspended", "The job is suspended.")
    if draft.state(facts.SUSPENDED, "True", "MSJobSuspended", "The job is suspended."):
        draft.report("Normal", "MSJobSuspended", "The job is suspended; its pods are deleted.")


def _decide_sizes(draft: Draft) -> None:
    """How many pods each role is to have. Only roles declared elastic change once the job has started."""
    refusals = []
    sizes = dict(draft.status.sizes)
    for role in Role:
        part = draft.spec.replica_spec(role)
        if part is None:
            continue
        asked, size = part.replicas, sizes.get(role.value)
        is_elastic = draft.spec.is_elastic(role)
        # The first size is always taken: nothing runs yet that would have to be told.
        if size is None or (is_elastic and not draft.spec.is_encrypted):
            low, high = part.min_replicas or 0, part.max_replicas
            size = max(low, asked if high is None else min(asked, high))
            if size != asked:
                refusals.append(f"{role.value}: {asked} replicas asked for, {size} within its limits")
        elif size != asked and is_elastic:
            # The scheduler must be told, which needs the job's keys.
            refusals.append(
                f"{role.value}: {asked} replicas asked for, but the job runs with {size} and its scheduler, which must be "
                "told, answers only those who have the job's keys (spec.securityPolicy)"
            )
        elif size != asked:
            switch = "enableDynamicWorker" if role is Role.WORKER else "enableDynamicServer"
            refusals.append(
                f"{role.value}: {asked} replicas asked for, but the job runs with {size} and {switch} is not true"
            )
        sizes[role.value] = size
    resized = draft.status.sizes and sizes != draft.status.sizes
    draft.update(sizes=sizes)
    if resized:
        text = ", ".join(f"{role} {count}" for role, count in sizes.items())
        draft.report("Normal", "Resized", f"The job has a new size: {text}.")
    if refusals:
        message = "; ".join(refusals)
        if draft.state(facts.SCALED, "False", "NotAsAsked", message):
            draft.report("Warning", "NotScaled", message)
    elif draft.status.condition(facts.SCALED) is not None:
        draft.state(facts.SCALED, "True", "AsAsked", "")


def _success(draft: Draft) -> str | None:
    """Why the job has succeeded; None while it has not."""
    workers = draft.target_names(Role.WORKER)
    # A worker that has ended well counts for ever.
    done = [draft.record(name).result == "Succeeded" for name in workers]
    if workers and all(done):
        return f"All {len(workers)} workers have succeeded."
    if draft.spec.success_policy is SuccessPolicy.DEFAULT and done and done[0]:
        return "Worker 0 has succeeded."
    return None


def _deadline(draft: Draft) -> datetime | None:
    """When the job must be over."""
    seconds, start = draft.spec.run_policy.active_deadline_seconds, draft.status.start_time
    return None if seconds is None or start is None else start + timedelta(seconds=seconds)


def _tell_sizes(draft: Draft) -> None:
    """Tell the job's scheduler the sizes, until it says that it aims at them and that no server is left beyond them.

    A server that was starting while the size went down again joins after the scheduler was told, so it is told once more.
    """
    announced, sizes = draft.membership, (draft.status.size(Role.WORKER), draft.status.size(Role.SERVER))
    if announced is None:
        return
    # Servers that have joined although the size no longer has them.
    beyond = {pod.name for pod in draft.pods_of(Role.SERVER) if pod.is_active} - set(draft.target_names(Role.SERVER))
    if (announced.workers, announced.servers) != sizes or beyond - announced.drained:
        draft.actions.append(ResizeJob(*sizes))
        draft.wake_after(_POLL_SECONDS)


def _shrink(draft: Draft) -> None:
    """Delete pods that have been replaced in the records, and pods beyond the size of their role.

    In a job whose scheduler answers, workers beyond the size end by themselves between two steps; servers are drained.
    """
    # Without an answer nobody could tell a worker to leave.
    leave_by_themselves = {Role.SERVER} if draft.membership is None else {Role.SERVER, Role.WORKER}
    beyond = {role: set(draft.pods) - set(draft.target_names(role)) for role in Role}
    for pod in draft.pods.values():
        if pod.is_deleting:
            continue
        # Its end is counted, so the pod may go.
        is_settled = draft.record(pod.name).settled_uid == pod.uid
        if is_settled or (pod.name in beyond[pod.role] and (pod.role not in leave_by_themselves or not pod.is_active)):
            draft.remember(pod.name, settled_uid=pod.uid)
            draft.actions.append(DeletePod(pod.name, pod.uid))
            drained = draft.membership.drained if draft.membership is not None else frozenset()
            # The scheduler let it go, and it ended before anyone looked.
            if pod.role is Role.SERVER and not is_settled and (pod.phase is Phase.SUCCEEDED or pod.name in drained):
                _report_drained(draft, pod)  # the scheduler let it go, and it ended before anyone looked
    _drain(draft, [pod for pod in draft.pods_of(Role.SERVER) if pod.name in beyond[Role.SERVER] and pod.is_active])
    kept = {name for role in Role for name in draft.target_names(role)} | set(draft.pods)
    if gone := set(draft.status.pods) - kept:
        draft.update(pods={name: record for name, record in draft.status.pods.items() if name not in gone})


def _drain(draft: Draft, leaving: list[Pod]) -> None:
    """Take servers out of the job one by one, each only once it holds nothing any more."""
    if not leaving:
        return
    draft.wake_after(_POLL_SECONDS)
    # One at a time: two at once could hold both copies of a slot.
    if draft.membership is None or any(pod.is_deleting for pod in leaving):
        return
    last = leaving[-1]
    if last.name in draft.membership.drained and draft.membership.is_replicated:
        draft.remember(last.name, settled_uid=last.uid)
        draft.actions.append(DeletePod(last.name, last.uid))
        _report_drained(draft, last)


def _report_drained(draft: Draft, server: Pod) -> None:
    draft.report("Normal", "ServerDrained", f"Server {server.name} holds nothing any more and is deleted.")


def _grow(draft: Draft) -> None:
    """Create the pods that are missing and whose turn it is."""
    gang = _target_gang(draft)
    sizes = tuple((role, draft.status.size(role)) for role in Role)
    created = []
    for role in Role:
        for index, name in enumerate(draft.target_names(role)):
            record = draft.record(name)
            # In a gang all pods are created at once, since none starts before the others.
            if name in draft.pods or record.result or (gang is None and not _may_start(draft, role)):
                continue
            if record.not_before is not None and draft.now < record.not_before:
                draft.wake_at(record.not_before)
                continue
            created.append(CreatePod(role, index, sizes, gang))
    if created:
        # What pods share comes first: a pod without its service could not find the scheduler.
        draft.actions += [EnsureShared(gang), *created]


def _may_start(draft: Draft, role: Role) -> bool:
    """Whether the roles that must be ready before this one are."""
    # `Role` lists the roles in the order in which they start.
    earlier = list(Role)[: list(Role).index(role)]
    return all(_is_up(draft, name) for before in earlier for name in draft.target_names(before))


def _is_up(draft: Draft, name: str) -> bool:
    """Whether a pod is ready, or is done and was not to be waited for."""
    pod = draft.pods.get(name)
    if draft.record(name).result == "Succeeded":
        return True
    return pod is not None and pod.phase is Phase.RUNNING and pod.is_ready and not pod.is_deleting


def _target_gang(draft: Draft) -> Gang | None:
    """The gang scheduler to use. That one is asked for and the cluster has none becomes a condition."""
    if draft.spec.run_policy.scheduling_policy is None:
        return None
    if draft.gang is not None:
        draft.state(facts.GANG_SCHEDULED, "True", "PodGroup", f"Pods start together, by {draft.gang.value}.")
        return draft.gang
    # A job is not refused for it: it can run without a gang.
    message = (
        "spec.runPolicy.schedulingPolicy asks for gang scheduling, but the cluster has neither Volcano's PodGroup nor "
        "that of scheduler-plugins; the pods start in order, without a gang."
    )
    if draft.state(facts.GANG_SCHEDULED, "False", "SchedulerAbsent", message):
        draft.report("Warning", "GangSchedulerAbsent", message)
    return None


def _guard_servers(draft: Draft) -> None:
    """Forbid the eviction of a server while copies of another's slots are being made."""
    if not draft.status.size(Role.SERVER):
        return
    # Without an answer there is no sign of copies being made.
    allowed = draft.membership is None or draft.membership.is_replicated
    if not allowed:
        draft.wake_after(_POLL_SECONDS)
    if allowed != draft.status.servers_may_be_evicted:
        draft.update(servers_may_be_evicted=allowed)
        draft.actions.append(LimitEvictions(allowed))


def _state_progress(draft: Draft) -> None:
    """Running once every pod is or has been, Restarting while one that ran is being replaced."""
    expected = [name for role in Role for name in draft.target_names(role)]
    down = [name for name in expected if not draft.record(name).result and not _runs(draft, name)]
    # Only pods that ran before are being replaced; the others are starting.
    restarting = [name for name in down if draft.record(name).restarts]
    if restarting:
        message = f"Being replaced: {', '.join(restarting[:5])}{' …' if len(restarting) > 5 else ''}."
        draft.state(facts.RESTARTING, "True", "MSJobRestarting", message)
    elif expected and not down:
        draft.retract(facts.RESTARTING, "MSJobRunning", "All pods run.")
        if draft.state(facts.RUNNING, "True", "MSJobRunning", "All pods run."):
            draft.report("Normal", "MSJobRunning", "All pods run.")


def _runs(draft: Draft, name: str) -> bool:
    """Whether a pod's process runs."""
    pod = draft.pods.get(name)
    return pod is not None and pod.phase is Phase.RUNNING and not pod.is_deleting


def _clean_up(draft: Draft) -> None:
    """After the end: delete pods as the policy says, and the job when its time is over."""
    policy = draft.spec.run_policy
    for pod in draft.pods.values():
        stays = policy.clean_pod_policy is CleanPodPolicy.NONE or (
            policy.clean_pod_policy is CleanPodPolicy.RUNNING and not pod.is_active
        )
        if not stays and not pod.is_deleting:
            draft.actions.append(DeletePod(pod.name, pod.uid))
    # The pod group reserves resources as long as it exists.
    if policy.scheduling_policy is not None and draft.gang is not None and not draft.before.is_finished:
        draft.actions.append(DeletePodGroup())
    if policy.ttl_seconds_after_finished is not None and draft.status.completion_time is not None:
        end = draft.status.completion_time + timedelta(seconds=policy.ttl_seconds_after_finished)
        if draft.now >= end:
            draft.actions.append(DeleteJob())
        else:
            draft.wake_at(end)


def _count_pods(draft: Draft) -> None:
    """Fill in the counts that users look at."""
    statuses = {}
    for role in Role:
        if draft.spec.replica_spec(role) is None:
            continue
        pods = draft.pods_of(role)
        results = [draft.record(name).result for name in draft.target_names(role)]
        statuses[role.value] = ReplicaStatus(
            active=sum(pod.is_active and not pod.is_deleting for pod in pods),
            ready=sum(pod.is_ready and pod.phase is Phase.RUNNING for pod in pods),
            succeeded=results.count("Succeeded"),
            failed=results.count("Failed"),
            label_selector={"matchLabels": names.job_selector(draft.job.name, role.value)},
        )
    draft.update(replica_statuses=statuses)
