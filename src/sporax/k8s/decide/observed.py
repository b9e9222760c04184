"""What the cluster says of a job's pods, reduced to what decisions need."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from sporax.k8s.resource import names
from sporax.k8s.resource.spec import PodRole

Body = Mapping[str, Any]  # an object, or a part of one, as the API server holds it
_USUAL_WAITS = {None, "", "ContainerCreating", "PodInitializing"}
# Shells and Kubernetes add 128 to the number of the signal.
SIGNAL_EXIT_CODES = range(128, 256)


class PodPhase(StrEnum):
    """Where a pod is in its life, in Kubernetes' words."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Pod(Struct, frozen=True):
    """One pod.

    Attributes:
        exit_code: of the container `mindspore`, once it has ended, or of the one that has failed in its place; None while
            it runs, or if its node was lost.
        failed_container: the container that has failed, if it is another one: one that prepares the pod, or a sidecar.
        reason: why it ended, in Kubernetes' words (OOMKilled, Evicted, NodeLost, Error …); "" if nothing is said.
        restarts: how often the kubelet has started that container, or one that prepares the pod, again.
        is_deleting: whether it has been requested to end.
        deleted_by: when it must have ended at the latest after that.
        is_unreachable: whether its node does not answer: its processes may run or not.
        node: where it runs; "" before it has a node.
        address: where its processes are reached; "" before it has one.
        waits_for: what keeps it from running, in the words of the scheduler and the kubelet; "" where nothing does.
        owner_uid: the incarnation of the job that it belongs to.
    """

    name: str
    uid: str
    role: PodRole
    index: int
    phase: PodPhase = PodPhase.PENDING
    is_ready: bool = False
    exit_code: int | None = None
    failed_container: str = ""
    reason: str = ""
    restarts: int = 0
    is_deleting: bool = False
    deleted_by: datetime | None = None
    is_unreachable: bool = False
    node: str = ""
    address: str = ""
    waits_for: str = ""
    owner_uid: str = ""

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return self.phase in (PodPhase.PENDING, PodPhase.RUNNING, PodPhase.UNKNOWN)

    @property
    def is_lost(self) -> bool:
        """Whether it failed without a word of its process: evicted, preempted, its node gone."""
        return self.phase is PodPhase.FAILED and self.exit_code is None

    @property
    def was_killed(self) -> bool:
        """Whether its process was ended by a signal."""
        return self.exit_code in SIGNAL_EXIT_CODES


class ReportedMembership(Struct, frozen=True):
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


def read_pod(body: Body) -> Pod | None:
    """One pod as the API server holds it; None if it carries no labels of ours."""
    metadata, status = body["metadata"], body.get("status") or {}
    labels = metadata.get("labels") or {}
    roles = {role.value.lower(): role for role in PodRole}
    role = roles.get(labels.get(names.LABEL_ROLE, ""))
    index = labels.get(names.LABEL_INDEX, "")
    # Other pods may carry a label of the same name.
    if role is None or not index.isdigit():
        return None
    failed, ended = _failed_container(status)
    deletion = metadata.get("deletionTimestamp")
    return Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        role=role,
        index=int(index),
        phase=PodPhase(status.get("phase") or "Pending"),
        is_ready=_conditions(status).get("Ready") == "True",
        exit_code=ended.get("exitCode"),
        failed_container=failed,
        # The pod's own reason first: an evicted pod's container says nothing of that.
        reason=status.get("reason") or ended.get("reason") or "",
        restarts=_restarts(status),
        is_deleting=bool(deletion),
        deleted_by=None if deletion is None else datetime.fromisoformat(deletion),
        is_unreachable=_is_unreachable(body.get("spec") or {}, status),
        node=(body.get("spec") or {}).get("nodeName") or "",
        address=status.get("podIP") or "",
        waits_for=why_not_ready(body) if _waits(status) else "",
        owner_uid=controller_uid(metadata),
    )


def controller_uid(metadata: Body) -> str:
    """The uid of the owner that controls an object; "" if none does. Other owners may stand before it."""
    owners = metadata.get("ownerReferences") or []
    return next((str(owner.get("uid", "")) for owner in owners if owner.get("controller")), "")


def _failed_container(status: Body) -> tuple[str, Body]:
    """How the container that trains has ended. Where it has not failed and another one has: that one's name and end."""
    preparing, running = (status.get(key) or [] for key in ("initContainerStatuses", "containerStatuses"))
    ends = {item["name"]: (item.get("state") or {}).get("terminated") or {} for item in [*preparing, *running]}
    ours = ends.pop(names.CONTAINER, {})
    if not ours.get("exitCode") and status.get("phase") == PodPhase.FAILED:
        for name, end in ends.items():
            if end.get("exitCode"):
                return name, end
    return "", ours


def _restarts(status: Body) -> int:
    """How often the kubelet has started the container that trains, or one that prepares the pod, again."""
    ours = [item for item in status.get("containerStatuses") or [] if item["name"] == names.CONTAINER]
    return sum(int(item.get("restartCount", 0)) for item in [*ours, *(status.get("initContainerStatuses") or [])])


def _conditions(status: Body) -> dict[str, str]:
    """A pod's conditions."""
    return {item["type"]: item["status"] for item in status.get("conditions") or []}


def _is_unreachable(spec: Body, status: Body) -> bool:
    """Whether a pod's node does not answer.

    The node controller then sets Ready to False and nothing else; a kubelet sets ContainersReady, too, unless the pod has
    conditions of its own for being ready. Clusters before 1.13 also write the reason NodeLost.
    """
    conditions = _conditions(status)
    by_controller = conditions.get("Ready") == "False" and conditions.get("ContainersReady") == "True"
    is_up = status.get("phase") in (PodPhase.RUNNING, PodPhase.UNKNOWN)
    return is_up and ((by_controller and not spec.get("readinessGates")) or status.get("reason") == "NodeLost")


def why_not_ready(pod: Body) -> str:
    """Why a pod does not run, or has failed, in the words of the scheduler and the kubelet; "" if they say nothing."""
    status = pod.get("status") or {}
    words = [status.get("reason"), status.get("message")]
    if not words[0]:
        for item in status.get("conditions") or []:
            if (item["type"], item["status"]) == ("PodScheduled", "False"):
                words += [item.get("reason"), item.get("message")]
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        words += _container_words(container)
    return ", ".join(" ".join(str(word).split()) for word in words if word)


def _container_words(container: Body) -> list[str]:
    """Why a container waits, or how it has failed."""
    name, state = container["name"], container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    if waiting.get("reason"):
        return [f"{name}: {waiting['reason']}", waiting.get("message", "")]
    if ended.get("exitCode"):
        return [f"{name}: exit code {ended['exitCode']}", ended.get("reason", ""), ended.get("message", "")]
    return []


def _waits(status: Body) -> bool:
    """Whether a pod waits for something that takes no part in a usual start."""
    if _conditions(status).get("PodScheduled") == "False":
        return True
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    reasons = {((item.get("state") or {}).get("waiting") or {}).get("reason") for item in containers}
    return bool(reasons - _USUAL_WAITS)
