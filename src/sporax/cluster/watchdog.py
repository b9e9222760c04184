"""What a rank does when another is lost, and when it fails itself.

Problem: in a collective every rank waits for all others, for ever if one of them never comes. Method: facts, and no guesses
about the user's program.

* A rank that raises notifies the scheduler and ends at once, not waiting for the others; so does one that `sys.exit` ends with
  another code than 0, where `sporax run` has started its script (Python notifies no one else).
* A rank that is killed, or whose machine is gone, is noticed by the scheduler (its connection breaks) or, where there is
  none, by JAX's heartbeats.
* Ranks of one machine share a *board* (`sporax.cluster.board`) with the exchanges that each has begun. From it a rank that waits
  sees who is behind. It ends the job at once where the exchange cannot finish: the rank that it waits for is stopped (SIGSTOP),
  has left the job, or all ranks wait in different exchanges and none does anything.
* A rank that is behind and alive (it evaluates, compiles, sleeps, loops, or is in a debugger) is left alone. Those who wait
  say after half a minute in their logs for whom, and give up after `SPORAX_EXCHANGE_TIMEOUT` seconds.
* With MS_ENABLE_RECOVERY=1, and without a launcher that starts jobs again, a rank that learns of the loss of another one begins
  its program again in place of itself, registers with the scheduler, and waits until the lost one has been started again. A
  process cannot leave one set of XLA devices for another in the middle of a program; its checkpoints can.
* Who wants idle ranks to end the job earlier sets `SPORAX_IDLE_TIMEOUT`: a rank for which others wait, and that has used no
  processor time for so many seconds, ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from msgspec import Struct

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster.board import Idleness, RankBoard
from sporax.cluster.environment import RECOVERY_VARIABLE, RESTART_VARIABLE
from sporax.cluster.membership import Membership
from sporax.ir.variables import read

HEARTBEAT_SECONDS = 25
"""A rank that has sent no heartbeat for so long (its machine is gone) counts as lost to JAX. Longer than the scheduler needs to
notice it (`ports.UNANSWERED_SECONDS`), which says who it is.
"""

SHUTDOWN_SECONDS = 300
"""How long a rank that is done waits for the others, which may still need it as coordinator."""

TIMEOUT_VARIABLE = "SPORAX_EXCHANGE_TIMEOUT"
IDLE_VARIABLE = "SPORAX_IDLE_TIMEOUT"
_DEFAULT_TIMEOUT_SECONDS = 1800.0
"""Other ranks may well be busy with an evaluation or a checkpoint."""
_DEADLOCK_SECONDS = 9.0
"""All ranks wait and none does anything. Leaves time to end the job within 15 s."""
_REPORT_SECONDS = 30.0
"""After which a rank that waits says so; then after twice as long, and so on."""
_STOPPED_SECONDS = 5.0
"""How long a rank must have been waited for before it matters that it is stopped: users stop and continue jobs."""
_LEFT_SECONDS = 1.0
"""How long it takes at most until a rank that is leaving has said on the board what it has begun."""
_SOON_SECONDS = 1.0
"""After which ranks of other machines are notified that one waits."""
_LOOK_SECONDS = 0.5
_VERDICT_SECONDS = 2.0
"""How long the scheduler may take to say who is lost."""
_GRACE_SECONDS = 3.0
"""The launcher ends the other ranks itself; only where there is none they end on their own."""
_LINGER_SECONDS = 1.0
"""For which rank 0, whose process has JAX's coordinator, outlives its word that it ends. A rank that notices the end of the
coordinator before that of the job is aborted by JAX with a C++ stack trace.
"""
_FAILED = 1
_STANDARD_ERROR = 2


class _Exchange(Struct):
    """What this rank waits for.

    Attributes:
        name: of the program.
        since: when it was begun.
        devices: of the ranks that take part; each knows its process.
        last: a result that is ready when it has ended; None while it is being started.
    """

    name: str
    since: float
    devices: tuple[Any, ...]
    last: Any = None


class _Verdict(Struct, frozen=True):
    """Why this process ends.

    Attributes:
        reason: in words that follow "because".
        accused: rank that is the cause, where it is another one.
        problem: what that rank did, after its name.
    """

    reason: str
    accused: int | None = None
    problem: str = ""


class Watchdog:
    """Watches the other ranks of a job from a thread, and ends this process when what it waits for will not come.

    Args:
        membership: this rank's place in the job.
        environ: usually `os.environ`; holds the time-outs.

    Raises:
        SporaxValueError: a time-out is not a positive number.
    """

    def __init__(self, membership: Membership, environ: Mapping[str, str] = os.environ) -> None:
        # 0 is refused by `_seconds`, so `or` only replaces None.
        self._timeout_seconds = _seconds(environ, TIMEOUT_VARIABLE) or _DEFAULT_TIMEOUT_SECONDS
        self._idle_seconds = _seconds(environ, IDLE_VARIABLE)
        self._membership = membership
        self._board = RankBoard.of(membership.environment, environ)
        self._platform = "cpu"
        self._exchange: _Exchange | None = None
        self._lost: list[str] = []
        self._idleness = Idleness()
        self._stopped = self._leaving = False
        self._recovers = recovers(environ)

    def start(self) -> None:
        """Watch from now on."""
        self._membership.watch(self._job_has_failed)
        # A daemon: it must not keep a process alive that has come to its end.
        threading.Thread(target=self._look_after, name="sporax-exchanges", daemon=True).start()

    def computes_on(self, platform: str) -> None:
        """Say on what ranks compute. The thread must not query JAX, which would start a backend at the end."""
        self._platform = platform

    def stop(self) -> None:
        """Stop watching."""
        self._stopped = True
        self._board.leave()

    def note_start(self, name: str, devices: tuple[Any, ...]) -> None:
        """This rank begins an exchange: it hands a program to the devices of all ranks that take part."""
        # First the board: others may request the number while this rank starts its program.
        self._board.begin(_ranks(devices))
        self._exchange = _Exchange(name, time.monotonic(), devices)

    def note_end(self, last: Any) -> None:
        """The device has taken it; `last` is ready when the other ranks have done their part."""
        if self._exchange is not None:
            self._exchange.last = last

    def explain(self, name: str, error: Exception) -> Exception:
        """An error for an exchange that failed; gives the scheduler a moment to say who is lost."""
        # Other errors have nothing to do with the exchange.
        if not _is_of_exchange(error):
            return error
        reason = self._lost[0] if self._learn_of_a_loss() else str(error).splitlines()[0]
        return SporaxRuntimeError(f"For '{name}', all ranks must take part in the exchange, but one is lost: {reason}")

    def _learn_of_a_loss(self) -> bool:
        """Whether another rank is lost; the scheduler may take a moment to say so."""
        deadline = time.monotonic() + _VERDICT_SECONDS
        while not self._lost and time.monotonic() < deadline:
            time.sleep(0.05)
        return bool(self._lost)

    def say_goodbye(self) -> None:
        """At the end of the process: after an exception that no one caught, or `sys.exit` with another code than 0, leave without
        waiting for the others.
        """
        if self._stopped:
            return
        self._board.leave()
        self._leaving = True
        # A process that ends well waits for the others in JAX's own shutdown.
        if getattr(sys, "last_type", None) is None:
            return
        if self._recovers and self._learn_of_a_loss():
            self._begin_again()
        sys.stdout.flush()
        sys.stderr.flush()
        error = getattr(sys, "last_value", None)
        # A rank whose peer is gone is not the cause: where the scheduler says so, this process ends in `_job_has_failed`.
        if not _is_of_exchange(error) or not self._learn_of_a_loss():
            self._membership.leave("ended by sys.exit" if isinstance(error, SystemExit) else None)
        # A normal exit would run that shutdown, which waits for ranks that never come.
        self._exit(_exit_code(error))  # JAX would wait for all ranks to shut down together

    def _begin_again(self) -> NoReturn:
        """Begin this process's program again; its coordinator, if it has that, outlives the news of the loss."""
        if self._rank == 0:
            time.sleep(_LINGER_SECONDS)
        begin_again(f"rank {self._rank} begins again because {self._lost[0]}")

    def _exit(self, code: int = _FAILED) -> None:
        """End this process; the others have been notified."""
        if self._rank == 0:
            time.sleep(_LINGER_SECONDS)
        os._exit(code)

    def _job_has_failed(self, reason: str) -> None:
        """The scheduler says so, or is gone. A rank that only waits for the others before it ends has nothing more to say."""
        if self._recovers and not self._stopped:
            self._lost.append(reason)
            self._begin_again()
        if self._leaving:
            self._exit()
        self._end_because(_Verdict(reason), _GRACE_SECONDS)

    def _look_after(self) -> None:
        """Watch over this rank's exchanges, and over itself while others wait for it; ends the process when all is lost."""
        reported, next_report = False, _REPORT_SECONDS
        while not self._stopped:
            time.sleep(_LOOK_SECONDS)
            waiting = self._pending()
            self._board.note(waiting is not None)
            if waiting is None:
                # Each new exchange is reported from the first interval on.
                next_report = _REPORT_SECONDS
                verdict = self._is_idle_while_awaited()
            else:
                seconds = time.monotonic() - waiting.since
                verdict = self._never_ends(waiting, seconds)
                if verdict is None and seconds > next_report:
                    report(f"rank {self._rank} {self._who_is_behind(waiting, f'{seconds:.0f} s')}")
                    next_report = 2 * seconds
            long = waiting is not None and time.monotonic() - waiting.since > _SOON_SECONDS
            # Ranks of one machine see each other on the board, so nothing has to be sent.
            if long != reported and not self._board.is_complete():
                reported = long
                self._membership.say_waits(long)
            if verdict is not None:
                self._end_because(verdict)

    @property
    def _rank(self) -> int | None:
        return self._membership.environment.rank

    def _pending(self) -> _Exchange | None:
        """The exchange that this rank has begun and that has not ended."""
        exchange = self._exchange
        return None if exchange is None or (exchange.last is not None and _is_ready(exchange.last)) else exchange

    def _never_ends(self, waiting: _Exchange, seconds: float) -> _Verdict | None:
        """Why nothing will come of an exchange in which this rank waits, if so."""
        board, where = self._board, f"it waits in '{waiting.name}' for"
        # A rank that leaves writes to the board just before it leaves.
        # Only members of the exchange are needed: others may leave earlier.
        gone = sorted({*board.left_behind()} & _ranks(waiting.devices)) if seconds > _LEFT_SECONDS else []
        if gone:
            reason = f"{where} rank {_listed(gone)}, which has left the job: {board.standing()}"
            return _Verdict(reason, gone[0], "has left the job while others needed it")
        if seconds > _STOPPED_SECONDS and (stopped := board.stopped()):
            return _Verdict(f"{where} rank {_listed(stopped)}, which is stopped", stopped[0], "is stopped")
        # A debugger may hold a rank for as long as its user likes.
        if seconds > self._timeout_seconds and not board.traced():
            reason = f"it {self._who_is_behind(waiting, f'{TIMEOUT_VARIABLE}={self._timeout_seconds:g} s')}"
            return _Verdict(reason, next(iter(board.behind()), None), "does not come")
        # No single rank is to blame for a deadlock.
        if self._is_deadlock():
            still = f"and nothing has moved for {_DEADLOCK_SECONDS:g} s"
            return _Verdict(f"{where} others that wait as well: {board.standing()}, {still}")
        return None

    def _is_deadlock(self) -> bool:
        """Whether all ranks wait in exchanges, and none of them uses a processor: they wait for each other.

        Ranks that compute on another device use no processor either, so this is known of CPUs only. A process that a debugger
        holds counts as busy.
        """
        board = self._board
        if self._platform != "cpu" or not board.is_complete() or board.at_work() or board.traced():
            # Somebody works, so idleness is counted from the beginning.
            self._idleness.forget()
            return False
        return self._all_idle(_DEADLOCK_SECONDS)

    def _is_idle_while_awaited(self) -> _Verdict | None:
        """Why this rank, for which others wait, should end, where the user has said so."""
        # Before its first exchange a rank may be starting JAX's backend, and must not query it.
        awaiting = self._board.awaiting(self._membership.awaited_by) if self._board.begun else []
        limit = self._idle_seconds
        if not awaiting or limit is None:
            self._idleness.forget()
            return None
        if not self._all_idle(limit):
            return None
        return _Verdict(
            f"rank {_listed(awaiting)} waits for it in an exchange, and it has done nothing for {limit:g} s "
            f"({IDLE_VARIABLE})"
        )

    def _all_idle(self, limit: float) -> bool:
        """Whether all ranks of this machine have been idle for longer than `limit` seconds. As long as one does something, it
        may be the one that the others wait for.
        """
        processes = [os.getpid(), *self._board.present().values()]
        return all(seconds > limit for seconds in self._idleness.look(processes).values())

    def _who_is_behind(self, waiting: _Exchange, time_out: str) -> str:
        """For whom this rank waits, in words."""
        behind = self._board.behind()
        whom = f"rank {_listed(behind)}" if behind else "ranks on other machines"
        if not behind and self._board.is_complete():
            whom = "the end of a computation that all ranks have begun"
        by = "".join(f"; rank {rank} is {count} exchange{'s' * (count > 1)} behind" for rank, count in behind.items())
        return f"has waited in '{waiting.name}' for {whom} for longer than {time_out}{by}"

    def _end_because(self, verdict: _Verdict, grace_seconds: float = 0.0) -> None:
        """End this process: what it waits for will not come."""
        if self._stopped:
            return
        self._lost.append(verdict.reason)
        report(f"rank {self._rank} ends because {verdict.reason}")
        time.sleep(grace_seconds)
        # The first line is enough for others; this rank's log has the rest.
        self._membership.leave(f"ended because {verdict.reason.splitlines()[0]}", verdict.accused, verdict.problem)
        self._exit()


def recovers(environ: Mapping[str, str]) -> bool:
    """Whether this process itself goes on after the loss of a rank: recovery is on, and no launcher sees to it."""
    return read(environ, RECOVERY_VARIABLE) == "1" and RESTART_VARIABLE not in environ


def begin_again(why: str) -> NoReturn:
    """Run this process's program from its beginning, in the same process; connections and files are closed."""
    report(why)
    sys.stdout.flush()
    sys.stderr.flush()
    # `execv` keeps descriptors that are inheritable, and sockets to lost ranks would stay open.
    for descriptor in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):  # the one that lists them is closed already
            if int(descriptor) > _STANDARD_ERROR:
                os.set_inheritable(int(descriptor), False)
    # `orig_argv` has Python's own flags as well, such as -m.
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def report(text: str) -> None:
    """Say something in this rank's log."""
    print(f"sporax: {text}", file=sys.stderr, flush=True)


def _is_of_exchange(error: object) -> bool:
    """Whether an exchange between ranks has failed."""
    text = str(error).lower()
    return "gloo" in text or "nccl" in text


def _exit_code(error: object) -> int:
    """The code of a process that ends by an exception; of SystemExit it is the one that Python takes."""
    code = error.code if isinstance(error, SystemExit) else _FAILED
    return code & 0xFF if isinstance(code, int) else _FAILED


def _ranks(devices: tuple[Any, ...]) -> set[int]:
    """The ranks whose devices these are."""
    return {device.process_index for device in devices}


def _is_ready(array: Any) -> bool:
    try:
        return bool(array.is_ready())
    except RuntimeError:  # it failed, which whoever looks at the results will notice
        return True


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _seconds(environ: Mapping[str, str], variable: str) -> float | None:
    """A time-out from the environment; None where there is none."""
    seconds: float | None = read(environ, variable)
    return seconds
