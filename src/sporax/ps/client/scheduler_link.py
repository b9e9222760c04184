"""A worker's connection to the scheduler: a thread that registers, beats, and keeps the newest view.

The training thread may be busy for minutes (compiling); the scheduler must get heartbeats of the worker all the same. Questions
to the scheduler (sample leases, leaving) pass through a queue to this thread, as sockets belong to one thread. Between its
own messages the thread calls `meanwhile`, in which the client receives answers that no caller waits for at the moment.

One-off questions to a scheduler: from commands, launchers and adapters.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.protocol import messages
from sporax.ps.protocol.wire import WireError, decode
from sporax.ps.sockets.security import Keys
from sporax.ps.sockets.transport import REFUSED, Transport, receive, send

_REGISTER_SECONDS = 0.5
_POLL_SECONDS = 0.02
_BUSY_SECONDS = 0.001


class SchedulerLink:
    """Registers a worker; the thread runs until `close`.

    Args:
        address: of the scheduler, ``host:port``.
        node: name of this process over restarts.
        rank: requested rank, -1 for any.
        keys: of the job.
        timeout: seconds to wait for the cluster.

    Raises:
        SporaxRuntimeError: the cluster did not come up in time.
    """

    def __init__(self, address: str, *, node: str, rank: int, keys: Keys | None, timeout: float) -> None:
        self.view: messages.View | None = None
        self.welcome: messages.ProcessAccepted | None = None
        self.stopped = ""
        self.is_over = False
        self.dismissed = False
        self.meanwhile: Callable[[], bool] | None = None
        self.clocks: dict[int, int] = {}
        self.gauges: dict[str, float] = {}
        self._address, self._node, self._rank, self._keys = address, node, rank, keys
        self._outgoing: queue.SimpleQueue[messages.ServerMessage] = queue.SimpleQueue()
        self._ranges: queue.SimpleQueue[messages.SampleRange] = queue.SimpleQueue()
        self._left = threading.Event()
        self._noted_values = threading.Event()
        self._joined = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="sporax-ps-heartbeat", daemon=True)
        self._thread.start()
        # Waits for the cluster: the worker's first request needs the slot map.
        if not self._joined.wait(timeout) or self.welcome is None:
            self.close()
            reason = self.stopped or f"it gave no answer for {timeout:.0f} s, or too few servers came"
            raise SporaxRuntimeError(
                f"For 'sporax.ps', the scheduler at {address} must make this process a worker, but {reason}."
            )

    @property
    def rank(self) -> int:
        """This worker's rank."""
        assert self.welcome is not None
        return self.welcome.index

    @property
    def incarnation(self) -> int:
        """Which start of this rank this is."""
        assert self.welcome is not None
        return self.welcome.incarnation

    def notify(self, message: messages.ServerMessage) -> None:
        """Send something to the scheduler."""
        self._outgoing.put(message)

    def request_samples(self, message: messages.LeaseSamples, wait_seconds: float) -> messages.SampleRange | None:
        """Request a range of samples; None without an answer in time.

        Answers to earlier questions, late because the scheduler was away, are passed over: to repeat the request for each of them
        would leave every answer one question behind for ever.
        """
        self._outgoing.put(message)
        ends = time.monotonic() + wait_seconds
        while (left := ends - time.monotonic()) > 0:
            with suppress(queue.Empty):
                answer = self._ranges.get(timeout=left)
                if answer.request == message.request:
                    return answer
        return None

    def leave(self, message: messages.ServerMessage, wait_seconds: float) -> None:
        """Report that this worker leaves, until the scheduler has noted it."""
        ends = time.monotonic() + wait_seconds
        # Repeated, since a message may be lost with a scheduler that restarts.
        while time.monotonic() < ends and not self.has_left and not self.is_over:
            self._outgoing.put(message)
            self._left.wait(0.5)

    def leave_if_dismissed(self, message: messages.ServerMessage) -> bool:
        """Leave, unless the job has grown again and counts on this worker; gives whether the scheduler has agreed."""
        while self.dismissed and not self.has_left and not self.is_over and not self.stopped:
            self._outgoing.put(message)
            self._left.wait(0.1)
        return self.has_left or self.is_over

    @property
    def has_left(self) -> bool:
        """Whether the scheduler has noted that this worker left."""
        return self._left.is_set()

    def initialised(self) -> None:
        """Report that all slots have their variables, until the scheduler has it in its journal.

        A scheduler that did not know it would take no checkpoint, and would not notice a server that comes back empty.
        """
        # Repeated, since a message may be lost with a scheduler that restarts.
        while not self._noted_values.is_set() and not self.is_over and not self.stopped:
            self._outgoing.put(messages.Initialised())
            self._noted_values.wait(0.5)

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._thread.join(5)

    def _run(self) -> None:
        transport = Transport(self._keys)
        scheduler = transport.connect(f"tcp://{self._address}", b"worker-" + uuid.uuid4().bytes)
        handshakes = transport.watch(scheduler)
        next_beat, is_busy = 0.0, False
        try:
            while not self._closing:
                scheduler.poll((_BUSY_SECONDS if is_busy else _POLL_SECONDS) * 1000)
                # Soon again while answers are expected, for which no caller waits.
                is_busy = self.meanwhile is not None and self.meanwhile()
                # A refused handshake would otherwise look like a scheduler that is not there.
                if self.welcome is None and handshakes.is_refused():
                    self.stopped = REFUSED
                    self._joined.set()
                    return
                while (parts := receive(scheduler)) is not None:
                    self._take(parts)
                while not self._outgoing.empty():
                    send(scheduler, self._outgoing.get())
                now = time.monotonic()
                if now < next_beat:
                    continue
                if self.welcome is None:
                    send(scheduler, messages.RegisterProcess("worker", self._node, self._rank))
                    next_beat = now + _REGISTER_SECONDS
                else:
                    epoch = self.view.epoch if self.view is not None else 0
                    gauges = {"pid": float(os.getpid()), **self.gauges}
                    send(
                        scheduler,
                        messages.Heartbeat(
                            "worker", self.rank, self.incarnation, now, epoch, dict(self.clocks), {}, gauges
                        ),
                    )
                    next_beat = now + self.welcome.options.heartbeat_seconds
            # The last words, such as that a lease is done, must not be lost.
            while not self._outgoing.empty():
                send(scheduler, self._outgoing.get())
        finally:
            transport.close()

    def _take(self, parts: list[Any]) -> None:
        try:
            message, _ = decode(parts)
        except WireError:
            return
        match message:
            case messages.ProcessAccepted():
                # The first one counts: a second registration may have crossed it.
                self.welcome = self.welcome or message
            case messages.ViewReply(view):
                self._take_view(view)
            case messages.HeartbeatReply():
                if message.view is not None:
                    self._take_view(message.view)
                self.dismissed = message.dismissed
                if message.unknown:
                    self.stopped = "this worker has been replaced by another process"
            case messages.SampleRange():
                self._ranges.put(message)
            case messages.Initialised():
                self._noted_values.set()
            case messages.Stop(reason):
                if reason == "left":
                    self._left.set()
                elif reason != "noted":
                    # "noted" only confirms a message.
                    self.is_over = message.done
                    self.stopped = reason
                    self._joined.set()

    def _take_view(self, view: messages.View) -> None:
        if self.view is None or view.epoch >= self.view.epoch:
            self.view = view
        if self.welcome is not None and view.slots:
            # A map without slots means that servers are still missing.
            self._joined.set()


class Requester:
    """One-off questions to a scheduler, from anywhere.

    Args:
        address: ``host:port``.
        keys: of the job.
    """

    def __init__(self, address: str, keys: Keys | None = None) -> None:
        self._transport = Transport(keys)
        # A new name each time: an answer to an earlier requester must not come here.
        self._socket = self._transport.connect(f"tcp://{address}", b"requester-" + uuid.uuid4().bytes)

    def request(self, question: Any, kind: type[Any], seconds: float) -> Any:
        """The answer of a kind, None when none came in time."""
        ends = time.monotonic() + seconds
        send(self._socket, question)
        while (left := ends - time.monotonic()) > 0:
            # In slices, since a signal (Ctrl-C) is only seen between two calls.
            self._socket.poll(min(left, 0.2) * 1000)
            while (parts := receive(self._socket)) is not None:
                try:
                    message: messages.ServerMessage = decode(parts)[0]
                except WireError:
                    # Bytes that are no message are dropped; the deadline says when to give up.
                    continue
                if isinstance(message, kind):
                    return message
        return None

    def notify(self, message: Any) -> None:
        """Send without an answer."""
        send(self._socket, message)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()
