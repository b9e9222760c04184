"""What a rank does when another is lost, and when it fails itself.

* A rank that raises tells the scheduler and ends at once, without waiting for the others.
* A rank that is killed, or whose machine is gone, is noticed by the scheduler (its connection breaks) or, where there is
  none, by JAX's heartbeats. The other ranks may be waiting in an exchange that will never finish: they are ended.
* A rank that hangs keeps its connection and its heartbeats. It shows in what it does not do: others wait in an exchange that
  it has not begun, which ranks of one machine tell each other on a *board* (`sporax.cluster.board`). As long as nobody
  waits, nobody is judged. A rank for which others wait examines itself, and says in its report where its main thread is:

  - it sleeps, or waits for a lock or for something that does not come: all ranks have been idle for `SPORAX_IDLE_TIMEOUT`
    seconds. (On CPUs: a rank that waits for a GPU looks idle too, so there this is off unless the variable is set.)
  - its main thread goes in circles for as long (`sporax.cluster.main_thread`).

  Those who wait find a process that is stopped, ranks that wait for each other in different exchanges, or that have left too
  early. A rank that computes, compiles or evaluates is left alone; it has `SPORAX_EXCHANGE_TIMEOUT` seconds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from sporax.cluster import main_thread
from sporax.cluster.board import Board, Idleness
from sporax.cluster.membership import Membership
from sporax.ir.errors import SporaxRuntimeError, SporaxValueError

HEARTBEAT_SECONDS = 15
"""A rank that has sent no heartbeat for so long (its machine is gone) counts as lost."""

SHUTDOWN_SECONDS = 300
"""How long a rank that is done waits for the others, which may still need it as coordinator."""

TIMEOUT_VARIABLE = "SPORAX_EXCHANGE_TIMEOUT"
IDLE_VARIABLE = "SPORAX_IDLE_TIMEOUT"
_DEFAULT_TIMEOUT_SECONDS = 1800.0  # other ranks may well be busy with an evaluation or a checkpoint
_DEFAULT_IDLE_SECONDS = 7.0  # leaves time to end the job within 15 s, also a rank that does not heed SIGTERM
_OWN_REPORT_SECONDS = 2.0  # those who wait leave the report to the rank that hangs, which knows more
_STOPPED_SECONDS = 5.0
_SOON_SECONDS = 1.0  # after which ranks of other machines hear that one waits
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
_platform = "cpu"
_lost: list[str] = []


def start(membership: Membership) -> None:
    """Watch the other ranks from now on.

    Raises:
        SporaxValueError: a time-out is not a positive number.
    """
    global _membership, _board
    timeout, idle = _seconds(TIMEOUT_VARIABLE) or _DEFAULT_TIMEOUT_SECONDS, _seconds(IDLE_VARIABLE)
    _membership = membership
    _board = Board(membership.environment)
    membership.watch(partial(_end_because, grace_seconds=_GRACE_SECONDS))
    arguments = (_board, membership, timeout, idle)
    threading.Thread(target=_look_after, args=arguments, name="sporax-exchanges", daemon=True).start()


def computes_on(platform: str) -> None:
    """Say on what ranks compute. The thread that watches must not ask JAX, which would start a backend at the end."""
    global _platform
    _platform = platform


def stop() -> None:
    """Stop watching."""
    global _membership, _board, _exchange
    if _board is not None:
        _board.leave()
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
        _board.leave()
    if _membership is None or getattr(sys, "last_type", None) is None:
        return
    _membership.leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_FAILED)  # JAX would wait for all ranks to shut down together


def _look_after(board: Board, membership: Membership, timeout_seconds: float, idle_seconds: float | None) -> None:
    """Watch over this rank's exchanges, and over itself while others wait for it; ends the process when all is lost."""
    idleness, circles, begun, said = Idleness(), main_thread.Circles(), 0, False
    while _board is board:
        time.sleep(_LOOK_SECONDS)
        waiting = _pending()
        waits = waiting is not None and main_thread.is_inside()
        board.note(waits)
        reason = None
        # Before its first exchange a rank may be starting JAX's backend, and must not be asked about it.
        awaiting = [] if waits or not board.begun else board.awaiting(membership.awaited_by)
        if waiting is not None and waits:
            reason = _hopeless(board, waiting, timeout_seconds)
            reason = reason or _stuck(board, idleness, waiting, _idle_limit(idle_seconds))
        elif awaiting:
            reason = _hangs(board, idleness, circles, awaiting, _idle_limit(idle_seconds))
        else:
            idleness.forget()
        if waits != said and (said or _waits_long(board, waiting)):
            said = waits
            membership.say_waits(waits)
        if not awaiting or board.begun != begun:
            circles.forget()
        begun = board.begun
        if reason:
            _end_because(reason)


def _idle_limit(given: float | None) -> float | None:
    """How long ranks may be idle; None where they may compute without their process and nobody has said it."""
    return given or (_DEFAULT_IDLE_SECONDS if _platform == "cpu" else None)


def _pending() -> _Exchange | None:
    """The exchange that this rank has begun and that has not ended."""
    waiting = _exchange
    return None if waiting is None or (waiting.last is not None and _is_ready(waiting.last)) else waiting


def _waits_long(board: Board, waiting: _Exchange | None) -> bool:
    """Whether the ranks of other machines should know that this one waits."""
    return waiting is not None and time.monotonic() - waiting.since > _SOON_SECONDS and not board.is_whole()


def _hopeless(board: Board, waiting: _Exchange, timeout_seconds: float) -> str | None:
    """Why an exchange is given up: a rank is stopped, or it takes too long."""
    seconds = time.monotonic() - waiting.since
    if seconds > _STOPPED_SECONDS and (stopped := board.stopped()):
        return f"it waits in '{waiting.name}' for rank {_listed(stopped)}, which is stopped"
    return _overdue(board, waiting, timeout_seconds) if seconds > timeout_seconds else None


def _hangs(
    board: Board, idleness: Idleness, circles: main_thread.Circles, awaiting: list[int], limit: float | None
) -> str | None:
    """Why this rank, for which others wait, will not come, if so."""
    patience = limit or _DEFAULT_IDLE_SECONDS
    if limit is not None and _all_idle(board, idleness, limit):
        what = f"has done nothing for {limit:g} s: it sleeps, or waits for a lock or for something that does not come"
    elif circles.look() > patience:
        what = f"has gone in circles for {patience:g} s"
    else:
        return None
    return (
        f"rank {_listed(awaiting)} waits for it in an exchange, and it {what} ({IDLE_VARIABLE}). Its main thread is at\n"
        f"{main_thread.stack()}"
    )


def _all_idle(board: Board, idleness: Idleness, limit: float) -> bool:
    """Whether all ranks of this machine have been idle for longer than `limit` seconds. As long as one does something, it
    may be the one that the others wait for; it may be this one, which is compiling.
    """
    return all(seconds > limit for seconds in idleness.look([os.getpid(), *board.present().values()]).values())


def _stuck(board: Board, idleness: Idleness, waiting: _Exchange, limit: float | None) -> str | None:
    """Why nothing will come of an exchange in which this rank waits, if so."""
    if limit is None or not _all_idle(board, idleness, limit + _OWN_REPORT_SECONDS):
        return None
    if resting := board.at_work():
        return f"it waits in '{waiting.name}' for rank {_listed(resting)}, which has done nothing for {limit:g} s"
    if board.is_whole():
        return f"it waits in '{waiting.name}' for nobody: {board.standing()}, and nothing has moved for {limit:g} s"
    return None


def _overdue(board: Board, waiting: _Exchange, timeout_seconds: float) -> str:
    """Why an exchange is given up that has waited for too long."""
    behind = board.behind()
    whom = f"rank {_listed(list(behind))}" if behind else "ranks on other machines"
    return (
        f"it has waited in '{waiting.name}' for {whom} for longer than {TIMEOUT_VARIABLE}={timeout_seconds:g} s; "
        f"exchanges begun: {board.begun} here, there {behind}"
    )


def _is_ready(array: Any) -> bool:
    try:
        return bool(array.is_ready())
    except RuntimeError:  # it failed, which whoever looks at the results will hear
        return True


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


def _end_because(reason: str, grace_seconds: float = 0.0) -> None:
    """End this process: what it waits for will not come."""
    membership = _membership
    if membership is None:
        return
    _lost.append(reason)
    report(f"rank {membership.environment.rank} ends because {reason}")
    time.sleep(grace_seconds)
    membership.leave(f"ended because {reason.splitlines()[0]}")
    os._exit(_FAILED)


def _seconds(variable: str) -> float | None:
    """A time-out from the environment; None where there is none."""
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise SporaxValueError(f"For '{variable}', the value must be a positive number of seconds, but got '{text}'.")
    return seconds


def report(text: str) -> None:
    """Say something in this rank's log."""
    print(f"sporax: {text}", file=sys.stderr, flush=True)
