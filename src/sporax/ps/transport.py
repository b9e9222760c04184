"""Sockets: ROUTER for what listens, DEALER for what connects, both set up in one place.

Everything that is sent may be sent again, so a full or vanished peer loses messages rather than blocking the loop.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sporax.ir.errors import SporaxImportError
from sporax.ps.messages import Message, ServerAddress
from sporax.ps.security import Keys, authenticated
from sporax.ps.wire import Frame, encode

try:
    import zmq
except ImportError as error:  # pragma: no cover (the tests' environment has it)
    raise SporaxImportError(
        "For 'sporax.ps', the package 'pyzmq' must be there. Install it with `pip install 'sporax[ps]'`."
    ) from error

_LINGER_MS = 200
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

    def listen(self, addresses: Sequence[str]) -> Any:
        """A ROUTER bound to addresses such as ``tcp://*:8118``."""
        router = self._socket(zmq.ROUTER)
        router.router_handover = True
        router.router_mandatory = True
        if self._keys is not None:
            if self._authenticator is None:
                self._authenticator = authenticated(self.context, self._keys)
            self._keys.listen(router)
        for address in addresses:
            router.bind(address)
        return router

    def connect(self, address: str, identity: bytes) -> Any:
        """A DEALER to one listener."""
        dealer = self._socket(zmq.DEALER)
        dealer.identity = identity
        dealer.reconnect_ivl = 20
        dealer.reconnect_ivl_max = 500
        if self._keys is not None:
            self._keys.connect(dealer)
        dealer.connect(address)
        return dealer

    def close(self) -> None:
        """Close all sockets; what was sent last gets a moment to leave."""
        for each in self._sockets:
            each.close(_LINGER_MS)
        if self._authenticator is not None:
            self._authenticator.stop()
        self.context.term()

    def drop(self, dealer: Any) -> None:
        """Close one socket."""
        self._sockets.remove(dealer)
        dealer.close(0)

    def _socket(self, kind: int) -> Any:
        made = self.context.socket(kind)
        made.sndhwm = made.rcvhwm = 0  # flow control is the clients' window
        made.linger = _LINGER_MS
        self._sockets.append(made)
        return made


def send(zmq_socket: Any, message: Message, frames: Sequence[Frame] = (), to: bytes | None = None) -> bool:
    """Send a message without waiting; False when the peer is gone."""
    parts = encode(message, frames)
    if to is not None:
        parts = [to, *parts]
    try:
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


def address_of(server: ServerAddress) -> str:
    """How to reach a server from here: through the file system on the same machine."""
    if server.ipc and server.host == socket.gethostname() and os.path.exists(server.ipc):
        return f"ipc://{server.ipc}"
    return f"tcp://{server.tcp}"


def ipc_path() -> str:
    """A new path for a local socket, short enough for the operating system."""
    return str(Path(tempfile.mkdtemp(prefix="sporax-ps-")) / "s")
