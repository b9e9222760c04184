"""What a worker's connection does, without sockets or clocks: requests go to the leader of their slot until answered.

A request is sent again when its slot moves, when the server misses pushes before it, and when no answer came for a while.
Sending again is harmless: pushes carry (rank, start of the worker, number) or, in synchronous mode, (rank, clock).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import msgspec

from sporax.ps.protocol import messages
from sporax.ps.protocol.events import ToScheduler, ToServer
from sporax.ps.protocol.wire import Frame

# Seconds; doubled for each further try up to the longest.
_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 8.0
# Within this time one gap causes one resending, whatever the number of complaints.
_GAP_SECONDS = 0.1
_REQUEST_VIEW = ToScheduler(messages.GetView())
_MOVED_WAIT_SECONDS = 0.05  # the map is on its way, or the variables are


@final
class Failed(msgspec.Struct, frozen=True, gc=False):
    """A request cannot be served."""

    request: int
    reason: str


_ANSWERS = frozenset({messages.Acked, messages.Pulled, messages.NotAMember})
Action = ToServer | ToScheduler | Failed


class _Open(msgspec.Struct):
    """A request without its answer.

    Attributes:
        request: its number.
        slot: where it goes.
        make: (number, epoch) -> message.
        frames: that follow the message.
        seq: number of a push among those of the slot, 0 for other requests.
        had_seq, had_clock: what was acknowledged in its slot before it was made.
        since: when it was made.
    """

    request: int
    slot: int
    make: Callable[[int, int], messages.ServerMessage]
    frames: tuple[Frame, ...]
    seq: int
    had_seq: int
    had_clock: int
    since: float
    sent_to: messages.ServerAddress | None = None
    again_at: float = 0.0
    wait: float = _FIRST_WAIT_SECONDS
    sent_at: float = -1e9


class ClientState:
    """The open requests of one worker.

    Args:
        timeout: seconds after which a request without an answer fails.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.view: messages.View | None = None
        self.open: dict[int, _Open] = {}
        # By slot, None without one.
        self._leaders: dict[int, messages.ServerAddress | None] = {}
        # By slot: numbers of pushes, and clocks, that were acknowledged.
        self._seqs: dict[int, int] = {}
        self._clocks: dict[int, int] = {}
        self._now = 0.0
        self._actions: list[Action] = []

    def submit(
        self,
        request: int,
        slot: int,
        make: Callable[[int, int], messages.ServerMessage],
        frames: tuple[Frame, ...],
        seq: int,
        now: float,
    ) -> ToServer | ToScheduler:
        """Take a new request; gives what is to be done about it."""
        self._now = now
        had_seq, had_clock = self._seqs.get(slot, 0), self._clocks.get(slot, 0)
        entry = self.open[request] = _Open(request, slot, make, frames, seq, had_seq, had_clock, now)
        return self._sending(entry)

    def closes(self, message: Any) -> bool:
        """Whether a message is the answer to an open request, which is closed then."""
        kind = type(message)
        # Others may carry no request number, such as notices; None: an answer to something that was sent twice.
        if kind not in _ANSWERS or (entry := self.open.pop(message.request, None)) is None:
            return False
        # A push that does not count says nothing of the slot's clock.
        if kind is not messages.NotAMember:
            # A server acknowledges the pushes of a slot in their order.
            slot = entry.slot
            if message.clock > self._clocks.get(slot, 0):
                self._clocks[slot] = message.clock
            if entry.seq > self._seqs.get(slot, 0):
                self._seqs[slot] = entry.seq
        return True

    def refused(self, message: Any, now: float) -> list[Action]:
        """Take a server's answer that is not the requested one, or not yet."""
        self._now, self._actions = now, []
        if (entry := self.open.get(getattr(message, "request", -1))) is not None:
            self._refused(entry, message)
        return self._actions

    def _refused(self, entry: _Open, message: Any) -> None:
        match message:
            case messages.RequestRefused():
                del self.open[message.request]
                self._actions.append(Failed(message.request, message.reason))
            case messages.Accepted():
                # The push is at the server and waits for other ranks: another request soon would only cost work.
                entry.wait = _LONGEST_WAIT_SECONDS
                entry.again_at = self._now + entry.wait
            case messages.Moved():
                entry.again_at = self._now + _MOVED_WAIT_SECONDS
                if self.view is None or message.epoch > self.view.epoch:
                    self._actions.append(_REQUEST_VIEW)
            case messages.ClockAhead():
                # A server that has answered a later request has everything that was acknowledged before it was made.
                if message.clock < entry.had_clock:
                    self._lost(message.slot, entry.had_clock, message.clock)
            case messages.Resend() if message.expected <= entry.had_seq:
                self._lost(message.slot, entry.had_seq, message.expected - 1)
            case messages.Resend():
                # Everything after the gap, since servers apply pushes in their order.
                for other in self.open.values():
                    if other.slot == message.slot and other.seq >= message.expected:
                        self._send_again(other)

    def _lost(self, slot: int, had: int, has: int) -> None:
        """A slot had an update, as this worker was notified, and has it no more: the scheduler ends the job."""
        self._actions.append(ToScheduler(messages.UpdatesLost(slot, had, has)))

    def new_view(self, view: messages.View, now: float) -> list[Action]:
        """Take the map that the scheduler has sent."""
        self._now, self._actions = now, []
        # Views come from several messages and may arrive out of order.
        if self.view is not None and view.epoch < self.view.epoch:
            return []
        self.view = view
        servers = {server.index: server for server in view.servers}
        self._leaders = {slot: servers.get(holders.primary) for slot, holders in enumerate(view.slots)}
        for entry in self.open.values():
            # Only requests whose leader has changed are sent again.
            if self._leaders.get(entry.slot) != entry.sent_to:
                entry.wait = _FIRST_WAIT_SECONDS
                self._send(entry)
        return self._actions

    def _send(self, entry: _Open) -> None:
        self._actions.append(self._sending(entry))

    def _sending(self, entry: _Open) -> ToServer | ToScheduler:
        """Note that a request is sent, and what sends it."""
        wait, now = entry.wait, self._now
        leader = self._leaders.get(entry.slot)
        entry.again_at = now + wait
        # Twice as long after each try, so that a server under load is not flooded.
        if wait < _LONGEST_WAIT_SECONDS:
            entry.wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        if leader is None or self.view is None:
            return _REQUEST_VIEW
        entry.sent_to, entry.sent_at = leader, now
        return ToServer(leader, entry.make(entry.request, self.view.epoch), entry.frames)

    def _send_again(self, entry: _Open) -> None:
        """Send now, or soon if it was sent just now: one gap makes the server request once per push behind it."""
        if self._now - entry.sent_at >= _GAP_SECONDS:
            self._send(entry)
        else:
            entry.again_at = min(entry.again_at, entry.sent_at + _GAP_SECONDS)

    def tick(self, now: float) -> list[Action]:
        """Some time has passed: send again what has waited for long, give up what has waited for too long."""
        self._now, self._actions = now, []
        requested = False
        for request, entry in list(self.open.items()):
            if self._now - entry.since > self.timeout:
                del self.open[request]
                where = f"slot {entry.slot} (server {entry.sent_to.index if entry.sent_to else 'unknown'})"
                self._actions.append(Failed(request, f"{where} gave no answer for {self.timeout:.0f} s"))
            elif self._now >= entry.again_at:
                self._send(entry)
                requested = True
        if requested:
            # One question for all requests without an answer: perhaps the slots have moved.
            self._actions.append(_REQUEST_VIEW)
        return self._actions
