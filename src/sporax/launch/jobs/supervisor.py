"""The launcher's hands: start ranks; listen to the scheduler, to signals and to ends of processes, in one loop.

Decisions are `supervision.Supervision`'s; what to start is `job.Job`'s. Each rank leads a session of its own, so that
the terminal's Ctrl-C reaches the launcher alone and a rank can be ended together with the processes it has started.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TextIO

from msgspec import structs

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster import messages, private
from sporax.cluster.environment import is_verbose
from sporax.launch.jobs import cores, supervision
from sporax.launch.jobs.cluster_links import ClusterLink, SchedulerElsewhere, SchedulerHere
from sporax.launch.jobs.job import NodeJob, RankPlan, connection_variables
from sporax.launch.jobs.logs import LogTail, last_lines, show, write_problem
from sporax.launch.jobs.rank import BoundProcess, rank_command
from sporax.launch.jobs.secrets import JobSecrets
from sporax.launch.jobs.supervision import Supervision

_QUOTED_LINES = 20
_TICK_SECONDS = 0.1
_IDLE_SECONDS = 0.5
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """Runs this node's part of a job; a context manager at whose end no rank is left running.

    Args:
        job: what to start.
        listener: the scheduler's socket, if the scheduler is on this node.
        secrets: the job's private directory and token; the directory is removed at the end.
        console: where the user reads what the launcher has to say; None in the background.
    """

    def __init__(
        self, job: NodeJob, listener: socket.socket | None, console: TextIO | None, secrets: JobSecrets
    ) -> None:
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
        self._link = self._linked(listener)
        self._state = Supervision(running={plan.local_rank for plan in job.ranks}, graceful=job.exits_gracefully)
        self.was_told_to_stop = False
        """Whether a signal ended the job, here or on another node."""
        self._plans = {plan.local_rank: plan for plan in job.ranks}
        self._processes: dict[int, BoundProcess] = {}
        self._tails: dict[int, LogTail] = {}
        self._began = time.monotonic()
        self._grace_ends: float | None = None
        self._reason = ""
        self._ended: messages.Leave | None = None
        self._exit_code: int | None = None

    def __enter__(self) -> Supervisor:
        """Start every rank.

        Raises:
            SporaxRuntimeError: a process or its log file cannot be made; those already started have been killed.
        """
        try:
            for plan in self._job.ranks:
                self._processes[plan.local_rank] = self._start(plan)
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
        self.was_told_to_stop |= self._link.is_final()
        return self._exit_code

    def _linked(self, listener: socket.socket | None) -> ClusterLink:
        """A link to the scheduler, which is here where it has a socket."""
        job, secret, restart = self._job, self._secrets.token, self._job.restart or 0
        assert job.options.worker_num is not None
        local_ranks = {plan.variables["MS_NODE_ID"]: plan.local_rank for plan in job.ranks}
        if listener is not None:
            return SchedulerHere(
                listener, job.options.worker_num, job.options.cluster_time_out, secret, self._note, local_ranks, restart
            )
        host, port = job.scheduler_address
        assert port is not None  # jobs on several nodes have a fixed port
        # Only what is not known is asked for.
        asked = tuple(plan.variables["MS_NODE_ID"] for plan in job.ranks if plan.rank is None)
        return SchedulerElsewhere((host, port), secret, local_ranks, asked, restart)

    def _start(self, plan: RankPlan) -> BoundProcess:
        """Start one rank."""

        def command(watched: int) -> list[str]:
            target = self._job.options.target
            return [*cores.memory_prefix(plan.share), *rank_command(target, watched, plan.share.cores)]

        # A rank number of the launcher's own environment must not become every rank's.
        inherited = {name: value for name, value in os.environ.items() if name != "RANK_ID"}
        own = {**self._secrets.variables, **plan.variables}
        variables = {**inherited, **connection_variables(self._job, self._link.port), **own}
        with open(plan.log_path, "ab" if self._job.restart else "wb") as log:
            # Lines of earlier starts are not shown again.
            written = log.tell()
            process = BoundProcess(command, variables, log)
        self._note(f"{plan} is process {process.pid}, log {plan.log_path}")
        if plan.local_rank in self._job.printed:
            label = plan.label if len(self._job.ranks) > 1 else ""
            self._tails[plan.local_rank] = LogTail(plan.log_path, label, written, is_verbose(os.environ))
        return process

    @property
    def job(self) -> NodeJob:
        """The job, with the ranks that the scheduler has given."""
        return structs.replace(self._job, ranks=tuple(self._plans.values()))

    def _number(self) -> None:
        """Call ranks that the scheduler has numbered, and their logs, by their numbers from now on."""
        for local_rank, rank in self._link.ranks.items():
            plan = self._plans[local_rank]
            if plan.rank is not None:
                continue
            numbered = self._plans[local_rank] = plan.numbered(rank)
            os.replace(plan.log_path, numbered.log_path)  # the process goes on writing to it
            self._note(f"{plan} is {numbered}, log {numbered.log_path}")
            if (tail := self._tails.get(local_rank)) is not None and tail.label:
                show(tail.new_lines())
                tail.label = numbered.label

    def _show_tails(self) -> None:
        """Show what ranks have written. Of ranks that end because of another one, only the logs have their last words."""
        for local_rank, tail in self._tails.items():
            lines = list(tail.new_lines())
            if not self._state.is_secondary_failure(local_rank):
                show(lines)

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
                yield supervision.SignalReceived(signum)
        # Looked for before the link is asked: the ends of ranks come with what they have said.
        ended = dict(self._newly_ended())
        has_failed = any(status > 0 for status in ended.values())
        # First: a rank that ends because of another has told the scheduler of which.
        yield from self._link.events(is_expected=has_failed)
        self._number()
        if ended:
            yield supervision.RanksEnded(ended)
        if self._grace_ends is not None and time.monotonic() >= self._grace_ends:
            self._grace_ends = None
            yield supervision.GraceExpired()

    def _newly_ended(self) -> Iterator[tuple[int, int]]:
        """Local ranks whose process has ended, with how it ended."""
        for local_rank in sorted(self._state.running):
            status = self._processes[local_rank].poll()
            if status is not None:
                self._note(f"{self._plans[local_rank]} {_ending(status)}")
                if status != 0:  # a rank that ends well may leave a process behind on purpose
                    # Children of a failed rank would go on using its cores and ports.
                    self._processes[local_rank].signal_group(signal.SIGKILL)
                yield local_rank, status

    def _carry_out(self, instructions: list[supervision.Instruction]) -> None:
        """Do what the state machine wants done."""
        for instruction in instructions:
            match instruction:
                case supervision.SignalRanks(local_ranks, signum):
                    for local_rank in local_ranks:
                        self._processes[local_rank].signal_group(signum)
                case supervision.StartGrace(seconds):
                    self._grace_ends = time.monotonic() + seconds
                case supervision.BlameRank(local_rank, status):
                    self._blame(self._plans[local_rank], status)
                case supervision.Tell(text):
                    self._tell(text)
                case supervision.TellOthers():
                    reason, ended = f"ended its ranks: {self._reason}", self._ended or messages.Leave(None)
                    self._link.tell_failure(structs.replace(ended, failure=reason, final=self.was_told_to_stop))
                case supervision.Finish(exit_code):
                    self._exit_code = exit_code

    def _blame(self, plan: RankPlan, status: int) -> None:
        """Name the rank that failed and quote its log."""
        code = supervision.exit_code_of(status)
        self._ended = self._ended or messages.Leave(None, plan.rank, _ending(status), exit_code=code)
        seconds = time.monotonic() - self._began
        self._tell(f"{plan} (process {self._processes[plan.local_rank].pid}) {_ending(status)} after {seconds:.1f} s")
        if (problem := write_problem(plan.log_path)) is not None:
            self._say(f"sporax run: its log '{plan.log_path}' cannot be written: {problem}")
        # Where its output is shown, its traceback stands above: once is enough.
        is_printed = plan.local_rank in self._tails
        if lines := last_lines(plan.log_path, 1 if is_printed else _QUOTED_LINES):
            head = (
                f"last {'line' if is_printed else 'lines'} of {plan.log_path}{', shown above' if is_printed else ''}:"
            )
            for line in (head, *lines):
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
        for process in self._processes.values():
            process.end()
        self._show_tails()
        for local_rank, tail in self._tails.items():
            rest = list(tail.close())
            if not self._state.is_secondary_failure(local_rank):
                show(rest)
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


def stop_signal(signals: int, seconds: float) -> int:
    """Wait; the signal that came meanwhile and ends the job, 0 without one."""
    deadline = time.monotonic() + seconds
    while True:
        for signum in _pending(signals):
            if signum in _STOP_SIGNALS:
                return signum
        left = deadline - time.monotonic()
        if left <= 0:
            return 0
        select.select([signals], [], [], left)


def _pending(signals: int) -> bytes:
    """The numbers of the signals that have come."""
    try:
        return os.read(signals, 4096)
    except BlockingIOError:
        return b""


def _ending(status: int) -> str:
    """How a process ended, in words."""
    if status < 0:
        return f"was killed by {supervision.signal_name(-status)}"
    return f"ended with exit code {status}"
