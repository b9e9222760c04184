"""Updates that all members of a clock make together: what a leader does with the pushes of synchronous training.

A push is named by (rank, clock). It waits at the leader until every member of that clock has pushed; then the slot takes one step
with their mean. Which ranks are members is decided by the scheduler (`members_state`) and reaches a slot as a record of its
history. A push may be faster than that record, or come from a rank that is no member any more: such a push is answered by
`NotAMember`, once that is certain, and its worker looks for the clock at which it goes on.

What a server keeps of a slot that it leads, besides the slot's state.

What a server does for a global checkpoint: every slot that it leads is written at the clock that the scheduler picked.

A slot may be behind that clock, at it, or beyond it. So each is looked at when the checkpoint begins and after every record, and
one that is beyond it says so; the scheduler then proposes a later clock (`scheduler_checkpoints`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field

import msgspec

from sporax.ps.protocol import events, messages
from sporax.ps.protocol.wire import Frame
from sporax.ps.server.follower_state import FollowerState
from sporax.ps.slots.slot import SlotState, combined


class Flight(msgspec.Struct):
    """A record on its way to durability, and who waits for it; `is_acknowledged` once these have been told."""

    record: messages.Record
    frames: tuple[Frame, ...]
    stored: bool
    since: float
    waiting: list[tuple[bytes, int]]
    is_acknowledged: bool = False


@dataclass(slots=True)
class Contribution:
    """One rank's part of a synchronous update."""

    push: messages.Push
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

    backup: messages.ServerAddress | None = None
    since: int = 0
    image_sent: bool = False
    needs_backup: bool = False
    synced: bool = False
    backup_lsn: int = -1
    flights: deque[Flight] = field(default_factory=deque)
    pending: dict[int, Contribution] = field(default_factory=dict)
    pulls: dict[tuple[bytes, int], tuple[messages.Pull, tuple[Frame, ...]]] = field(default_factory=dict)


class CheckpointedState(FollowerState):
    """The slots of a server, with those that it leads, and the checkpoint that is being made of these.

    Args:
        index, incarnation: what the scheduler made this process.
        options: of the job.
        states: slots recovered from the log.
    """

    def __init__(
        self, index: int, incarnation: int, options: messages.Options, states: dict[int, SlotState] | None = None
    ) -> None:
        super().__init__(index, incarnation, options, states)
        self.leads: dict[int, LeaderState] = {}
        self._checkpoint: messages.TakeCheckpoint | None = None
        self._in_checkpoint: dict[int, messages.CheckpointPart | None] = {}

    def take_checkpoint(self, sender: bytes, message: messages.TakeCheckpoint, frames: tuple[Frame, ...]) -> None:
        """Begin a checkpoint, or tell again what of it has been written."""
        # A new number is a new attempt.
        if self._checkpoint is None or self._checkpoint.number != message.number:
            self._checkpoint, self._in_checkpoint = message, {}
        for slot in self.leads:
            part = self._in_checkpoint.get(slot)
            if part is not None:
                self._actions.append(events.ToScheduler(part))
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
            self._actions.append(events.CheckpointSlot(checkpoint.path, checkpoint.number, *state.image()))
        elif state.clock > checkpoint.clock:
            self._in_checkpoint[slot] = messages.CheckpointPart(checkpoint.number, slot, state.clock, is_late=True)
            self._actions.append(
                events.ToScheduler(messages.CheckpointPart(checkpoint.number, slot, state.clock, is_late=True))
            )

    def written(self, part: messages.CheckpointPart) -> None:
        """Note that a slot was written, for a scheduler that asks again."""
        if self._checkpoint is not None and self._checkpoint.number == part.number:
            self._in_checkpoint[part.slot] = part


class SynchronousState(CheckpointedState):
    """The slots of a server, and the updates of their present clocks; arguments as for `CheckpointedState`."""

    @abstractmethod
    def _launch(
        self,
        slot: int,
        frames: tuple[Frame, ...],
        waiting: list[tuple[bytes, int]],
        variables: list[messages.VariableSpec],
        sources: list[messages.Source],
        entries: list[messages.VariableValues],
        members: list[messages.Members] | None,
    ) -> None: ...

    def _push_together(
        self, sender: bytes, message: messages.Push, frames: tuple[Frame, ...], lead: LeaderState, state: SlotState
    ) -> None:
        """A synchronous push: rank and clock name it, whichever start of the worker sends it."""
        source = message.source
        flight = next((f for f in lead.flights if any(s.clock == source.clock for s in f.record.sources)), None)
        # The worker has seen values that this copy has not, and knows whether its earlier pushes are on their way.
        if source.clock > state.clock:
            self._actions.append(events.Reply(sender, messages.ClockAhead(message.request, message.slot, state.clock)))
            return
        # An update that is made, or on its way, was made from the members of its clock; else these may still be undecided.
        is_made = source.clock < state.clock or flight is not None
        if (is_made or self._is_decided(state, source.clock)) and not state.counts_at(source.rank, source.clock):
            self.counts["uncounted_pushes"] += 1
            self._actions.append(events.Reply(sender, messages.NotAMember(message.request, message.slot)))
            return
        if is_made:
            self.counts["duplicate_pushes"] += 1
            if flight is not None:
                flight.waiting.append((sender, message.request))
            else:
                self._actions.append(events.Reply(sender, messages.Acked(message.request, message.slot, state.clock)))
            return
        # Sent twice: the newest sender gets the answer.
        if source.rank in lead.pending:
            self.counts["duplicate_pushes"] += 1
            lead.pending[source.rank].waiting = [(sender, message.request)]
        else:
            lead.pending[source.rank] = Contribution(message, frames, [(sender, message.request)])
        self._combine(message.slot)
        if source.rank in lead.pending or lead.needs_backup:  # else its acknowledgement comes as soon
            self._actions.append(events.Reply(sender, messages.Accepted(message.request, message.slot)))

    def _is_decided(self, state: SlotState, clock: int) -> bool:
        """Whether the members of the slot's present clock are known here and do not change any more.

        The next record of the slot may bring them: who is a member by the newest view, but not by this slot's history, has read
        the values of this clock from a slot that was faster.
        """
        view = self.view
        return view is not None and state.members == view.members and (view.hold is None or clock < view.hold.clock)

    def _combine(self, slot: int) -> None:
        """Make the update of a clock once all its ranks have pushed."""
        lead, state = self.leads[slot], self.states[slot]
        ranks = state.ranks_at(state.clock)
        # One update at a time: the next one must see the values of this one.
        if lead.flights or not ranks or any(rank not in lead.pending for rank in ranks):
            return
        if not self._is_decided(state, state.clock):
            return
        # Sorted by rank, so that the sum has the same bits everywhere.
        self._drop_uncounted(slot)
        parts = [lead.pending[rank] for rank in sorted(ranks)]
        entries, frames = combined(state, [(part.push.weight, part.push.entries, list(part.frames)) for part in parts])
        sources = [part.push.source for part in parts]
        lead.pending = {}
        waiting = [peer for part in parts for peer in part.waiting]
        self._launch(slot, tuple(frames), waiting, [], sources, entries, None)

    def _drop_uncounted(self, slot: int) -> None:
        """Forget contributions that are not for the present clock and its members, and tell so."""
        lead, state = self.leads[slot], self.states[slot]
        if not lead.pending or lead.flights or not self._is_decided(state, state.clock):
            return
        ranks = state.ranks_at(state.clock)
        others = [
            rank for rank, part in lead.pending.items() if rank not in ranks or part.push.source.clock != state.clock
        ]
        for rank in others:
            self.counts["uncounted_pushes"] += 1
            for sender, request in lead.pending.pop(rank).waiting:
                self._actions.append(events.Reply(sender, messages.NotAMember(request, slot)))
