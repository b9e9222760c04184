"""What a server does for a global checkpoint: every slot that it leads is written at the clock that the scheduler picked.

A slot may be behind that clock, at it, or beyond it. So each is looked at when the checkpoint begins and after every record, and
one that is beyond it says so; the scheduler then proposes a later clock (`scheduler_checkpoints`).
"""

from __future__ import annotations

from sporax.ps.protocol.events import CheckpointSlot, ToScheduler
from sporax.ps.protocol.messages import CheckpointPart, Options, TakeCheckpoint
from sporax.ps.protocol.wire import Frame
from sporax.ps.server.follower_state import FollowerState
from sporax.ps.server.leader_state import LeaderState
from sporax.ps.slots.slot import SlotState


class CheckpointedState(FollowerState):
    """The slots of a server, with those that it leads, and the checkpoint that is being made of these.

    Args:
        index, incarnation: what the scheduler made this process.
        options: of the job.
        states: slots recovered from the log.
    """

    def __init__(
        self, index: int, incarnation: int, options: Options, states: dict[int, SlotState] | None = None
    ) -> None:
        super().__init__(index, incarnation, options, states)
        self.leads: dict[int, LeaderState] = {}
        self._checkpoint: TakeCheckpoint | None = None
        self._in_checkpoint: dict[int, CheckpointPart | None] = {}

    def take_checkpoint(self, sender: bytes, message: TakeCheckpoint, frames: tuple[Frame, ...]) -> None:
        """Begin a checkpoint, or tell again what of it has been written."""
        # A new number is a new attempt.
        if self._checkpoint is None or self._checkpoint.number != message.number:
            self._checkpoint, self._in_checkpoint = message, {}
        for slot in self.leads:
            part = self._in_checkpoint.get(slot)
            if part is not None:
                self._actions.append(ToScheduler(part))
            else:
                self.write_at_clock(slot)

    def write_at_clock(self, slot: int) -> None:
        """Let a slot be written if it is at the clock of the checkpoint."""
        checkpoint, state = self._checkpoint, self.states[slot]
        if checkpoint is None or slot in self._in_checkpoint or state.lsn == 0:
            return
        # -1: as it is.
        if checkpoint.clock in (-1, state.clock):
            self._in_checkpoint[slot] = None
            self._actions.append(CheckpointSlot(checkpoint.path, checkpoint.number, *state.image()))
        elif state.clock > checkpoint.clock:
            self._in_checkpoint[slot] = CheckpointPart(checkpoint.number, slot, state.clock, is_late=True)
            self._actions.append(ToScheduler(CheckpointPart(checkpoint.number, slot, state.clock, is_late=True)))

    def written(self, part: CheckpointPart) -> None:
        """Note that a slot was written, for a scheduler that asks again."""
        if self._checkpoint is not None and self._checkpoint.number == part.number:
            self._in_checkpoint[part.slot] = part
