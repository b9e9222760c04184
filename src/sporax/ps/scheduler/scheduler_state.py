"""What the scheduler does, without sockets, files or clocks: membership, the slot map, and changes of both.

Every change of the map or of the members makes a new epoch, which is journalled before any process learns of it. A server
that stops answering loses its slots after its lease has ended, or at once when its supervisor saw it end. In synchronous
mode members change at a clock that no slot has reached: the scheduler holds servers there until the next view names them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sporax.ps.protocol import events, messages
from sporax.ps.scheduler.journal import Journal, Peer, status_of
from sporax.ps.scheduler.lost_slots import RestartedCopies, incomplete, lost_reason, slots_without_server
from sporax.ps.scheduler.members_state import MembersState
from sporax.ps.scheduler.sample_leases import SampleLeases
from sporax.ps.scheduler.scheduler_checkpoints import Action, CheckpointingScheduler
from sporax.ps.slots import slot_placement

_MARGIN_SECONDS = 0.5  # beyond the lease, for the pause between a heartbeat's sending and its receipt

_LET_GO = messages.Stop("the job needs fewer servers", done=True)
_FINISHED = "all workers have finished"


class SchedulerState(CheckpointingScheduler):
    """The scheduler of one job.

    Args:
        options: settings of the job.
        journal: of this job, new or read back.
        now: present time; processes in the journal get a full lease from here.
    """

    def __init__(self, options: messages.Options, journal: Journal, now: float) -> None:
        servers = {
            # Their heartbeats will show which of them are still alive.
            index: Peer(now)
            for index in journal.servers
            if journal.server_nodes[index] not in journal.retired
        }
        super().__init__(options, journal, servers, now)
        self.workers: dict[int, Peer] = {rank: Peer(now) for rank, entry in journal.workers.items() if not entry[2]}
        journal.first_workers = journal.first_workers or journal.worker_num
        journal.most_workers = max(journal.most_workers, journal.worker_num)
        # What was being agreed on is forgotten, and servers that still wait for it must be notified.
        journal.epoch += bool(journal.slots)
        self.members = MembersState(options, journal, self.servers, self.workers)
        self.finished = False
        self._starting: dict[int, messages.ServerAddress] = {}
        self._starting_nodes: dict[int, str] = {}
        self._starting_senders: dict[int, bytes] = {}
        # A number that was given out is never given to another start.
        self._incarnations = {index: address.incarnation for index, address in journal.servers.items()}
        self._leases = SampleLeases(journal)
        self._restarted = RestartedCopies()
        self.notices = self.members.notices  # one list: what people should be notified of

    @property
    def starting(self) -> Sequence[bytes]:
        """Servers that have a number and are not ready yet."""
        return [self._starting_senders[index] for index in self._starting]

    @property
    def view(self) -> messages.View:
        """The newest view."""
        journal = self.journal
        servers = [journal.servers[index] for index in sorted(self.servers) if index in journal.servers]
        return messages.View(journal.epoch, servers, journal.slots, journal.members, self.members.hold)

    def handle(self, event: events.Received | events.ManifestWritten | events.Tick, now: float) -> list[Action]:
        """Take one event; gives what is to be done about it."""
        self._now = now
        self._actions = []
        if isinstance(event, events.Tick):
            self._tick()
        elif isinstance(event, events.ManifestWritten):
            self.manifest_written(event)
        else:
            handler = _HANDLERS.get(type(event.message))
            if handler is not None:
                handler(self, event.sender, event.message)
        return self._actions

    # -------------------------------------------------------------------------------------------------------- joining

    def _register(self, sender: bytes, message: messages.RegisterProcess) -> None:
        if message.role == "server":
            self._register_server(sender, message)
        elif message.role == "worker":
            self._register_worker(sender, message)

    def _register_server(self, sender: bytes, message: messages.RegisterProcess) -> None:
        journal = self.journal
        nodes = {**journal.server_nodes, **self._starting_nodes}
        # A process that starts again keeps its number by its name.
        named = (at for at, node in nodes.items() if node == message.node)
        free = (at for at in range(len(nodes) + 1) if at not in nodes or self._is_gone(at))
        index = message.index if message.index >= 0 else next(itertools.chain(named, free))
        peer = self.servers.get(index)
        is_starting = index in self._starting and self._starting_senders[index] == sender
        if is_starting:
            incarnation = self._starting[index].incarnation  # it repeats the request because our answer was lost
        elif peer is not None and peer.sender == sender:
            incarnation = journal.servers[index].incarnation
        else:
            # Another process has taken this number, so the old one no longer leads.
            is_starting, incarnation = True, self._incarnations.get(index, 0) + 1
            if peer is not None and peer.live and index in journal.servers:
                self._lose_server(index)
        if is_starting:
            place = message.host, message.tcp, message.ipc, message.plain
            self._starting[index] = messages.ServerAddress(index, incarnation, *place)
            self._starting_senders[index], self._starting_nodes[index] = sender, message.node
            self._incarnations[index] = incarnation
        options = self._options_now()
        self._reply(sender, messages.ProcessAccepted(message.node, index, incarnation, journal.job, options))

    def _is_present_server(self, sender: bytes, index: int, incarnation: int) -> bool:
        """Whether a process is the server of a number, and not another one that a scheduler gave the same numbers once."""
        peer = self.servers.get(index)
        # After a start of the scheduler nothing has come from a server yet.
        return peer is not None and self._newest_start("server", index) == incarnation and peer.sender in (b"", sender)

    def _options_now(self) -> messages.Options:
        """What a server receives: once the servers have values, nothing is loaded from a checkpoint any more."""
        return msgspec.structs.replace(self.options, restore="") if self.journal.initialised else self.options

    def _is_gone(self, index: int) -> bool:
        return index not in self._starting and (index not in self.servers or not self.servers[index].live)

    # Only now does the server count: it has read back what it could.
    def _ready(self, sender: bytes, message: messages.Ready) -> None:
        journal, index = self.journal, message.index
        address = self._starting.get(index)
        # A scheduler that was away may have given the number and incarnation of one process to another.
        if address is None or address.incarnation != message.incarnation or self._starting_senders[index] != sender:
            if self._is_present_server(sender, index, message.incarnation):
                self._reply(sender, messages.ViewReply(self.view))
            elif address is not None and address.incarnation == message.incarnation:
                self._reply(sender, messages.HeartbeatReply(0.0, journal.epoch, unknown=True))
            return
        # The copy of what this one lacks is being read back; this server reports again soon.
        if self._restarted.must_wait(message, self._starting):
            return
        del self._starting[index]
        journal.server_nodes[index] = node = self._starting_nodes.pop(index)
        if node in journal.retired:  # it had left, and is wanted again
            journal.retired.remove(node)
        journal.servers[index] = address
        before = self.servers.get(index)
        self.servers[index] = Peer(self._now, sender, inventory=message.inventory)
        self._look_for_slots_of(message, before)
        # The first map is made when all servers of the start are there.
        if not journal.slots and len(self._live()) >= journal.server_num:
            journal.slots = slot_placement.first_map(self.options.num_slots, self._live(), self._with_backup)
            journal.members = [messages.Members(0, list(range(journal.worker_num)))]
            self._new_epoch(journal.slots)
        elif journal.slots:
            self._rebalance()

    def _look_for_slots_of(self, message: messages.Ready, before: Peer | None) -> None:
        """A server has come back: what it leads must be whole, or with another server."""
        journal, index = self.journal, message.index
        lost = incomplete(journal, message, before.lsns if before is not None else {})
        is_unheard = before is not None and not before.sender
        rescued = self._restarted.complete(lost, message, journal.slots, self.servers) if is_unheard else {}
        if rescued:
            self._new_epoch(
                [
                    messages.Holders(rescued.get(slot, -1)) if slot in rescued else entry
                    for slot, entry in enumerate(journal.slots)
                ]
            )
        if message.damage:
            self.notices.append(f"server {index}: {message.damage}")
        if remain := [what for slot, what in lost.items() if slot not in rescued]:
            reason = message.damage or f"it has come back without them ({', '.join(remain)})"
            self._fail_lost([slot for slot in lost if slot not in rescued], f"be on server {index}, but {reason}")

    def _register_worker(self, sender: bytes, message: messages.RegisterProcess) -> None:
        journal = self.journal
        rank = message.index
        if rank < 0:
            # The same process again, after a restart.
            rank = next((at for at, entry in journal.workers.items() if entry[0] == message.node and not entry[2]), -1)
        if rank < 0:
            # `workers` has only ranks that the journal has.
            present = {at for at, peer in self.workers.items() if peer.live}
            rank = next(at for at in range(len(journal.workers) + 1) if at not in present)
        node, incarnation, _ = journal.workers.get(rank, ("", 0, False))
        # Another start of the rank: its old messages are recognised by the number.
        if node != message.node or rank not in self.workers or journal.worker_senders.get(rank) != sender:
            incarnation += 1
        journal.workers[rank], journal.worker_senders[rank] = (message.node, incarnation, False), sender
        self.workers[rank] = Peer(self._now, sender)
        # A rank that starts again has not finished what it had.
        self._leases.take_back(rank, incarnation)
        # On disk before the answer: the rank must stay this process's after a restart.
        self._actions.append(events.Keep())
        options, first = self._options_now(), journal.first_workers
        self._reply(sender, messages.ProcessAccepted(message.node, rank, incarnation, journal.job, options, first))
        if self.finished:
            self._reply(sender, messages.Stop(_FINISHED, done=True))
        elif journal.slots:
            self._reply(sender, messages.ViewReply(self.view))
            self._begin_change()

    # -------------------------------------------------------------------------------------------------------- leaving

    def _exited(self, sender: bytes, message: messages.Exited) -> None:
        if message.role == "server":
            for index, node in self.journal.server_nodes.items():
                if node == message.node and index in self.servers and self.servers[index].live:
                    self._lose_server(index)

    def _lose_server(self, index: int) -> None:
        self.servers[index].live = False
        if self.journal.slots:
            self.members.abort()
            self._restarted.note(self.journal.slots, index, self.servers)
            self._rebalance(slot_placement.after_loss(self.journal.slots, index))

    def _leave(self, sender: bytes, message: messages.WorkerLeave) -> None:
        journal = self.journal
        entry = journal.workers.get(message.rank)
        # A message of an earlier start of this rank.
        if entry is None or entry[1] != message.incarnation:
            return
        if not entry[2] and not message.done and not self.members.is_dismissed(message.rank):
            # The job has grown again, and others may have read already that this worker is among them.
            self._reply(sender, messages.HeartbeatReply(-1.0, journal.epoch))
            return
        if not entry[2]:
            journal.workers[message.rank] = (entry[0], entry[1], True)
            self.workers.pop(message.rank, None)
            self.members.leave(message.rank, message.clock)
            # Samples that it requested and will not use.
            self._leases.take_back(message.rank, message.incarnation + 1)
            if not message.done and entry[0] not in journal.retired:
                journal.retired.append(entry[0])
            if journal.slots:
                self._new_epoch(journal.slots)
            self._actions.append(events.Keep())
        self._reply(sender, messages.Stop("left"))
        self._check_finished()

    def _check_finished(self) -> None:
        journal = self.journal
        # A job without workers yet has not finished.
        enough = len(journal.workers) >= journal.worker_num and (0 in journal.workers or not journal.worker_num)
        ended = journal.workers and all(self.members.is_over(rank) for rank in journal.workers)
        if ended and enough and not self.finished:
            self.finished = True
            self._actions.append(events.End(_FINISHED))

    def _fail_lost(self, slots: list[int], what: str) -> None:
        """End the job: no copy of some slots is left."""
        self._fail(lost_reason(slots, what, self.options.durability, self.journal.checkpoint))

    def _updates_lost(self, sender: bytes, message: messages.UpdatesLost) -> None:
        self._fail_lost([message.slot], f"have update {message.had}, which was acknowledged, but are at {message.has}")

    def _broken(self, sender: bytes, message: messages.Broken) -> None:
        address = self.journal.servers.get(message.index) or self._starting.get(message.index)
        # Another start of it may have taken its place.
        if address is not None and address.incarnation == message.incarnation:
            self._fail(message.reason)

    def _fail(self, reason: str) -> None:
        self.journal.error = reason
        self._actions += [events.Keep(), events.End(reason)]

    # ------------------------------------------------------------------------------------------------------ the map

    @property
    def _with_backup(self) -> bool:
        return self.options.durability == "replica"

    def _rebalance(self, slots: Sequence[messages.Holders] | None = None) -> None:
        """Take one step towards an even map; a new epoch when that (or `slots`) changes something."""
        journal = self.journal
        before = journal.slots if slots is None else list(slots)
        before = self._restarted.put_back(before, self.servers, self._live(), journal.epoch + 1)
        after = slot_placement.rebalanced(before, self._live(), journal.draining, self._with_backup)
        self._new_epoch(after)
        self._retire_empty()

    def _new_epoch(self, slots: Sequence[messages.Holders]) -> None:
        """Publish a new view."""
        journal = self.journal
        journal.epoch += 1
        # Backups that are new are dated, so that old confirmations do not count for them.
        journal.slots = slot_placement.dated(journal.slots, slots, journal.epoch)
        self._actions.append(events.Keep())
        self.members.forget_answers()
        view = messages.ViewReply(self.view)
        # Those that are away get the view with their next heartbeat.
        for peer in [*self.servers.values(), *self.workers.values()]:
            if peer.sender and peer.live:
                self._reply(peer.sender, view)

    def _slot_synced(self, sender: bytes, message: messages.SlotSynced) -> None:
        journal = self.journal
        holders = journal.slots[message.slot] if 0 <= message.slot < len(journal.slots) else None
        # An older epoch may speak of a backup that has begun again since.
        if holders is None or holders.backup != message.backup or message.epoch < holders.since or holders.synced:
            return
        journal.slots[message.slot] = messages.Holders(holders.primary, holders.backup, True, holders.since)
        after = slot_placement.rebalanced(journal.slots, self._live(), journal.draining, self._with_backup)
        is_new = after != journal.slots
        self._new_epoch(after)
        if is_new:
            self._retire_empty()

    def _retire_empty(self) -> None:
        """Let draining servers go that hold nothing any more."""
        journal = self.journal
        for index in list(journal.draining):
            if any(index in (holders.primary, holders.backup) for holders in journal.slots):
                continue
            journal.draining.remove(index)
            journal.retired.append(journal.server_nodes[index])
            journal.retired_starts.append((index, journal.servers[index].incarnation))
            peer = self.servers.pop(index, None)
            del journal.server_nodes[index], journal.servers[index]
            self._actions.append(events.Keep())
            if peer is not None and peer.sender:
                # It may not receive this; then its next heartbeat is answered the same way.
                self._reply(peer.sender, _LET_GO)

    # ------------------------------------------------------------------------------------------------------- members

    def _begin_change(self) -> None:
        """Begin to change the members if they are not those that are requested."""
        if self.members.begin():
            self._new_epoch(self.journal.slots)

    def _scale(self, sender: bytes, message: messages.Scale) -> None:
        journal = self.journal
        if message.workers > 0:
            journal.worker_num = message.workers
            journal.most_workers = max(journal.most_workers, message.workers)
            self._begin_change()
            # Superfluous workers that were silent for long are not waited for.
            self._check_finished()
        if message.servers > 0:
            journal.server_num = message.servers
            # With those that are away at the moment: they may come back.
            journal.draining = sorted(journal.servers)[message.servers :]
            if journal.slots:
                self._rebalance()
        self._actions.append(events.Keep())
        self._get_wanted(sender, messages.GetWanted())

    def _get_wanted(self, sender: bytes, message: messages.GetWanted) -> None:
        journal = self.journal
        for rank, (node, _, _) in journal.workers.items():
            # It may be too busy to send heartbeats, but it is not lost.
            if node in message.running and rank in self.workers and self.workers[rank].live:
                self.workers[rank].seen = self._now
        joined = [node for node, _, _ in journal.workers.values()]
        target = messages.Wanted(
            journal.worker_num,
            journal.server_num,
            list(journal.retired),
            self.finished,
            journal.error,
            list(self.notices),
            joined,
        )
        self._reply(sender, target)

    def _initialised(self, sender: bytes, message: messages.Initialised) -> None:
        if not self.journal.initialised:
            self.journal.initialised = True
            self._actions.append(events.Keep())
        # After the journal is on disk: from now on no restart forgets it.
        self._reply(sender, message)

    # ---------------------------------------------------------------------------------------------------- heartbeats

    def _heartbeat(self, sender: bytes, message: messages.Heartbeat) -> None:
        is_server, journal = message.role == "server", self.journal
        peer = (self.servers if is_server else self.workers).get(message.index)
        newest = self._newest_start(message.role, message.index)
        # Another start has taken its number, or it has left.
        if (
            peer is None
            or newest != message.incarnation
            or (is_server and not self._is_present_server(sender, message.index, message.incarnation))
        ):
            self._stale_heartbeat(sender, message, newest)
            return
        came_back = not peer.live
        peer.seen, peer.sender, peer.live, peer.epoch = self._now, sender, True, message.epoch
        peer.clocks, peer.lsns = message.clocks, message.lsns
        peer.gauges = message.gauges
        if is_server and self.members.answered(message.index, message.held, message.epoch):
            self._new_epoch(journal.slots)
        # A process that was silent for longer than its lease is there again; a server may lead again what only it has.
        if came_back and not is_server:
            self._begin_change()
        elif came_back and journal.slots:
            self._rebalance()
        view = self.view if message.epoch != journal.epoch else None
        dismissed = not is_server and self.members.is_dismissed(message.index)
        self._reply(sender, messages.HeartbeatReply(message.sent, journal.epoch, view, dismissed=dismissed))

    def _newest_start(self, role: str, index: int) -> int:
        """Incarnation of the newest start of a server or rank, -1 for none."""
        if role == "server":
            server = self.journal.servers.get(index)
            return -1 if server is None else server.incarnation
        return self.journal.workers[index][1] if index in self.journal.workers else -1

    def _stale_heartbeat(self, sender: bytes, message: messages.Heartbeat, newest: int) -> None:
        """Answer a process that is no member; a server that is about to become one receives nothing yet."""
        journal = self.journal
        if message.role == "server" and (message.index, message.incarnation) in journal.retired_starts:
            self._reply(sender, _LET_GO)  # it has not received it yet
            return
        if message.role == "worker" and newest == message.incarnation:
            self._reply(sender, messages.Stop("left"))  # noted, but the answer was lost
            return
        starting = self._starting.get(message.index) if message.role == "server" else None
        is_starting = starting is not None and starting.incarnation == message.incarnation
        if not is_starting or self._starting_senders[message.index] != sender:
            self._reply(sender, messages.HeartbeatReply(message.sent, journal.epoch, unknown=True))

    def _tick(self) -> None:
        journal, limit = self.journal, self.options.lease_seconds + _MARGIN_SECONDS
        for index, peer in list(self.servers.items()):
            if peer.live and self._now - peer.seen > limit:
                self._lose_server(index)
        limit = (self.options.worker_lease_seconds or self.options.lease_seconds) + _MARGIN_SECONDS
        for rank, peer in self.workers.items():
            if peer.live and self._now - peer.seen > limit:
                peer.live = False
                # Others may use its samples; slots pass over those that it has pushed already.
                self._leases.take_back(rank, journal.workers[rank][1] + 1)
                self._check_finished()
        # A change that found no agreement is tried again.
        self._begin_change()
        self._look_for_lost_slots()
        self.continue_checkpoint()

    def _look_for_lost_slots(self) -> None:
        """A slot waits for the one server that has it, but not for ever."""
        journal = self.journal
        lost = slots_without_server(journal.slots, self.servers, self._now - self.options.lost_seconds)
        # Before the first values exist nothing can be lost.
        if lost and journal.initialised and not journal.error:
            servers = sorted({journal.slots[slot].primary for slot in lost})
            limit = self.options.lost_seconds
            self._fail_lost(lost, f"be on servers {servers}, but these were away for more than {limit:.0f} s")

    # ------------------------------------------------------------------------------------------------- samples, status

    def _lease_samples(self, sender: bytes, message: messages.LeaseSamples) -> None:
        entry = self.journal.workers.get(message.rank)
        # It has left, or another start has taken its rank: it would keep the samples for ever.
        if entry is None or entry[2] or entry[1] != message.incarnation:
            return
        lease = self._leases.lend(message)
        if lease is not None:
            self._reply(sender, messages.SampleRange(message.request, lease, *self._leases.samples_of(lease)))
            return
        # The newest clock shows a waiting worker how far the others are.
        newest = int(max((peer.gauges.get("clock", 0.0) for peer in self.workers.values()), default=0.0))
        self._reply(
            sender, messages.SampleRange(message.request, -1 if self._leases.has_open_leases else -2, newest, 0)
        )

    def _samples_done(self, sender: bytes, message: messages.SamplesDone) -> None:
        if self._leases.finish(message.lease):
            self._actions.append(events.Keep())
        self._reply(sender, messages.Stop("noted"))

    def _status(self, sender: bytes, message: messages.GetStatus) -> None:
        status = status_of(self.journal, self.options, self.servers, self.workers, self.members.note)
        self._reply(sender, messages.StatusReply(json.dumps(status)))


_HANDLERS: dict[type[messages.ServerMessage], Callable[[SchedulerState, bytes, Any], None]] = {
    messages.RegisterProcess: SchedulerState._register,
    messages.Ready: SchedulerState._ready,
    messages.Heartbeat: SchedulerState._heartbeat,
    messages.GetView: lambda state, sender, _: state._reply(sender, messages.ViewReply(state.view)),
    messages.SlotSynced: SchedulerState._slot_synced,
    messages.Exited: SchedulerState._exited,
    messages.WorkerLeave: SchedulerState._leave,
    messages.Scale: SchedulerState._scale,
    messages.GetWanted: SchedulerState._get_wanted,
    messages.GetStatus: SchedulerState._status,
    messages.Initialised: SchedulerState._initialised,
    messages.LeaseSamples: SchedulerState._lease_samples,
    messages.SamplesDone: SchedulerState._samples_done,
    messages.Checkpoint: SchedulerState.take_checkpoint,
    messages.CheckpointPart: SchedulerState.take_checkpoint_part,
    messages.UpdatesLost: SchedulerState._updates_lost,
    messages.Broken: SchedulerState._broken,
}
