"""The scheduler over sockets: reads what members say, passes it to `rendezvous.Cluster`, and sends members what it decided.

Messages are typed records, one per line (`sporax.cluster.messages`). A member says `register`, `wait` while it waits for others,
later `leave`; a launcher of another node says `watch`, and `leave` with a failure if one of its ranks fails; the scheduler says
`welcome`, `refused`, `awaited` or `ended`. Before all that a peer proves that it knows the job's token. One that cannot, or that
sends what is no message, is refused and changes nothing; the log names it once.

A process with MS_ROLE=MS_SCHED serves with `serve_cluster`. The supervisor of a launched job instead keeps a
`Scheduler` in its own event loop: `fileno()` becomes readable when `step()` has something to do.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from msgspec import Struct, field

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster import messages, ports, token
from sporax.cluster.environment import ProcessRole, RankEnvironment
from sporax.cluster.rendezvous import Addressed, Cluster, ClusterPhase

_READ_BYTES = 65536
_HELLO_SECONDS = 10.0
"""How long a peer may take to prove that it belongs to the job."""
_SEND_SECONDS = 2.0
"""How long a peer may take to accept a message; messages are small, so this is one that does not read."""
_MAX_STRANGERS = 256
"""Peers that have not proved anything yet. When another comes, the oldest goes: members answer at once, and must get in."""
UNPROTECTED = (
    "the job has no token: every process that reaches {0}:{1} can take part in it or end it "
    "(`sporax run --token-file FILE`, or SPORAX_TOKEN on every process)"
)
_VANISHED = "ended without saying goodbye (killed, or its machine is gone)"


class _Connection(Struct):
    """One socket and the part of a message it has sent so far.

    Attributes:
        number: by which the cluster knows it.
        stream: the socket.
        peer: its address.
        nonce: what it was challenged with.
        deadline: until when it must have proved that it belongs to the job; None once it has.
        received: bytes of a message that is not complete.
    """

    number: int
    stream: socket.socket
    peer: str
    nonce: str
    deadline: float | None
    received: bytearray = field(default_factory=bytearray)


class Scheduler:
    """Serves one cluster on a listening socket.

    Args:
        cluster: the state to keep; read it between steps.
        listener: where members connect; closed by `close`.
        secret: the job's token; "" where peers need not prove anything.
        starts_at_first: count the time to gather from the first member on, not from now: for jobs whose ranks need
            not join at all.
        log: takes one line for each thing worth noting.
        restart: how often the job was started again.
    """

    def __init__(
        self,
        cluster: Cluster,
        listener: socket.socket,
        *,
        secret: str = "",
        starts_at_first: bool,
        log: Callable[[str], None],
        restart: int = 0,
    ) -> None:
        self.cluster = cluster
        self._restart = restart
        self._secret = secret
        self._refused: set[tuple[str, str]] = set()
        self._log = log
        self._listener = listener
        self._connections: dict[int, _Connection] = {}
        self._next_number = 0
        # For a supervisor the time begins with the first rank: scripts may need long before they call `init`.
        self._deadline = None if starts_at_first else time.monotonic() + cluster.timeout_seconds
        self._selector = selectors.DefaultSelector()
        # A connection may be gone between the selector's word and `accept`.
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def fileno(self) -> int:
        """A descriptor that is readable when `step` would not have to wait. Selectors can watch each other's."""
        return self._selector.fileno()

    def step(self, wait_seconds: float = 0.0) -> None:
        """Deal with everything that has arrived, waiting at most `wait_seconds` for something to arrive."""
        for key, _ in self._selector.select(wait_seconds):
            if key.fileobj is self._listener:
                self._accept()
            elif key.data.number in self._connections:  # what was read before it may have closed it
                self._read(key.data)
        self._drop_silent_strangers()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self._feed(self.cluster.time_up)

    def fail(self, reason: str, ending: messages.Leave | None = None) -> None:
        """End the cluster, for what the launcher here has said, and notify everyone why."""
        self._say(self.cluster.fail(reason, ending))

    def close(self) -> None:
        """Notify the watchers that all went well, unless something failed, and close every connection."""
        self._say(self.cluster.close())
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        """Take a new connection."""
        try:
            stream, address = self._listener.accept()
        except OSError:
            return  # it was gone again before we came to it
        strangers = [peer for peer in self._connections.values() if peer.deadline is not None]
        # The oldest one has had the most time; members answer at once.
        if len(strangers) >= _MAX_STRANGERS:
            self._refuse_stranger(strangers[0], "too many have said nothing, and it has waited the longest")
        stream.settimeout(_SEND_SECONDS)
        ports.notice_silence(stream)
        deadline = time.monotonic() + _HELLO_SECONDS
        # A new nonce for each connection makes overheard answers useless.
        connection = _Connection(self._next_number, stream, str(address[0]), token.new_nonce(), deadline)
        self._next_number += 1
        self._connections[connection.number] = connection
        self._selector.register(stream, selectors.EVENT_READ, connection)
        _send(stream, messages.Challenge(connection.nonce, self._restart))

    def _drop_silent_strangers(self) -> None:
        """Close connections whose peers have not proved in time that they belong to the job."""
        now = time.monotonic()
        for connection in list(self._connections.values()):
            if connection.deadline is not None and now >= connection.deadline:
                self._refuse_stranger(connection, "it has said nothing")

    def _read(self, connection: _Connection) -> None:
        """Take in bytes; act on every whole line."""
        how = _VANISHED
        try:
            data = connection.stream.recv(_READ_BYTES)
        except OSError as error:
            data = b""
            if error.errno in ports.UNREACHABLE:
                how = ports.UNANSWERED
        # The end of a connection without a word of leave is a loss.
        if not data:
            self._drop(connection)
            self._feed(partial(self.cluster.lost, connection.number, how))
            return
        connection.received += data
        # A message may have been the last one of this connection.
        while connection.number in self._connections and (end := connection.received.find(b"\n")) >= 0:
            line = bytes(connection.received[:end])
            del connection.received[: end + 1]
            self._act_on(connection, line)
        # Checked on what is left: a partial line that is longer than any message.
        limit = messages.MAX_BYTES if connection.deadline is None else messages.MAX_BYTES_OF_STRANGERS
        if connection.number in self._connections and len(connection.received) > limit:
            self._misunderstood(connection, "it is too long")

    def _act_on(self, connection: _Connection, line: bytes) -> None:
        """Turn one message into an event."""
        try:
            message = messages.decode(messages.TO_SCHEDULER, line)
        except messages.MessageError as error:
            self._misunderstood(connection, str(error))
            return
        # The first message must be the proof, and no later one may be.
        if isinstance(message, messages.Hello) or connection.deadline is not None:
            self._let_in(connection, message)
            return
        if isinstance(message, messages.Leave):
            self._drop(connection)
        if isinstance(message, messages.Register):
            self._log(f"{message} on {message.host} registers")
            if self._deadline is None and self.cluster.phase is ClusterPhase.GATHERING:
                self._deadline = time.monotonic() + self.cluster.timeout_seconds
        self._feed(partial(self.cluster.handle, connection.number, message))

    def _let_in(self, connection: _Connection, message: messages.ToScheduler) -> None:
        """Check the first message of a peer."""
        if connection.deadline is None or not isinstance(message, messages.Hello):
            self._misunderstood(connection, "it comes out of turn")
        elif not token.is_proof(self._secret, connection.nonce, message.proof if self._secret else ""):
            what = "it has no token" if not message.proof else "its token is another one"
            self._refuse_stranger(
                connection, f"{what}; all processes of a job must have the same {token.TOKEN_VARIABLE}"
            )
        else:
            connection.deadline = None

    def _misunderstood(self, connection: _Connection, problem: str) -> None:
        """A peer has sent what is no message."""
        if connection.deadline is not None:
            self._refuse_stranger(connection, f"a message makes no sense ({problem})")
        else:
            # A member that sends nonsense is refused like one that does not fit.
            self._say([(connection.number, messages.Refused(f"a message makes no sense ({problem})"))])

    def _refuse_stranger(self, connection: _Connection, reason: str) -> None:
        """Send away a peer that does not belong to the job. The cluster is not notified; the log has it once."""
        _send(connection.stream, messages.Refused(reason))
        self._drop(connection)
        # The limit also bounds the log: strangers cannot fill it.
        if len(self._refused) < _MAX_STRANGERS and (connection.peer, reason) not in self._refused:
            self._refused.add((connection.peer, reason))
            self._log(f"refuses a peer at {connection.peer}: {reason}")

    def _feed(self, decide: Callable[[], list[Addressed]]) -> None:
        """Let the cluster decide, and say what it wants said."""
        before = self.cluster.phase
        self._say(decide())
        if self.cluster.phase is not before:
            self._log(f"cluster is {self.cluster.phase.value} {self.cluster.failure}".rstrip())

    def _say(self, addressed: list[Addressed]) -> None:
        """Send what the cluster wants said."""
        for number, message in addressed:
            connection = self._connections.get(number)
            if connection is None:
                # It may have gone while the cluster decided.
                continue
            _send(connection.stream, message)
            if isinstance(message, messages.Refused):
                self._log(f"refuses a process: {message.reason}")
                self._drop(connection)
                # The cluster must forget a member that it has refused.
                self._feed(partial(self.cluster.handle, number, messages.Leave(f"was refused: {message.reason}")))

    def _drop(self, connection: _Connection) -> None:
        """Close a connection."""
        self._selector.unregister(connection.stream)
        connection.stream.close()
        del self._connections[connection.number]


def serve_cluster(environment: RankEnvironment, log: Callable[[str], None] = print, *, recovers: bool = False) -> None:
    """Be the scheduler: return when every member has left.

    Args:
        environment: the scheduler's own.
        log: takes what happens.
        recovers: when a member is lost, wait until all come again; they begin their programs again. Nothing of the lost
            cluster is needed, so a scheduler that is itself lost may just be started again at the same address.

    Raises:
        SporaxRuntimeError: the port is in use, members did not come in time, or one was lost.
    """
    while (failure := _serve_once(environment, log, recovers=recovers)) is not None:
        log(f"waits for all members to come again: {failure}")


def _serve_once(environment: RankEnvironment, log: Callable[[str], None], *, recovers: bool) -> str | None:
    """Serve one cluster; why it failed where it may be formed again, None when it ended well."""
    assert environment.role is ProcessRole.SCHEDULER
    assert environment.scheduler_address is not None
    cluster = Cluster(environment.size, environment.server_num, environment.timeout_seconds)
    secret = token.token_from_environ(os.environ)
    listener = ports.listen(*environment.scheduler_address)
    scheduler = Scheduler(cluster, listener, secret=secret, starts_at_first=False, log=log)
    if not secret:
        log(UNPROTECTED.format(*environment.scheduler_address))
    formed = False
    try:
        while not cluster.has_ended:
            # Noted before each step, since a failure overwrites the phase.
            formed = formed or cluster.phase is ClusterPhase.RUNNING
            scheduler.step(wait_seconds=0.5)
    finally:
        scheduler.close()
    if cluster.phase is not ClusterPhase.FAILED:
        return None
    # Only a job that has once run may come again; one that never gathered is misconfigured.
    if recovers and formed:
        return cluster.failure
    raise SporaxRuntimeError(f"For 'MS_SCHED', all members must join and leave, but {cluster.failure}.")


def _send(stream: socket.socket, message: messages.FromScheduler) -> None:
    """Send a message; when the peer is gone, reading from it will show it."""
    with suppress(OSError):
        stream.sendall(messages.encode(message))
