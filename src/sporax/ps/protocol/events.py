"""What happens to the state machines of servers and scheduler, and what they want to be done about it.

The machines take events and give actions; sockets, files and clocks belong to `server.py` and `scheduler.py`. They are structs,
because several of them are made for every message, and a frozen dataclass takes ten times as long to make; nothing that they hold
leads back to them, so the garbage collector need not look at them (`gc=False`, as messages). `type(event) is` finds
their kind: `isinstance` takes ten times as long where the answer is no.
"""

from __future__ import annotations

from typing import Any, final

import msgspec

from sporax.ps.protocol.messages import CheckpointPart, Record, ServerAddress, ServerMessage, SlotImage
from sporax.ps.protocol.wire import Frame


@final
class Received(msgspec.Struct, frozen=True, gc=False):
    """A message came. `sender` is the peer's transport address."""

    sender: bytes
    message: ServerMessage
    frames: tuple[Frame, ...] = ()


@final
class Stored(msgspec.Struct, frozen=True, gc=False):
    """A record has been written through to the disk."""

    slot: int
    lsn: int


@final
class Tick(msgspec.Struct, frozen=True, gc=False):
    """Some time has passed."""


@final
class Reply(msgspec.Struct, frozen=True, gc=False):
    """Send to the peer a message came from."""

    to: bytes
    message: ServerMessage
    frames: tuple[Frame, ...] = ()


@final
class ToServer(msgspec.Struct, frozen=True, gc=False):
    """Send to another server."""

    server: ServerAddress
    message: ServerMessage
    frames: tuple[Frame, ...] = ()


@final
class ToScheduler(msgspec.Struct, frozen=True, gc=False):
    """Send to the scheduler."""

    message: ServerMessage


@final
class StoreRecord(msgspec.Struct, frozen=True, gc=False):
    """Append to the log, before the actions behind this one; in a log that is flushed, a `Stored` event follows."""

    record: Record
    frames: tuple[Frame, ...]


@final
class Apply(msgspec.Struct, frozen=True, gc=False):
    """Acknowledged records are to be applied: comes back as an event, after the actions before it and before anything else.

    So an acknowledgement does not wait for the arithmetic of its update, and whatever comes next finds the update applied.
    """

    slot: int


@final
class StoreSlot(msgspec.Struct, frozen=True, gc=False):
    """Write a snapshot of the slot now; it replaces everything stored of it."""

    slot: int


@final
class CheckpointSlot(msgspec.Struct, frozen=True, gc=False):
    """Write a slot's part of a global checkpoint, when there is time, and notify the scheduler."""

    path: str
    number: int
    image: SlotImage
    frames: list[Frame]


@final
class LoadSlot(msgspec.Struct, frozen=True, gc=False):
    """Read a slot from a checkpoint; a `Loaded` event follows."""

    folder: str
    slot: int


@final
class Loaded(msgspec.Struct, frozen=True, gc=False):
    """A slot of a checkpoint, or why it cannot be had."""

    slot: int
    image: SlotImage | None
    frames: list[Frame]
    error: str = ""


@final
class DropSlot(msgspec.Struct, frozen=True, gc=False):
    """Forget the stored state of a slot."""

    slot: int


@final
class Halt(msgspec.Struct, frozen=True, gc=False):
    """End this process; `again`: a new one should take its place; `done`: what it keeps is not needed any more."""

    reason: str
    again: bool = False
    done: bool = False


Event = Received | Stored | Apply | Loaded | Tick
Action = Reply | ToServer | ToScheduler | StoreRecord | Apply | StoreSlot | CheckpointSlot | LoadSlot | DropSlot | Halt


@final
class Manifest(msgspec.Struct, frozen=True, gc=False):
    """Write the manifest of a checkpoint, then report it by a `ManifestWritten`."""

    path: str
    number: int
    facts: dict[str, Any]
    parts: list[CheckpointPart]


@final
class ManifestWritten(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint is complete, or could not be made so."""

    folder: str
    error: str = ""


@final
class Keep(msgspec.Struct, frozen=True, gc=False):
    """Write the journal before the actions that follow."""


@final
class End(msgspec.Struct, frozen=True, gc=False):
    """The job is over: notify all processes, then end."""

    reason: str
