"""Which ranks' gradients are combined, and how that changes while the job runs; without sockets, files or clocks.

Problem: in synchronous mode every slot must make the update of a clock from the gradients of the same ranks, and a worker that
reads the values of a clock must know with whom it shares that clock's samples. Slots are on several servers and never stand at
one clock. Method: the members are a *schedule*, ranks by the clock from which they count. A change is agreed on first (`Hold`):
every leader of a slot says, in the present view, that its slots have not reached the clock of the change and will stop there;
only then the new schedule is published. Servers give out no values of a clock whose members are not decided.

Two kinds of change, never mixed in one:

* Workers join, or a smaller job lets the highest ranks go: at a clock that no slot has reached. Slots pass over clocks before it
  whose members have all left.
* A member has died and was not started again within its lease: it is left out from the lowest clock on that still waits for it,
  where no slot has its gradient of that clock. No other membership changes by this, as the values of that clock, with its
  members, may be in the others' hands.

A worker that a smaller job lets go goes on until it reads the values of a clock at which it is no member. It queries then whether
it is *dismissed*; a worker that was only thought dead is not, and waits for its next place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sporax.ps.protocol.messages import Hold, HoldReply, Members, Options
from sporax.ps.scheduler.journal import Journal, Peer, without
from sporax.ps.slots.slot import ranks_at

_LONGEST_MARGIN = 1024
_STORED_CHANGES = 64  # of the past: a push that was on its way for that many changes is of no interest to anybody


class MembersState:
    """The members of one job and the change that is being agreed on.

    Args:
        options: settings of the job.
        journal: of the job.
        servers, workers: what the scheduler knows of the processes, by number.
    """

    def __init__(
        self, options: Options, journal: Journal, servers: Mapping[int, Peer], workers: Mapping[int, Peer]
    ) -> None:
        self.hold: Hold | None = None
        self.note = ""
        self.notices: list[str] = []
        self._options = options
        self._journal = journal
        self._servers = servers
        self._workers = workers
        self._change: Callable[[int], list[Members]] | None = None
        self._answers: dict[int, bool] = {}
        self._is_forced = False
        self._margin = 1
        self._changes = 0

    def is_wanted(self, rank: int) -> bool:
        """Whether the job's size includes this rank."""
        return rank < self._journal.worker_num

    def is_dismissed(self, rank: int) -> bool:
        """Whether a worker may leave once it is no member at its clock: the job became smaller than its number.

        A worker that comes before the job is scaled up is beyond the size, too, but waits for its place.
        """
        journal = self._journal
        if self.is_wanted(rank) or rank >= journal.most_workers:
            return False
        return self.hold is None and (not journal.members or rank not in journal.members[-1].ranks)

    def is_over(self, rank: int) -> bool:
        """Whether nothing is expected of a worker any more.

        It has left; or it is superfluous and was silent for its lease; or it came before the job was scaled up.
        """
        peer = self._workers.get(rank)
        silent = peer is None or not peer.live
        return self._has_ended(rank) or (not self.is_wanted(rank) and (silent or rank >= self._journal.most_workers))

    def _has_ended(self, rank: int) -> bool:
        entry = self._journal.workers.get(rank)
        return entry is not None and entry[2]

    def _is_dead(self, rank: int) -> bool:
        # Members that have not registered yet are expected.
        peer = self._workers.get(rank)
        return peer is not None and not peer.live

    def _target(self) -> list[int]:
        """Ranks that should be members: those within the job's size that are there or expected."""
        members = self._journal.members[-1].ranks
        ranks = {rank for rank in members if not self._has_ended(rank)} | set(self._workers)
        return sorted(rank for rank in ranks if self.is_wanted(rank) and not self._is_dead(rank))

    def _clocks(self) -> list[int] | None:
        """How far each slot is; None while the leader of one is away."""
        clocks: list[int] = []
        for slot, holders in enumerate(self._journal.slots):
            peer = self._servers.get(holders.primary)
            if peer is None or not peer.live or slot not in peer.clocks:
                return None
            clocks.append(peer.clocks[slot])
        return clocks

    def begin(self) -> bool:
        """Begin to change the members if they are not those that should be; gives whether there is something to publish."""
        journal = self._journal
        # One change at a time: the clock of a second one would not be known.
        if self.hold is not None or not journal.slots or not journal.members:
            return False
        if self._options.staleness != 0:
            # Without a common clock members count at once.
            target = self._target()
            is_news = bool(target) and target != journal.members[-1].ranks
            journal.members = [Members(0, target)] if is_news else journal.members
            return is_news
        clocks = self._clocks()
        return clocks is not None and (self._begin_without_dead(clocks) or self._begin_with_target(clocks))

    def _begin_without_dead(self, clocks: list[int]) -> bool:
        """Leave out members that have died, from the clock on that waits for them."""
        low = min(clocks)
        dead = {rank: at for rank, at in self._first_waits(low).items() if self._is_dead(rank)}
        if not dead:
            return False
        clock = min(dead.values())
        others = [rank for rank in ranks_at(self._journal.members, clock) if rank not in dead]
        if not others and not self._target():
            return False  # all have died: nothing goes on without their successors

        def change(clock: int) -> list[Members]:
            members = self._journal.members
            # A successor may have come while servers were queried.
            for rank in filter(self._is_dead, dead):
                members = without(members, rank, clock)
                self.notices.append(self._left_out(rank, clock))
            # Where no worker is left that has values of this clock, others may begin with it.
            return members if ranks_at(members, clock) else self._with_target(clock)

        # One that is superfluous as well has no successor that could complete its last step where only some slots have it.
        self._query(clock, change, strict=False, forced=not any(self.is_wanted(rank) for rank in dead))
        return True

    def _left_out(self, rank: int, clock: int) -> str:
        """What people should know: the others have shared out the samples of this clock already, with this rank among them."""
        seconds = self._options.worker_lease_seconds or self._options.lease_seconds
        return (
            f"worker {rank} was silent for longer than its lease of {seconds:g} s, and the others go on without it: its share "
            f"of the samples of step {clock + 1} does not count. MS_PS_WORKER_LEASE must be longer than a worker is away"
        )

    def _first_waits(self, low: int) -> dict[int, int]:
        """Members from a clock on, and the first clock at which each one is."""
        members = self._journal.members
        first = dict.fromkeys(ranks_at(members, low), low)
        for entry in members:
            for rank in entry.ranks if entry.clock > low else ():
                first.setdefault(rank, entry.clock)
        return first

    def _begin_with_target(self, clocks: list[int]) -> bool:
        members, target = self._journal.members, self._target()
        if not target or target == members[-1].ranks:
            return False
        self._query(max(*clocks, members[-1].clock) + self._margin, self._with_target, strict=True)
        return True

    def _with_target(self, clock: int) -> list[Members]:
        """The schedule in which the ranks that are wanted now are the members from a clock on."""
        members, target = self._journal.members, self._target()
        # Later entries were for a change that this one replaces.
        return [*(entry for entry in members if entry.clock < clock), Members(clock, target)] if target else members

    def _query(self, clock: int, change: Callable[[int], list[Members]], *, strict: bool, forced: bool = False) -> None:
        self._changes += 1
        self._change, self._is_forced = change, forced
        self.hold = Hold(self._changes, clock, strict)

    def forget_answers(self) -> None:
        """A new view: answers count for the view they were given in, since it names the leaders that must answer."""
        self._answers.clear()

    def answered(self, index: int, held: HoldReply | None, epoch: int) -> bool:
        """Take a server's answer; gives whether the hold has ended by it."""
        if self.hold is None or held is None or held.change != self.hold.change or epoch != self._journal.epoch:
            return False
        self._answers[index] = held.held
        leaders = {holders.primary for holders in self._journal.slots}
        if not leaders <= self._answers.keys():
            return False
        hold, change = self.hold, self._change
        assert change is not None
        # A change is made only if no slot has passed the clock.
        if all(self._answers[leader] for leader in leaders) or self._is_forced:
            self._margin, self.note = 1, ""
            self._journal.members = change(hold.clock)[-_STORED_CHANGES:]
        else:
            # Slots move on while they are queried, so the next try begins further ahead.
            self._margin = min(2 * self._margin, _LONGEST_MARGIN)
            self.note = "" if hold.strict else "waiting for a dead worker's successor: its last step is half done"
        self.abort()
        return True

    def abort(self) -> None:
        """Give up the present change; the next tick begins it again."""
        self.hold = self._change = None

    def leave(self, rank: int, clock: int) -> None:
        """Note that a worker pushes nothing from a clock on."""
        members = self._journal.members
        if self._options.staleness == 0:
            self._journal.members = without(members, rank, clock)
        elif members:
            self._journal.members = [Members(0, [other for other in members[-1].ranks if other != rank])]
