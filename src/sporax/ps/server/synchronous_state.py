"""Updates that all members of a clock make together: what a leader does with the pushes of synchronous training.

A push is named by (rank, clock). It waits at the leader until every member of that clock has pushed; then the slot takes one step
with their mean. Which ranks are members is decided by the scheduler (`members_state`) and reaches a slot as a record of its
history. A push may be faster than that record, or come from a rank that is no member any more: such a push is answered by
`NotAMember`, once that is certain, and its worker looks for the clock at which it goes on.
"""

from __future__ import annotations

from abc import abstractmethod

from sporax.ps.protocol.events import Reply
from sporax.ps.protocol.messages import (
    Accepted,
    Acked,
    ClockAhead,
    Members,
    NotAMember,
    Push,
    Source,
    VariableSpec,
    VariableValues,
)
from sporax.ps.protocol.wire import Frame
from sporax.ps.server.leader_state import Contribution, LeaderState
from sporax.ps.server.slot_checkpoints import CheckpointedState
from sporax.ps.slots.slot import SlotState, combined


class SynchronousState(CheckpointedState):
    """The slots of a server, and the updates of their present clocks; arguments as for `CheckpointedState`."""

    @abstractmethod
    def _launch(
        self,
        slot: int,
        frames: tuple[Frame, ...],
        waiting: list[tuple[bytes, int]],
        variables: list[VariableSpec],
        sources: list[Source],
        entries: list[VariableValues],
        members: list[Members] | None,
    ) -> None: ...

    def _push_together(
        self, sender: bytes, message: Push, frames: tuple[Frame, ...], lead: LeaderState, state: SlotState
    ) -> None:
        """A synchronous push: rank and clock name it, whichever start of the worker sends it."""
        source = message.source
        flight = next((f for f in lead.flights if any(s.clock == source.clock for s in f.record.sources)), None)
        # The worker has seen values that this copy has not, and knows whether its earlier pushes are on their way.
        if source.clock > state.clock:
            self._actions.append(Reply(sender, ClockAhead(message.request, message.slot, state.clock)))
            return
        # An update that is made, or on its way, was made from the members of its clock; else these may still be undecided.
        is_made = source.clock < state.clock or flight is not None
        if (is_made or self._is_decided(state, source.clock)) and not state.counts_at(source.rank, source.clock):
            self.counts["uncounted_pushes"] += 1
            self._actions.append(Reply(sender, NotAMember(message.request, message.slot)))
            return
        if is_made:
            self.counts["duplicate_pushes"] += 1
            if flight is not None:
                flight.waiting.append((sender, message.request))
            else:
                self._actions.append(Reply(sender, Acked(message.request, message.slot, state.clock)))
            return
        # Sent twice: the newest sender gets the answer.
        if source.rank in lead.pending:
            self.counts["duplicate_pushes"] += 1
            lead.pending[source.rank].waiting = [(sender, message.request)]
        else:
            lead.pending[source.rank] = Contribution(message, frames, [(sender, message.request)])
        self._combine(message.slot)
        if source.rank in lead.pending or lead.needs_backup:  # else its acknowledgement comes as soon
            self._actions.append(Reply(sender, Accepted(message.request, message.slot)))

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
                self._actions.append(Reply(sender, NotAMember(request, slot)))
