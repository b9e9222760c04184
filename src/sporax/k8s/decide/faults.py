"""Which pods have ended, how, and what follows: each end is counted once, then replaced, ignored, or the job's end.

These decide what follows, in this order: the job's failure policy, the promise that a server that its scheduler has
replaced, whose process was killed or whose node is gone comes back, the restart policy of the role, and `enableDynamicWorker`.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from sporax.k8s.decide.actions import DeletePod
from sporax.k8s.decide.draft import LONGEST_DELAY_SECONDS, ActionsDraft, JobFailure
from sporax.k8s.decide.observed import Pod, PodPhase
from sporax.k8s.resource import job_status as facts
from sporax.k8s.resource.job_status import PodRecord
from sporax.k8s.resource.spec import FailureAction, PodRole, RestartPolicy
from sporax.ps.environment import REPLACED


def settle_faults(draft: ActionsDraft) -> JobFailure | None:
    """Bring the records up to date with the pods; why the job has failed, if it has."""
    failure: JobFailure | None = None
    for role in PodRole:
        for name in draft.target_names(role):
            # All pods are brought up to date, even after one has ended the job.
            failure = _settle(draft, name) or failure
    return failure or _too_many_failures(draft) or _too_few_workers(draft)


def _settle(draft: ActionsDraft, name: str) -> JobFailure | None:
    """Bring the record of one pod up to date."""
    pod, record = draft.pods.get(name), draft.record(name)
    if record.result:
        return None
    # It was not deleted by the operator, which settles an incarnation before it deletes it.
    if record.uid and record.uid != record.settled_uid and (pod is None or pod.uid != record.uid):
        draft.count_restart(name, failed=False)
        draft.report("Warning", "PodVanished", f"Pod {name} was deleted by another client; it is created again.")
    if pod is None:
        return None
    if pod.uid != record.uid:
        # One that is being deleted was settled by an operator that died before it wrote so.
        settled = pod.uid if pod.is_deleting else draft.record(name).settled_uid
        draft.remember(name, uid=pod.uid, settled_uid=settled, since=draft.now, container_restarts=0, not_before=None)
    # The kubelet restarts containers by itself under OnFailure; the operator only counts.
    if pod.restarts > draft.record(name).container_restarts:
        again = pod.restarts - draft.record(name).container_restarts
        draft.remember(name, container_restarts=pod.restarts)
        draft.update(restarts=draft.status.restarts + again, failures=draft.status.failures + again)
    # A pod that has succeeded is never created again.
    if pod.phase is PodPhase.SUCCEEDED and not _handed_over(pod):
        draft.remember(name, result="Succeeded")
    elif pod.phase is PodPhase.FAILED and not pod.is_deleting and draft.record(name).settled_uid != pod.uid:
        return _answer(draft, pod)
    return None


def _handed_over(pod: Pod) -> bool:
    """Whether it is a server that is evicted: it hands over and ends well, and its place is free."""
    return pod.role is PodRole.SERVER and pod.is_deleting


def _answer(draft: ActionsDraft, pod: Pod) -> JobFailure | None:
    """Deal with a pod that has failed."""
    which = f"container '{pod.failed_container}' ended with " if pod.failed_container else ""
    how = f"{which}exit code {pod.exit_code}" if pod.exit_code is not None else "no word of its process"
    text = f"Pod {pod.name} failed: {how}{f', {pod.reason}' if pod.reason else ''}."
    verdict, by_rule = _verdict(draft, pod)
    match verdict:
        case FailureAction.RESTART:
            draft.count_restart(pod.name, failed=not _was_replaced(pod))
            draft.report("Warning", "PodRestarted", f"{text} It is replaced.")
        case FailureAction.IGNORE:
            draft.remember(pod.name, result="Failed")
            draft.report("Warning", "PodFailed", f"{text} The job goes on without it.")
        case FailureAction.FAIL:
            draft.remember(pod.name, result="Failed")
            return JobFailure("MSJobFailed", text, may_restart=not by_rule)
    return None


def _verdict(draft: ActionsDraft, pod: Pod) -> tuple[FailureAction, bool]:
    """What follows from a failure, and whether a rule of the user says so."""
    policy = draft.spec.failure_policy
    for rule in policy.rules if policy is not None else ():
        if rule.matches(pod.role, pod.exit_code, pod.reason):
            return rule.action, True
    return _default_verdict(draft, pod), False


def _default_verdict(draft: ActionsDraft, pod: Pod) -> FailureAction:
    """What follows from a failure that no rule speaks of."""
    if _was_replaced(pod):
        return FailureAction.RESTART
    # Neither is the program's own error.
    was_taken = pod.was_killed or pod.is_lost
    part = draft.spec.replica_spec(pod.role)
    assert part is not None  # only pods of roles that the job has are wanted
    match part.restart_policy:
        case RestartPolicy.ALWAYS | RestartPolicy.ON_FAILURE:
            return FailureAction.RESTART
        case RestartPolicy.EXIT_CODE if was_taken:
            return FailureAction.RESTART
        case _ if was_taken and pod.role is PodRole.SERVER:
            # The promise of elastic servers: copies of its slots are elsewhere.
            return FailureAction.RESTART
        case _ if pod.role is PodRole.WORKER and draft.spec.enable_dynamic_worker:
            return FailureAction.IGNORE
        case _:
            return FailureAction.FAIL


def _was_replaced(pod: Pod) -> bool:
    """Whether a server ended since its scheduler has given its place to a new one: no failure."""
    return pod.role is PodRole.SERVER and pod.exit_code == REPLACED and not pod.failed_container


def _too_many_failures(draft: ActionsDraft) -> JobFailure | None:
    """Whether the job has used up its restarts."""
    limit = draft.spec.run_policy.backoff_limit
    if limit is None or draft.status.failures <= limit:
        return None
    message = f"{draft.status.failures} failures, but spec.runPolicy.backoffLimit is {limit}."
    return JobFailure("BackoffLimitExceeded", message)


def _too_few_workers(draft: ActionsDraft) -> JobFailure | None:
    """Whether an elastic job has lost more workers than it can do without."""
    workers, part = draft.target_names(PodRole.WORKER), draft.spec.replica_spec(PodRole.WORKER)
    left = sum(draft.record(name).result != "Failed" for name in workers)
    least = max(1, (part.min_replicas or 0) if part is not None else 0)
    # As long as enough are left, an elastic job goes on.
    if not workers or left == len(workers) or left >= least:
        return None
    message = f"{len(workers) - left} of {len(workers)} workers failed for good; {least} must be left."
    return JobFailure("TooFewWorkers", message, may_restart=True)


def may_restart_job(draft: ActionsDraft) -> bool:
    """Whether the whole job may start again: neither it has done so, nor its pods have failed, as often as is allowed."""
    policy, status = draft.spec.run_policy, draft.status
    within_limit = policy.backoff_limit is None or status.failures < policy.backoff_limit
    return status.job_restarts < policy.max_restarts and within_limit


def waits_for_old_pods(draft: ActionsDraft) -> bool:
    """Whether pods of before a restart are left, and no others: one of them could take part in the job that starts again."""
    return bool(draft.pods) and _has_no_new_pod(draft)


def is_starting_again(draft: ActionsDraft) -> bool:
    """Whether the condition Restarting speaks of the whole job, and none of its new pods is there yet."""
    condition = draft.status.condition(facts.RESTARTING)
    return condition is not None and condition.status == "True" and _has_no_new_pod(draft)


def _has_no_new_pod(draft: ActionsDraft) -> bool:
    are_old = (draft.record(pod.name).settled_uid == pod.uid for pod in draft.pods.values())
    return draft.status.job_restarts > 0 and all(are_old)


def restart_job(draft: ActionsDraft, failure: JobFailure) -> None:
    """Delete all pods and let none come before a while has passed."""
    number, most = draft.status.job_restarts + 1, draft.spec.run_policy.max_restarts
    not_before = draft.now + timedelta(seconds=min(2.0 ** (number - 1), LONGEST_DELAY_SECONDS))
    records: dict[str, PodRecord] = {}
    names = [name for role in PodRole for name in draft.target_names(role)]
    for name in dict.fromkeys([*names, *draft.pods]):
        record, pod = draft.record(name), draft.pods.get(name)
        uid = pod.uid if pod is not None else record.uid
        records[name] = replace(
            record, uid=uid, settled_uid=uid, restarts=record.restarts + 1, result="", not_before=not_before
        )
    draft.update(
        pods=records,
        job_restarts=number,
        restarts=draft.status.restarts + len(names),
        failures=draft.status.failures + 1,
        servers_may_be_evicted=None,
        scheduler_answers=None,
    )
    draft.actions += [DeletePod(pod.name, pod.uid) for pod in draft.pods.values() if not pod.is_deleting]
    message = f"The whole job starts again ({number} of {most}, spec.runPolicy.maxRestarts): {failure.message}"
    draft.retract(facts.RUNNING, "MSJobRestarting", message)
    draft.state(facts.RESTARTING, "True", "MSJobRestarting", message)
    draft.report("Warning", "MSJobRestarting", message)
    draft.wake_at(not_before)
