"""What a server does, without sockets, files or clocks: events in, actions out.

A slot this server leads goes through the same steps for every change::

    push -> (synchronous: wait for all ranks, combine) -> Record -> Store, replicate -> acknowledged -> applied

A record is acknowledged, applied and visible only after it is as durable as the job wants; nothing happens between its
acknowledgement and its application. A slot this server follows
takes records from the leader, stores and applies them, and reports so. A follower that misses something requests the
whole slot (`NeedImage`). Who leads is said by the scheduler's view alone; a leader with a backup also needs a lease.

The design follows dask's worker state machine: typed events, typed actions, one table of handlers, `validate_state`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sporax.ps.protocol import events, messages
from sporax.ps.protocol.wire import Frame, WireError, check_sizes
from sporax.ps.server.follower_state import GET_VIEW
from sporax.ps.server.synchronous_state import LeaderState, SynchronousState
from sporax.ps.slots.slot import SlotState, check_first_values, has_lease, ranks_at

RESEND_SECONDS = 1.0  # after which a record that was not confirmed is sent again
_NO_PUSH = (0, 0)  # incarnation and number before the first push of a rank


class ServerState(SynchronousState):
    """The protocol state of one server; arguments as for `FollowerState`."""

    def __init__(
        self, index: int, incarnation: int, options: messages.Options, states: dict[int, SlotState] | None = None
    ) -> None:
        super().__init__(index, incarnation, options, states)
        # Before any time, so that a leader with a backup waits for its first lease.
        self.lease_until = -1e9
        self.is_known = False
        self._wanting: dict[int, bytes] = {}
        self._load_errors: dict[int, str] = {}

    def handle(self, event: events.Event, now: float) -> list[events.Action]:
        """Take one event; gives what is to be done about it."""
        if type(event) is events.Received:
            return self.received(event.sender, event.message, event.frames, now)
        if type(event) is events.Apply:
            return self.apply(event.slot, now)
        self._now = now
        self._actions = []
        # The most frequent events first.
        if type(event) is events.Stored:
            self._stored(event.slot, event.lsn)
        elif type(event) is events.Tick:
            self._tick()
        else:
            self._loaded(event)
        return self._actions

    def received(
        self, sender: bytes, message: messages.ServerMessage, frames: tuple[Frame, ...], now: float
    ) -> list[events.Action]:
        """Take a message, as `handle` does."""
        self._now = now
        self._actions = []
        handler = _HANDLERS.get(type(message))
        if handler is None:
            self.counts["refused_messages"] += 1
        else:
            handler(self, sender, message, frames)
        return self._actions

    def apply(self, slot: int, now: float) -> list[events.Action]:
        """Apply what is acknowledged, as `handle` does."""
        self._now = now
        self._actions = []
        self._apply(slot)
        return self._actions

    # --------------------------------------------------------------------------------------------------------- workers

    def _lead_of(self, sender: bytes, message: Any) -> LeaderState | None:
        """The slot's lead, if this server may serve it now; else the sender is redirected."""
        lead = self.leads.get(message.slot)
        # Without a backup no other server can lead the slot, so no lease is needed.
        if lead is not None and (lead.backup is None or self._now < self.lease_until):
            return lead
        epoch = self.view.epoch if self.view is not None else 0
        self._reply(sender, messages.Moved(message.request, message.slot, epoch))
        # The sender has a newer map than this server.
        if message.epoch > epoch:
            self._actions.append(events.ToScheduler(GET_VIEW))
        return None

    def _init(self, sender: bytes, message: messages.Init, frames: tuple[Frame, ...]) -> None:
        if (lead := self._lead_of(sender, message)) is None:
            return
        state = self.states[message.slot]
        # Before the first values, which come from the checkpoint.
        if self.options.restore and state.lsn == 0 and not lead.flights:
            self._load_first(sender, message)
            return
        if conflict := state.conflict(message.variables):
            self._reply(sender, messages.RequestRefused(message.request, message.slot, conflict))
            return
        # Variables on their way count as existing: two workers may declare at the same time.
        coming = {spec.key: flight for flight in lead.flights for spec in flight.record.variables}
        if any(spec.key not in state.variables and spec.key not in coming for spec in message.variables):
            self._create(sender, message, frames)
        elif coming:
            # The worker is answered together with the first one that sent it.
            next(iter(coming.values())).waiting.append((sender, message.request))
        elif state.lsn > 0:
            self._reply(sender, messages.Acked(message.request, message.slot, state.clock))
        else:
            self._create(sender, message, frames)

    def _load_first(self, sender: bytes, message: messages.Init) -> None:
        """Take a slot's first values from the checkpoint; the worker repeats its request."""
        if message.slot in self._load_errors:
            self._reply(sender, messages.RequestRefused(message.request, message.slot, self._load_errors[message.slot]))
            return
        self._actions.append(events.LoadSlot(self.options.restore, message.slot))
        self._reply(sender, messages.Moved(message.request, message.slot, self.view.epoch if self.view else 0))

    def _create(self, sender: bytes, message: messages.Init, frames: tuple[Frame, ...]) -> None:
        """Make the variables of a slot, with the worker's first values."""
        check_first_values(message.variables, message.entries, frames)
        members = self.view.members if self.view is not None else []
        waiting = [(sender, message.request)]
        self._launch(message.slot, frames, waiting, message.variables, [], message.entries, members)

    def _push(self, sender: bytes, message: messages.Push, frames: tuple[Frame, ...]) -> None:
        if (lead := self._lead_of(sender, message)) is None:
            return
        slot, source, entries = message.slot, message.source, message.entries
        state = self.states[slot]
        # The slot has no values yet, or this copy has lost them.
        if state.lsn == 0:
            self._reply(sender, messages.Moved(message.request, slot, self.view.epoch if self.view else 0))
            return
        state.check(entries, frames)
        if self.options.staleness == 0:
            self._push_together(sender, message, frames, lead, state)
            return
        rank, start = source.rank, source.incarnation
        incarnation, seq = self._last(lead, state, rank) if lead.flights else state.last.get(rank, _NO_PUSH)
        expected = seq + 1 if start == incarnation else 1
        # The next one of the newest start of the worker.
        if source.seq == expected and start >= incarnation:
            if source.lease >= 0 and self._is_counted(lead, state, source.lease):
                # The record counts the push, but its samples are in the values already.
                self.counts["repeated_leases"] += 1
                entries, frames = [], ()
            self._launch(slot, frames, [(sender, message.request)], [], [source], entries, None)
        elif start < incarnation:
            self.counts["fenced_pushes"] += 1
            self._reply(sender, messages.RequestRefused(message.request, slot, "this worker has been replaced"))
        elif start == incarnation and source.seq <= seq:
            self.counts["duplicate_pushes"] += 1
            self._attach(sender, message.request, slot, lead, source)
        else:
            # Numbers have no gaps: one that is missing comes first.
            self._reply(sender, messages.Resend(message.request, slot, expected))

    def _is_counted(self, lead: LeaderState, state: SlotState, lease: int) -> bool:
        """Whether a sample lease has been pushed already, what is in flight included."""
        flying = (source.lease for flight in lead.flights for source in flight.record.sources)
        return has_lease(state.leases, lease) or lease in flying

    def _last(self, lead: LeaderState, state: SlotState, rank: int) -> tuple[int, int]:
        """Incarnation and number of the last push of a rank, those in flight included."""
        for flight in reversed(lead.flights):
            for source in flight.record.sources:
                if source.rank == rank:
                    return source.incarnation, source.seq
        return state.last.get(rank, _NO_PUSH)

    def _attach(self, sender: bytes, request: int, slot: int, lead: LeaderState, source: messages.Source) -> None:
        """Answer a repeated push: now if it counts already, else together with the first."""
        # A push in flight is durable only later.
        for flight in lead.flights:
            for other in flight.record.sources:
                if (other.rank, other.incarnation, other.seq) == (source.rank, source.incarnation, source.seq):
                    flight.waiting.append((sender, request))
                    return
        self._reply(sender, messages.Acked(request, slot, self.states[slot].clock))

    def _pull(self, sender: bytes, message: messages.Pull, frames: tuple[Frame, ...]) -> None:
        if (lead := self._lead_of(sender, message)) is None:
            return
        check_sizes(message.entries, frames)
        state, is_repeated = self.states[message.slot], (sender, message.request) in lead.pulls
        # A worker that repeats its request has waited for long.
        if is_repeated and self.options.staleness == 0 and message.clock > state.clock:
            self._reply(sender, messages.ClockAhead(message.request, message.slot, state.clock))
        lead.pulls[(sender, message.request)] = (message, frames)
        self._answer_pulls(message.slot)

    def _answer_pulls(self, slot: int) -> None:
        """Answer the pulls whose clock has come."""
        lead, state = self.leads[slot], self.states[slot]
        for peer, (pull, frames) in list(lead.pulls.items()):
            # The request may be repeated before its clock has come.
            if not self._may_read(state, pull):
                continue
            del lead.pulls[peer]
            try:
                state.check(pull.entries)
            except WireError as error:
                self._reply(peer[0], messages.RequestRefused(pull.request, slot, error.message))
                continue
            entries, values = state.read(pull.entries, list(frames), pull.clock)
            # The value of one clock ago is kept for a worker whose step was interrupted.
            clock = pull.clock if self.options.staleness == 0 and 0 <= pull.clock == state.clock - 1 else state.clock
            if self.options.staleness != 0:
                clock = state.clocks.get(pull.rank, 0)
            last = state.members[-1].ranks if state.members else []
            ranks = ranks_at(state.members, max(clock, 0)) if self.options.staleness == 0 else last
            self._reply(peer[0], messages.Pulled(pull.request, slot, clock, ranks, entries), tuple(values))

    def _may_read(self, state: SlotState, pull: messages.Pull) -> bool:
        if any(entry.key not in state.variables for entry in pull.entries) or state.lsn == 0:
            return False
        # Any values will do: newest, or without bound.
        if pull.clock < 0 or self.options.staleness < 0:
            return True
        if self.options.staleness == 0:
            # Who reads the values of a clock must know its members.
            return state.clock > pull.clock or (state.clock == pull.clock and self._is_decided(state, pull.clock))
        ranks = state.members[-1].ranks if state.members else []
        # The slowest member limits everybody with bounded staleness.
        slowest = min((state.clocks.get(rank, 0) for rank in ranks), default=pull.clock)
        return slowest >= pull.clock - self.options.staleness

    # --------------------------------------------------------------------------------------------------------- records

    def _stored(self, slot: int, lsn: int) -> None:
        lead = self.leads.get(slot)
        if lead is not None:
            for flight in lead.flights:
                if flight.record.lsn == lsn and not flight.stored:
                    flight.stored = True
                    self._advance(slot)
                    break
        elif slot in self.follows:
            self._stored_by_follower(slot, lsn)

    def _apply(self, slot: int) -> None:
        """Apply, in order, what is acknowledged; then answer what has waited for it."""
        lead = self.leads.get(slot)
        flights = lead.flights if lead is not None else None
        # A former `Apply` has done it already.
        if lead is None or not flights or not flights[0].is_acknowledged:
            return
        state = self.states[slot]
        num_before = state.lsn
        while flights and flights[0].is_acknowledged:
            flight = flights.popleft()
            state.apply(flight.record, flight.frames)
            # Who has repeated the request since the first acknowledgement.
            if flight.waiting:
                self._acknowledge(slot, flight, state.clock)
            if self._checkpoint is not None:
                self.write_at_clock(slot)
        self.counts["records"] += state.lsn - num_before
        # First values may have begun with members of an older view.
        if self.view is None or state.members is not self.view.members:
            self._renew_members(slot)
        if lead.pending:
            self._drop_uncounted(slot)
        if lead.pulls:
            self._answer_pulls(slot)
        if self.options.staleness == 0:
            self._combine(slot)

    # ------------------------------------------------------------------------------------------- values of checkpoints

    def _loaded(self, event: events.Loaded) -> None:
        """Begin with the state of a checkpoint; pushes and members are those of this job."""
        lead, state = self.leads.get(event.slot), self.states.get(event.slot)
        if lead is None or state is None or state.lsn > 0:
            return
        if event.image is None:
            self._load_errors[event.slot] = event.error
            return
        state = SlotState.from_image(event.image, event.frames, self.options.staleness)
        # Numbers of pushes and clocks of ranks begin again in a new job.
        state.last, state.clocks = {}, {}
        state.members = self.view.members if self.view is not None else []
        state.epoch = self.view.epoch if self.view is not None else 0
        self.states[event.slot] = state
        if self.stores:
            self._actions.append(events.StoreSlot(event.slot))
        if lead.image_sent:
            self._send_image(event.slot, lead)
        self._answer_pulls(event.slot)

    # -------------------------------------------------------------------------------------------------- other servers

    def _need_image(self, sender: bytes, message: messages.NeedImage, frames: tuple[Frame, ...]) -> None:
        """A leader sends the whole slot to its follower, and from then on every record."""
        lead = self.leads.get(message.slot)
        if lead is not None and lead.backup is not None and self._sender_is(sender, lead.backup):
            self._send_image(message.slot, lead)
        elif self.view is None or message.epoch > self.view.epoch:
            self._wanting[message.slot] = sender  # our view is older than the follower's
            self._actions.append(events.ToScheduler(GET_VIEW))

    def _send_image(self, slot: int, lead: LeaderState) -> None:
        assert lead.backup is not None
        image, frames = self.states[slot].image()
        # Replay passes over records before the image's epoch: those that a former leader wrote and this one overruled.
        # What this leader has on its way may be of an earlier epoch than the present one, and must not be passed over.
        now = self.view.epoch if self.view is not None else 0
        image = msgspec.structs.replace(image, epoch=lead.flights[0].record.epoch if lead.flights else now)
        lead.image_sent, lead.backup_lsn = True, -1
        self._actions.append(events.ToServer(lead.backup, image, tuple(frames)))
        for flight in lead.flights:
            self._actions.append(events.ToServer(lead.backup, flight.record, flight.frames))

    def _replicated(self, sender: bytes, message: messages.Replicated, frames: tuple[Frame, ...]) -> None:
        lead = self.leads.get(message.slot)
        if lead is None or lead.backup is None or not self._sender_is(sender, lead.backup) or not lead.image_sent:
            return
        # From its first confirmation on commits wait for this follower.
        lead.needs_backup = True
        lead.backup_lsn = max(lead.backup_lsn, message.lsn)
        self._advance(message.slot)
        # All records so far: a change of leaders loses nothing now.
        if not lead.synced and lead.backup_lsn >= self.states[message.slot].lsn:
            lead.synced = True
            self._report_synced(message.slot, lead)

    def _report_synced(self, slot: int, lead: LeaderState) -> None:
        assert self.view is not None
        assert lead.backup is not None
        self._actions.append(events.ToScheduler(messages.SlotSynced(slot, self.view.epoch, lead.backup.index)))

    # ------------------------------------------------------------------------------------------------------- scheduler

    def _heartbeat_reply(self, sender: bytes, message: messages.HeartbeatReply, frames: tuple[Frame, ...]) -> None:
        if message.unknown:
            self._actions.append(events.Halt("the scheduler has replaced this server", again=True))
            return
        if message.view is not None:
            self._install(message.view)
        self.is_known = True
        # From the sending on: the scheduler counts from when it received it.
        self.lease_until = max(self.lease_until, message.sent + self.options.lease_seconds)

    def _install(self, view: messages.View) -> None:
        """Take over a newer view: begin and end leading and following."""
        if self.view is not None and view.epoch <= self.view.epoch:
            return
        self.view = view
        servers = {server.index: server for server in view.servers}
        me = servers.get(self.index)
        # Another process has this server's number.
        if me is not None and me.incarnation > self.incarnation:
            self._actions.append(events.Halt("the scheduler has replaced this server", again=True))
            return
        for slot, holders in enumerate(view.slots):
            self._take_role(slot, holders, servers)
        # A new map may have removed a backup, for which records have waited.
        for slot in list(self.leads):
            self._advance(slot)
            self._drop_uncounted(slot)
            self._answer_pulls(slot)
            if self.options.staleness == 0:
                self._combine(slot)

    def _take_role(self, slot: int, holders: messages.Holders, servers: dict[int, messages.ServerAddress]) -> None:
        """Lead a slot, follow it, or have nothing to do with it."""
        leads, follows = holders.primary == self.index, holders.backup == self.index
        if leads:
            self._lead(slot, servers.get(holders.backup), holders.since)
        elif slot in self.leads:
            self._stop_leading(slot)
        leader = servers.get(holders.primary)
        if follows and leader is not None:
            self._begin_to_follow(slot, leader, holders.since)
        else:
            self.follows.pop(slot, None)
        # Somebody else has the slot; what is left would be out of date.
        if not leads and not follows and slot in self.states:
            del self.states[slot]
            self._actions.append(events.DropSlot(slot))

    def _lead(self, slot: int, backup: messages.ServerAddress | None, since: int) -> None:
        self.states.setdefault(slot, SlotState(slot, self.options.staleness))
        lead = self.leads.setdefault(slot, LeaderState())
        # Another follower, or a new start of it, begins from a whole slot.
        if (lead.backup, lead.since) != (backup, since):
            lead.backup, lead.since, lead.backup_lsn = backup, since, -1
            lead.image_sent = lead.needs_backup = lead.synced = False
            wanting = self._wanting.pop(slot, b"")
            if backup is not None and self._sender_is(wanting, backup):
                self._send_image(slot, lead)
        self._renew_members(slot)

    def _renew_members(self, slot: int) -> None:
        """Bring the view's schedule of members into the slot's history, so that copies agree on it."""
        lead, state, newest = self.leads[slot], self.states[slot], self.states[slot].members
        for flight in lead.flights:
            if flight.record.members is not None:
                newest = flight.record.members
        if state.lsn and self.view is not None and newest != self.view.members:
            self._launch(slot, (), [], [], [], [], self.view.members)

    def _stop_leading(self, slot: int) -> None:
        """Forget what was not acknowledged: the workers send it to the new leader."""
        assert self.view is not None
        lead = self.leads.pop(slot)
        waiting = [*lead.pulls, *(peer for flight in lead.flights for peer in flight.waiting)]
        waiting += [peer for contribution in lead.pending.values() for peer in contribution.waiting]
        for sender, request in waiting:
            self._reply(sender, messages.Moved(request, slot, self.view.epoch))

    def _stop(self, sender: bytes, message: messages.Stop, frames: tuple[Frame, ...]) -> None:
        self._actions.append(events.Halt(message.reason, done=message.done))

    def _tick(self) -> None:
        """Send again what was not answered."""
        self._request_again()
        for slot, lead in self.leads.items():
            if lead.backup is None or not lead.image_sent:
                continue
            for flight in lead.flights:
                if lead.backup_lsn < flight.record.lsn and self._now - flight.since >= RESEND_SECONDS:
                    flight.since = self._now
                    self._actions.append(events.ToServer(lead.backup, flight.record, flight.frames))
            # The scheduler may have missed that the follower has everything.
            holders = self.view.slots[slot] if self.view is not None else None
            if lead.synced and holders is not None and not holders.synced:
                self._report_synced(slot, lead)

    def heartbeat(self, now: float, gauges: dict[str, float]) -> messages.Heartbeat:
        """What to report to the scheduler now."""
        clocks = {slot: self._clock(slot) for slot in self.leads}
        lsns = {slot: self.states[slot].lsn for slot in self.leads}
        epoch = self.view.epoch if self.view is not None else 0
        held = None
        if self.view is not None and self.view.hold is not None:
            hold = self.view.hold
            highest = max(clocks.values(), default=-1)
            # A strict hold also forbids that values of its clock were given out.
            held = messages.HoldReply(
                hold.change, highest < hold.clock if hold.strict else highest <= hold.clock, highest
            )
        return messages.Heartbeat("server", self.index, self.incarnation, now, epoch, clocks, lsns, gauges, held)

    def _clock(self, slot: int) -> int:
        """How far a slot is, with what is on its way; in the asynchronous modes the slowest member's clock."""
        state = self.states[slot]
        if self.options.staleness == 0:
            # What is on its way will raise the clock.
            return state.clock + sum(1 for flight in self.leads[slot].flights if flight.record.sources)
        return max(state.clocks.values(), default=0)


_HANDLERS: dict[type[messages.ServerMessage], Callable[[ServerState, bytes, Any, tuple[Frame, ...]], None]] = {
    messages.Init: ServerState._init,
    messages.Push: ServerState._push,
    messages.Pull: ServerState._pull,
    messages.Record: ServerState._record,
    messages.Replicated: ServerState._replicated,
    messages.NeedImage: ServerState._need_image,
    messages.SlotImage: ServerState._image,
    messages.ViewReply: lambda state, _, message, frames: state._install(message.view),
    messages.HeartbeatReply: ServerState._heartbeat_reply,
    messages.Stop: ServerState._stop,
    messages.TakeCheckpoint: ServerState.take_checkpoint,
}
