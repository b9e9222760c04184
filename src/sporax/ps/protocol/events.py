"""What happens to the state machines of servers and scheduler, and what they want to be done about it.

The machines take events and give actions; sockets, files and clocks belong to `server.py` and `scheduler.py`. They are structs,
because several of them are made for every message, and a frozen dataclass takes ten times as long to make.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sporax.ps.protocol.messages import CheckpointPart, Record, ServerAddress, ServerMessage, SlotImage
from sporax.ps.protocol.wire import Frame


class Received(msgspec.Struct, frozen=True):
    """A message came. `sender` is the peer's transport address."""

    sender: bytes
    message: ServerMessage
    frames: tuple[Frame, ...] = ()


class Stored(msgspec.Struct, frozen=True):
    """A record is in the log, as durable as the log makes it."""

    slot: int
    lsn: int


class Tick(msgspec.Struct, frozen=True):
    """Some time has passed."""


class Reply(msgspec.Struct, frozen=True):
    """Send to the peer a message came from."""

    to: bytes
    message: ServerMessage
    frames: tuple[Frame, ...] = ()


class ToServer(msgspec.Struct, frozen=True):
    """Send to another server."""

    server: ServerAddress
    message: ServerMessage
    frames: tuple[Frame, ...] = ()


class ToScheduler(msgspec.Struct, frozen=True):
    """Send to the scheduler."""

    message: ServerMessage


class StoreRecord(msgspec.Struct, frozen=True):
    """Append to the log; a `Stored` event follows."""

    record: Record
    frames: tuple[Frame, ...]


class Apply(msgspec.Struct, frozen=True):
    """Acknowledged records are to be applied: comes back as an event, after the actions before it and before anything else.

    So an acknowledgement does not wait for the arithmetic of its update, and whatever asks next finds the update applied.
    """

    slot: int


class StoreSlot(msgspec.Struct, frozen=True):
    """Write a snapshot of the slot now; it replaces everything stored of it."""

    slot: int


class CheckpointSlot(msgspec.Struct, frozen=True):
    """Write a slot's part of a global checkpoint, when there is time, and tell the scheduler."""

    path: str
    number: int
    image: SlotImage
    frames: list[Frame]


class LoadSlot(msgspec.Struct, frozen=True):
    """Read a slot from a checkpoint; a `Loaded` event follows."""

    folder: str
    slot: int


class Loaded(msgspec.Struct, frozen=True):
    """A slot of a checkpoint, or why it cannot be had."""

    slot: int
    image: SlotImage | None
    frames: list[Frame]
    error: str = ""


class DropSlot(msgspec.Struct, frozen=True):
    """Forget the stored state of a slot."""

    slot: int


class Halt(msgspec.Struct, frozen=True):
    """End this process; `again`: a new one should take its place; `done`: what it keeps is not needed any more."""

    reason: str
    again: bool = False
    done: bool = False


Event = Received | Stored | Apply | Loaded | Tick
Action = Reply | ToServer | ToScheduler | StoreRecord | Apply | StoreSlot | CheckpointSlot | LoadSlot | DropSlot | Halt


class Manifest(msgspec.Struct, frozen=True):
    """Write the manifest of a checkpoint, then tell by a `ManifestWritten`."""

    path: str
    number: int
    facts: dict[str, Any]
    parts: list[CheckpointPart]


class ManifestWritten(msgspec.Struct, frozen=True):
    """A checkpoint is complete, or could not be made so."""

    folder: str
    error: str = ""


class Keep(msgspec.Struct, frozen=True):
    """Write the journal before the actions that follow."""


class End(msgspec.Struct, frozen=True):
    """The job is over: tell all processes, then end."""

    reason: str
