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

from sporax.k8s.decide import actions
from sporax.k8s.decide.draft import ActionsDraft
from sporax.k8s.decide.faults import is_starting_again, may_restart_job, restart_job, settle_faults, waits_for_old_pods
from sporax.k8s.decide.observed import Gang, Pod, PodPhase, ReportedMembership
from sporax.k8s.resource import job_status as facts, names
from sporax.k8s.resource.job_status import Progress, ReplicaStatus, Status
from sporax.k8s.resource.spec import CleanPodPolicy, Job, PodRole, ReplicaSpec, SuccessPolicy

_LONGEST_HOLD_SECONDS = 60.0  # between two attempts to create what the API server does not take
_STUCK_TIME = timedelta(seconds=7)  # a pod that is there so long after it must have ended has no kubelet
_MOST_CHARACTERS = 300  # of what a scheduler or a kubelet says
_LEAVING = "Leaving"  # an object of an earlier job is not gone yet: no event for what ends by itself
_POLL_SECONDS = 1.0  # how often the job's scheduler is queried while servers copy or drain


def plan(
    job: Job,
    status: Status,
    pods: Iterable[Pod],
    now: datetime,
    *,
    membership: ReportedMembership | None = None,
    gang: Gang | None = None,
    shared_is_complete: bool = True,
    gang_members: int | None = None,
    progress: Progress | None = None,
) -> actions.Actions:
    """Decide what to do for a job.

    Args:
        job: what the user wants; valid.
        status: what was remembered last.
        pods: every pod that carries the job's labels.
        now: the time, with its zone.
        membership: what the job's scheduler says; None if it cannot be queried or says nothing.
        gang: the gang scheduler that the cluster has; None if it has none.
        shared_is_complete: whether what the job's pods share is there, as it was made.
        gang_members: how many pods the job's pod group waits for; None if there is no such group.
        progress: how far the job is, if rank 0 was queried and has answered.
    """
    # A job that was refused begins without a past.
    draft = ActionsDraft(job, _forgotten_refusal(job, status), pods, now, membership, gang)
    draft.order_conditions()
    draft.update(
        # Users see by this number which edition of the spec the status is about.
        observed_generation=job.generation,
        selector=names.selector_text(names.job_selector(job.name, PodRole.WORKER.value)),
    )
    if draft.state(facts.CREATED, "True", "MSJobCreated", f"MSJob {job.name} is created."):
        draft.report("Normal", "MSJobCreated", f"MSJob {job.name} is created.")
    if draft.status.condition(facts.SPEC_ACCEPTED) is not None:
        draft.state(facts.SPEC_ACCEPTED, "True", "Valid", "The spec is valid.")
    if progress is not None:
        draft.update(progress=progress)
    if not draft.status.is_finished:
        _advance(draft, shared_is_complete, gang_members)
    # Also at once after the end, so that one look is enough.
    if draft.status.is_finished:
        _clean_up(draft)
    # The pod group reserves resources as long as it exists.
    if gang_members is not None and (draft.status.is_finished or draft.spec.run_policy.suspend):
        draft.actions.append(actions.DeletePodGroup())
    _count_pods(draft)
    return draft.finish()


def refuse(name: str, generation: int, status: Status, problem: str, now: datetime) -> actions.Actions:
    """What to do for a job whose spec cannot run.

    A job that never started has failed. One that runs was edited: it keeps running as it is, and says so.
    """
    # Only the name is needed: the spec could not be read.
    placeholder: Job = Job(name=name, namespace="", uid="", generation=generation, spec=None)  # type: ignore[arg-type]  # a job without a specification, for its name alone
    draft = ActionsDraft(placeholder, status, (), now, None, None)
    if status.is_finished:
        return draft.finish()
    draft.update(observed_generation=generation)
    if status.start_time is None:
        draft.fail(facts.INVALID_SPEC, problem)
    elif draft.state(facts.SPEC_ACCEPTED, "False", facts.INVALID_SPEC, problem):
        draft.report("Warning", facts.INVALID_SPEC, f"The job keeps running as it was: {problem}")
    return draft.finish()


def hold(job: Job, status: Status, reason: str, problem: str, now: datetime) -> actions.Actions:
    """What to do when the API server does not take an object of a job.

    What it never takes (InvalidSpec) fails a job none of whose pods has run. All else is tried again, after as long as it
    has lasted, up to a minute.
    """
    draft = ActionsDraft(job, status, (), now, None, None)
    if reason == facts.INVALID_SPEC and not status.pods:
        draft.update(start_time=None)
        draft.fail(reason, problem)
    elif draft.state(facts.ADMITTED, "False", reason, problem) and reason != _LEAVING:
        draft.report("Warning", reason, problem)
    condition = draft.status.condition(facts.ADMITTED)
    since = condition.last_transition_time if condition is not None else None
    waited = (now - since).total_seconds() if since is not None else 0.0
    draft.wake_after(min(max(waited, _POLL_SECONDS), _LONGEST_HOLD_SECONDS))
    return draft.finish()


def _forgotten_refusal(job: Job, status: Status) -> Status:
    """A job that failed only because its spec was wrong starts again once the spec is right."""
    failed = status.condition(facts.FAILED)
    refused = failed is not None and failed.reason == facts.INVALID_SPEC and status.start_time is None
    # The generation grows with each change of the spec.
    if not refused or job.generation == status.observed_generation:
        return status
    return Status(conditions=[item for item in status.conditions if item.type not in facts.OWN])


def _advance(draft: ActionsDraft, shared_is_complete: bool, gang_members: int | None) -> None:
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
    elif fault is not None and fault.may_restart and may_restart_job(draft):
        restart_job(draft, fault)
    elif fault is not None:
        draft.fail(fault.reason, fault.message)
    elif (late := _deadline(draft)) is not None and draft.now >= late:
        # The deadline counts time in which the job was active.
        seconds = draft.spec.run_policy.active_deadline_seconds
        draft.fail("DeadlineExceeded", f"The job was active longer than activeDeadlineSeconds, {seconds}.")
    else:
        if late is not None:
            draft.wake_at(late)
        _send_sizes(draft)
        _shrink(draft)
        _grow(draft, shared_is_complete, gang_members)
        _guard_servers(draft)
        _state_progress(draft)


def _suspend(draft: ActionsDraft) -> None:
    """Delete all pods, keep the job."""
    draft.actions += [actions.DeletePod(pod.name, pod.uid) for pod in draft.pods.values() if not pod.is_deleting]
    # Workers that have succeeded stay so after the job is resumed.
    done = {name: record for name, record in draft.status.pods.items() if record.result == "Succeeded"}
    draft.update(
        start_time=None, sizes={}, pods=done, servers_may_be_evicted=None, scheduler_answers=None, progress=None
    )
    draft.retract(facts.RUNNING, "MSJobSuspended", "The job is suspended.")
    draft.retract(facts.RESTARTING, "MSJobSuspended", "The job is suspended.")
    if draft.state(facts.SUSPENDED, "True", "MSJobSuspended", "The job is suspended."):
        draft.report("Normal", "MSJobSuspended", "The job is suspended; its pods are deleted.")


def _decide_sizes(draft: ActionsDraft) -> None:
    """How many pods each role is to have. Only roles declared elastic change once the job has started."""
    refusals = []
    sizes = dict(draft.status.sizes)
    for role in PodRole:
        part = draft.spec.replica_spec(role)
        if part is None:
            continue
        sizes[role.value], refusal = _decide_size(draft, role, part, sizes.get(role.value))
        if refusal:
            refusals.append(f"{role.value}: {part.replicas} replicas requested, {refusal}")
    resized = draft.status.sizes and sizes != draft.status.sizes
    draft.update(sizes=sizes)
    if resized:
        text = ", ".join(f"{role} {count}" for role, count in sizes.items())
        draft.report("Normal", "Resized", f"The job has a new size: {text}.")
    if refusals:
        message = "; ".join(refusals)
        if draft.state(facts.SCALED, "False", "NotAsRequested", message):
            draft.report("Warning", "NotScaled", message)
    elif draft.status.condition(facts.SCALED) is not None:
        draft.state(facts.SCALED, "True", "AsRequested", "The job has the requested size.")


def _decide_size(draft: ActionsDraft, role: PodRole, part: ReplicaSpec, size: int | None) -> tuple[int, str]:
    """How many pods one role is to have, and why they are not as many as requested; "" if they are."""
    requested, is_elastic = part.replicas, draft.spec.is_elastic(role)
    # The first size is always taken: nothing runs yet that would have to be notified.
    if size is None or (is_elastic and not draft.spec.is_encrypted):
        low, high = part.min_replicas or 0, part.max_replicas
        size = max(low, requested if high is None else min(requested, high))
        return size, f"{size} within its limits" if size != requested else ""
    if size == requested:
        return size, ""
    if is_elastic:
        # The scheduler must be notified, which needs the job's keys.
        return size, (
            f"but the job runs with {size} and its scheduler, which must be notified, answers only those who have the job's keys "
            "(spec.securityPolicy)"
        )
    switch = "enableDynamicWorker" if role is PodRole.WORKER else "enableDynamicServer"
    return size, f"but the job runs with {size} and {switch} is not true"


def _success(draft: ActionsDraft) -> str | None:
    """Why the job has succeeded; None while it has not."""
    workers = draft.target_names(PodRole.WORKER)
    # A worker that has ended well counts for ever.
    done = [draft.record(name).result == "Succeeded" for name in workers]
    if workers and all(done):
        return f"All {len(workers)} workers have succeeded."
    if draft.spec.success_policy is SuccessPolicy.DEFAULT and done and done[0]:
        return "Worker 0 has succeeded."
    return None


def _deadline(draft: ActionsDraft) -> datetime | None:
    """When the job must be over."""
    seconds, start = draft.spec.run_policy.active_deadline_seconds, draft.status.start_time
    return None if seconds is None or start is None else start + timedelta(seconds=seconds)


def _send_sizes(draft: ActionsDraft) -> None:
    """Send the job's scheduler the sizes, until it says that it aims at them and that no server is left beyond them.

    A server that was starting while the size went down again joins after the scheduler was notified, so they are sent once more.
    """
    announced, sizes = draft.membership, (draft.status.size(PodRole.WORKER), draft.status.size(PodRole.SERVER))
    if announced is None:
        return
    # Servers that have joined although the size no longer has them.
    beyond = {pod.name for pod in draft.pods_of(PodRole.SERVER) if pod.is_active} - set(
        draft.target_names(PodRole.SERVER)
    )
    if (announced.workers, announced.servers) != sizes or beyond - announced.drained:
        draft.actions.append(actions.ResizeJob(*sizes))
        draft.wake_after(_POLL_SECONDS)


def _shrink(draft: ActionsDraft) -> None:
    """Delete pods that have been replaced in the records, and pods beyond the size of their role.

    In a job whose scheduler answers, workers beyond the size end by themselves between two steps; servers are drained.
    """
    # Without an answer no server could dismiss a worker.
    leave_by_themselves = {PodRole.SERVER} if draft.membership is None else {PodRole.SERVER, PodRole.WORKER}
    beyond = {role: set(draft.pods) - set(draft.target_names(role)) for role in PodRole}
    for pod in draft.pods.values():
        if pod.is_deleting:
            continue
        # Its end is counted, so the pod may go.
        is_settled = draft.record(pod.name).settled_uid == pod.uid
        if is_settled or (pod.name in beyond[pod.role] and (pod.role not in leave_by_themselves or not pod.is_active)):
            draft.remember(pod.name, settled_uid=pod.uid)
            draft.actions.append(actions.DeletePod(pod.name, pod.uid))
            if not is_settled and _was_drained(draft, pod):
                _report_drained(draft, pod)
    _drain(
        draft, [pod for pod in draft.pods_of(PodRole.SERVER) if pod.name in beyond[PodRole.SERVER] and pod.is_active]
    )
    _forget_gone(draft)


def _was_drained(draft: ActionsDraft, pod: Pod) -> bool:
    """Whether the scheduler let a server go, and it ended before anyone looked."""
    drained = draft.membership.drained if draft.membership is not None else frozenset()
    return pod.role is PodRole.SERVER and (pod.phase is PodPhase.SUCCEEDED or pod.name in drained)


def _forget_gone(draft: ActionsDraft) -> None:
    """Drop the records of pods that are neither wanted nor there."""
    remaining = {name for role in PodRole for name in draft.target_names(role)} | set(draft.pods)
    if gone := set(draft.status.pods) - remaining:
        draft.update(pods={name: record for name, record in draft.status.pods.items() if name not in gone})


def _drain(draft: ActionsDraft, leaving: list[Pod]) -> None:
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
        draft.actions.append(actions.DeletePod(last.name, last.uid))
        _report_drained(draft, last)


def _report_drained(draft: ActionsDraft, server: Pod) -> None:
    draft.report("Normal", "ServerDrained", f"Server {server.name} holds nothing any more and is deleted.")


def _grow(draft: ActionsDraft, shared_is_complete: bool, gang_members: int | None) -> None:
    """Create the pods that are missing and whose turn it is, and again what they share."""
    gang = _target_gang(draft)
    policy, members = draft.spec.run_policy.scheduling_policy, None
    if gang is not None and policy is not None:
        # As many as are requested, but no more than the job has now.
        total = sum(draft.status.size(role) for role in PodRole)
        members = min(policy.min_available or total, total)
    created, waits = _missing_pods(draft, gang)
    if created or not shared_is_complete or members != gang_members:
        # What pods share comes first: a pod without its service could not find the scheduler.
        draft.actions += [actions.EnsureShared(gang, members), *created]
    elif not waits and draft.status.condition(facts.ADMITTED) is not None:
        draft.state(facts.ADMITTED, "True", "Created", "The API server has taken all objects of the job.")


def _missing_pods(draft: ActionsDraft, gang: Gang | None) -> tuple[list[actions.CreatePod], bool]:
    """Pods that are missing and whose turn it is, and whether others wait for their time."""
    sizes = tuple((role, draft.status.size(role)) for role in PodRole)
    created: list[actions.CreatePod] = []
    waits = False
    if waits_for_old_pods(draft):
        return created, True
    earlier: list[str] = []
    # `PodRole` lists the roles in the order in which they start.
    for role in PodRole:
        # In a gang all pods are created at once, since none starts before the others.
        may_start = gang is not None or all(_is_up(draft, name) for name in earlier)
        earlier += draft.target_names(role)
        for index, name in enumerate(draft.target_names(role)):
            record = draft.record(name)
            if name in draft.pods or record.result or not may_start:
                continue
            if record.not_before is not None and draft.now < record.not_before:
                draft.wake_at(record.not_before)
                waits = True
                continue
            created.append(actions.CreatePod(role, index, sizes, gang))
    return created, waits


def _is_up(draft: ActionsDraft, name: str) -> bool:
    """Whether a pod is ready, or is done and was not to be waited for."""
    pod = draft.pods.get(name)
    if draft.record(name).result == "Succeeded":
        return True
    return pod is not None and pod.phase is PodPhase.RUNNING and pod.is_ready and not pod.is_deleting


def _target_gang(draft: ActionsDraft) -> Gang | None:
    """The gang scheduler to use. A request for one that the cluster does not have becomes a condition."""
    if draft.spec.run_policy.scheduling_policy is None:
        return None
    if draft.gang is not None:
        draft.state(facts.GANG_SCHEDULED, "True", "PodGroup", f"Pods start together, by {draft.gang.value}.")
        return draft.gang
    # A job is not refused for it: it can run without a gang.
    message = (
        "spec.runPolicy.schedulingPolicy requests gang scheduling, but the cluster has neither Volcano's PodGroup nor "
        "that of scheduler-plugins; the pods start in order, without a gang."
    )
    if draft.state(facts.GANG_SCHEDULED, "False", "SchedulerAbsent", message):
        draft.report("Warning", "GangSchedulerAbsent", message)
    return None


def _guard_servers(draft: ActionsDraft) -> None:
    """Allow the eviction of a server only while all serve and every slot has its copies; look again until it is so."""
    servers = draft.target_names(PodRole.SERVER)
    if not servers:
        return
    if draft.membership is not None and not draft.status.scheduler_answers:
        draft.update(scheduler_answers=True)
    # A scheduler that has never answered, as with keys, says nothing of copies; one that is silent now may be starting.
    copied = draft.membership.is_replicated if draft.membership is not None else not draft.status.scheduler_answers
    # A scheduler notices a killed server only after its lease, so its word counts while all servers are ready.
    allowed = copied and all(_is_up(draft, name) for name in servers)
    if not allowed:
        draft.wake_after(_POLL_SECONDS)
    if allowed != draft.status.servers_may_be_evicted:
        draft.update(servers_may_be_evicted=allowed)
        draft.actions.append(actions.LimitEvictions(allowed))


def _state_progress(draft: ActionsDraft) -> None:
    """Running once every pod is or has been, Restarting while one that ran is being replaced."""
    expected = [name for role in PodRole for name in draft.target_names(role)]
    down = [name for name in expected if not draft.record(name).result and not _runs(draft, name)]
    _state_waiting(draft, expected)
    if _state_unreachable(draft, expected):
        return
    # Only pods that ran before are being replaced; the others are starting.
    if restarting := [name for name in down if draft.record(name).restarts]:
        # Until new pods come, the condition says why the whole job starts again.
        if not is_starting_again(draft):
            message = f"Being replaced: {', '.join(restarting[:5])}{' …' if len(restarting) > 5 else ''}."
            draft.state(facts.RESTARTING, "True", "MSJobRestarting", message)
    elif expected and not down:
        draft.retract(facts.RESTARTING, "MSJobRunning", "All pods run.")
        if draft.state(facts.RUNNING, "True", "MSJobRunning", "All pods run."):
            draft.report("Normal", "MSJobRunning", "All pods run.")


def _state_waiting(draft: ActionsDraft, expected: list[str]) -> None:
    """Say what keeps pods from starting, such as an image that is not there."""
    pods = [pod for name in expected if (pod := draft.pods.get(name)) is not None and not pod.is_deleting]
    if waiting := [pod for pod in pods if pod.waits_for]:
        others = f" ({len(waiting) - 1} other pods wait, too)" if len(waiting) > 1 else ""
        message = f"Pod {waiting[0].name} waits: {waiting[0].waits_for[:_MOST_CHARACTERS]}{others}."
        draft.state(facts.STARTED, "False", "PodsWait", message)
    elif draft.status.condition(facts.STARTED) is not None:
        draft.state(facts.STARTED, "True", "NoPodWaits", "No pod waits for anything.")


def _state_unreachable(draft: ActionsDraft, expected: list[str]) -> bool:
    """Say which pods are on nodes that do not answer, and what to do when they do not end; whether there are any."""
    lost = [pod for name in expected if (pod := draft.pods.get(name)) is not None and pod.is_unreachable]
    stuck = _stuck_pods(draft, lost)
    if not lost and not stuck:
        if draft.status.condition(facts.REACHABLE) is not None:
            draft.state(facts.REACHABLE, "True", "NodesAnswer", "All pods are on nodes that answer.")
        return False
    pods = ", ".join(f"{pod.name} (node {pod.node or 'unknown'})" for pod in (lost + stuck)[:5])
    message = (
        f"Not known whether they run, since their node does not answer: {pods}. If it comes back they go on. If it never "
        "does, taint it with node.kubernetes.io/out-of-service, or delete the pods with --force: then they are replaced."
    )
    if draft.state(facts.REACHABLE, "False", "NodeNotReady", message):
        draft.report("Warning", "NodeNotReady", message)
    draft.retract(facts.RUNNING, "NodeNotReady", message)
    return True


def _stuck_pods(draft: ActionsDraft, lost: list[Pod]) -> list[Pod]:
    """Pods that are still there long after they must have ended; of the others the time is noted."""
    stuck = []
    for pod in draft.pods.values():
        if pod.deleted_by is None or pod in lost:
            continue
        if draft.now >= pod.deleted_by + _STUCK_TIME:
            stuck.append(pod)
        else:
            draft.wake_at(pod.deleted_by + _STUCK_TIME)
    return stuck


def _runs(draft: ActionsDraft, name: str) -> bool:
    """Whether a pod's process runs."""
    pod = draft.pods.get(name)
    return pod is not None and pod.phase is PodPhase.RUNNING and not pod.is_deleting


def _clean_up(draft: ActionsDraft) -> None:
    """After the end: delete pods as the policy says, and the job when its time is over."""
    policy = draft.spec.run_policy
    for pod in draft.pods.values():
        stays = policy.clean_pod_policy is CleanPodPolicy.NONE or (
            policy.clean_pod_policy is CleanPodPolicy.RUNNING and not pod.is_active
        )
        if not stays and not pod.is_deleting:
            draft.actions.append(actions.DeletePod(pod.name, pod.uid))
    if policy.ttl_seconds_after_finished is not None and draft.status.completion_time is not None:
        end = draft.status.completion_time + timedelta(seconds=policy.ttl_seconds_after_finished)
        if draft.now >= end:
            draft.actions.append(actions.DeleteJob())
        else:
            draft.wake_at(end)


def _count_pods(draft: ActionsDraft) -> None:
    """Fill in the counts that users look at."""
    statuses = {}
    for role in PodRole:
        if draft.spec.replica_spec(role) is None:
            continue
        pods = draft.pods_of(role)
        results = [draft.record(name).result for name in draft.target_names(role)]
        statuses[role.value] = ReplicaStatus(
            active=sum(pod.is_active and not pod.is_deleting for pod in pods),
            ready=sum(pod.is_ready and pod.phase is PodPhase.RUNNING for pod in pods),
            succeeded=results.count("Succeeded"),
            failed=results.count("Failed"),
            label_selector={"matchLabels": names.job_selector(draft.job.name, role.value)},
        )
    draft.update(replica_statuses=statuses)
