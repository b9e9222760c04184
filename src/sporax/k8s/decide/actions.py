"""What a plan orders. Each action is safe to do twice: names are fixed, and a uid says which incarnation is meant."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from sporax.k8s.decide.observed import Gang
from sporax.k8s.resource.job_status import Status
from sporax.k8s.resource.spec import PodRole


class EnsureShared(Struct, frozen=True):
    """Create what the job's pods share where it is missing, and change it back: services, network policy, budget, pod group."""

    gang: Gang | None
    gang_members: int | None = None


class CreatePod(Struct, frozen=True):
    """Create one pod, and its volume claim if it has one."""

    role: PodRole
    index: int
    sizes: tuple[tuple[PodRole, int], ...]
    gang: Gang | None


class DeletePod(Struct, frozen=True):
    """Delete one incarnation of a pod."""

    name: str
    uid: str


class ResizeJob(Struct, frozen=True):
    """Send the job's scheduler how many workers and servers the job is to have; servers beyond hand over what they hold."""

    workers: int
    servers: int


class LimitEvictions(Struct, frozen=True):
    """Set how many servers may be evicted at once: one, or none while copies are being made."""

    allowed: bool


class DeletePodGroup(Struct, frozen=True):
    """Give the gang's reservation back."""


class DeleteJob(Struct, frozen=True):
    """Delete the job itself: its time after the end is over."""


class Report(Struct, frozen=True):
    """Write an event."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


Action = EnsureShared | CreatePod | DeletePod | ResizeJob | LimitEvictions | DeletePodGroup | DeleteJob | Report


class Actions(Struct, frozen=True):
    """What to do, what to remember, when to look again even if nothing happens.

    The status must be stored before the actions are carried out: it counts what they make unseen.
    """

    actions: tuple[Action, ...]
    status: Status
    wake_at: datetime | None = None
