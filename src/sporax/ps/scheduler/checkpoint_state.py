"""A global checkpoint as the scheduler sees it, without sockets or files: which slots have been written, and for which clock.

In synchronous mode all slots are written at one clock. The scheduler proposes the highest clock that it has heard of; a slot
that is already beyond it says so, and the scheduler proposes a later one, further away each time. In the other modes every
slot is written as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sporax.ps.protocol.messages import CheckpointPart, TakeCheckpoint

# Seconds between two questions to the same leaders.
_ASK_SECONDS = 0.5
# Clocks; further ahead a slot would be held up for too long.
_LARGEST_MARGIN = 1024


@dataclass(slots=True)
class CheckpointRound:
    """One attempt after the other, until all slots are written.

    Attributes:
        number: of the attempt, and of the folder.
        clock: at which slots are written; -1: as they are.
        num_slots: in all.
        error: why there will be none.
    """

    number: int
    clock: int
    num_slots: int
    parts: dict[int, CheckpointPart] = field(default_factory=dict)
    error: str = ""
    _margin: int = 1
    _asked: float = -1e9

    @property
    def is_complete(self) -> bool:
        """Whether all slots have been written."""
        return len(self.parts) == self.num_slots

    def take(self, part: CheckpointPart) -> None:
        """A server answers for a slot."""
        # A server may still answer for an attempt that was given up.
        if part.number != self.number:
            return
        if part.error:
            self.error = part.error
        elif part.is_late:
            # A folder of its own for each attempt, so that files of two clocks never mix.
            self.number += 1
            self.clock = max(self.clock, part.clock) + self._margin
            self._margin = min(2 * self._margin, _LARGEST_MARGIN)
            # As if never asked: the new attempt begins at once.
            self.parts, self._asked = {}, -1e9
        else:
            self.parts[part.slot] = part

    def question(self, path: str, now: float) -> TakeCheckpoint | None:
        """What to ask all leaders now, again and again until they have answered."""
        if self.is_complete or now - self._asked < _ASK_SECONDS:
            return None
        self._asked = now
        return TakeCheckpoint(self.number, self.clock, path)

    def sorted_parts(self) -> list[CheckpointPart]:
        """By slot."""
        return [self.parts[slot] for slot in sorted(self.parts)]


def first_clock(staleness: int, clocks: Iterable[int]) -> int:
    """The clock to try first."""
    # -1: without a common clock every slot is written as it is.
    return max(clocks, default=0) if staleness == 0 else -1
