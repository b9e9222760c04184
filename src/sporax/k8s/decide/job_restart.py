"""The whole job starts again when a failure would end it (`runPolicy.maxRestarts`), as JobSet and Volcano do.

All pods are deleted, those that have ended well too, and created again in their order once all are gone, after a delay that
doubles: 1, 2, 4 ... 300 s. Each process then goes on from the newest complete checkpoint of its job (`children.pod` sets
MS_ENABLE_RECOVERY). Every present incarnation is noted as settled first, so an operator that dies before it has deleted them
counts none again.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from sporax.k8s.decide.actions import DeletePod
from sporax.k8s.decide.draft import LONGEST_DELAY_SECONDS, ActionsDraft, JobFailure
from sporax.k8s.decide.observed import Pod
from sporax.k8s.resource import job_status as facts
from sporax.k8s.resource.job_status import PodRecord
from sporax.k8s.resource.spec import PodRole


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
    return draft.status.job_restarts > 0 and all(_is_old(draft, pod) for pod in draft.pods.values())


def _is_old(draft: ActionsDraft, pod: Pod) -> bool:
    return draft.record(pod.name).settled_uid == pod.uid


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
