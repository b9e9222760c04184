"""What a leader does with its slots: records on their way, updates that a clock makes together, and global checkpoints.

Synchronous pushes: a push is named by (rank, clock). It waits at the leader until every member of that clock has pushed; then
the slot takes one step with their mean. Which ranks are members is decided by the scheduler (`members_state`) and reaches a
slot as a record of its history. A push may be faster than that record, or come from a rank that is no member any more: such a
push is answered by `NotAMember`, once that is certain, and its worker looks for the clock at which it goes on.

Records are written, sent to the copy, and acknowledged in order (`_launch`, `_advance`).

Checkpoints: every slot that is led here is written at the clock that the scheduler picked. It may be behind that clock, at it,
or beyond it. So each is looked at when the checkpoint begins and after every record, and one that is beyond it says so; the
scheduler then proposes a later clock (`scheduler_checkpoints`).
"""

from __future__ import annotations

from collections import deque

import msgspec
from msgspec import Struct, field

from sporax.ps.protocol import events, messages
from sporax.ps.protocol.wire import Frame
from sporax.ps.server.follower_state import FollowerState
from sporax.ps.slots.slot import SlotState, combined, ranks_at


class Flight(msgspec.Struct):
    """A record on its way to durability, and who waits for it; `is_acknowledged` once these have been notified."""

    record: messages.Record
    frames: tuple[Frame, ...]
    stored: bool
    since: float
    waiting: list[tuple[bytes, int]]
    is_acknowledged: bool = False


class Contribution(Struct):
    """One rank's part of a synchronous update."""

    push: messages.Push
    frames: tuple[Frame, ...]
    waiting: list[tuple[bytes, int]]


class LeaderState(Struct):
    """What a leader keeps besides the slot's state.

    Attributes:
        backup: the follower, None without one.
        since: epoch in which it became the follower.
        image_sent: the follower was sent the whole slot.
        needs_backup: commits wait for the follower.
        synced: the scheduler was notified that the follower has everything.
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


class SynchronousState(FollowerState):
    """The slots of a server, with those that it leads, the records on their way, the updates of their present clocks, and the
    checkpoint that is being made of them; arguments as for `FollowerState`.
    """

    def __init__(
        self, index: int, incarnation: int, options: messages.Options, states: dict[int, SlotState] | None = None
    ) -> None:
        super().__init__(index, incarnation, options, states)
        self.leads: dict[int, LeaderState] = {}
        self._checkpoint: messages.TakeCheckpoint | None = None
        self._in_checkpoint: dict[int, messages.CheckpointPart | None] = {}

    def take_checkpoint(self, sender: bytes, message: messages.TakeCheckpoint, frames: tuple[Frame, ...]) -> None:
        """Begin a checkpoint, or report again what of it has been written."""
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
            part = messages.CheckpointPart(checkpoint.number, slot, state.clock, is_late=True)
            self._in_checkpoint[slot] = part
            self._actions.append(events.ToScheduler(part))

    def written(self, part: messages.CheckpointPart) -> None:
        """Note that a slot was written, for a scheduler that repeats its request."""
        if self._checkpoint is not None and self._checkpoint.number == part.number:
            self._in_checkpoint[part.slot] = part

    def _launch(
        self,
        slot: int,
        frames: tuple[Frame, ...],
        waiting: list[tuple[bytes, int]],
        variables: list[messages.VariableSpec],
        sources: list[messages.Source],
        entries: list[messages.VariableValues],
        members: list[messages.Members] | None,
    ) -> None:
        """Write the next record of a slot and send it where it must be before it counts."""
        lead, view = self.leads[slot], self.view
        # Behind all records on their way.
        lsn = self.states[slot].lsn + len(lead.flights) + 1
        record = messages.Record(slot, lsn, 0 if view is None else view.epoch, variables, sources, entries, members)
        lead.flights.append(Flight(record, frames, not self.flushes, self._now, waiting))
        if self.stores:
            self._actions.append(events.StoreRecord(record, frames))
        # A follower without the whole slot could not apply the record.
        if lead.backup is not None and lead.image_sent:
            self._actions.append(events.ToServer(lead.backup, record, frames))
        if not self.flushes:  # else it is not stored yet, and those before it wait for events of their own
            self._advance(slot)

    def _advance(self, slot: int) -> None:
        """Acknowledge, in order, what has become durable."""
        lead, clock = self.leads[slot], self.states[slot].clock
        is_synchronous, changed = self.options.staleness == 0, False
        for flight in lead.flights:
            # In order: a later record counts only after those before it.
            if not flight.stored or (lead.needs_backup and lead.backup_lsn < flight.record.lsn):
                break
            if is_synchronous and flight.record.sources:
                clock += 1
            if flight.waiting:
                self._acknowledge(slot, flight, clock)
            flight.is_acknowledged = changed = True
        if changed:
            self._actions.append(events.Apply(slot))

    def _acknowledge(self, slot: int, flight: Flight, clock: int) -> None:
        for sender, request in flight.waiting:
            self._reply(sender, messages.Acked(request, slot, clock))
        # So that an answer is given once.
        flight.waiting.clear()

    def _push_together(
        self, sender: bytes, message: messages.Push, frames: tuple[Frame, ...], lead: LeaderState, state: SlotState
    ) -> None:
        """A synchronous push: rank and clock name it, whichever start of the worker sends it."""
        source = message.source
        flight = next((f for f in lead.flights if any(s.clock == source.clock for s in f.record.sources)), None)
        # The worker has seen values that this copy has not, and knows whether its earlier pushes are on their way.
        if source.clock > state.clock:
            self._reply(sender, messages.ClockAhead(message.request, message.slot, state.clock))
            return
        # An update that is made, or on its way, was made from the members of its clock; else these may still be undecided.
        is_made = source.clock < state.clock or flight is not None
        if (is_made or self._is_decided(state, source.clock)) and not state.counts_at(source.rank, source.clock):
            self.counts["uncounted_pushes"] += 1
            self._reply(sender, messages.NotAMember(message.request, message.slot))
            return
        if is_made:
            self.counts["duplicate_pushes"] += 1
            if flight is not None:
                flight.waiting.append((sender, message.request))
            else:
                self._reply(sender, messages.Acked(message.request, message.slot, state.clock))
            return
        # Sent twice: the newest sender gets the answer.
        if source.rank in lead.pending:
            self.counts["duplicate_pushes"] += 1
            lead.pending[source.rank].waiting = [(sender, message.request)]
        else:
            lead.pending[source.rank] = Contribution(message, frames, [(sender, message.request)])
        self._combine(message.slot)
        if source.rank in lead.pending or lead.needs_backup:  # else its acknowledgement comes as soon
            self._reply(sender, messages.Accepted(message.request, message.slot))

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
        ranks = ranks_at(state.members, state.clock)
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
        """Forget contributions that are not for the present clock and its members, and report so."""
        lead, state = self.leads[slot], self.states[slot]
        if not lead.pending or lead.flights or not self._is_decided(state, state.clock):
            return
        ranks = ranks_at(state.members, state.clock)
        others = [
            rank for rank, part in lead.pending.items() if rank not in ranks or part.push.source.clock != state.clock
        ]
        for rank in others:
            self.counts["uncounted_pushes"] += 1
            for sender, request in lead.pending.pop(rank).waiting:
                self._reply(sender, messages.NotAMember(request, slot))
