"""The server process: sockets and files around `server_state`. The same object runs locally, in a Ray actor and in a pod."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster.environment import join_address
from sporax.ps.metrics import metrics_page
from sporax.ps.protocol import events, messages
from sporax.ps.protocol.wire import Frame, WireError, decode, total_bytes
from sporax.ps.server.follower_state import server_identity
from sporax.ps.server.server_state import ServerState
from sporax.ps.slots.log_file import StorageError
from sporax.ps.slots.record_log import Replay, SlotLog, damage_text, missing_text, remove_old_jobs
from sporax.ps.slots.slot import bytes_of
from sporax.ps.slots.slot_files import read_slot, write_slot
from sporax.ps.sockets.security import Keys, is_loopback
from sporax.ps.sockets.stream import Streams
from sporax.ps.sockets.transport import REFUSED, LocalSocket, Peers, Transport, listening_address, receive, send

# Seconds between two registrations, until the scheduler answers.
_REGISTER_SECONDS = 0.3
_TICK_SECONDS = 0.1
_FROM_SCHEDULER = frozenset({messages.HeartbeatReply, messages.ViewReply, messages.Stop, messages.TakeCheckpoint})
_PAUSE_SECONDS = 1e-3  # a worker that computes leaves more; one that sends push after push needs the core itself
_BATCH = 64  # messages taken before heartbeats and group commits get a turn
_LOOK_BYTES = 4 << 20  # of the log between two looks at what is left of the disk
_LAST_SECONDS = 0.2  # for answers that are still in a queue when the job ends


class Server:
    """One server.

    Args:
        scheduler: ``host:port``.
        directory: where logs of jobs are kept.
        host: how others reach this machine.
        node: name of this process over restarts.
        index: requested server number, -1 for any.
        keys: of the job.
        silent_seconds: without a scheduler for so long, give up.
        metrics_port: serve Prometheus metrics there; 0 for nowhere.
        damaged_directory: where damaged logs are kept, None for where they are.
        serving_file: touched at each heartbeat while the scheduler knows this server and its lease holds.
    """

    def __init__(
        self,
        scheduler: str,
        directory: Path,
        *,
        host: str = "127.0.0.1",
        node: str = "",
        index: int = -1,
        keys: Keys | None = None,
        silent_seconds: float = 600.0,
        metrics_port: int = 0,
        damaged_directory: Path | None = None,
        serving_file: Path | None = None,
    ) -> None:
        self._serving_file = serving_file
        self._damaged_directory = damaged_directory
        self._transport = Transport(keys)
        self._node = node or uuid.uuid4().hex
        self._host = host
        self._directory = directory
        self._index = index
        self._silent_seconds = silent_seconds
        self._local = LocalSocket()
        self._streams = Streams(self._local.path, host="" if keys is not None or is_loopback(host) else host)
        self._router = self._transport.listen(f"tcp://{listening_address(host, '*', keys)}")
        self._port = int(self._router.last_endpoint.decode().rsplit(":", 1)[1])
        self._scheduler = self._transport.connect(f"tcp://{scheduler}", b"server-" + uuid.uuid4().bytes)
        self._peers: Peers | None = None
        self._log: SlotLog | None = None
        self._number: tuple[int, int] | None = None
        self._to_store: list[events.Stored] = []
        self._to_write: list[int] = []
        self._writing = False
        self._next_look = _LOOK_BYTES
        self._checkpoints: deque[events.CheckpointSlot] = deque()
        self._halted = ""
        self._may_have_more = True
        self._prepares = False
        self._is_done = False
        self._last_received = time.monotonic()
        self._bytes_in = self._bytes_out = 0
        self._metrics = metrics_page(metrics_port, self._gauges) if metrics_port else None
        self.state: ServerState | None = None
        self.bad_messages = 0
        self.ends_for_another = False

    def run(self, stop: Callable[[], bool] = lambda: False) -> str:
        """Serve until the scheduler ends it; gives the reason.

        Raises:
            SporaxRuntimeError: no scheduler answers.
            StorageError: the disk does not take the log.
        """
        try:
            self._join(stop)
            if self.state is not None:
                self._serve(stop)
        except StorageError as error:
            # Another start could not write either, so the job ends at once, and not after several.
            if self._number is not None:
                send(self._scheduler, messages.Broken(*self._number, error.message))
            raise
        finally:
            # Also after an error: the directory's lock must go.
            if self._log is not None:
                self._log.close()
                # The job has ended well, so no process will read the log again.
                if self._is_done:
                    self._log.delete()
            if self._metrics is not None:
                self._metrics.close()
            self._streams.close(_LAST_SECONDS)
            self._transport.close()
            self._local.remove()
        return self._halted

    def _join(self, stop: Callable[[], bool]) -> None:
        """Get a number, read back what the log has, and notify the scheduler."""
        hostname = socket.gethostname()
        register = messages.RegisterProcess(
            "server",
            self._node,
            self._index,
            hostname,
            join_address(self._host, self._port),
            self._local.path,
            self._streams.address,
        )
        welcome: messages.ProcessAccepted | None = None
        handshakes = self._transport.watch(self._scheduler)
        while welcome is None:
            if stop() or self._is_silent():
                return
            # Another key would otherwise look like a scheduler that is not there.
            if handshakes.is_refused():
                raise SporaxRuntimeError(f"For 'sporax.ps', the scheduler must accept this server, but {REFUSED}.")
            send(self._scheduler, register)
            self._scheduler.poll(_REGISTER_SECONDS * 1000)
            while (parts := receive(self._scheduler)) is not None:
                message, _ = decode(parts)
                if isinstance(message, messages.Stop):
                    self._halted = message.reason
                    return
                if isinstance(message, messages.ProcessAccepted):
                    welcome = message
        self._last_received = time.monotonic()
        self._number = (welcome.index, welcome.incarnation)
        options = welcome.options
        replay, damage = Replay(options.staleness), ""
        if options.durability != "memory":
            remove_old_jobs(self._directory, welcome.job)
            directory = self._directory / welcome.job / f"server-{welcome.index}"
            self._log = SlotLog(directory, sync=options.durability == "disk", ahead_bytes=options.snapshot_bytes)
            self._next_look = min(options.snapshot_bytes, _LOOK_BYTES)
            # Before the scheduler knows this server: it must say which slots it has.
            replay = self._log.recover(options.staleness)
            damage = self._set_aside(self._log, replay)
        self.state = ServerState(welcome.index, welcome.incarnation, options, replay.states)
        identity = server_identity(welcome.index, welcome.incarnation)
        self._peers = Peers(self._transport, self._streams, identity)
        inventory = {slot: state.lsn for slot, state in replay.states.items()}
        missing = {slot: what.last for slot, what in replay.missing.items()}
        self._ready = messages.Ready(welcome.index, welcome.incarnation, inventory, missing, damage)
        send(self._scheduler, self._ready)

    def _set_aside(self, log: SlotLog, replay: Replay) -> str:
        """Keep damaged files; gives what to say of them, "" without any."""
        if not replay.damages:
            return ""
        saved = log.set_aside(replay, self._damaged_directory or log.directory)
        missing = missing_text(replay.missing) or "nothing that is needed"
        damage = (
            f"its log is damaged ({damage_text(replay.damages)}; kept as {', '.join(map(str, saved))}), and {missing} cannot be "
            "read back"
        )
        print(f"sporax ps server {self._node}: {damage}.", file=sys.stderr, flush=True)
        return damage

    def _is_silent(self) -> bool:
        """Whether the scheduler has been silent for too long.

        Raises:
            SporaxRuntimeError: it has.
        """
        if time.monotonic() - self._last_received > self._silent_seconds:
            raise SporaxRuntimeError(
                f"For 'sporax.ps', the scheduler must answer, but it was silent for {self._silent_seconds:.0f} s."
            )
        return False

    def _serve(self, stop: Callable[[], bool]) -> None:
        # Both ZeroMQ sockets show by a descriptor that something has come.
        for source in (self._router, self._scheduler):
            self._streams.watch(source.fd)
        next_tick = next_beat = last_came = 0.0
        while not self._halted and not stop():
            came = self._take_from_streams()
            if self._streams.others_ready or self._may_have_more:
                self._may_have_more = False
                self._take_from_scheduler()
                self._take_from_router()
            # One flush for all records that came in this turn.
            if self._to_store and self._log is not None:
                self._log.flush()
                stored, self._to_store = self._to_store, []
                for event in stored:
                    self._handle(event)
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + _TICK_SECONDS
                self._handle(events.Tick())
                self._is_silent()
            if now >= next_beat:
                next_beat = now + self._beat(now)
            if came:
                last_came = now
            if self._log is not None or self._checkpoints:
                self._write(has_pause=now - last_came >= _PAUSE_SECONDS)

    def _take_from_streams(self) -> bool:
        """Take what processes of this machine have sent; gives whether anything came."""
        # With work to do it only looks, and does not wait.
        if self._may_have_more or self._to_write or self._checkpoints or self._prepares:
            seconds = 0.0
        elif self._log is not None and self._log.wants_pages:
            seconds = _PAUSE_SECONDS
        else:
            seconds = _TICK_SECONDS
        came = False
        for stream, message, frames in self._streams.receive(seconds):
            self._take(stream.identity, message, frames)
            came = True
        return came

    def _beat(self, now: float) -> float:
        """Notify the scheduler that this server is alive; gives the seconds until this is to be done again."""
        assert self.state is not None
        # Until the first answer the scheduler may not know that this server is ready.
        if not self.state.is_known:
            self._notify_scheduler(self._ready)
        self._notify_scheduler(self.state.heartbeat(now, self._gauges()))
        if self._serving_file is not None and self.state.is_known and now < self.state.lease_until:
            self._serving_file.touch()
        return self.state.options.heartbeat_seconds

    def _write(self, has_pause: bool) -> None:
        """Write a part of what is to be written between messages, and pages of the log in a pause of the workers."""
        if self._log is not None:
            if self._writing or self._log.num_bytes > self._next_look:
                self._write_snapshots()
            self._prepares = has_pause and (self._prepares or self._log.wants_pages) and self._log.prepare()
        if not self._checkpoints:
            return
        assert self.state is not None
        # One slot of a global checkpoint.
        task = self._checkpoints.popleft()
        try:
            part = write_slot(task.path, task.number, task.image, task.frames)
        except OSError as error:
            reason = f"slot {task.image.slot} cannot be written below '{task.path}': {error.strerror}"
            part = messages.CheckpointPart(task.number, task.image.slot, task.image.clock, error=reason)
        self.state.written(part)
        self._notify_scheduler(part)

    def _take_from_scheduler(self) -> None:
        """Take what the scheduler says, and notify it when that was a new view."""
        assert self.state is not None
        while not self._halted and (parts := receive(self._scheduler)) is not None:
            self._last_received = time.monotonic()
            epoch = self.state.view.epoch if self.state.view else 0
            try:
                self._handle(events.Received(b"scheduler", decode(parts)[0]))
            except WireError:
                self.bad_messages += 1
            # At once, since a leader's lease and a hold depend on it.
            if self.state.view is not None and self.state.view.epoch != epoch:
                self._notify_scheduler(self.state.heartbeat(time.monotonic(), self._gauges()))

    def _take_from_router(self) -> None:
        """Take what has come from other machines, up to a limit."""
        for _ in range(_BATCH):
            received = receive(self._router)
            if received is None:
                return
            try:
                message, frames = decode(received[1:])
            except WireError:
                self.bad_messages += 1
            else:
                self._take(bytes(received[0]), message, tuple(frames))
        # More may wait: ZeroMQ signals new messages only once.
        self._may_have_more = True

    def _take(self, sender: bytes, message: messages.ServerMessage, frames: tuple[Frame, ...]) -> None:
        """Handle one message of a worker or another server; what does not fit is counted and dropped."""
        assert self.state is not None
        if frames:
            self._bytes_in += total_bytes(frames)
        # Only the scheduler's own connection may speak for it.
        if not sender or type(message) in _FROM_SCHEDULER:
            self.bad_messages += 1
            return
        try:
            self._carry_out(self.state.received(sender, message, frames, time.monotonic()))
        except WireError:
            self.bad_messages += 1

    def _notify_scheduler(self, message: messages.ServerMessage) -> None:
        # Sending may consume the signal that something has come, so the sockets are looked at again before the next wait.
        send(self._scheduler, message)
        self._may_have_more = True

    def _handle(self, event: events.Event) -> None:
        assert self.state is not None
        self._carry_out(self.state.handle(event, time.monotonic()))

    def _carry_out(self, queue: list[events.Action]) -> None:
        """Carry out actions; each gives the event that follows at once, if one does."""
        assert self.state is not None
        # It grows meanwhile, since an action's event may make further actions.
        for action in queue:
            # An update is made where its slot is: it is the state's own next event.
            if type(action) is events.Apply:
                queue += self.state.apply(action.slot, time.monotonic())
            elif (follows := ACTIONS[type(action)](self, action)) is not None:
                queue += self.state.handle(follows, time.monotonic())

    def _reply(self, action: events.Reply) -> None:
        if action.frames:
            self._bytes_out += total_bytes(action.frames)
        # A connection through the file system, else over the network.
        if not self._streams.reply(action.to, action.message, action.frames):
            send(self._router, action.message, action.frames, action.to)
            self._may_have_more = True

    def _to_server(self, action: events.ToServer) -> None:
        assert self._peers is not None
        self._peers.send(action.server, action.message, action.frames)

    def _store_slot(self, action: events.StoreSlot) -> None:
        assert self._log is not None
        assert self.state is not None
        self._log.write_slot(self.state.states[action.slot])

    def _load_slot(self, action: events.LoadSlot) -> events.Loaded:
        try:
            return events.Loaded(action.slot, *read_slot(action.folder, action.slot))
        except SporaxRuntimeError as error:
            return events.Loaded(action.slot, None, [], error.message)

    def _drop_slot(self, action: events.DropSlot) -> None:
        if self._log is not None:
            self._log.drop_slot(action.slot)

    def _halt(self, action: events.Halt) -> None:
        # The first reason counts; later ones are mostly consequences.
        if not self._halted:
            self._halted, self.ends_for_another, self._is_done = action.reason, action.again, action.done

    def _store(self, action: events.StoreRecord) -> None:
        assert self._log is not None
        assert self.state is not None
        record = action.record
        if record.variables:
            self._log.reserve(sum(map(bytes_of, record.variables)))
        self._log.append(record, action.frames)
        if self.state.flushes:
            self._to_store.append(events.Stored(record.slot, record.lsn))  # many records share one flush

    def _write_snapshots(self) -> None:
        """Shorten the log, one slot at a time between messages."""
        log, state = self._log, self.state
        assert log is not None
        assert state is not None
        if self._writing:
            if self._to_write:
                # A slot may have moved away meanwhile.
                slot = self._to_write.pop()
                if slot in state.states:
                    log.write_slot(state.states[slot])
            else:
                # Every slot has been written again, so recovery needs the old records no more.
                log.delete_old()
                self._writing = False
        elif self._is_log_too_long(log, state):
            log.begin_file()
            self._to_write, self._writing = list(state.states), True

    def _is_log_too_long(self, log: SlotLog, state: ServerState) -> bool:
        """Whether to write all slots again: looks at what the disk has left, so it is called now and then."""
        longest_bytes = state.options.snapshot_bytes
        is_too_long = log.is_too_long(longest_bytes, sum(slot.num_bytes for slot in state.states.values()))
        self._next_look = min(longest_bytes, _LOOK_BYTES + (0 if is_too_long else log.num_bytes))
        return is_too_long

    def _gauges(self) -> dict[str, float]:
        """Numbers for the status table and for Prometheus."""
        state = self.state
        values = {
            "bytes": float(sum(slot.num_bytes for slot in state.states.values())) if state else 0.0,
            "log_bytes": float(self._log.num_bytes) if self._log is not None else 0.0,
            "bytes_in": float(self._bytes_in),
            "bytes_out": float(self._bytes_out),
            "bad_messages": float(self.bad_messages + self._streams.bad_messages),
            "pid": float(os.getpid()),
            "cpu_seconds": time.process_time(),
            "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
        }
        return {**values, **{name: float(count) for name, count in state.counts.items()}} if state else values


ACTIONS: dict[type[events.Action], Callable[[Server, Any], events.Loaded | None]] = {
    events.Reply: Server._reply,
    events.ToServer: Server._to_server,
    events.ToScheduler: lambda server, action: server._notify_scheduler(action.message),
    events.StoreRecord: Server._store,
    events.StoreSlot: Server._store_slot,
    events.CheckpointSlot: lambda server, action: server._checkpoints.append(action),
    events.LoadSlot: Server._load_slot,
    events.DropSlot: Server._drop_slot,
    events.Halt: Server._halt,
}
