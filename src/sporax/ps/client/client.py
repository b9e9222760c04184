"""A worker's connections to the servers: sockets around `client_state`, used by one caller at a time.

`submit` sends from the caller's thread and returns when the operating system has the bytes; `wait` receives until a request has
its answer. While the caller computes and requests are open, the thread of the scheduler's connection receives what comes, so that
a pull overlaps with the step. Bytes on their way are bounded, so that a fast worker cannot drown a slow server.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.client.client_state import Action, ClientState
from sporax.ps.client.scheduler_link import SchedulerLink
from sporax.ps.protocol.events import ToScheduler, ToServer
from sporax.ps.protocol.messages import Pulled, ServerMessage, View
from sporax.ps.protocol.wire import Frame, total_bytes
from sporax.ps.sockets.security import Keys
from sporax.ps.sockets.stream import Streams
from sporax.ps.sockets.transport import Peers, Transport

# 512 MiB of requests without an answer: enough for a step, and a bound for a slow server's queue.
WINDOW_BYTES = 512 << 20
_POLL_SECONDS = 0.05
_TICK_SECONDS = 0.02
_SEND_SECONDS = 1.0
Answer = tuple[ServerMessage, tuple[Frame, ...]]


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
        self._streams = Streams(place=self._place)
        self._peers = Peers(self._transport, self._streams, b"client-" + uuid.uuid4().bytes)
        self._answers: dict[int, Answer] = {}
        self._errors: dict[int, str] = {}
        self._sizes: dict[int, int] = {}
        self._into: dict[int, memoryview] = {}
        self._bytes_open = 0
        self._last = 0
        self._view: View | None = None
        self._next_tick = 0.0
        # One thread at a time: the caller, or the scheduler's thread in between.
        self._lock = threading.Lock()
        link.meanwhile = self._receive_meanwhile

    def submit(
        self,
        slot: int,
        make: Callable[[int, int], ServerMessage],
        frames: Iterable[Frame] = (),
        seq: int = 0,
        into: memoryview | None = None,
    ) -> int:
        """Send a request; gives its number.

        Args:
            slot: whose leader gets it.
            make: (number, epoch) -> message.
            frames: that follow the message; they must not change before the answer.
            seq: number of a push among those of the slot.
            into: where the first answer's arrays may go. The answer that is given need not be that one; then it has memory of
                its own, and what is written here must not be used.
        """
        parts = tuple(frames)
        with self._lock:
            self._last = request = self._last + 1
            size = total_bytes(parts)
            while self._bytes_open and self._bytes_open + size > WINDOW_BYTES:
                self._receive(_POLL_SECONDS)
            self._sizes[request] = size
            # Remembered by request, since the answer says where its values belong.
            if into is not None:
                self._into[request] = into
            self._bytes_open += size
            if self.link.view is not self._view:
                self._take_view()
            action = self.state.submit(request, slot, make, parts, seq, time.monotonic())
            if type(action) is ToServer:
                self._peers.send(action.server, action.message, parts)
            else:
                self._carry_out([action])
            # What the kernel did not take must leave before the caller computes; not for a server that hangs.
            ends = time.monotonic() + _SEND_SECONDS if self._streams.unsent else 0.0
            while self._streams.unsent and time.monotonic() < ends:
                self._receive(_POLL_SECONDS)
            return request

    def wait(self, request: int) -> Answer:
        """The answer to a request.

        Raises:
            SporaxRuntimeError: it was refused, got no answer in time, or the job has ended.
        """
        return self.wait_all((request,))[0]

    def wait_all(self, requests: Iterable[int]) -> list[Answer]:
        """The answers to several requests, in order; raises as `wait`."""
        answers = []
        with self._lock:
            for request in requests:
                while request not in self._answers:
                    if request in self._errors:
                        reason = self._errors.pop(request)
                        raise SporaxRuntimeError(f"For 'sporax.ps', a request must be served, but {reason}.")
                    # The job's end answers all questions.
                    if ended := self.link.stopped:
                        raise SporaxRuntimeError(f"For 'sporax.ps', the job must run, but it has ended: {ended}")
                    self._receive(_POLL_SECONDS)
                answers.append(self._answers.pop(request))
        return answers

    def forget(self, requests: Iterable[int]) -> None:
        """Give up requests: nothing is sent for them any more, and their answers are dropped."""
        with self._lock:
            for request in requests:
                self.state.open.pop(request, None)
                self._answers.pop(request, None)
                self._errors.pop(request, None)
                self._close(request)

    def poll(self) -> None:
        """Take what has come, without waiting."""
        with self._lock:
            self._receive(0.0)

    def close(self) -> None:
        """Close all connections."""
        self._streams.close()
        self._transport.close()

    def _receive_meanwhile(self) -> bool:
        """Take what has come while the caller does something else; gives whether more is expected soon."""
        # Without waiting for the lock: whoever has it receives by itself.
        if not self.state.open or not self._lock.acquire(blocking=False):
            return False
        try:
            self._receive(0.0)
            return bool(self.state.open)
        finally:
            self._lock.release()

    def _receive(self, seconds: float) -> None:
        if self.link.view is not self._view:
            self._take_view()
        for message, frames in self._peers.receive(seconds):
            # Most messages are what was waited for.
            if self.state.closes(message):
                self._finish(message, frames)
            else:
                self._carry_out(self.state.refused(message, time.monotonic()))
        now = time.monotonic()
        # Ticks resend requests, which takes tens of milliseconds anyway.
        if now >= self._next_tick:
            self._next_tick = now + _TICK_SECONDS
            self._carry_out(self.state.tick(now))

    def _take_view(self) -> None:
        """Take the link's view, which has replaced its earlier one by a new object."""
        self._view = self.link.view
        if self._view is not None:
            self._carry_out(self.state.new_view(self._view, time.monotonic()))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            # The most frequent actions first.
            if type(action) is ToServer:
                self._peers.send(action.server, action.message, action.frames)
            elif type(action) is ToScheduler:
                self.link.notify(action.message)
            else:
                self._errors[action.request] = action.reason
                self._close(action.request)

    def _finish(self, message: Any, frames: tuple[Frame, ...]) -> None:
        """Keep the answer to a request for who waits for it."""
        request = message.request
        self._answers[request] = (message, frames)
        self._close(request)

    def _close(self, request: int) -> None:
        self._bytes_open -= self._sizes.pop(request, 0)
        if self._into:
            self._into.pop(request, None)

    def _place(self, message: ServerMessage, num_bytes: int) -> memoryview | None:
        """Memory for the values of a pull; it is given once, as a request may have several answers."""
        # A second answer must not write into memory that the caller reads.
        into = self._into.pop(message.request, None) if isinstance(message, Pulled) else None
        return into if into is not None and len(into) == num_bytes else None
