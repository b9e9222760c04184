"""What is remembered of a job between two looks, kept in the job's own `status`: nothing lives in the operator alone.

What each field means is in `descriptions`. Conditions are those of the original (Created, Running, Restarting, Succeeded,
Failed), plus Suspended, Scaled, GangScheduled, SpecAccepted, Admitted, PodsReachable and PodsStarted. The newest change stands
last, where the printer column State looks. Conditions that others have written are kept, and stand first.

A `PodRecord` counts each incarnation of a pod once: `uid` is the last one seen, `settled_uid` the last whose end has been
counted. So looking twice, or an operator that died between counting and deleting, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field, structs

from sporax.k8s.resource.spec import PodRole

CREATED, RUNNING, RESTARTING = "Created", "Running", "Restarting"
SUCCEEDED, FAILED, SUSPENDED = "Succeeded", "Failed", "Suspended"
SCALED, GANG_SCHEDULED, SPEC_ACCEPTED, ADMITTED = "Scaled", "GangScheduled", "SpecAccepted", "Admitted"
REACHABLE, STARTED = "PodsReachable", "PodsStarted"
STATES = frozenset({CREATED, RUNNING, RESTARTING, SUCCEEDED, FAILED, SUSPENDED})
# Conditions that the operator writes; others are kept as they are.
OWN = STATES | {SCALED, GANG_SCHEDULED, SPEC_ACCEPTED, ADMITTED, REACHABLE, STARTED}
INVALID_SPEC = "InvalidSpec"

Body = dict[str, Any]  # a status as JSON-like data
Content = Mapping[str, Any]  # the same, as others wrote it
Truth = Literal["True", "False", "Unknown"]
_Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
_Int64 = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
_BY_TYPE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


class _Status(Struct, frozen=True, rename="camel", kw_only=True):
    """What every part of a status has in common. Unknown fields, as another version wrote them, are dropped."""


class Condition(_Status, frozen=True):
    """One statement about a job, since when it holds, and for which edition of the spec it was made."""

    type: str
    status: Truth
    observed_generation: _Int64 = 0
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReplicaStatus(_Status, frozen=True):
    """The pods of one role, counted."""

    active: _Int32 = 0
    ready: _Int32 = 0
    succeeded: _Int32 = 0
    failed: _Int32 = 0
    label_selector: dict[str, dict[str, str]] = field(default_factory=dict)


class PodRecord(_Status, frozen=True, omit_defaults=True):
    """What is remembered of one pod over all its incarnations."""

    uid: str = ""
    settled_uid: str = ""
    since: datetime | None = None
    restarts: int = 0
    container_restarts: int = 0
    quick_failures: int = 0
    not_before: datetime | None = None
    result: Annotated[Literal["", "Succeeded", "Failed"], Meta(extra_json_schema={"type": "string"})] = ""


class Progress(_Status, frozen=True, omit_defaults=True):
    """How far a job is, as rank 0 says."""

    step: int = 0
    epoch: int = 0
    loss: str = ""
    samples_per_second: str = ""
    time: datetime | None = None


class Status(_Status, frozen=True):
    """The `status` of an `MSJob`."""

    conditions: Annotated[list[Condition], Meta(extra_json_schema=_BY_TYPE)] = field(default_factory=list)
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=dict)
    start_time: datetime | None = None
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    observed_generation: _Int64 = 0
    restarts: int = 0
    failures: int = 0
    job_restarts: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    servers_may_be_evicted: bool | None = None
    scheduler_answers: bool | None = None
    selector: str = ""
    progress: Progress | None = None
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

    def size(self, role: PodRole) -> int:
        """How many pods of a role the job runs with."""
        return self.sizes.get(role.value, 0)


def read_status(raw: Content | None) -> Status:
    """Read a status. A part that cannot be read, as another program wrote it, counts as nothing remembered.

    Only that part: a job whose end is noted must not run again because of a note of somebody else.
    """
    content = _without_nulls(raw or {})
    try:
        return msgspec.convert(content, Status)
    except msgspec.ValidationError:
        return Status(**_readable_fields(content))


def _readable_fields(content: Content) -> Body:
    """The fields of a status that can be read; of lists and tables the members that can."""
    fields = {}
    members: dict[str, type[Struct]] = {"conditions": Condition, "pods": PodRecord, "replicaStatuses": ReplicaStatus}
    for item in structs.fields(Status):
        value = content.get(item.encode_name)
        kind: Any = item.type
        if (member := members.get(item.encode_name)) is not None:
            value = _readable_members(value, member)
        with suppress(msgspec.ValidationError):
            if value is not None:
                fields[item.name] = msgspec.convert(value, kind)
    return fields


def _readable_members(value: Any, kind: type[Struct]) -> Any:
    """The members of a list or a table that can be read."""

    def is_readable(member: Any) -> bool:
        try:
            msgspec.convert(member, kind)
        except msgspec.ValidationError:
            return False
        return True

    if isinstance(value, Mapping):
        return {key: member for key, member in value.items() if is_readable(member)}
    return [member for member in value if is_readable(member)] if isinstance(value, list) else None


def write_status(status: Status) -> Body:
    """A status as JSON-like data. Empty texts are left out: some API servers take them for null and refuse them."""
    data: Body = _without_nulls(msgspec.to_builtins(status), empty=("",))
    return data


def status_patch(before: Status, after: Status, stored: Content | None = None) -> Body:
    """A merge patch that turns one status into the other: keys that vanished become null.

    Args:
        before: what was read.
        after: what is to be.
        stored: what the API server has, where given: defaults that it has not are written, as `restarts: 0` for people.
    """
    old = write_status(before)
    if stored is not None:
        old = {key: value for key, value in old.items() if key in stored}
    patch: Body = merge_patch(old, write_status(after))
    return patch


def is_urgent(before: Status, after: Status) -> bool:
    """Whether a change says more than counts and which incarnations were seen: such news alone may wait a moment."""
    seen = {
        name: structs.replace(record, uid=after.pods[name].uid, since=after.pods[name].since)
        if name in after.pods
        else record
        for name, record in before.pods.items()
    }
    seen |= {name: PodRecord(uid=new.uid, since=new.since) for name, new in after.pods.items() if name not in seen}
    counted = structs.replace(
        before,
        pods=seen,
        replica_statuses=after.replica_statuses,
        progress=after.progress,
        last_reconcile_time=after.last_reconcile_time,
    )
    return counted != after


def merge_patch(before: Any, after: Any) -> Any:
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
            patch[key] = merge_patch(before[key], value)
    return patch


def _without_nulls(value: Any, empty: tuple[str, ...] = ()) -> Any:
    """Data without fields that are null or one of some texts, at any depth."""
    # null would delete keys of the status that are merely empty.
    if isinstance(value, Mapping):
        return {
            key: _without_nulls(item, empty)
            for key, item in value.items()
            if item is not None and not (isinstance(item, str) and item in empty)
        }
    return [_without_nulls(item, empty) for item in value] if isinstance(value, list) else value
