"""What is remembered of a job between two looks, kept in the job's own `status`: nothing lives in the operator alone.

Conditions are those of the original (Created, Running, Restarting, Succeeded, Failed), plus Suspended, Scaled,
GangScheduled and SpecAccepted. The newest change stands last, where the printer column State looks.

A `PodRecord` counts each incarnation of a pod once: `uid` is the last one seen, `settled_uid` the last whose end has been
counted. So looking twice, or an operator that died between counting and deleting, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from sporax.k8s.resource.spec import Role

CREATED, RUNNING, RESTARTING = "Created", "Running", "Restarting"
SUCCEEDED, FAILED, SUSPENDED = "Succeeded", "Failed", "Suspended"
SCALED, GANG_SCHEDULED, SPEC_ACCEPTED = "Scaled", "GangScheduled", "SpecAccepted"
STATES = frozenset({CREATED, RUNNING, RESTARTING, SUCCEEDED, FAILED, SUSPENDED})
INVALID_SPEC = "InvalidSpec"

Truth = Literal["True", "False"]


class _Status(Struct, frozen=True, rename="camel", kw_only=True):
    """What every part of a status has in common. Unknown fields, as another version wrote them, are dropped."""


class Condition(_Status, frozen=True):
    """One statement about a job, and since when it holds."""

    type: str
    status: Truth
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReplicaStatus(_Status, frozen=True):
    """The pods of one role, counted."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    label_selector: dict[str, dict[str, str]] = field(default_factory=dict)


class PodRecord(_Status, frozen=True, omit_defaults=True):
    """What is remembered of one pod over all its incarnations.

    Attributes:
        uid: the incarnation that was seen last.
        settled_uid: the last incarnation whose end has been counted.
        since: when `uid` was first seen.
        restarts: incarnations that had to be replaced.
        container_restarts: how often the kubelet started the container of `uid` again, as counted so far.
        quick_failures: failures in a row of incarnations that did not last; the delay grows with them.
        not_before: when the next incarnation may be created.
        result: how the pod ended for good; "" while it has not.
    """

    uid: str = ""
    settled_uid: str = ""
    since: datetime | None = None
    restarts: int = 0
    container_restarts: int = 0
    quick_failures: int = 0
    not_before: datetime | None = None
    result: Literal["", "Succeeded", "Failed"] = ""


class Status(_Status, frozen=True):
    """The `status` of an `MSJob`.

    Attributes:
        restarts: pods and containers that were started again, for whatever reason.
        failures: those of them that had failed; `backoffLimit` is about these.
        sizes: pods of each role that the job runs with.
        servers_may_be_evicted: what the disruption budget of the servers was last set to.
        selector: labels of the job's workers, for the scale sub-resource.
    """

    conditions: list[Condition] = field(default_factory=list)
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=dict)
    start_time: datetime | None = None
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    observed_generation: int = 0
    restarts: int = 0
    failures: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    servers_may_be_evicted: bool | None = None
    selector: str = ""
    pods: dict[str, PodRecord] = field(default_factory=dict)

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type, true or not; None if the job has none."""
        return next((item for item in self.conditions if item.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether the job has a condition, and it holds."""
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"

    @property
    def is_finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.is_true(SUCCEEDED) or self.is_true(FAILED)

    def size(self, role: Role) -> int:
        """How many pods of a role the job runs with."""
        return self.sizes.get(role.value, 0)


def read_status(raw: Mapping[str, Any] | None) -> Status:
    """Read a status; what cannot be read counts as nothing remembered, since a status is only our own notes."""
    try:
        return msgspec.convert(_without_nulls(raw or {}), Status)
    except msgspec.ValidationError:
        # Notes of another version: the state of the pods is enough to begin again.
        return Status()


def write_status(status: Status) -> dict[str, Any]:
    """A status as JSON-like data."""
    data: dict[str, Any] = _without_nulls(msgspec.to_builtins(status))
    return data


def status_patch(before: Status, after: Status) -> dict[str, Any]:
    """A merge patch that turns one status into the other: keys that vanished become null."""
    patch: dict[str, Any] = _merge_patch(write_status(before), write_status(after))
    return patch


def _merge_patch(before: Any, after: Any) -> Any:
    """RFC 7386: what to send so that `before` becomes `after`."""
    # Only differences are sent, so that fields of another version stay.
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    # null deletes a key in a merge patch.
    patch = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
        elif before[key] != value:
            patch[key] = _merge_patch(before[key], value)
    return patch


def _without_nulls(value: Any) -> Any:
    """Data without fields that are null, at any depth."""
    # null would delete keys of the status that are merely empty.
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
