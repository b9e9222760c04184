"""How processes that do not know each other become a numbered cluster: the scheduler's decisions, without any I/O.

Every process of a job registers with the scheduler and keeps its connection open for as long as it lives. When all
are there, each gets its rank and the coordinator's address. From then on a connection that ends without a word of
leave is a process that was lost, and everyone else is notified.

`Cluster.handle` takes one message and returns those that are to be sent; `scheduler` does that over sockets::

    GATHERING --all registered--> RUNNING --all left--> DONE
        |                            |
        '--time is up, impossible----'--one lost------> FAILED

Connections are numbers given out by whoever holds the sockets.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct, field, structs

from sporax.cluster import messages
from sporax.cluster.environment import ProcessRole, join_address
from sporax.cluster.ports import UNANSWERED


class ClusterPhase(Enum):
    """Where a cluster is in its life."""

    GATHERING = "gathering"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


Addressed = tuple[int, messages.FromScheduler]
"""What is sent to a connection. After `Refused` nothing more is sent."""


class Cluster(Struct):
    """The scheduler's knowledge of one job.

    Attributes:
        size: number of workers that must register.
        server_num: number of parameter servers that must register.
        timeout_seconds: how long gathering may take; only for words, the clock is elsewhere.
        phase: where the cluster is.
        failure: why it is FAILED.
        cause: name of the member that is the cause; "" where none is.
        is_accused: another member says so of it, and it may be alive.
        is_own_word: the cause said itself that it failed, perhaps because of a member whose loss was not noticed yet.
        is_final: a launcher was signaled to stop, so that the job is not to be started again.
        exit_code: what the process of the cause has ended with, as its launcher says; 0 is not known.
        is_open: a member has failed, and its launcher will say how its process ended.
        members: those taking part, by connection.
        ranks: the numbers given out, by connection; empty before RUNNING.
        left: workers that have left or are lost, by rank.
        watchers: launchers that only listen: the host of each, by connection.
        requested: names of the processes whose ranks a launcher wants, by its connection.
        waiting: connections of workers that wait for others.
        awaited: connections of workers that have been notified that all others wait.
    """

    size: int
    server_num: int
    timeout_seconds: float
    phase: ClusterPhase = ClusterPhase.GATHERING
    failure: str = ""
    cause: str = ""
    is_accused: bool = False
    is_own_word: bool = False
    is_final: bool = False
    exit_code: int = 0
    is_open: bool = False
    members: dict[int, messages.Register] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    left: dict[int, messages.Register] = field(default_factory=dict)
    watchers: dict[int, str] = field(default_factory=dict)
    requested: dict[int, tuple[str, ...]] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)

    def handle(self, connection: int, message: messages.FromMember) -> list[Addressed]:
        """Take in what a member or a launcher says; returns what must be said, in order."""
        match message:
            case messages.Register():
                return self._register(connection, message)
            case messages.Watch(node, names):
                # A launcher that comes late must be notified of the end that it missed.
                self.watchers[connection] = node
                self.requested[connection] = names
                return [*self._numbers(connection), *([self._announce(connection)] if self.has_ended else [])]
            case messages.Wait(waits):
                # A parameter server's rank is counted apart, so both roles may have a rank 0.
                return self._wait(connection, waits)
            case messages.Leave():
                return self._left(connection, message, is_own_word=True)

    def lost(self, connection: int, how: str) -> list[Addressed]:
        """As `handle`, of a connection that has ended without a word of leave."""
        return self._left(connection, messages.Leave(how), is_own_word=False)

    def time_up(self) -> list[Addressed]:
        """As `handle`, when the cluster has had its time to gather."""
        return self._fail(self._who_is_missing()) if self.phase is ClusterPhase.GATHERING else []

    def _left(self, connection: int, word: messages.Leave, *, is_own_word: bool) -> list[Addressed]:
        if word.failure is not None and (host := self.watchers.get(connection)) is not None:
            return [
                *self._leave(connection, messages.Leave(None)),
                *self.fail(f"the launcher on {host} {word.failure}", word),
            ]
        # Only the word that ends the cluster counts.
        if word.failure is not None and self.phase is ClusterPhase.RUNNING:
            self.is_own_word = is_own_word
        return self._leave(connection, word)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in (ClusterPhase.DONE, ClusterPhase.FAILED)

    def _register(self, connection: int, member: messages.Register) -> list[Addressed]:
        """Take a member in, or say why not; the last one to come completes the cluster."""
        reason = self._why_not(member)
        if reason is not None:
            return [(connection, messages.Refused(messages.shortened(reason)))]
        self.members[connection] = member
        if len(self.members) < self.size + self.server_num:
            return []
        self.phase = ClusterPhase.RUNNING
        welcomes = self._welcome_all()
        return [*welcomes, *(number for watcher in sorted(self.watchers) for number in self._numbers(watcher))]

    def _why_not(self, member: messages.Register) -> str | None:
        """Why a member cannot be taken in; None when it can."""
        if self.phase is not ClusterPhase.GATHERING:
            # The reason of a failed cluster says more than that it is too late.
            return self.failure or f"the cluster is already {self.phase.value} and takes no new members"
        peers = [other for other in self.members.values() if other.role is member.role]
        expected = self.server_num if member.role is ProcessRole.SERVER else self.size
        if member.size != self.size:
            return f"MS_WORKER_NUM must be the scheduler's, {self.size}, but got {member.size}"
        if len(peers) >= expected:
            return f"the cluster already has all of its {expected} members with the role {member.role.value}"
        if any(other.node_id == member.node_id for other in peers):
            return f"MS_NODE_ID must differ between processes, but got '{member.node_id}' twice"
        if member.rank is not None and not 0 <= member.rank < expected:
            return f"RANK_ID must be in [0, {expected}), but got {member.rank}"
        if member.rank is not None and any(other.rank == member.rank for other in peers):
            return f"RANK_ID must differ between processes, but got {member.rank} twice"
        return None

    def _welcome_all(self) -> list[Addressed]:
        """Number everyone; rank 0's host and port become the coordinator's address."""
        for role in (ProcessRole.WORKER, ProcessRole.SERVER):
            self.ranks |= _numbered({c: member for c, member in self.members.items() if member.role is role})
        workers = [self.members[c] for c, rank in self.ranks.items() if rank == 0]
        first = next(member for member in workers if member.role is ProcessRole.WORKER)
        coordinator = join_address(first.host, first.port)
        # One list, so that no rank learns its place before the cluster is complete.
        welcomes: list[Addressed] = []
        for connection, rank in self.ranks.items():
            local = self._ranks_of_host(connection)
            welcomes.append((connection, messages.Welcomed(rank, local.index(rank), len(local), coordinator)))
        return welcomes

    def rank_of(self) -> dict[str, int]:
        """Ranks of the workers that take part, by name; none before all are there."""
        return {
            member.node_id: self.ranks[connection]
            for connection, member in self.members.items()
            if connection in self.ranks and member.role is ProcessRole.WORKER
        }

    def _numbers(self, watcher: int) -> list[Addressed]:
        """What is sent to a launcher of the ranks of its processes, once they have some."""
        names, ranks = self.requested[watcher], self.rank_of()
        known = names and ranks.keys() >= set(names)
        return [(watcher, messages.Numbered(tuple(ranks[name] for name in names)))] if known else []

    def _ranks_of_host(self, connection: int) -> list[int]:
        """Ranks of the same role on the same host, in order."""
        me = self.members[connection]
        return sorted(
            rank
            for other, rank in self.ranks.items()
            if (self.members[other].role, self.members[other].host) == (me.role, me.host)
        )

    def _wait(self, connection: int, waits: bool) -> list[Addressed]:
        """A worker begins to wait or goes on. Where all that do not wait are on one machine, they are informed: the rank that
        is to blame is among them, and can be found there.
        """
        if self.phase is not ClusterPhase.RUNNING or connection not in self.ranks:
            return []
        (self.waiting.add if waits else self.waiting.discard)(connection)
        busy = {c for c in self.ranks if self.members[c].role is ProcessRole.WORKER} - self.waiting
        # The rank that all wait for is on that machine, whose board can name it.
        waiting = busy if self.waiting and len({self.members[c].host for c in busy}) == 1 else set()
        relieved, self.awaited = self.awaited - waiting, waiting
        # Only changes are sent.
        ranks = tuple(sorted(self.ranks[name] for name in self.waiting))
        notices = [*((rank, ranks) for rank in sorted(waiting)), *((rank, ()) for rank in sorted(relieved))]
        return [(rank, messages.Awaited(others)) for rank, others in notices]

    def _leave(self, connection: int, word: messages.Leave) -> list[Addressed]:
        """A connection is gone: an orderly end, a loss, or a change of mind while gathering."""
        self.watchers.pop(connection, None)
        self.requested.pop(connection, None)
        member = self.members.pop(connection, None)
        rank = self.ranks.pop(connection, None)
        self.waiting.discard(connection)
        self.awaited.discard(connection)
        # A peer that has not named itself speaks for none.
        if self.has_ended or member is None:
            return []
        if rank is not None and member.role is ProcessRole.WORKER:
            # Still known by its rank: others, or its launcher, may speak of it later.
            self.left[rank] = member
        if word.failure is not None and self.phase is ClusterPhase.RUNNING:
            reason = f"{_numbered_name(member, rank)} {word.failure}"
            other = self._worker(word.accused)
            # A rank that ends because of another one accuses that one.
            if other is None:
                # The launcher of a machine that does not answer cannot say anything either.
                self.is_open = word.failure != UNANSWERED
                return self._fail(reason, member.node_id)
            self.is_accused = True
            return self._fail(f"{_numbered_name(other, word.accused)} {word.problem}: {reason}", other.node_id)
        return self.close() if self.phase is ClusterPhase.RUNNING and not self.members else []

    def _worker(self, rank: int | None) -> messages.Register | None:
        """The worker with this rank, also one that has left."""
        workers = {
            number: self.members[c] for c, number in self.ranks.items() if self.members[c].role is ProcessRole.WORKER
        }
        return None if rank is None else (self.left | workers).get(rank)

    def close(self) -> list[Addressed]:
        """End the cluster in good order, whoever still listens; nothing happens when it has ended already."""
        if self.has_ended:
            return []
        self.phase = ClusterPhase.DONE
        return [(connection, messages.Ended(well=True, reason="")) for connection in sorted(self.watchers)]

    def fail(self, reason: str, ending: messages.Leave | None = None) -> list[Addressed]:
        """End the cluster because of something that a launcher has seen. Where it is how the rank that is known as the cause has
        ended, launchers are notified, too.
        """
        ending = ending or messages.Leave(reason)
        member = self._worker(ending.accused)
        name = "" if member is None else f"{_numbered_name(member, ending.accused)} {ending.problem}"
        if self.is_open and member is not None and member.node_id == self.cause:
            self.is_open, self.exit_code = False, ending.exit_code
            self.failure = f"{self.failure} ({ending.problem})" if self.is_own_word else name
            return [self._announce(connection) for connection in sorted(self.watchers)]
        if self.has_ended:
            # The message of a launcher that was signaled to stop may come behind the loss of a rank that it has ended.
            if self.phase is ClusterPhase.DONE or self.is_final or not ending.final:
                return []
            self.is_final, self.is_open, self.failure = True, False, reason
            return [self._announce(connection) for connection in sorted(self.watchers)]
        self.is_final, self.exit_code = ending.final, ending.exit_code
        return self._fail(reason) if member is None else self._fail(f"{name}: {reason}", member.node_id)

    def _announce(self, watcher: int) -> Addressed:
        """What is sent to a launcher at the end."""
        own, well = self.is_own_word and not self.is_accused, self.phase is ClusterPhase.DONE
        reason = messages.shortened(self.failure)
        return watcher, messages.Ended(well, reason, self.cause, self.is_final, self.exit_code, self.is_open, own)

    def _fail(self, reason: str, cause: str = "") -> list[Addressed]:
        """Everyone is notified why; those still waiting for their rank are refused."""
        waiting = self.phase is ClusterPhase.GATHERING
        self.phase, self.failure, self.cause = ClusterPhase.FAILED, reason, cause
        text = messages.shortened(reason)
        word: messages.FromScheduler = messages.Refused(text) if waiting else messages.Ended(False, text, cause)
        to_members = [(connection, word) for connection in sorted(self.members)]
        return to_members + [self._announce(connection) for connection in sorted(self.watchers)]

    def _who_is_missing(self) -> str:
        """The words for a cluster that did not gather in time."""
        parts = []
        for role, expected, kind in (
            (ProcessRole.WORKER, self.size, "worker"),
            (ProcessRole.SERVER, self.server_num, "server"),
        ):
            there = [member for member in self.members.values() if member.role is role]
            if len(there) == expected:
                continue
            numbers = {member.rank for member in there}
            absent = sorted(set(range(expected)) - {number for number in numbers if number is not None})
            names = (
                # With numbers the missing ranks can be named.
                f"ranks {absent}"
                if None not in numbers and role is ProcessRole.WORKER
                else f"{expected - len(there)} of them"
            )
            joined = ", ".join(f"'{member.node_id}'" for member in there) or "none"
            parts.append(f"{len(there)} of {expected} {kind}s joined ({joined}); {names} never did")
        return f"the cluster was not complete after {self.timeout_seconds:g} s: {'; '.join(parts)}"


def _numbered_name(member: messages.Register, rank: int | None) -> str:
    """A member by its rank, with its machine."""
    return f"{structs.replace(member, rank=rank)} on {member.host}"


def _numbered(members: dict[int, messages.Register]) -> dict[int, int]:
    """Ranks by connection: those started with a number keep it, the others fill the gaps in the order of their names.

    The order of the names makes the numbering the same after a restart, and keeps a node's ranks together.
    """
    fixed = {connection: member.rank for connection, member in members.items() if member.rank is not None}
    gaps = sorted(set(range(len(members))) - set(fixed.values()))
    unnumbered = sorted(members.keys() - fixed.keys(), key=lambda connection: natural_key(members[connection].node_id))
    return fixed | dict(zip(unnumbered, gaps, strict=True))


def natural_key(name: str) -> list[tuple[int, str]]:
    """Sort key under which `worker-2` comes before `worker-10`."""
    # Pairs, since numbers and texts cannot be compared with each other.
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
