"""How a launcher follows the cluster: by keeping the scheduler itself, or by connecting to the node that does."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from sporax.cluster import membership, messages
from sporax.cluster.rendezvous import Cluster, ClusterPhase
from sporax.cluster.scheduler import Scheduler
from sporax.launch.jobs.job import NodeJob
from sporax.launch.jobs.supervision import ELSEWHERE, ClusterEnded, ClusterFormed, Event, RankJoined

_RETRY_SECONDS = 1.0
_TICK_SECONDS = 0.2
_REPORTING_SECONDS = 20.0
"""How long a node whose ranks failed at once waits for the scheduler's, whose Python takes seconds to start on a busy machine."""
_WORD_SECONDS = 1.0
"""For which a node whose rank has ended by itself waits for the scheduler, to which the rank has reported why."""
_RESTARTING_SECONDS = 60.0
"""For which a node waits for the scheduler's to start a failed job again: ranks need seconds to end, silence 8 to be noticed."""


def _local_cause(local_ranks: Mapping[str, int], node_id: str) -> int | None:
    """The local rank of the member that caused a failure; None where no member did."""
    return local_ranks.get(node_id, ELSEWHERE) if node_id else None


class SchedulerHere:
    """The scheduler is on this node: it lives in the launcher's own loop.

    Args:
        listener: the scheduler's socket.
        worker_num: ranks of the whole job.
        timeout_seconds: in which they have to come, counted from the first one on.
        secret: the job's token.
        log: takes what the scheduler notes.
        local_ranks: by the names of this node's processes.
        restart: how often the job was started again.
    """

    def __init__(
        self,
        listener: socket.socket,
        worker_num: int,
        timeout_seconds: float,
        secret: str,
        log: Callable[[str], None] = lambda _: None,
        local_ranks: Mapping[str, int] = MappingProxyType({}),
        restart: int = 0,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self._cluster = Cluster(worker_num, 0, timeout_seconds)
        self._scheduler = Scheduler(
            self._cluster, listener, secret=secret, starts_at_first=True, log=log, restart=restart
        )
        self._local_ranks = local_ranks
        self._joined: set[str] = set()
        self.ranks: Mapping[int, int] = {}
        """The ranks of local ones that the scheduler numbers, once it has."""
        self._phase, self._is_open = ClusterPhase.GATHERING, False

    def watched(self) -> int:
        """The scheduler's own selector: a descriptor that becomes readable when there is something to receive."""
        return self._scheduler.fileno()

    def events(self, *, is_expected: bool) -> Iterator[Event]:
        """Let the scheduler work; what has happened since the last call. What a rank has sent before its end is here already,
        whether or not it `is_expected`.
        """
        self._scheduler.step()
        present = {member.node_id for member in self._cluster.members.values()}
        # A scheduler on this node also knows ranks of other nodes, which this supervisor does not watch.
        for node_id in sorted(present - self._joined):
            if node_id in self._local_ranks:
                yield RankJoined(self._local_ranks[node_id])
        self._joined |= present
        before, self._phase = self._phase, self._cluster.phase
        was_open, self._is_open = self._is_open, self._cluster.is_open
        if before is ClusterPhase.GATHERING and self._phase in (ClusterPhase.RUNNING, ClusterPhase.DONE):
            ranks = self._cluster.rank_of()
            self.ranks = {local: ranks[name] for name, local in self._local_ranks.items() if name in ranks}
            yield ClusterFormed()
        has_more = was_open and not self._is_open
        if has_more or (before is not self._phase and self._phase in (ClusterPhase.DONE, ClusterPhase.FAILED)):
            yield ClusterEnded(
                self._cluster.failure or None,
                _local_cause(self._local_ranks, self._cluster.cause),
                self._cluster.is_accused,
                self._cluster.is_own_word and not self._cluster.is_accused,
                self._cluster.exit_code,
                self._cluster.is_open,
            )

    def is_final(self) -> bool:
        """Whether another node was signaled to stop, so that the job is not to be started again."""
        return self._cluster.is_final

    @property
    def num_others(self) -> int:
        """How many other launchers there are a connection to."""
        return len(self._cluster.watchers)

    def report_failure(self, word: messages.Leave) -> None:
        """Let all members and watchers know that this node's ranks have failed, which continues "the launcher on HOST …", and of
        the rank that has failed first, if it was one.
        """
        self._phase, self._is_open = ClusterPhase.FAILED, False  # what we say ourselves is no news to us
        self._scheduler.fail(f"the launcher on {socket.gethostname()} {word.failure}", word)

    def close(self) -> None:
        """End the cluster."""
        self._scheduler.close()


def await_scheduler(job: NodeJob, secret: str) -> bool:
    """Wait until the node of the scheduler has started the job again as often as this one; False where it does not."""
    host, port = job.scheduler_address
    assert port is not None
    end = time.monotonic() + _RESTARTING_SECONDS
    while time.monotonic() < end:
        stream = membership.watch_as_launcher((host, port), secret, (), job.restart or 0)
        if stream is not None:
            membership.leave_as_launcher(stream, messages.Leave(None))
            return True
        time.sleep(_TICK_SECONDS)
    return False


class SchedulerElsewhere:
    """The scheduler is on another node: keep a connection to it, as soon as there is one to be had.

    Args:
        address: of the scheduler.
        secret: the job's token.
        local_ranks: by the names of this node's processes.
        requested: names of those whose ranks the scheduler gives.
        restart: how often the job was started again.
    """

    def __init__(
        self,
        address: tuple[str, int],
        secret: str,
        local_ranks: Mapping[str, int] = MappingProxyType({}),
        requested: tuple[str, ...] = (),
        restart: int = 0,
    ) -> None:
        self._host, self.port = address
        self._secret, self._restart = secret, restart
        self._local_ranks, self._requested = local_ranks, requested
        self.ranks: Mapping[int, int] = {}
        self._stream: socket.socket | None = None
        self._next_try: float | None = 0.0
        self._untold: messages.Leave | None = None
        self._open: messages.Ended | None = None
        self._is_final = False

    def watched(self) -> int | None:
        """The connection."""
        return self._stream.fileno() if self._stream is not None else None

    def events(self, *, is_expected: bool) -> Iterator[Event]:
        """Connect if not connected; take the scheduler's word if it has spoken, or speaks in a moment as expected: where a rank
        here has ended by itself, the scheduler will say why.
        """
        if self._next_try is not None and time.monotonic() >= self._next_try:
            self._stream = membership.watch_as_launcher(
                (self._host, self.port), self._secret, self._requested, self._restart
            )
            # Nothing to try again once there is a connection.
            self._next_try = time.monotonic() + _RETRY_SECONDS if self._stream is None else None
        end = time.monotonic() + (_WORD_SECONDS if is_expected else 0)
        while self._stream is not None and select.select([self._stream], [], [], max(0, end - time.monotonic()))[0]:
            word = membership.receive_as_launcher(self._stream, (self._host, self.port))
            if isinstance(word, tuple):
                self.ranks = {self._local_ranks[name]: rank for name, rank in zip(self._requested, word, strict=True)}
                continue
            if self._open is not None and not word.node_id:  # the scheduler has ended before it could say more
                word = msgspec.structs.replace(self._open, is_open=False)
            self._is_final, self._open = word.final, word if word.is_open else None
            if self._open is None:
                # The scheduler has nothing more to say after the end of the job.
                self._leave(messages.Leave(None))
            cause = _local_cause(self._local_ranks, word.node_id)
            reason = None if word.well else word.reason
            yield ClusterEnded(reason, cause, False, word.is_own_word, word.exit_code, word.is_open)

    def is_final(self) -> bool:
        """As the scheduler has reported."""
        return self._is_final

    @property
    def num_others(self) -> int:
        """The one that keeps the scheduler."""
        return int(self._stream is not None)

    def report_failure(self, word: messages.Leave) -> None:
        """Leave with a failure; `close` tries again if the scheduler cannot be reached now."""
        # Not connected yet: `close` tries again.
        self._untold = word if self._stream is None and self._next_try is not None else None
        self._is_final = word.final
        self._leave(word)

    def close(self) -> None:
        """Leave; a failure that the scheduler does not know is worth waiting a little for a scheduler to start."""
        end = time.monotonic() + _REPORTING_SECONDS
        while self._untold is not None and self._stream is None and time.monotonic() < end:
            self._stream = membership.watch_as_launcher((self._host, self.port), self._secret, (), self._restart)
            time.sleep(_TICK_SECONDS if self._stream is None else 0)
        self._leave(self._untold or messages.Leave(None, final=self._is_final))
        self._next_try = None

    def _leave(self, word: messages.Leave) -> None:
        """Leave once."""
        stream, self._stream = self._stream, None
        if stream is not None:
            membership.leave_as_launcher(stream, word)


ClusterLink = SchedulerHere | SchedulerElsewhere
"""A launcher's connection to the scheduler. Both classes have the same members; `SchedulerHere` says what each means."""
