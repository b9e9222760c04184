"""What a server does with the slots that it follows: it takes their leaders' records in order, stores, applies and confirms them.

A follower begins with the whole slot (`SlotImage`). It waits a while for a record that came too late or not at all, then requests
for the whole slot again.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from sporax.ps.protocol import messages
from sporax.ps.protocol.events import Action, Reply, StoreRecord, StoreSlot, ToScheduler, ToServer
from sporax.ps.protocol.wire import Frame
from sporax.ps.slots.slot import SlotState

IMAGE_SECONDS = 1.0
"""After which a follower misses what has not come, and requests the whole slot (again)."""
MOST_EARLY = 256
"""Records of one slot that wait for those before them."""
GET_VIEW = messages.GetView()


class FollowerData(Struct):
    """What a follower keeps besides the slot's state.

    Attributes:
        leader, since: whom it follows, and from which epoch on.
        fresh: it has had the whole slot from this leader.
        requested: when it requested the whole slot.
        unstored: records applied and not yet in the log.
        progress: when it applied something last.
        early: records that came before those they follow on.
    """

    leader: messages.ServerAddress
    since: int
    fresh: bool = False
    requested: float = -1e9
    unstored: int = 0
    progress: float = 0.0
    early: dict[int, tuple[messages.Record, tuple[Frame, ...]]] = field(default_factory=dict)


class FollowerState:
    """The slots of a server, and what it does with those that it follows.

    Args:
        index, incarnation: what the scheduler made this process.
        options: of the job.
        states: slots recovered from the log.
    """

    def __init__(
        self, index: int, incarnation: int, options: messages.Options, states: dict[int, SlotState] | None
    ) -> None:
        self.index = index
        self.incarnation = incarnation
        self.options = options
        self.stores = options.durability != "memory"
        # Else what the log was given before an answer is durable enough when that leaves.
        self.flushes = options.durability == "disk"
        self.states = dict(states or {})
        self.view: messages.View | None = None
        self.follows: dict[int, FollowerData] = {}
        self.counts: Counter[str] = Counter()
        self._now = 0.0
        self._actions: list[Action] = []

    def _reply(self, to: bytes, message: messages.ServerMessage, frames: tuple[Frame, ...] = ()) -> None:
        self._actions.append(Reply(to, message, frames))

    def _sender_is(self, sender: bytes, server: messages.ServerAddress) -> bool:
        # With the incarnation: an earlier start of the same server is another sender.
        return sender == server_identity(server.index, server.incarnation)

    def _record(self, sender: bytes, message: messages.Record, frames: tuple[Frame, ...]) -> None:
        """A follower takes the next record of its leader."""
        follow = self.follows.get(message.slot)
        # A record of a leader that the scheduler has replaced must not be applied.
        if follow is None or not self._sender_is(sender, follow.leader):
            self.counts["fenced_records"] += 1
            if self.view is None or message.epoch > self.view.epoch:
                self._actions.append(ToScheduler(GET_VIEW))
            return
        state = self.states[message.slot]
        # Sent twice; the leader has perhaps missed the confirmation.
        if follow.fresh and message.lsn <= state.lsn:
            if follow.unstored == 0:
                self._confirm(message.slot, state.lsn)
            return
        # Bounded, since a follower without the records before would collect for ever.
        if len(follow.early) < MOST_EARLY:
            follow.early[message.lsn] = (message, frames)
        if follow.fresh:
            self._apply_early(message.slot)
        else:
            self._request_image(message.slot)

    def _apply_early(self, slot: int) -> None:
        """Apply the records a follower has, as far as they follow on each other."""
        follow, state = self.follows[slot], self.states[slot]
        follow.early = {lsn: entry for lsn, entry in follow.early.items() if lsn > state.lsn}
        while state.lsn + 1 in follow.early:
            record, frames = follow.early.pop(state.lsn + 1)
            state.apply(record, frames)
            follow.progress = self._now
            if self.stores:
                self._actions.append(StoreRecord(record, frames))
            # Confirmed when it is stored, and not when it is applied.
            if self.flushes:
                follow.unstored += 1
            else:
                self._confirm(slot, state.lsn)

    def _confirm(self, slot: int, lsn: int) -> None:
        epoch = self.view.epoch if self.view is not None else 0
        self._actions.append(ToServer(self.follows[slot].leader, messages.Replicated(slot, epoch, lsn)))

    def _request_image(self, slot: int) -> None:
        follow = self.follows[slot]
        # Not at every record: the image may be large and on its way.
        if self._now - follow.requested >= IMAGE_SECONDS:
            follow.requested = self._now
            epoch = self.view.epoch if self.view is not None else 0
            self._actions.append(ToServer(follow.leader, messages.NeedImage(slot, epoch)))

    def _image(self, sender: bytes, message: messages.SlotImage, frames: tuple[Frame, ...]) -> None:
        follow = self.follows.get(message.slot)
        if follow is None or not self._sender_is(sender, follow.leader):
            self.counts["fenced_records"] += 1
            return
        if follow.fresh and message.lsn <= self.states[message.slot].lsn:
            return  # it was requested twice; what came since then has been confirmed and must stay
        state = SlotState.from_image(message, list(frames), self.options.staleness)
        self.states[message.slot] = state
        # What was on its way to the log belongs to the state before.
        follow.fresh, follow.unstored = True, 0
        if self.stores:
            self._actions.append(StoreSlot(message.slot))
        self._confirm(message.slot, state.lsn)
        follow.progress = self._now
        self._apply_early(message.slot)

    def _begin_to_follow(self, slot: int, leader: messages.ServerAddress, since: int) -> None:
        self.states.setdefault(slot, SlotState(slot, self.options.staleness))
        follow = self.follows.get(slot)
        # Another leader, or the same one after a change, begins from a whole slot.
        if follow is None or (follow.leader, follow.since) != (leader, since):
            follow = self.follows[slot] = FollowerData(leader, since)
        if not follow.fresh:
            self._request_image(slot)

    def _stored_by_follower(self, slot: int, lsn: int) -> None:
        follow = self.follows[slot]
        follow.unstored = max(0, follow.unstored - 1)
        # Records before an image may be confirmed after it.
        if lsn <= self.states[slot].lsn:
            self._confirm(slot, lsn)

    def _request_again(self) -> None:
        """Request the slots of which something is missing that will not come any more."""
        for slot, follow in self.follows.items():
            # Records wait for one that does not come any more.
            if follow.early and follow.fresh and self._now - follow.progress > IMAGE_SECONDS:
                follow.fresh = False
            if not follow.fresh:
                self._request_image(slot)


def server_identity(index: int, incarnation: int) -> bytes:
    """Transport address of a server's outgoing connections."""
    return b"server-%d-%d" % (index, incarnation)
