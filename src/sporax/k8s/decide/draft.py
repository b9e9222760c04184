"""A plan while it is being made: the status so far, the actions so far, and the small moves they are made of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from sporax.k8s.decide.actions import Action, Actions, Report
from sporax.k8s.decide.observed import Gang, Pod, ReportedMembership
from sporax.k8s.resource import job_status as facts, names
from sporax.k8s.resource.job_status import Condition, PodRecord, Status, Truth
from sporax.k8s.resource.spec import Job, PodRole

# Seconds; a pod that lived this long did not fail at once: its next restart is not delayed.
_SETTLED_SECONDS = 30.0
# Five minutes, as the kubelet's longest delay between restarts.
LONGEST_DELAY_SECONDS = 300.0


class JobFailure(NamedTuple):
    """Why a job has failed, and whether to start the whole job again may help: not where a rule or a limit ends it."""

    reason: str
    message: str
    may_restart: bool = False


class ActionsDraft:
    """The state of one run of `planning.plan`."""

    def __init__(
        self,
        job: Job,
        status: Status,
        pods: Iterable[Pod],
        now: datetime,
        membership: ReportedMembership | None,
        gang: Gang | None,
    ) -> None:
        self.job = job
        self.spec = job.spec
        self.before = status
        self.status = status
        self.now = now
        self.membership = membership
        self.gang = gang
        self.pods = {pod.name: pod for pod in pods}
        self.actions: list[Action] = []
        self._wake_at: list[datetime] = []

    def finish(self) -> Actions:
        """The finished plan. A status that says nothing new is the old one, so that it is not written again."""
        status = self.status
        # Times alone are no news, so that a quiet job's status is not written at every look.
        if status != self.before:
            status = replace(status, last_reconcile_time=self.now)
        return Actions(tuple(self.actions), status, min(self._wake_at, default=None))

    def name(self, role: PodRole, index: int) -> str:
        """The name of one of the job's pods."""
        return names.pod_name(self.job.name, role.value, index)

    def pods_of(self, role: PodRole) -> list[Pod]:
        """The pods of a role, by index."""
        return sorted((pod for pod in self.pods.values() if pod.role is role), key=lambda pod: pod.index)

    def target_names(self, role: PodRole) -> list[str]:
        """Names of the pods that a role is to have."""
        return [self.name(role, index) for index in range(self.status.size(role))]

    def record(self, name: str) -> PodRecord:
        """What is remembered of a pod."""
        return self.status.pods.get(name, PodRecord())

    def remember(self, name: str, **changes: Any) -> None:
        """Change what is remembered of a pod."""
        self.update(pods={**self.status.pods, name: replace(self.record(name), **changes)})

    def update(self, **changes: Any) -> None:
        """Change fields of the status."""
        self.status = replace(self.status, **changes)

    def wake_after(self, seconds: float) -> None:
        """Look again after a while."""
        self.wake_at(self.now + timedelta(seconds=seconds))

    def wake_at(self, when: datetime) -> None:
        """Look again at a time."""
        self._wake_at.append(when)

    def report(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Write an event."""
        self.actions.append(Report(kind, reason, message))

    def state(self, kind: str, truth: Truth, reason: str, message: str) -> bool:
        """Set a condition; whether that is news. What has just changed goes to the end of the list."""
        old = self.status.condition(kind)
        if old is not None and (old.status, old.reason, old.message) == (truth, reason, message):
            if old.observed_generation != self.job.generation:
                self._put(replace(old, observed_generation=self.job.generation), goes_last=False)
            return False
        changed = old is None or old.status != truth
        # The time of the last change of truth, as Kubernetes defines it.
        since = self.now if changed or old is None else old.last_transition_time
        new = Condition(
            type=kind,
            status=truth,
            observed_generation=self.job.generation,
            reason=reason,
            message=message,
            last_update_time=self.now,
            last_transition_time=since,
        )
        self._put(new, goes_last=changed and truth == "True" and kind in facts.STATES)
        return True

    def order_conditions(self) -> None:
        """Put conditions that are no state of the job first: the printer column State reads the last one."""
        conditions = sorted(self.status.conditions, key=lambda item: item.type in facts.STATES)
        if conditions != self.status.conditions:
            self.update(conditions=conditions)

    def _put(self, new: Condition, *, goes_last: bool) -> None:
        """Enter a condition in the place of the one of its type, or as the last or, without one, as the first."""
        conditions = list(self.status.conditions)
        position = next((i for i, item in enumerate(conditions) if item.type == new.type), None)
        if goes_last:
            conditions = [*(item for item in conditions if item.type != new.type), new]
        elif position is None:
            conditions.insert(0, new)
        else:  # a statement that stopped to hold keeps its place: it is not the job's state
            conditions[position] = new
        self.update(conditions=conditions)

    def retract(self, kind: str, reason: str, message: str) -> None:
        """Say that a condition, if the job has it, no longer holds."""
        if self.status.is_true(kind):
            self.state(kind, "False", reason, message)

    def fail(self, reason: str, message: str) -> None:
        """End the job: it has failed."""
        self._end(facts.FAILED, "Warning", reason, message)

    def succeed(self, message: str) -> None:
        """End the job: it has succeeded."""
        self._end(facts.SUCCEEDED, "Normal", "MSJobSucceeded", message)

    def count_restart(self, name: str, *, failed: bool) -> None:
        """Count the end of a pod's present incarnation once, and say when the next may come."""
        record = self.record(name)
        lasted = record.since is not None and (self.now - record.since).total_seconds() >= _SETTLED_SECONDS
        quick = 0 if lasted or not failed else record.quick_failures
        # Doubled for each failure in a row, from one second on.
        delay = min(2.0 ** (quick - 1), LONGEST_DELAY_SECONDS) if quick else 0.0
        self.remember(
            name,
            # Noted in the status, so that an operator that dies now does not count it again.
            settled_uid=record.uid,
            restarts=record.restarts + 1,
            quick_failures=quick + 1 if failed else quick,
            not_before=self.now + timedelta(seconds=delay) if delay else None,
        )
        self.update(restarts=self.status.restarts + 1, failures=self.status.failures + failed)

    def _end(self, kind: str, event: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Set a final condition."""
        # A finished job neither runs nor restarts.
        self.retract(facts.RUNNING, reason, message)
        self.retract(facts.RESTARTING, reason, message)
        self.state(kind, "True", reason, message)
        self.update(completion_time=self.now)
        self.report(event, reason, message)
