"""The scheduler process, set up by the environment: one socket, one journal file, `scheduler_state` in between."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zmq

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ps.environment import PsEnvironment
from sporax.ps.protocol.events import End, Keep, Manifest, ManifestWritten, Received, Reply, Tick
from sporax.ps.protocol.messages import CheckpointPart, Options, Stop
from sporax.ps.protocol.wire import Frame, WireError, decode
from sporax.ps.scheduler.journal import Journal, journal_path, read_journal, write_journal
from sporax.ps.scheduler.scheduler_checkpoints import Action
from sporax.ps.scheduler.scheduler_state import SchedulerState
from sporax.ps.slots.log_file import StorageError
from sporax.ps.slots.slot_files import read_manifest, write_manifest
from sporax.ps.sockets.security import Keys, keys_for
from sporax.ps.sockets.transport import Transport, listening_address, receive, send

_TICK_SECONDS = 0.1
_FAREWELL_SECONDS = 0.6
_ERROR_SECONDS = 2.0  # for a supervisor to query why, on a machine that is busy


class ServerScheduler:
    """Runs until all workers have finished or the job has failed.

    Args:
        address: where to listen, ``host:port``.
        options: settings of the job.
        worker_num, server_num: first numbers.
        journal_path: file that survives this process; an existing one is continued. None keeps nothing.
        keys: of the job.

    Raises:
        SporaxRuntimeError: the journal is damaged.
        StorageError: the disk does not take it.
    """

    def __init__(
        self,
        address: str,
        options: Options,
        worker_num: int,
        server_num: int,
        journal_path: Path | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._journal_path = journal_path
        # An existing journal means that this process continues another one.
        journal = Journal(uuid.uuid4().hex[:12], worker_num, server_num)
        if journal_path is not None and journal_path.exists():
            journal = read_journal(journal_path)
        if journal_path is not None:
            # A disk without room is known before any process has done something.
            write_journal(journal_path, journal)
        self._transport = Transport(keys)
        self._router = self._transport.listen(f"tcp://{address}")
        self.state = SchedulerState(options, journal, time.monotonic())
        self.bad_messages = self._num_notices = 0
        self._ended: End | None = None

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Serve.

        Raises:
            SporaxRuntimeError: the job cannot go on.
        """
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        ends_at: float | None = None
        next_tick = 0.0
        try:
            while not stop() and (ends_at is None or time.monotonic() < ends_at):
                poller.poll(int(_TICK_SECONDS * 1000))
                while (parts := receive(self._router)) is not None:
                    # All that has come first, so that a tick sees the newest heartbeats.
                    self._take(bytes(parts[0]), parts[1:])
                now = time.monotonic()
                if now >= next_tick:
                    next_tick = now + _TICK_SECONDS
                    self._do(self.state.handle(Tick(), now))
                    # For who reads this process's log; a launcher requests it and reports it as well.
                    for notice in self.state.notices[self._num_notices :]:
                        print(f"sporax ps scheduler: {notice}.", file=sys.stderr, flush=True)
                    self._num_notices = len(self.state.notices)
                    if self._ended is not None:
                        self._say_goodbye(self._ended.reason)
                # Again and again for a while: workers that are just starting must receive it, too.
                if self._ended is not None and ends_at is None:
                    self._say_goodbye(self._ended.reason)
                    ends_at = now + (_ERROR_SECONDS if self.state.journal.error else _FAREWELL_SECONDS)
        finally:
            self._transport.close()
        # A job that ended well leaves nothing; a failed one may be looked at.
        if self._ended is not None and self._journal_path is not None and not self.state.journal.error:
            self._journal_path.unlink(missing_ok=True)
        if self.state.journal.error:
            raise SporaxRuntimeError(self.state.journal.error)

    def _take(self, sender: bytes, parts: list[Frame]) -> None:
        try:
            # Nothing that the scheduler takes carries arrays.
            message, frames = decode(parts, max_body_bytes=0)
        except WireError:
            self.bad_messages += 1
            return
        self._do(self.state.handle(Received(sender, message, tuple(frames)), time.monotonic()))

    def _do(self, actions: list[Action]) -> None:
        # Written first: no process may learn of a decision that a restart would forget.
        if any(isinstance(action, Keep) for action in actions):
            try:
                if self._journal_path is not None:
                    write_journal(self._journal_path, self.state.journal)
            except StorageError as error:
                # No process learns of a decision that is not on disk, but all learn that there will be no more.
                self.state.journal.error = self.state.journal.error or error.message
                actions = [End(self.state.journal.error)]
        for action in actions:
            match action:
                case Reply(to, message):
                    send(self._router, message, to=to)
                case Manifest(path, number, facts, parts):
                    self._do(self.state.handle(_written(path, number, facts, parts), time.monotonic()))
                case End():
                    # The first reason is the cause of the others.
                    self._ended = self._ended or action

    def _say_goodbye(self, reason: str) -> None:
        peers = [*self.state.servers.values(), *self.state.workers.values()]
        for sender in {*(peer.sender for peer in peers), *self.state.starting} - {b""}:
            send(self._router, Stop(reason, done=not self.state.journal.error), to=sender)


def _written(path: str, number: int, facts: dict[str, Any], parts: list[CheckpointPart]) -> ManifestWritten:
    try:
        return ManifestWritten(write_manifest(path, number, facts, parts))
    except OSError as error:
        return ManifestWritten("", f"the manifest cannot be written: {error}")


def run(place: PsEnvironment, environ: Mapping[str, str]) -> None:
    """Be the scheduler."""
    journal = None
    if place.recovery_path:
        Path(place.recovery_path).mkdir(parents=True, exist_ok=True)
        journal = journal_path(Path(place.recovery_path), place.port)
    if place.options.restore:
        _check_restore(place)
    keys = keys_for(place.host, environ)
    address = listening_address(place.host, place.port, keys)
    ServerScheduler(address, place.options, place.worker_num, place.server_num, journal, keys).run()


def _check_restore(place: PsEnvironment) -> None:
    """Raise unless the checkpoint fits the job.

    Raises:
        SporaxRuntimeError: another number of slots, or another kind of staleness.
    """
    manifest = read_manifest(place.options.restore)
    # A checkpoint is of numbered slots, and clocks exist in synchronous mode only.
    for name, there, here in (
        ("MS_PS_SLOTS", manifest.num_slots, place.options.num_slots),
        ("synchronous mode (MS_PS_STALENESS=0)", manifest.staleness == 0, place.options.staleness == 0),
    ):
        if there != here:
            raise For("sporax.ps").state_error(
                f"{name} must be what the checkpoint '{place.options.restore}' was taken with, {there}, but got {here}"
            )
