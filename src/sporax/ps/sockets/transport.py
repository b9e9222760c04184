"""Sockets between machines: ROUTER for what listens, DEALER for what connects, both set up in one place. Between processes of one
machine, and where nothing is to be encrypted, there is `stream`.

Everything that is sent may be sent again, so a full or vanished peer loses messages rather than blocking the loop.

Connections to servers, from workers and from other servers: through the file system on one machine or over the network: by TCP
alone where no keys are needed, by ZeroMQ where they are.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxImportError
from sporax.cluster import ports, private
from sporax.cluster.environment import join_address
from sporax.ps.protocol.messages import ServerAddress, ServerMessage
from sporax.ps.protocol.wire import Frame, WireError, decode, encode
from sporax.ps.sockets.security import Keys, authenticated, is_loopback
from sporax.ps.sockets.stream import Stream, Streams

try:
    import zmq
    from zmq.utils.monitor import recv_monitor_message
except ImportError as error:  # pragma: no cover (the tests' environment has it)
    raise SporaxImportError(
        "For 'sporax.ps', the package 'pyzmq' must be there. Install it with `pip install 'sporax[ps]'`."
    ) from error

_NOT_ACCEPTED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
REFUSED = (
    "it refuses the connection: it has been started with other keys, or one of the two has none. All processes of a job need "
    "the same MS_PS_KEYS or the same token (SPORAX_TOKEN_FILE)"
)
_CLOSED_HANDSHAKES = 5
_LINGER_MS = 200
_LONGEST_PATH = 100
_BUFFER_BYTES = 4 << 20


class Transport:
    """The sockets of one process.

    Args:
        keys: of the job, None for plain connections.
    """

    def __init__(self, keys: Keys | None) -> None:
        self.context = zmq.Context()
        self._keys = keys
        self._authenticator: Any = None
        self._sockets: list[Any] = []
        self._watched: list[Any] = []

    @property
    def is_plain(self) -> bool:
        """Whether nothing is encrypted."""
        return self._keys is None

    def listen(self, address: str) -> Any:
        """A ROUTER bound to an address such as ``tcp://*:8118``."""
        router = self._socket(zmq.ROUTER, address)
        # A peer that starts again under its old name takes over its place.
        router.router_handover = True
        # An unknown peer is an error here, which `send` reports as False.
        router.router_mandatory = True
        if self._keys is not None:
            if self._authenticator is None:
                self._authenticator = authenticated(self.context, self._keys)
            self._keys.listen(router)
        router.bind(address)
        return router

    def connect(self, address: str, identity: bytes) -> Any:
        """A DEALER to one listener."""
        dealer = self._socket(zmq.DEALER, address)
        dealer.identity = identity
        # Milliseconds; up to half a second for a peer that stays away.
        dealer.reconnect_ivl = 20
        dealer.reconnect_ivl_max = 500
        if self._keys is not None:
            self._keys.connect(dealer)
        dealer.connect(address)
        return dealer

    def watch(self, dealer: Any) -> HandshakeWatch:
        """Watch whether the listener accepts a dealer."""
        monitor = dealer.get_monitor_socket(_NOT_ACCEPTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        self._sockets.append(monitor)
        self._watched.append(dealer)
        return HandshakeWatch(monitor)

    def close(self) -> None:
        """Close all sockets; what was sent last gets a moment to leave."""
        for dealer in self._watched:
            dealer.disable_monitor()
        # The context cannot end while a socket still has unsent messages.
        for item in self._sockets:
            item.close(_LINGER_MS)
        if self._authenticator is not None:
            self._authenticator.stop()
        self.context.term()

    def drop(self, dealer: Any) -> None:
        """Close one socket."""
        self._sockets.remove(dealer)
        dealer.close(0)

    def _socket(self, kind: int, address: str) -> Any:
        new_socket = self.context.socket(kind)
        # ZeroMQ looks for one family alone, and without the option that is IPv4.
        host = address.removeprefix("tcp://").rpartition(":")[0]
        new_socket.ipv6 = host != "*" and ports.preferred_family(host) == socket.AF_INET6
        # No limit of queues: the window of clients bounds what is on its way.
        new_socket.sndhwm = new_socket.rcvhwm = 0  # flow control is the clients' window
        new_socket.linger = _LINGER_MS
        self._sockets.append(new_socket)
        return new_socket


def listening_address(host: str, port: int | str, keys: Keys | None) -> str:
    """Where to listen for those who reach this machine as `host`, as ``host:port``.

    A job of this machine is closed to others. With keys every interface may be open; without them only that of `host` is.
    """
    if keys is not None and not is_loopback(host):
        host = "*" if ports.preferred_family(host) == socket.AF_INET else "::"
    return join_address(host, port)


class HandshakeWatch:
    """Whether a listener has refused a dealer's handshakes: the two have different keys, or one of them has none."""

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        self._closed = 0

    def is_refused(self) -> bool:
        """Look at what has happened since the last call."""
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event & _NOT_ACCEPTED:
                return True
            self._closed += 1  # a wrong key looks like this, and so does a scheduler that is killed in a handshake
        return self._closed >= _CLOSED_HANDSHAKES


def send(zmq_socket: Any, message: ServerMessage, frames: Sequence[Frame] = (), to: bytes | None = None) -> bool:
    """Send a message without waiting; False when the peer is gone."""
    parts = encode(message, frames)
    if to is not None:
        parts = [to, *parts]
    try:
        # Large arrays are sent without a copy, so their memory must not change.
        zmq_socket.send_multipart(parts, zmq.DONTWAIT, copy=len(parts) < 3)
    except zmq.ZMQError:
        return False
    return True


def receive(zmq_socket: Any) -> list[Frame] | None:
    """The frames of the next message, None when there is none."""
    try:
        frames = zmq_socket.recv_multipart(zmq.DONTWAIT, copy=False)
    except zmq.Again:
        return None
    return [frame.buffer for frame in frames]


class LocalSocket:
    """A path for a socket between processes of this machine, in a directory that only this user can enter.

    That is the job's own directory where a launcher has made one; else a new one, which goes with the socket, or after a kill
    with the next start.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        named = environ.get(private.DIRECTORY_VARIABLE, "")
        self._own = None if named else private.make_job_directory()
        self.path = str((self._own or private.shared_directory(environ)) / f"ps-{uuid.uuid4().hex[:8]}")
        if len(self.path) > _LONGEST_PATH:  # the operating system's limit; processes of this machine then use TCP, too
            self.remove()
            self.path = ""

    def remove(self) -> None:
        """Take the socket away."""
        if self._own is not None:
            private.remove(self._own)
        elif self.path:
            Path(self.path).unlink(missing_ok=True)


_NO_CONNECTION_SECONDS = 0.01


class Peers:
    """One connection per server; it is made by the first message to this start of the server.

    Args:
        transport, streams: of this process.
        identity: what this process calls itself.
    """

    def __init__(self, transport: Transport, streams: Streams, identity: bytes) -> None:
        self._transport = transport
        self._streams = streams
        self._identity = identity
        self._direct: dict[tuple[int, int], Stream] = {}
        self._remote: dict[tuple[int, int], Any] = {}
        # The connection where there is one alone.
        self._only: Stream | None = None
        self._poller = zmq.Poller()
        self._poller.register(streams, zmq.POLLIN)

    def send(self, server: ServerAddress, message: ServerMessage, frames: Sequence[Frame] = ()) -> None:
        """Send without waiting; it is lost when the server is gone."""
        key = (server.index, server.incarnation)
        stream = self._direct.get(key)
        # The quickest way first.
        if stream is not None and stream.is_open:
            # As `Streams.send`, without a further call.
            if not stream.send(message, frames):
                self._streams.watch_unsent(stream)
        elif key in self._remote:
            send(self._remote[key], message, frames)
        else:
            self._connect(key, server)
            if key in self._direct or key in self._remote:
                self.send(server, message, frames)

    def receive(self, seconds: float) -> Iterable[tuple[ServerMessage, tuple[Frame, ...]]]:
        """What has come, or comes in so many seconds; what is malformed is dropped, as it will be requested again."""
        stream = self._only
        # A worker with one server waits in the read itself, which saves a system call.
        if stream is not None and seconds and stream.is_open and not self._streams.unsent:
            incoming = self._streams.receive_from(stream)
            return () if incoming is None else (incoming,)
        return self._receive_from_all(seconds)

    def _receive_from_all(self, seconds: float) -> Iterator[tuple[ServerMessage, tuple[Frame, ...]]]:
        if self._remote:
            self._poller.poll(int(seconds * 1000))
            seconds = 0.0
        elif not self._direct:
            # Nothing could wake a poll of no connections.
            time.sleep(min(seconds, _NO_CONNECTION_SECONDS))
        for _, message, frames in self._streams.receive(seconds):
            yield message, frames
        for dealer in self._remote.values():
            while (parts := receive(dealer)) is not None:
                try:
                    message, rest = decode(parts)
                except WireError:
                    # Malformed messages are dropped; the request is sent again.
                    continue
                yield message, tuple(rest)

    def _connect(self, key: tuple[int, int], server: ServerAddress) -> None:
        """Connect, and close the connection to a former start of the server."""
        # Messages of an earlier start must not be taken for those of this one.
        for earlier in [other for other in (*self._direct, *self._remote) if other[0] == key[0]]:
            if earlier in self._direct:
                self._streams.drop(self._direct.pop(earlier))
            else:
                dealer = self._remote.pop(earlier)
                self._poller.unregister(dealer)
                self._transport.drop(dealer)
        # The path counts on the same machine only, and the socket may not be there yet.
        is_here = server.ipc and server.host == socket.gethostname() and os.path.exists(server.ipc)
        if where := server.ipc if is_here else server.plain if self._transport.is_plain else "":
            stream = self._streams.connect(where, self._identity)
            if stream is not None:
                self._direct[key] = stream
        else:
            dealer = self._transport.connect(f"tcp://{server.tcp}", self._identity)
            self._remote[key] = dealer
            self._poller.register(dealer, zmq.POLLIN)
        alone = len(self._direct) == 1 and not self._remote
        self._only = next(iter(self._direct.values())) if alone else None
