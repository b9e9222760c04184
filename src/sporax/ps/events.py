"""What happens to the state machines of servers and scheduler, and what they want to be done about it.

The machines take events and give actions; sockets, files and clocks belong to `server.py` and `scheduler.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sporax.ps.messages import CheckpointPart, Message, Record, ServerAddress, SlotImage
from sporax.ps.wire import Frame


@dataclass(frozen=True, slots=True)
class Received:
    """A message came. `sender` is the peer's transport address."""

    sender: bytes
    message: Message
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """A record is in the log, as durable as the log makes it."""

    slot: int
    lsn: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Some time has passed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Send to the peer a message came from."""

    to: bytes
    message: Message
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class ToServer:
    """Send to another server."""

    server: ServerAddress
    message: Message
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class ToScheduler:
    """Send to the scheduler."""

    message: Message


@dataclass(frozen=True, slots=True)
class Store:
    """Append to the log; a `Stored` event follows."""

    record: Record
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class StoreSlot:
    """Write a snapshot of the slot now; it replaces everything stored of it."""

    slot: int


@dataclass(frozen=True, slots=True)
class CheckpointSlot:
    """Write a slot's part of a global checkpoint, when there is time, and tell the scheduler."""

    path: str
    number: int
    image: SlotImage
    frames: list[Frame]


@dataclass(frozen=True, slots=True)
class LoadSlot:
    """Read a slot from a checkpoint; a `Loaded` event follows."""

    folder: str
    slot: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A slot of a checkpoint, or why it cannot be had."""

    slot: int
    image: SlotImage | None
    frames: list[Frame]
    error: str = ""


@dataclass(frozen=True, slots=True)
class DropSlot:
    """Forget the stored state of a slot."""

    slot: int


@dataclass(frozen=True, slots=True)
class Halt:
    """End this process; `again`: a new one should take its place; `done`: what it keeps is not needed any more."""

    reason: str
    again: bool = False
    done: bool = False


Event = Received | Stored | Loaded | Tick
Action = Reply | ToServer | ToScheduler | Store | StoreSlot | CheckpointSlot | LoadSlot | DropSlot | Halt


@dataclass(frozen=True, slots=True)
class Manifest:
    """Write the manifest of a checkpoint, then tell by a `ManifestWritten`."""

    path: str
    number: int
    facts: dict[str, Any]
    parts: list[CheckpointPart]


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """A checkpoint is complete, or could not be made so."""

    folder: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Keep:
    """Write the journal before the actions that follow."""


@dataclass(frozen=True, slots=True)
class End:
    """The job is over: tell everybody, then end."""

    reason: str
