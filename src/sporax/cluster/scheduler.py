"""The scheduler over sockets: reads what members say, asks `rendezvous.Cluster`, and tells members what it decided.

Messages are JSON objects, one per line. A member says `register`, `wait` while it waits for others, later `leave`; a launcher
of another node says `watch`, and `leave` with a failure if one of its ranks fails; the scheduler says `welcome`, `refused`,
`awaited` or `ended`.

A process with MS_ROLE=MS_SCHED serves with `serve_cluster`. The supervisor of a launched job instead keeps a
`Scheduler` in its own event loop: `fileno()` becomes readable when `step()` has something to do.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sporax.cluster import ports
from sporax.cluster.environment import RankEnvironment, Role
from sporax.cluster.rendezvous import (
    Announce,
    Await,
    Cluster,
    Event,
    Instruction,
    Left,
    Member,
    Phase,
    Refuse,
    Registered,
    TimeIsUp,
    Waiting,
    Watching,
    Welcome,
)
from sporax.ir.errors import SporaxRuntimeError

_MAX_MESSAGE_BYTES = 65536
_VANISHED = "ended without saying goodbye (killed, or its machine is gone)"


@dataclass
class _Connection:
    """One socket and the part of a message it has sent so far."""

    number: int
    stream: socket.socket
    received: bytearray = field(default_factory=bytearray)


class Scheduler:
    """Serves one cluster on a listening socket.

    Args:
        cluster: the state to keep; read it between steps.
        listener: where members connect; closed by `close`.
        starts_at_first: count the time to gather from the first member on, not from now: for jobs whose ranks need
            not join at all.
        log: takes one line for each thing worth noting.
    """

    def __init__(
        self, cluster: Cluster, listener: socket.socket, *, starts_at_first: bool, log: Callable[[str], None]
    ) -> None:
        self.cluster = cluster
        self._log = log
        self._listener = listener
        self._connections: dict[int, _Connection] = {}
        self._next_number = 0
        self._deadline = None if starts_at_first else time.monotonic() + cluster.timeout_seconds
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def fileno(self) -> int:
        """A descriptor that is readable when `step` would not have to wait. Selectors can watch each other's."""
        return self._selector.fileno()  # type: ignore[attr-defined, no-any-return]

    def step(self, wait_seconds: float = 0.0) -> None:
        """Deal with everything that has arrived, waiting at most `wait_seconds` for something to arrive."""
        for key, _ in self._selector.select(wait_seconds):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._read(key.data)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self._feed(TimeIsUp())

    def fail(self, reason: str) -> None:
        """End the cluster and tell everyone why."""
        self._carry_out(self.cluster.fail(reason))

    def close(self) -> None:
        """Tell the watchers that all went well, unless something failed, and close every connection."""
        self._carry_out(self.cluster.close())
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        """Take a new connection."""
        try:
            stream, _ = self._listener.accept()
        except OSError:
            return  # it was gone again before we came to it
        connection = _Connection(self._next_number, stream)
        self._next_number += 1
        self._connections[connection.number] = connection
        self._selector.register(stream, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        """Take in bytes; act on every whole line."""
        try:
            data = connection.stream.recv(_MAX_MESSAGE_BYTES)
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            self._feed(Left(connection.number, _VANISHED))
            return
        connection.received += data
        while connection.number in self._connections and (end := connection.received.find(b"\n")) >= 0:
            line = bytes(connection.received[:end])
            del connection.received[: end + 1]
            self._act_on(connection, line)
        if len(connection.received) > _MAX_MESSAGE_BYTES:
            self._carry_out([Refuse(connection.number, "a message is too long")])

    def _act_on(self, connection: _Connection, line: bytes) -> None:
        """Turn one message into an event."""
        try:
            event = _event(connection.number, json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            self._carry_out([Refuse(connection.number, f"a message makes no sense ({error!r})")])
            return
        if isinstance(event, Left):
            self._drop(connection)
        self._feed(event)

    def _feed(self, event: Event) -> None:
        """Let the cluster decide, and do what it says."""
        if isinstance(event, Registered):
            self._log(f"{event.member} on {event.member.host} registers")
            if self._deadline is None and self.cluster.phase is Phase.GATHERING:
                self._deadline = time.monotonic() + self.cluster.timeout_seconds
        before = self.cluster.phase
        self._carry_out(self.cluster.handle(event))
        if self.cluster.phase is not before:
            self._log(f"cluster is {self.cluster.phase.value} {self.cluster.failure}".rstrip())

    def _carry_out(self, instructions: list[Instruction]) -> None:
        """Send what the cluster wants said."""
        for instruction in instructions:
            connection = self._connections.get(instruction.connection)
            if connection is None:
                continue
            with suppress(OSError):  # when it is gone, reading from it will tell
                connection.stream.sendall(json.dumps(_message(instruction)).encode() + b"\n")
            if isinstance(instruction, Refuse):
                self._log(f"refuses a process: {instruction.reason}")
                self._drop(connection)
                self._feed(Left(instruction.connection, f"was refused: {instruction.reason}"))

    def _drop(self, connection: _Connection) -> None:
        """Close a connection."""
        self._selector.unregister(connection.stream)
        connection.stream.close()
        del self._connections[connection.number]


def serve_cluster(environment: RankEnvironment, log: Callable[[str], None] = print) -> None:
    """Be the scheduler: return when every member has left.

    Raises:
        SporaxRuntimeError: the port is in use, members did not come in time, or one was lost.
    """
    assert environment.role is Role.SCHEDULER
    assert environment.scheduler_address is not None
    cluster = Cluster(environment.size, environment.server_num, environment.timeout_seconds)
    scheduler = Scheduler(cluster, ports.listen(*environment.scheduler_address), starts_at_first=False, log=log)
    try:
        while not cluster.has_ended:
            scheduler.step(wait_seconds=0.5)
    finally:
        scheduler.close()
    if cluster.phase is Phase.FAILED:
        raise SporaxRuntimeError(f"For 'MS_SCHED', all members must join and leave, but {cluster.failure}.")


def _event(connection: int, message: dict[str, Any]) -> Event:
    """Read a message."""
    match message["say"]:
        case "register":
            member = Member(
                role=Role(message["role"]),
                node_id=str(message["node_id"]),
                rank=None if message["rank"] is None else int(message["rank"]),
                size=int(message["size"]),
                host=str(message["host"]),
                port=int(message["port"]),
            )
            return Registered(connection, member)
        case "watch":
            return Watching(connection, str(message["node"]))
        case "wait":
            return Waiting(connection, bool(message["waits"]))
        case "leave":
            return Left(connection, None if message["failure"] is None else str(message["failure"]))
        case other:
            raise ValueError(f"unknown word {other!r}")


def _message(instruction: Instruction) -> dict[str, Any]:
    """Write a message."""
    match instruction:
        case Welcome(_, rank, local_rank, local_size, coordinator):
            return {
                "say": "welcome",
                "rank": rank,
                "local_rank": local_rank,
                "local_size": local_size,
                "coordinator": coordinator,
            }
        case Refuse(_, reason):
            return {"say": "refused", "reason": reason}
        case Await(_, ranks):
            return {"say": "awaited", "ranks": list(ranks)}
        case Announce(_, phase, reason):
            return {"say": "ended", "well": phase is Phase.DONE, "reason": reason}
