"""The launcher's hands: start processes; listen to the scheduler, to signals and to ends of processes, in one loop.

Decisions are `supervision.Supervision`'s; which ranks to start is `job.Job`'s. Each process leads a session of its own, so that
the terminal's Ctrl-C reaches the launcher alone and a process can be ended together with the processes it has started.
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
from typing import Self, TextIO

from msgspec import structs

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster import messages, private
from sporax.cluster.environment import is_verbose
from sporax.launch.jobs import cores, supervision
from sporax.launch.jobs.cluster_links import ClusterLink, SchedulerElsewhere, SchedulerHere
from sporax.launch.jobs.job import NodeJob, RankPlan, connection_variables
from sporax.launch.jobs.logs import QUOTED_LINES, LogTail, last_lines, show, write_problem
from sporax.launch.jobs.rank import BoundProcess, rank_command
from sporax.launch.jobs.secrets import JobSecrets
from sporax.launch.jobs.supervision import Supervision

_TICK_SECONDS = 0.1
_IDLE_SECONDS = 0.5
_RESTART_SECONDS = 1.0
"""Between two starts, so that a job that fails at once does not keep the machine busy."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """Carries out what a `Supervision` decides of processes of this machine; how they start, what happens to them, and who
    receives a failure and how, is its subclasses'. A context manager at whose end no process is left running.
    """

    _turn_seconds = 0.02
    """Between two looks at the job."""
    _link: ClusterLink | None = None

    def __init__(self, state: Supervision) -> None:
        self._state = state
        self.processes: dict[int, BoundProcess] = {}
        """Those that were started, by number."""
        self.failure = ""
        """The first line that the user has read of the end; other launchers receive it as the reason."""
        self.exit_code: int | None = None
        """None while the job runs."""
        self.pause: float | None = None
        """Seconds until all start again, if they do."""
        self._tails: dict[int, LogTail] = {}
        self._due: dict[int, float] = {}
        self._grace_ends: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill what still runs and close what is open."""
        self.close()

    def run(self, signals: int) -> int:
        """Watch the job until it is over.

        Args:
            signals: descriptor that yields the numbers of the signals that come.

        Returns:
            The job's exit code.
        """
        # Until the state machine says so: it also waits for ranks of other nodes.
        while self.exit_code is None:
            self._wait(signals)
            self._show_tails()
            for signum in _pending(signals):
                if signum in _STOP_SIGNALS:
                    self.handle(supervision.SignalReceived(signum))
            self.step()
        return self.exit_code

    def step(self) -> bool:
        """Take in what has happened; gives whether the job still runs."""
        for event in self._events():
            self.handle(event)
        if self._grace_ends is not None and time.monotonic() >= self._grace_ends:
            self._grace_ends = None
            self.handle(supervision.GraceExpired())
        return self.exit_code is None

    def handle(self, event: supervision.Event) -> None:
        """Let the state machine decide, and do what it wants done."""
        for instruction in self._state.handle(event):
            match instruction:
                case supervision.Start(number, seconds):
                    self._due[number] = time.monotonic() + seconds
                case supervision.SignalProcesses(numbers, signum):
                    for number in self.processes.keys() & set(numbers):
                        self.processes[number].signal_group(signum)
                case supervision.StartGrace(seconds):
                    self._grace_ends = time.monotonic() + seconds
                case supervision.BlameRank(local_rank, status):
                    self._blame(local_rank, status)
                case supervision.Notify(text):
                    self._report(text)
                case supervision.NotifyOthers():
                    self._notify_others()
                case supervision.Finish():
                    self.exit_code, self.pause = instruction.exit_code, instruction.pause

    def close(self) -> None:
        """Leave no process running, and show the last of their output."""
        for process in self.processes.values():
            process.end()
        self._show_tails()
        for number, tail in self._tails.items():
            rest = list(tail.close())
            if not self._state.is_secondary_failure(number):
                show(rest)

    def _show_tails(self) -> None:
        """Show what processes have written. Of those that end because of another one, only the logs have their last words."""
        for number, tail in self._tails.items():
            lines = list(tail.new_lines())
            if not self._state.is_secondary_failure(number):
                show(lines)

    def _wait(self, signals: int) -> None:
        """Sleep until a signal (the end of a process is one), the scheduler or the clock wants something."""
        seconds = self._turn_seconds
        if self._grace_ends is not None:
            seconds = min(seconds, max(self._grace_ends - time.monotonic(), 0))
        watched = None if self._link is None else self._link.watched()
        select.select([signals] if watched is None else [signals, watched], [], [], seconds)

    def _newly_ended(self) -> dict[int, int]:
        """How processes have ended since the last call, by number."""
        watched = sorted(self.processes.keys() & self._state.running)
        return {number: status for number in watched if (status := self.processes[number].poll()) is not None}

    def _events(self) -> Iterator[supervision.Event]:
        """What has happened since the last call, but for signals and clocks."""
        raise NotImplementedError

    def _report(self, text: str) -> None:
        """Report to the user why the job ends."""
        self.failure = self.failure or text

    def _notify_others(self) -> None:
        """Notify launchers of other machines of the `failure`."""

    def _blame(self, local_rank: int, status: int) -> None:
        """Name the rank that failed."""


class RankSupervisor(Supervisor):
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
        ranks = {plan.local_rank for plan in job.ranks}
        policy = supervision.RestartRule(job.options.max_restarts, _RESTART_SECONDS, _RESTART_SECONDS)
        starts = 1 + (job.restart or 0)
        super().__init__(Supervision(ranks, policy, starts, graceful=job.exits_gracefully))
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
        self._link: ClusterLink = self._linked(listener)
        self._plans = {plan.local_rank: plan for plan in job.ranks}
        self._began = time.monotonic()
        self._ended: messages.Leave | None = None

    def start(self) -> None:
        """Start every rank.

        Raises:
            SporaxRuntimeError: a process or its log file cannot be made.
        """
        for plan in self._job.ranks:
            try:
                self.processes[plan.local_rank] = self._start(plan)
            except OSError as error:
                raise SporaxRuntimeError(
                    f"For 'sporax run', every rank must start, but {plan} got: {error}."
                ) from error
        # Output is shown ten times a second; without it fewer turns suffice.
        self._turn_seconds = _TICK_SECONDS if self._tails else _IDLE_SECONDS
        # After the ranks have started, which would inherit the binding.
        if self._job.scheduler_cores is not None:
            os.sched_setaffinity(0, self._job.scheduler_cores)

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
        # Only what is not known is requested.
        requested = tuple(plan.variables["MS_NODE_ID"] for plan in job.ranks if plan.rank is None)
        return SchedulerElsewhere((host, port), secret, local_ranks, requested, restart)

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

    def _events(self) -> Iterator[supervision.Event]:
        # Looked for before the link is read: the ends of ranks come with what they have said.
        ended = self._newly_ended()
        for local_rank, status in ended.items():
            self._note(f"{self._plans[local_rank]} {_ending(status)}")
            if status != 0:  # a rank that ends well may leave a process behind on purpose
                # Children of a failed rank would go on using its cores and ports.
                self.processes[local_rank].signal_group(signal.SIGKILL)
        has_failed = any(status > 0 for status in ended.values())
        # First: a rank that ends because of another has reported to the scheduler which.
        events = list(self._link.events(is_expected=has_failed))
        # Where another node is to stop, the job is not started again.
        self._state.is_stopped_by_signal |= self._link.is_final()
        yield from events
        self._number()
        if ended:
            yield supervision.ProcessesEnded(ended)

    def _notify_others(self) -> None:
        """With the rank that has failed, if it was one."""
        reason, ended = f"ended its ranks: {self.failure}", self._ended or messages.Leave(None)
        self._link.report_failure(structs.replace(ended, failure=reason, final=self._state.is_stopped_by_signal))

    def _blame(self, local_rank: int, status: int) -> None:
        """Name the rank that failed and quote its log."""
        plan = self._plans[local_rank]
        code = supervision.exit_code_of(status)
        self._ended = self._ended or messages.Leave(None, plan.rank, _ending(status), exit_code=code)
        seconds = time.monotonic() - self._began
        self._report(f"{plan} (process {self.processes[local_rank].pid}) {_ending(status)} after {seconds:.1f} s")
        if (problem := write_problem(plan.log_path)) is not None:
            self._say(f"sporax run: its log '{plan.log_path}' cannot be written: {problem}")
        # Where its output is shown, its traceback stands above: once is enough.
        is_printed = local_rank in self._tails
        if lines := last_lines(plan.log_path, 1 if is_printed else QUOTED_LINES):
            head = (
                f"last {'line' if is_printed else 'lines'} of {plan.log_path}{', shown above' if is_printed else ''}:"
            )
            for line in (head, *lines):
                self._say(f"  | {line}")

    def _report(self, text: str) -> None:
        super()._report(text)
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

    def close(self) -> None:
        """Leave no rank running, and close everything."""
        super().close()
        self._link.close()
        self._note(f"the launcher ends with exit code {self.exit_code}")
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
