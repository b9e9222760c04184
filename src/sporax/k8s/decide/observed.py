"""What the cluster says of a job's pods, reduced to what decisions need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sporax.k8s.resource import names
from sporax.k8s.resource.spec import Role

# Shells and Kubernetes add 128 to the number of the signal.
SIGNAL_EXIT_CODES = range(128, 256)


class Phase(StrEnum):
    """Where a pod is in its life, in Kubernetes' words."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod.

    Attributes:
        exit_code: of the container `mindspore`, once it has ended; None while it runs, or if its node was lost.
        reason: why it ended, in Kubernetes' words (OOMKilled, Evicted, NodeLost, Error …); "" if nothing is said.
        restarts: how often the kubelet has started that container again.
        is_deleting: whether it has been asked to end.
        address: where its processes are reached; "" before it has one.
        owner_uid: the incarnation of the job that it belongs to.
    """

    name: str
    uid: str
    role: Role
    index: int
    phase: Phase = Phase.PENDING
    is_ready: bool = False
    exit_code: int | None = None
    reason: str = ""
    restarts: int = 0
    is_deleting: bool = False
    address: str = ""
    owner_uid: str = ""

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return self.phase in (Phase.PENDING, Phase.RUNNING, Phase.UNKNOWN)

    @property
    def is_lost(self) -> bool:
        """Whether it failed without a word of its process: evicted, preempted, its node gone."""
        return self.phase is Phase.FAILED and self.exit_code is None

    @property
    def was_killed(self) -> bool:
        """Whether its process was ended by a signal."""
        return self.exit_code in SIGNAL_EXIT_CODES


@dataclass(frozen=True, slots=True)
class Membership:
    """What a job's scheduler says of its servers and workers.

    Attributes:
        is_replicated: whether every slot has all its copies, so that one more server may go.
        workers: how many the scheduler aims at.
        servers: how many the scheduler aims at; those beyond hand over what they hold.
        drained: names of servers that hold nothing any more.
    """

    is_replicated: bool
    workers: int
    servers: int
    drained: frozenset[str] = frozenset()


class Gang(StrEnum):
    """A scheduler that starts all pods of a group or none."""

    VOLCANO = "volcano"
    COSCHEDULING = "scheduler-plugins"


def read_pod(body: Mapping[str, Any]) -> Pod | None:
    """One pod as the API server holds it; None if it carries no labels of ours."""
    metadata, status = body["metadata"], body.get("status") or {}
    labels = metadata.get("labels") or {}
    roles = {role.value.lower(): role for role in Role}
    role = roles.get(labels.get(names.LABEL_ROLE, ""))
    index = labels.get(names.LABEL_INDEX, "")
    # Other pods may carry a label of the same name.
    if role is None or not index.isdigit():
        return None
    # The container that trains; sidecars do not count.
    containers: dict[str, Any] = {item["name"]: item for item in status.get("containerStatuses") or []}
    container = containers.get(names.CONTAINER, {})
    ended = (container.get("state") or {}).get("terminated") or {}
    return Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        role=role,
        index=int(index),
        phase=Phase(status.get("phase") or "Pending"),
        is_ready=any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or []),
        exit_code=ended.get("exitCode"),
        # The pod's own reason first: an evicted pod's container says nothing of that.
        reason=status.get("reason") or ended.get("reason") or "",
        restarts=int(container.get("restartCount", 0)),
        is_deleting=bool(metadata.get("deletionTimestamp")),
        address=status.get("podIP") or "",
        # The controller is the first owner of pods that the operator has made.
        owner_uid=str((metadata.get("ownerReferences") or [{}])[0].get("uid", "")),
    )
