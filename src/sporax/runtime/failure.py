"""What a rank does when another is lost, and when it fails itself.

* A rank that raises tells the scheduler and ends at once, without waiting for the others.
* A rank that is killed, or whose machine is gone, is noticed by the scheduler (its connection breaks) or, where there is
  none, by JAX's heartbeats. The other ranks may be waiting in an exchange that will never finish: they are ended.
* A rank that hangs keeps its connection and its heartbeats. It shows in what it does not do: the others wait in an exchange
  that it has not begun. Each rank writes the number of exchanges it has begun on a *board* that the ranks of one machine
  share; one that has waited for longer than `SPORAX_EXCHANGE_TIMEOUT` seconds looks there for those that are behind.
  A process that is stopped is found there much sooner.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sporax.ir.errors import SporaxRuntimeError, SporaxValueError
from sporax.launch.environment import RankEnvironment
from sporax.launch.membership import Membership

HEARTBEAT_SECONDS = 15
"""A rank that has sent no heartbeat for so long (its machine is gone) counts as lost."""

SHUTDOWN_SECONDS = 300
"""How long a rank that is done waits for the others, which may still need it as coordinator."""

TIMEOUT_VARIABLE = "SPORAX_EXCHANGE_TIMEOUT"
_DEFAULT_TIMEOUT_SECONDS = 1800.0  # other ranks may well be busy with an evaluation or a checkpoint
_STOPPED_SECONDS = 5.0
_LOOK_SECONDS = 0.5
_VERDICT_SECONDS = 2.0  # how long the scheduler may take to say who is lost
_GRACE_SECONDS = 3.0  # the launcher ends the other ranks itself; only where there is none they end on their own
_FAILED = 1


@dataclass
class _Exchange:
    """What this rank waits for.

    Attributes:
        name: of the program.
        since: when it was begun.
        last: a result that is ready when it has ended; None while it is being started.
    """

    name: str
    since: float
    last: Any = None


_membership: Membership | None = None
_board: Board | None = None
_exchange: _Exchange | None = None
_lost: list[str] = []


class Board:
    """What the ranks of one machine tell each other: their process ids, and how many exchanges each has begun.

    Args:
        place: this rank's place in the job, by which the board is found.
    """

    def __init__(self, place: RankEnvironment) -> None:
        assert place.rank is not None
        key = zlib.crc32(f"{place.coordinator_address} {os.getuid()}".encode())
        self.path = Path(tempfile.gettempdir()) / f"sporax-job-{key:08x}-{place.size}"
        self.rank = place.rank
        with open(self.path, "ab") as file:
            file.truncate(place.size * 16)
        self.entries = np.memmap(self.path, np.int64, "r+", shape=(place.size, 2))
        self.entries[self.rank] = os.getpid(), 0

    def begin(self) -> None:
        """Count an exchange."""
        self.entries[self.rank, 1] += 1

    def stopped(self) -> list[int]:
        """Ranks of this machine whose processes stand still (SIGSTOP, a debugger)."""
        return [rank for rank, (process, _) in enumerate(self.entries) if process and _is_stopped(int(process))]

    def behind(self) -> dict[int, int]:
        """Ranks of this machine that have begun fewer exchanges than this one, with their numbers."""
        own = self.entries[self.rank, 1]
        return {rank: int(count) for rank, (process, count) in enumerate(self.entries) if process and count < own}

    def close(self) -> None:
        """Take the board away."""
        with suppress(OSError):
            self.path.unlink()


def start(membership: Membership) -> None:
    """Watch the other ranks from now on.

    Raises:
        SporaxValueError: the time-out is not a positive number.
    """
    global _membership, _board
    timeout = _timeout_seconds()
    _membership = membership
    _board = Board(membership.environment)
    membership.watch(_end_because)
    threading.Thread(target=_look_after, args=(_board, timeout), name="sporax-exchanges", daemon=True).start()


def stop() -> None:
    """Stop watching."""
    global _membership, _board, _exchange
    if _board is not None:
        _board.close()
    _membership = _board = _exchange = None


def note_start(name: str) -> None:
    """This rank begins an exchange: it hands a program to the device."""
    global _exchange
    if _board is not None:
        _board.begin()
    _exchange = _Exchange(name, time.monotonic())


def note_end(last: Any) -> None:
    """The device has taken it; `last` is ready when the other ranks have done their part."""
    if _exchange is not None:
        _exchange.last = last


def explain(name: str, error: Exception) -> Exception:
    """An error for an exchange that failed; gives the scheduler a moment to say who is lost."""
    if "gloo" not in str(error).lower() and "nccl" not in str(error).lower():
        return error
    deadline = time.monotonic() + _VERDICT_SECONDS
    while not _lost and time.monotonic() < deadline:
        time.sleep(0.05)
    reason = _lost[0] if _lost else str(error).splitlines()[0]
    return SporaxRuntimeError(f"For '{name}', all ranks must take part in the exchange, but one is lost: {reason}")


def say_goodbye() -> None:
    """At the end of the process: after an exception that nobody caught, leave without waiting for the others."""
    if _board is not None:
        _board.close()
    if _membership is None or getattr(sys, "last_type", None) is None:
        return
    _membership.leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_FAILED)  # JAX would wait for all ranks to shut down together


def _look_after(board: Board, timeout_seconds: float) -> None:
    """Watch over this rank's exchanges; ends the process when one cannot finish."""
    while _board is board:
        time.sleep(_LOOK_SECONDS)
        waiting = _exchange
        if waiting is None or (waiting.last is not None and _is_ready(waiting.last)):
            continue
        seconds = time.monotonic() - waiting.since
        stopped = board.stopped() if seconds > _STOPPED_SECONDS else []
        if stopped:
            _end_because(f"it waits in '{waiting.name}' for rank {_listed(stopped)}, which is stopped")
        elif seconds > timeout_seconds:
            behind = board.behind()
            whom = f"rank {_listed(list(behind))}" if behind else "ranks on other machines"
            _end_because(
                f"it has waited in '{waiting.name}' for {whom} for {seconds:.0f} s, longer than {TIMEOUT_VARIABLE}="
                f"{timeout_seconds:g}; exchanges begun: {int(board.entries[board.rank, 1])} here, there {behind}"
            )


def _is_ready(array: Any) -> bool:
    try:
        return bool(array.is_ready())
    except RuntimeError:  # it failed, which whoever looks at the results will hear
        return True


def _is_stopped(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:  # gone, or a system without /proc
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


def _end_because(reason: str) -> None:
    """End this process: what it waits for will not come."""
    membership = _membership
    if membership is None:
        return
    _lost.append(reason)
    report(f"rank {membership.environment.rank} ends because {reason}")
    time.sleep(_GRACE_SECONDS)
    os._exit(_FAILED)


def _timeout_seconds() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE) or str(_DEFAULT_TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise SporaxValueError(
            f"For '{TIMEOUT_VARIABLE}', the value must be a positive number of seconds, but got '{text}'."
        )
    return seconds


def report(text: str) -> None:
    """Say something in this rank's log."""
    print(f"sporax: {text}", file=sys.stderr, flush=True)
