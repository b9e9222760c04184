"""A worker's connections to the servers: sockets around `client_state`, used by one thread at a time.

`submit` sends at once (pyzmq's own thread moves the bytes while the caller goes on); `wait` receives until a request has
its answer. Bytes on their way are bounded, so that a fast worker cannot drown a slow server.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import zmq

from sporax.ir.errors import SporaxRuntimeError
from sporax.ps.client_state import (
    Action,
    Answered,
    AskView,
    ClientState,
    Done,
    Event,
    Failed,
    NewView,
    Send,
    Submit,
    Tick,
)
from sporax.ps.messages import Message
from sporax.ps.scheduler_link import SchedulerLink
from sporax.ps.security import Keys
from sporax.ps.transport import Transport, address_of, receive, send
from sporax.ps.wire import Frame, WireError, decode

WINDOW_BYTES = 512 << 20
_POLL_SECONDS = 0.05
Answer = tuple[Message, tuple[Frame, ...]]


class Client:
    """Requests to servers.

    Args:
        link: the connection to the scheduler.
        keys: of the job.
        timeout: seconds after which a request without an answer is an error.
    """

    def __init__(self, link: SchedulerLink, keys: Keys | None, timeout: float) -> None:
        self.link = link
        self.state = ClientState(timeout)
        self._transport = Transport(keys)
        self._poller = zmq.Poller()
        self._sockets: dict[tuple[int, int], Any] = {}
        self._answers: dict[int, Answer] = {}
        self._errors: dict[int, str] = {}
        self._sizes: dict[int, int] = {}
        self._bytes_open = 0
        self._last = 0
        self._identity = b"client-" + uuid.uuid4().bytes
        self._epoch = -1

    def submit(self, slot: int, make: Callable[[int, int], Message], frames: Iterable[Frame] = (), seq: int = 0) -> int:
        """Send a request; gives its number.

        Args:
            slot: whose leader gets it.
            make: (number, epoch) -> message.
            frames: that follow the message; they must not change before the answer.
            seq: number of a push among those of the slot.
        """
        self._last += 1
        request, parts = self._last, tuple(frames)
        size = sum(map(len, parts))
        while self._bytes_open and self._bytes_open + size > WINDOW_BYTES:
            self._receive(_POLL_SECONDS)
        self._sizes[request] = size
        self._bytes_open += size
        self._look_at_view()
        self._handle(Submit(request, slot, lambda epoch: make(request, epoch), parts, seq))
        return request

    def wait(self, request: int) -> Answer:
        """The answer to a request.

        Raises:
            SporaxRuntimeError: it was refused, got no answer in time, or the job has ended.
        """
        while request not in self._answers:
            if request in self._errors:
                raise SporaxRuntimeError(f"For 'sporax.ps', a request must be served, but {self._errors.pop(request)}.")
            if self.link.stopped:
                raise SporaxRuntimeError(f"For 'sporax.ps', the job must run, but it has ended: {self.link.stopped}")
            self._receive(_POLL_SECONDS)
        return self._answers.pop(request)

    def wait_all(self, requests: Iterable[int]) -> list[Answer]:
        """The answers to several requests, in order."""
        return [self.wait(request) for request in requests]

    def poll(self) -> None:
        """Take what has come, without waiting."""
        self._receive(0.0)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def _receive(self, seconds: float) -> None:
        self._look_at_view()
        if not self._sockets:
            time.sleep(min(seconds, 0.01))
        for zmq_socket, _ in self._poller.poll(int(seconds * 1000)) if self._sockets else ():
            while (parts := receive(zmq_socket)) is not None:
                try:
                    message, frames = decode(parts)
                except WireError:
                    continue  # it will be requested again
                self._handle(Answered(message, tuple(frames)))
        due = self.state.next_time()
        if due is not None and time.monotonic() >= due:
            self._handle(Tick())

    def _look_at_view(self) -> None:
        view = self.link.view
        if view is not None and view.epoch != self._epoch:
            self._epoch = view.epoch
            self._handle(NewView(view))

    def _handle(self, event: Event) -> None:
        for action in self.state.handle(event, time.monotonic()):
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Send(server, message, frames):
                send(self._socket(server), message, frames)
            case AskView():
                self.link.ask_view()
            case Done(request, message, frames):
                self._answers[request] = (message, frames)
                self._bytes_open -= self._sizes.pop(request, 0)
            case Failed(request, reason):
                self._errors[request] = reason
                self._bytes_open -= self._sizes.pop(request, 0)

    def _socket(self, server: Any) -> Any:
        key = (server.index, server.incarnation)
        if key not in self._sockets:
            for old in [old for old in self._sockets if old[0] == server.index]:
                dealer = self._sockets.pop(old)
                self._poller.unregister(dealer)
                self._transport.drop(dealer)
            dealer = self._transport.connect(address_of(server), self._identity)
            self._sockets[key] = dealer
            self._poller.register(dealer, zmq.POLLIN)
        return self._sockets[key]
