"""Connections to servers, from workers and from other servers: through the file system on one machine or over the network: by TCP
alone where no keys are needed, by ZeroMQ where they are.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import zmq

from sporax.ps.protocol.messages import ServerAddress, ServerMessage
from sporax.ps.protocol.wire import Frame, WireError, decode
from sporax.ps.sockets.stream import Stream, Streams
from sporax.ps.sockets.transport import Transport, receive, send

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
