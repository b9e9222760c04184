"""How launchers of several machines notice each other's end, in jobs with parameter servers.

A process that is lost is started again by the launcher of its machine, so its loss is no failure. A machine that is lost takes
its launcher along, and no one would start anything there again. Launchers therefore keep a connection to the first one, which
breaks after `ports.UNANSWERED_SECONDS` without an answer. Ranks that exchange data with each other meet at the same port.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from typing import Protocol

from sporax.cluster import membership, messages, ports, token
from sporax.cluster.environment import RankEnvironment, join_address
from sporax.cluster.rendezvous import Cluster, Left
from sporax.cluster.scheduler import Scheduler
from sporax.launch.jobs.supervision import FAILED

_RETRY_SECONDS = 1.0
_LAUNCHER = "the launcher on "
"""What a `Cluster` says of a launcher begins so. A rank that is lost is no matter of launchers."""


class LauncherLink(Protocol):
    """A launcher's view of the others."""

    exit_code: int
    """Of the process that is the cause of the failure; 1 where it is not known."""

    def tell(self, reason: str, exit_code: int) -> None:
        """Let the others know that this launcher ends its processes. `reason` continues "the launcher on HOST …"."""

    def failure(self) -> str:
        """What has happened to one of the others; "" while all is well. To be called again and again."""

    def close(self) -> None:
        """Leave in good order."""


class FirstLauncher:
    """Of the first machine: the others connect to it, and ranks that exchange data with each other.

    Args:
        variables: of the job.
        num_others: launchers of other machines.
        timeout_seconds: in which they have to come.

    Raises:
        SporaxError: the port is in use.
    """

    def __init__(self, variables: Mapping[str, str], num_others: int, timeout_seconds: float) -> None:
        place = RankEnvironment.from_environ({**variables, "MS_ROLE": "MS_SCHED", "MS_SERVER_NUM": "0"})
        assert place.scheduler_address is not None
        self._cluster = Cluster(place.size, 0, place.timeout_seconds)
        self._address = join_address(*place.scheduler_address)
        listener = ports.listen(*place.scheduler_address)
        secret = token.token_from_environ(variables)
        self._scheduler = Scheduler(self._cluster, listener, secret=secret, starts_at_first=True, log=lambda _: None)
        self.exit_code = FAILED
        self._num_others, self._timeout_seconds = num_others, timeout_seconds
        self._deadline: float | None = time.monotonic() + timeout_seconds

    def tell(self, reason: str, exit_code: int) -> None:
        """All that are connected hear it."""
        self._scheduler.fail(f"{_LAUNCHER}{socket.gethostname()} {reason}", Left(-1, reason, exit_code=exit_code))

    def failure(self) -> str:
        """A launcher that is gone, or has not come."""
        self._scheduler.step()
        num_here = len(self._cluster.watchers)
        if num_here >= self._num_others:
            self._deadline = None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return (
                f"only {num_here} of {self._num_others} launchers of other machines came to the scheduler at {self._address} "
                f"within {self._timeout_seconds:g} s"
            )
        self.exit_code = self._cluster.exit_code or FAILED
        return self._cluster.failure if self._cluster.failure.startswith(_LAUNCHER) else ""

    def close(self) -> None:
        """Close all connections."""
        self._scheduler.close()


class OtherLauncher:
    """Of another machine.

    Args:
        variables: of the job.
        timeout_seconds: in which the first launcher must be there.
    """

    def __init__(self, variables: Mapping[str, str], timeout_seconds: float) -> None:
        self.exit_code = FAILED
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds
        self._address = (variables["MS_SCHED_HOST"], int(variables["MS_SCHED_PORT"]))
        self._secret = token.token_from_environ(variables)
        self._stream: socket.socket | None = None
        self._next_try: float | None = 0.0

    def tell(self, reason: str, exit_code: int) -> None:
        """The first launcher hears it, and tells the others."""
        if self._stream is not None:
            membership.leave_as_launcher(self._stream, reason, ended=membership.EndedRank(exit_code=exit_code))
        self._stream, self._next_try = None, None

    def failure(self) -> str:
        """The first launcher's machine is gone, or it says that another one is."""
        if self._next_try is not None and time.monotonic() >= self._next_try:
            self._stream = membership.watch_as_launcher(self._address, self._secret)
            self._next_try = time.monotonic() + _RETRY_SECONDS if self._stream is None else None
        if self._next_try is not None and time.monotonic() >= self._deadline:
            scheduler = join_address(*self._address)
            return f"the scheduler at {scheduler} could not be reached within {self._timeout_seconds:g} s"
        if self._stream is None or not select.select([self._stream], [], [], 0)[0]:
            return ""
        heard = membership.receive_as_launcher(self._stream, self._address)
        self.close()
        reason = "" if not isinstance(heard, messages.Ended) or heard.well else heard.reason
        self.exit_code = heard.exit_code or FAILED if isinstance(heard, messages.Ended) else FAILED
        # It ends in good order, or says what has happened; what it says of ranks is no matter of launchers.
        return reason if reason.startswith((_LAUNCHER, "the scheduler at")) else ""

    def close(self) -> None:
        """Leave."""
        if self._stream is not None:
            membership.leave_as_launcher(self._stream, None)
        self._stream, self._next_try = None, None
