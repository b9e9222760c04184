"""The launcher's hands: start ranks; listen to the scheduler, to signals and to ends of processes, in one loop.

Decisions are `supervision.Supervision`'s; what to start is `job.Job`'s. Each rank leads a session of its own, so that
the terminal's Ctrl-C reaches the launcher alone and a rank can be ended together with the processes it has started.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster import private
from sporax.launch.jobs import cores, supervision
from sporax.launch.jobs.cluster_links import Link, SchedulerElsewhere, SchedulerHere
from sporax.launch.jobs.job import Job, RankPlan, connection_variables
from sporax.launch.jobs.logs import LogTail, last_lines, write_problem
from sporax.launch.jobs.rank import rank_command
from sporax.launch.jobs.secrets import JobSecrets
from sporax.launch.jobs.supervision import Supervision

_QUOTED_LINES = 20
_TICK_SECONDS = 0.1
_IDLE_SECONDS = 0.5
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class _Started:
    """A rank's process.

    Attributes:
        plan: what was to be started.
        process: the leader of the rank's session.
        held: the writing end of the pipe whose end is the rank's end; never written to.
    """

    plan: RankPlan
    process: subprocess.Popen[bytes]
    held: int


class Supervisor:
    """Runs this node's part of a job; a context manager at whose end no rank is left running.

    Args:
        job: what to start.
        listener: the scheduler's socket, if the scheduler is on this node.
        secrets: the job's private directory and token; the directory is removed at the end.
        console: where the user reads what the launcher has to say; None in the background.
    """

    def __init__(self, job: Job, listener: socket.socket | None, console: TextIO | None, secrets: JobSecrets) -> None:
        self._job = job
        self._secrets = secrets
        # The directory lives as long as this process, also in the background.
        private.claim(secrets.directory)
        self._console = console
        self._log_works = True
        try:
            # Later starts of a job add to the logs of the first one.
            self._log = open(job.scheduler_log, "a" if job.restart else "w", buffering=1, encoding="utf-8")  # noqa: SIM115 (closed at exit)
        except OSError as error:
            private.remove(secrets.directory)
            raise SporaxRuntimeError(
                f"For 'sporax run', log_dir must be a directory that can be written, but '{job.scheduler_log}' got: "
                f"{error.strerror}."
            ) from error
        self._link: Link
        if listener is not None:
            self._link = SchedulerHere(job, listener, secrets.token, self._note)
        else:
            self._link = SchedulerElsewhere(job, secrets.token)
        self._state = Supervision(running={plan.local_rank for plan in job.ranks}, graceful=job.exits_gracefully)
        self.was_told_to_stop = False
        """Whether a signal ended the job."""
        self._started: dict[int, _Started] = {}
        self._tails: dict[int, LogTail] = {}
        self._began = time.monotonic()
        self._grace_ends: float | None = None
        self._reason = ""
        self._exit_code: int | None = None

    def __enter__(self) -> Supervisor:
        """Start every rank.

        Raises:
            SporaxRuntimeError: a process or its log file cannot be made; those already started have been killed.
        """
        try:
            for plan in self._job.ranks:
                self._started[plan.local_rank] = self._start(plan)
        except OSError as error:
            self._clean_up()
            raise SporaxRuntimeError(f"For 'sporax run', every rank must start, but {plan} got: {error}.") from error
        except BaseException:
            self._clean_up()
            raise
        # After the ranks have started, which would inherit the binding.
        if self._job.scheduler_cores is not None:
            os.sched_setaffinity(0, self._job.scheduler_cores)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill what still runs and close what is open."""
        self._clean_up()

    def run(self, signals: int) -> int:
        """Watch the job until it is over.

        Args:
            signals: descriptor that yields the numbers of the signals that come.

        Returns:
            The job's exit code.
        """
        # Until the state machine says so: it also waits for ranks of other nodes.
        while self._exit_code is None:
            self._wait(signals)
            self._show_tails()
            for event in self._events(signals):
                self._carry_out(self._state.handle(event))
        return self._exit_code

    def _start(self, plan: RankPlan) -> _Started:
        """Start one rank."""
        reader, writer = os.pipe()
        command = [*cores.memory_prefix(plan.share), *rank_command(self._job.target, reader, plan.share.cores)]
        # A rank number of the launcher's own environment must not become every rank's.
        inherited = {name: value for name, value in os.environ.items() if name != "RANK_ID"}
        variables = {
            **inherited,
            **connection_variables(self._job, self._link.port),
            **self._secrets.variables,
            **plan.variables,
        }
        with open(plan.log_path, "ab" if self._job.restart else "wb") as log:
            # Lines of earlier starts are not shown again.
            written = log.tell()
            process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[reader],
            )
        # The rank has its own copy of the reading end.
        os.close(reader)
        self._note(f"{plan} is process {process.pid}, log {plan.log_path}")
        if plan.local_rank in self._job.shown:
            label = f"[{plan.local_rank if plan.rank is None else plan.rank}] " if len(self._job.ranks) > 1 else ""
            self._tails[plan.local_rank] = LogTail(plan.log_path, label, written)
        return _Started(plan, process, writer)

    def _show_tails(self) -> None:
        """Show what ranks have written. Of ranks that end because of another one, only the logs have their last words."""
        for local_rank, tail in self._tails.items():
            lines = list(tail.new_lines())
            if not self._state.is_innocent(local_rank):
                _show(lines)

    def _wait(self, signals: int) -> None:
        """Sleep until a signal (the end of a rank is one), the scheduler or the clock wants something."""
        watched = [signals]
        if (scheduler := self._link.watched()) is not None:
            watched.append(scheduler)
        # Output is shown ten times a second; without it fewer turns suffice.
        seconds = _TICK_SECONDS if self._tails else _IDLE_SECONDS
        if self._grace_ends is not None:
            seconds = min(seconds, max(self._grace_ends - time.monotonic(), 0))
        select.select(watched, [], [], seconds)

    def _events(self, signals: int) -> Iterator[supervision.Event]:
        """Everything that has happened."""
        for signum in _pending(signals):
            if signum in _STOP_SIGNALS:
                self.was_told_to_stop = True
                yield supervision.SignalCame(signum)
        # Looked for before the link is asked: the ends of ranks come with what they have said.
        ended = dict(self._newly_ended())
        yield from self._link.events()  # first: a rank that ends because of another has told the scheduler of which
        if ended:
            yield supervision.RanksEnded(ended)
        if self._grace_ends is not None and time.monotonic() >= self._grace_ends:
            self._grace_ends = None
            yield supervision.GraceOver()

    def _newly_ended(self) -> Iterator[tuple[int, int]]:
        """Local ranks whose process has ended, with how it ended."""
        for local_rank in sorted(self._state.running):
            status = self._started[local_rank].process.poll()
            if status is not None:
                self._note(f"{self._started[local_rank].plan} {_ending(status)}")
                if status != 0:  # a rank that ends well may leave a process behind on purpose
                    # Children of a failed rank would go on using its cores and ports.
                    self._signal_group(local_rank, signal.SIGKILL)
                yield local_rank, status

    def _carry_out(self, instructions: list[supervision.Instruction]) -> None:
        """Do what the state machine wants done."""
        for instruction in instructions:
            match instruction:
                case supervision.SignalRanks(local_ranks, signum):
                    for local_rank in local_ranks:
                        self._signal_group(local_rank, signum)
                case supervision.StartGrace(seconds):
                    self._grace_ends = time.monotonic() + seconds
                case supervision.BlameRank(local_rank, status):
                    self._blame(self._started[local_rank], status)
                case supervision.Tell(text):
                    self._tell(text)
                case supervision.TellOthers():
                    self._link.tell_failure(f"ended its ranks: {self._reason}")
                case supervision.Finish(exit_code):
                    self._exit_code = exit_code

    def _signal_group(self, local_rank: int, signum: int) -> None:
        """Send a signal to a rank and the processes it has started."""
        # A group may be gone already, or belong to another user.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._started[local_rank].process.pid, signum)
            # A stopped process heeds a signal when it goes on.
            if signum != signal.SIGKILL:
                os.killpg(self._started[local_rank].process.pid, signal.SIGCONT)

    def _blame(self, started: _Started, status: int) -> None:
        """Name the rank that failed and quote its log."""
        seconds = time.monotonic() - self._began
        self._tell(f"{started.plan} (process {started.process.pid}) {_ending(status)} after {seconds:.1f} s")
        if (problem := write_problem(started.plan.log_path)) is not None:
            self._say(f"sporax run: its log '{started.plan.log_path}' cannot be written: {problem}")
        if lines := last_lines(started.plan.log_path, _QUOTED_LINES):
            for line in (f"last lines of {started.plan.log_path}:", *lines):
                self._say(f"  | {line}")

    def _tell(self, text: str) -> None:
        """Say something to the user; the first thing said is what other nodes get to hear as the reason."""
        self._reason = self._reason or text
        self._say(f"sporax run: {text}")

    def _say(self, line: str) -> None:
        """Write to the console and the log."""
        self._note(line)
        if self._console is not None:
            print(line, file=self._console, flush=True)

    def _note(self, line: str) -> None:
        """Write to the log alone."""
        try:
            self._log.write(f"{time.strftime('%H:%M:%S')} {line}\n")
        except OSError as error:  # the job goes on without; once is enough to say
            if self._log_works and self._console is not None:
                print(
                    f"sporax run: '{self._job.scheduler_log}' cannot be written: {error.strerror}", file=self._console
                )
            self._log_works = False

    def _clean_up(self) -> None:
        """Leave no rank running, and close everything."""
        for local_rank, started in self._started.items():
            # Nobody watches the ranks after this.
            if started.process.poll() is None:
                self._signal_group(local_rank, signal.SIGKILL)
                started.process.wait()
            os.close(started.held)
        self._show_tails()
        for local_rank, tail in self._tails.items():
            rest = list(tail.close())
            if not self._state.is_innocent(local_rank):
                _show(rest)
        self._link.close()
        self._note(f"the launcher ends with exit code {self._exit_code}")
        with suppress(OSError):
            self._log.close()
        private.remove(self._secrets.directory)


@contextmanager
def listening_to_signals() -> Iterator[int]:
    """Turn signals into bytes: gives a descriptor from which the numbers of those that came can be read."""
    reader, writer = os.pipe()
    # Both ends must not block: signals may come faster than they are read.
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    listened = (*_STOP_SIGNALS, signal.SIGCHLD)
    # Handlers that do nothing: Python writes the number to the descriptor before it calls them.
    before = {signum: signal.signal(signum, lambda *_: None) for signum in listened}
    wakeup_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for signum, handler in before.items():
            signal.signal(signum, handler)
        os.close(reader)
        os.close(writer)


def waits_for_signal(signals: int, seconds: float) -> bool:
    """Wait; whether a signal came meanwhile that ends the job."""
    deadline = time.monotonic() + seconds
    while True:
        if any(signum in _STOP_SIGNALS for signum in _pending(signals)):
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        select.select([signals], [], [], left)


def _pending(signals: int) -> bytes:
    """The numbers of the signals that have come."""
    try:
        return os.read(signals, 4096)
    except BlockingIOError:
        return b""


def _show(lines: Iterable[str]) -> None:
    """Show ranks' output; when no one reads it any more (``| head``), the job goes on and its logs tell the rest."""
    try:
        for line in lines:
            print(line, flush=True)
    except BrokenPipeError:
        # Later writes, and Python's own flush at the end, must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _ending(status: int) -> str:
    """How a process ended, in words."""
    if status < 0:
        return f"was killed by {supervision.signal_name(-status)}"
    return f"ended with exit code {status}"
