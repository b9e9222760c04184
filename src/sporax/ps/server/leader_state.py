"""What a server keeps of a slot that it leads, besides the slot's state."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from sporax.ps.protocol.messages import Pull, Push, Record, ServerAddress
from sporax.ps.protocol.wire import Frame
from sporax.ps.slots.slot import SlotState


class Flight(msgspec.Struct):
    """A record on its way to durability, and who waits for it; `is_acknowledged` once these have been told."""

    record: Record
    frames: tuple[Frame, ...]
    stored: bool
    since: float
    waiting: list[tuple[bytes, int]]
    is_acknowledged: bool = False


@dataclass(slots=True)
class Contribution:
    """One rank's part of a synchronous update."""

    push: Push
    frames: tuple[Frame, ...]
    waiting: list[tuple[bytes, int]]


@dataclass(slots=True)
class LeaderState:
    """What a leader keeps besides the slot's state.

    Attributes:
        backup: the follower, None without one.
        since: epoch in which it became the follower.
        image_sent: the follower was sent the whole slot.
        needs_backup: commits wait for the follower.
        synced: the scheduler was told that the follower has everything.
        backup_lsn: how far the follower is.
    """

    backup: ServerAddress | None = None
    since: int = 0
    image_sent: bool = False
    needs_backup: bool = False
    synced: bool = False
    backup_lsn: int = -1
    flights: deque[Flight] = field(default_factory=deque)
    pending: dict[int, Contribution] = field(default_factory=dict)
    pulls: dict[tuple[bytes, int], tuple[Pull, tuple[Frame, ...]]] = field(default_factory=dict)

    def validate(self, state: SlotState) -> None:
        """Check what must always hold; for tests."""
        for position, flight in enumerate(self.flights):
            assert flight.record.lsn == state.lsn + 1 + position
        assert self.backup is not None or not (self.needs_backup or self.image_sent or self.synced)
        assert not self.synced or self.needs_backup
        assert self.flights or all(part.push.source.clock == state.clock for part in self.pending.values())
