"""What a plan asks for. Each action is safe to do twice: names are fixed, and a uid says which incarnation is meant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sporax.k8s.decide.observed import Gang
from sporax.k8s.resource.job_status import Status
from sporax.k8s.resource.spec import PodRole


@dataclass(frozen=True, slots=True)
class EnsureShared:
    """Create what the job's pods share where it is missing, and change it back: services, network policy, budget, pod group."""

    gang: Gang | None
    gang_members: int | None = None


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create one pod, and its volume claim if it has one."""

    role: PodRole
    index: int
    sizes: tuple[tuple[PodRole, int], ...]
    gang: Gang | None


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete one incarnation of a pod."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ResizeJob:
    """Tell the job's scheduler how many workers and servers the job is to have; servers beyond hand over what they hold."""

    workers: int
    servers: int


@dataclass(frozen=True, slots=True)
class LimitEvictions:
    """Set how many servers may be evicted at once: one, or none while copies are being made."""

    allowed: bool


@dataclass(frozen=True, slots=True)
class DeletePodGroup:
    """Give the gang's reservation back."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself: its time after the end is over."""


@dataclass(frozen=True, slots=True)
class Report:
    """Write an event."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


Action = EnsureShared | CreatePod | DeletePod | ResizeJob | LimitEvictions | DeletePodGroup | DeleteJob | Report


@dataclass(frozen=True, slots=True)
class Actions:
    """What to do, what to remember, when to look again even if nothing happens.

    The status must be stored before the actions are carried out: it counts what they make unseen.
    """

    actions: tuple[Action, ...]
    status: Status
    wake_at: datetime | None = None
