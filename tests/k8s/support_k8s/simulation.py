"""A cluster reduced to what `plan` sees: pods that appear, run and end as set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from sporax.k8s.decide.actions import (
    Action,
    Actions,
    CreatePod,
    DeleteJob,
    DeletePod,
    DeletePodGroup,
    EnsureShared,
    Report,
)
from sporax.k8s.decide.job_planning import plan
from sporax.k8s.decide.observed import Pod, PodPhase
from sporax.k8s.resource.job_status import Status
from sporax.k8s.resource.names import pod_name
from sporax.k8s.resource.spec import read_job

START = datetime(2026, 1, 1, tzinfo=UTC)


class Simulation:
    """One job, its pods and a clock."""

    def __init__(self, body: dict[str, Any], **extras: Any) -> None:
        self.body = body
        self.extras = extras
        self.status = Status()
        self.pods: dict[str, Pod] = {}
        self.now = START
        self.created = 0
        self.is_deleted = False
        self.gang_members: int | None = None
        self.largest: dict[str, int] = {}
        self.events: list[str] = []

    def plan(self) -> Actions:
        return plan(
            read_job(self.body),
            self.status,
            list(self.pods.values()),
            self.now,
            gang_members=self.gang_members,
            **self.extras,
        )

    def step(self) -> tuple[Action, ...]:
        """Plan once and carry it out."""
        result = self.plan()
        self.status = result.status
        for action in result.actions:
            self._carry_out(action)
        return result.actions

    def settle(self, limit: int = 20) -> None:
        """Plan until there is nothing left to do; new pods run at once, deleted ones are gone at once."""
        for _ in range(limit):
            before = self.status
            actions = self.step()
            changed = self.advance()
            if not actions and not changed and before == self.status:
                return
        raise AssertionError(f"still busy after {limit} looks: {actions}")

    def advance(self) -> bool:
        """Let pods go on as they would: pending ones run, deleted ones go."""
        before = dict(self.pods)
        self.pods = {
            name: replace(pod, phase=PodPhase.RUNNING, is_ready=True) if pod.phase is PodPhase.PENDING else pod
            for name, pod in self.pods.items()
            if not pod.is_deleting
        }
        return before != self.pods

    def end(self, name: str, code: int | None = 0, reason: str = "") -> None:
        """A pod's process ends; with code None its node is lost."""
        phase = PodPhase.SUCCEEDED if code == 0 else PodPhase.FAILED
        self.pods[name] = replace(self.pods[name], phase=phase, exit_code=code, is_ready=False, reason=reason)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def spec(self, **changes: Any) -> None:
        """Edit the spec; the API server counts editions."""
        self.body["spec"] |= changes
        self.body["metadata"]["generation"] += 1

    def scale(self, role: str, replicas: int) -> None:
        self.body["spec"]["msReplicaSpecs"][role]["replicas"] = replicas
        self.body["metadata"]["generation"] += 1

    def names(self, role: str = "") -> list[str]:
        return sorted(name for name, pod in self.pods.items() if role in ("", pod.role.value))

    def condition(self, kind: str) -> str:
        actual = self.status.condition(kind)
        return "" if actual is None or actual.status == "False" else actual.reason

    @property
    def state(self) -> str:
        return next((item.type for item in reversed(self.status.conditions) if item.status == "True"), "")

    def _carry_out(self, action: Action) -> None:
        match action:
            case CreatePod(role, index):
                name = pod_name(self.body["metadata"]["name"], role.value, index)
                if name not in self.pods:
                    self.created += 1
                    self.pods[name] = Pod(name, f"uid-{self.created}", role, index)
                count = sum(pod.role is role for pod in self.pods.values())
                self.largest[role.value] = max(self.largest.get(role.value, 0), count)
            case DeletePod(name, uid):
                if name in self.pods and self.pods[name].uid == uid:
                    self.pods[name] = replace(self.pods[name], is_deleting=True)
            case EnsureShared(gang, members) if gang is not None:
                self.gang_members = members
            case DeletePodGroup():
                self.gang_members = None
            case DeleteJob():
                self.is_deleted = True
            case Report(_, reason, _):
                self.events.append(reason)
