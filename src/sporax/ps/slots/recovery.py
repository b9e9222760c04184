"""From snapshots and records back to slots: which of them are whole, and of which acknowledged records are missing.

Problem: when a log is damaged, the records behind the damage are whole, but a slot of which one is missing cannot apply them.
Which slots had records in the damaged bytes is not written anywhere else. Method: a slot is whole if its numbers show it: a
later record that follows on what the slot has, or that its snapshot has already. A slot with a gap, or without a later record,
is given up here. Another server may have all of it (`Ready.missing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sporax.base.errors import SporaxError
from sporax.ps.protocol.messages import Record, SlotImage
from sporax.ps.protocol.wire import Frame
from sporax.ps.slots.log_file import Damage
from sporax.ps.slots.slot import SlotState

UNKNOWN = 0
"""In place of the number of a slot's last record, when it cannot be told."""
_MOST_NAMED = 4  # slots or files in one message


@dataclass(frozen=True, slots=True)
class Missing:
    """What of a slot cannot be read back.

    Attributes:
        first: number of the first record that is not there.
        last: of the last record that the slot had, `UNKNOWN` if that may be among those that are not there.
    """

    first: int
    last: int

    def __str__(self) -> str:
        return f"from record {self.first} on" + (f" (of {self.last})" if self.last != UNKNOWN else "")


@dataclass(slots=True)
class Replay:
    """Slots while their records are read back.

    Args:
        staleness: of the job.

    Attributes:
        states: slots so far.
        missing: slots that are not whole; none of them is in `states` once `finish` was called.
        damages: what was met.
    """

    staleness: int
    states: dict[int, SlotState] = field(default_factory=dict)
    missing: dict[int, Missing] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    _floor: dict[int, int] = field(default_factory=dict)
    _in_doubt: set[int] = field(default_factory=set)

    def take_image(self, image: SlotImage, frames: list[Frame]) -> None:
        """Begin a slot with its snapshot.

        Raises:
            SporaxError, LookupError, ValueError: the frames are not those of the image.
        """
        self.states[image.slot] = SlotState.from_image(image, frames, self.staleness)
        # Records of earlier epochs were overruled by another server.
        self._floor[image.slot] = image.epoch

    def take_snapshot_damage(self, slot: int, damage: Damage) -> None:
        """A snapshot cannot be read, so no record of its slot can be applied."""
        self.damages.append(damage)
        self.missing[slot] = Missing(1, UNKNOWN)

    def take_damage(self, damage: Damage) -> None:
        """Records of any slot may have been there."""
        self.damages.append(damage)
        self._in_doubt = {*self.states, *self.missing}

    def take(self, record: Record, frames: Sequence[Frame]) -> None:
        """Apply the next record of the log, if its slot has everything before it."""
        slot = record.slot
        if record.epoch < self._floor.get(slot, 0):
            return
        # A later record shows that none of this slot's is missing, or which.
        self._in_doubt.discard(slot)
        state = self.states.setdefault(slot, SlotState(slot, self.staleness))
        if slot in self.missing:
            self.missing[slot] = Missing(self.missing[slot].first, max(record.lsn, self.missing[slot].last))
        elif record.lsn > state.lsn + 1:
            self.missing[slot] = Missing(state.lsn + 1, record.lsn)
        # What its snapshot has is passed over.
        elif record.lsn == state.lsn + 1:
            self._apply(state, record, frames)

    def _apply(self, state: SlotState, record: Record, frames: Sequence[Frame]) -> None:
        try:
            state.apply(record, frames)
        except (SporaxError, LookupError, ValueError):
            # A whole record that does not fit: what it was made for is not what is here.
            self.missing[state.slot] = Missing(record.lsn, record.lsn)

    def finish(self) -> None:
        """Give up the slots that are not whole."""
        for slot in self._in_doubt:
            first = self.missing[slot].first if slot in self.missing else self.states[slot].lsn + 1
            self.missing[slot] = Missing(first, UNKNOWN)
        for slot in self.missing:
            self.states.pop(slot, None)


def missing_text(missing: Mapping[int, Missing]) -> str:
    """Slots and what of them is missing, for a message."""
    named = [f"slot {slot} {what}" for slot, what in sorted(missing.items())]
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more} more slots" if more > 0 else "")


def damage_text(damages: Sequence[Damage]) -> str:
    """Where bytes are damaged, for a message."""
    more = len(damages) - _MOST_NAMED
    return ", ".join(map(str, damages[:_MOST_NAMED])) + (f" and {more} more places" if more > 0 else "")
