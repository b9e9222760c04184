"""One-off questions to a scheduler: from commands, launchers and adapters."""

from __future__ import annotations

import time
import uuid
from typing import Any

from sporax.ps.protocol.messages import ServerMessage
from sporax.ps.protocol.wire import WireError, decode
from sporax.ps.sockets.security import Keys
from sporax.ps.sockets.transport import Transport, receive, send


class Requester:
    """One-off questions to a scheduler, from anywhere.

    Args:
        address: ``host:port``.
        keys: of the job.
    """

    def __init__(self, address: str, keys: Keys | None = None) -> None:
        self._transport = Transport(keys)
        # A new name each time: an answer to an earlier requester must not come here.
        self._socket = self._transport.connect(f"tcp://{address}", b"asker-" + uuid.uuid4().bytes)

    def ask(self, question: Any, kind: type[Any], seconds: float) -> Any:
        """The answer of a kind, None when none came in time."""
        ends = time.monotonic() + seconds
        send(self._socket, question)
        while (left := ends - time.monotonic()) > 0:
            # In slices, since a signal (Ctrl-C) is only seen between two calls.
            self._socket.poll(min(left, 0.2) * 1000)
            while (parts := receive(self._socket)) is not None:
                try:
                    message: ServerMessage = decode(parts)[0]
                except WireError:
                    # Bytes that are no message are dropped; the deadline says when to give up.
                    continue
                if isinstance(message, kind):
                    return message
        return None

    def tell(self, message: Any) -> None:
        """Send without an answer."""
        send(self._socket, message)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()
