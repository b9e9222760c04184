"""A whole parameter server on this machine: scheduler and servers as processes that are started again when they end.

Who ends is told to the scheduler at once, so that no one waits for a
lease. Deaths are backed off per process: 0, 0.1, 0.2, 0.4 ... s.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgspec import Struct

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster.board import process_state
from sporax.cluster.environment import join_address
from sporax.launch.jobs.rank import BoundProcess, rank_command
from sporax.launch.jobs.supervision import FAILED, exit_code_of
from sporax.launch.target import Target
from sporax.ps.client.scheduler_link import Requester
from sporax.ps.environment import DAMAGED_LOGS_VARIABLE, REPLACED
from sporax.ps.protocol.messages import Exited, GetWanted, Wanted
from sporax.ps.scheduler.journal import journal_path, read_journal
from sporax.ps.sockets.security import Keys

_ASK_SECONDS = 0.25
_PARTING_SECONDS = 3.0  # for servers to hear that the job is over, and to end by themselves
_QUIET_SECONDS = 5.0
_LONGEST_BACKOFF = 2.0
_RUNNING = ("R", "S", "D", "I", "t")
"""Letters of /proc/<process>/stat: it computes, or waits, or a debugger holds it. Where the system has no such file, none counts
as running, and leases of workers hold.
"""


class Child(Struct):
    """One supervised process."""

    role: str
    index: int
    node: str
    environ: dict[str, str]
    log: Path | None = None
    process: BoundProcess | None = None
    starts: int = 0
    start_at: float = 0.0
    started: float = 0.0
    exit_code: int | None = None

    def end(self) -> None:
        """End it, if it runs."""
        if self.process is not None:
            self.process.end()
            self.process = None


class NodeShare(Struct, frozen=True):
    """What one of several machines runs of a job: its workers in a row, every `num_nodes`-th server, and the first the scheduler.

    Attributes:
        node_rank: number of the machine.
        num_nodes: machines of the job.
        local_workers: workers of each machine at the start.
    """

    node_rank: int = 0
    num_nodes: int = 1
    local_workers: int = 1

    def owns(self, role: str, index: int) -> bool:
        """Whether a process runs here; workers that are added later are dealt out one by one, as servers are."""
        first = self.num_nodes * self.local_workers
        if role == "worker" and index < first:
            return index // self.local_workers == self.node_rank
        return (index - first if role == "worker" else index) % self.num_nodes == self.node_rank


class LocalCluster:
    """Scheduler, servers and (optionally) workers of one machine, kept running.

    Args:
        environ: variables of the job; MS_SCHED_PORT and the numbers must be there.
        directory: journal and logs of the job.
        worker: what workers run, None when they are started elsewhere.
        log_dir: where outputs go, None for nowhere.
        servers, workers: numbers at the start.
        max_restarts: of one process, before the job fails.
        share: what this machine runs, where it is one of several.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        directory: Path,
        *,
        servers: int,
        workers: int = 0,
        worker: Target | None = None,
        log_dir: Path | None = None,
        max_restarts: int = 100,
        keys: Keys | None = None,
        share: NodeShare | None = None,
    ) -> None:
        self.directory = directory
        self._share = share or NodeShare(local_workers=max(workers, 1))
        numbers = {"MS_SERVER_NUM": str(servers), "MS_WORKER_NUM": str(workers or environ.get("MS_WORKER_NUM", "1"))}
        self._environ = {**environ, "MS_RECOVERY_PATH": str(directory), "MS_PS_RECOVERY": "1", **numbers}
        # A private directory ends with the job.
        if log_dir is not None and "MS_RECOVERY_PATH" not in environ:
            self._environ[DAMAGED_LOGS_VARIABLE] = str(log_dir.resolve())
        self._log_dir = log_dir
        self._worker = worker
        self._max_restarts = max_restarts
        self._job = uuid.uuid4().hex[:8]
        # The store listens one port above the scheduler of ranks.
        self.address = join_address(environ.get("MS_SCHED_HOST", "127.0.0.1"), int(environ["MS_SCHED_PORT"]) + 1)
        """Of the scheduler."""
        self._requester = Requester(self.address, keys)
        self.children: dict[tuple[str, int], Child] = {}
        self.wanted: Wanted | None = None
        self.failure = ""
        self.exit_code = 0
        self._num_notices = 0
        self._asked = 0.0
        self._parting_until = 0.0
        for role, count in (("scheduler", 1), ("server", servers), ("worker", workers)):
            for index in range(count):
                if self._share.owns(role, index):
                    self._add(role, index)

    def _add(self, role: str, index: int, node: str = "") -> None:
        node = node or f"{self._job}-{role}-{index}"
        names = {"scheduler": "MS_SCHED", "server": "MS_PSERVER", "worker": "MS_WORKER"}
        variables = {**self._environ, "MS_ROLE": names[role], "MS_NODE_ID": node}
        if role == "server":
            variables["MS_PS_INDEX"] = str(index)
        if role == "worker":
            variables["RANK_ID"] = str(index)
        log = self._log_dir / f"{role}_{index}.log" if self._log_dir is not None else None
        # A log of an earlier job would be taken for this one's.
        if log is not None:
            log.unlink(missing_ok=True)
        self.children[(role, index)] = Child(role, index, node, variables, log)

    def step(self) -> bool:
        """Start what should run, notice what has ended; gives whether the job still runs."""
        now = time.monotonic()
        for child in list(self.children.values()):
            self._look_after(child, now)
        # The scheduler is not asked at every turn: 50 questions a second would disturb it.
        if now >= self._asked:
            self._asked = now + _ASK_SECONDS
            self._follow(self._requester.ask(GetWanted(self._running_workers()), Wanted, 0.05))
        scheduler = self.children.get(("scheduler", 0))
        if self.wanted is not None and (self.wanted.finished or (scheduler is not None and scheduler.exit_code == 0)):
            self._end_latecomers(self.wanted)
        return not self.failure and not self._is_over(now)

    def _running_workers(self) -> list[str]:
        """Names of the workers whose processes run. One that gets no processor, or holds Python's lock, sends no heartbeats for
        longer than its lease and is alive all the same; one that was stopped is not among them.
        """
        return [
            child.node
            for child in self.children.values()
            if child.role == "worker" and child.process is not None and process_state(child.process.pid) in _RUNNING
        ]

    def _is_over(self, now: float) -> bool:
        """Whether nothing runs any more, but for servers that have not heard the farewell of a scheduler that has ended well.

        A server that was being started again when the job ended would wait for an answer of that scheduler for long.
        """
        running = {child.role for child in self.children.values() if child.exit_code is None}
        # Servers that are still there hear that the job is over, or are ended after a moment.
        if running == {"server"} and ("scheduler", 0) in self.children:
            self._parting_until = self._parting_until or now + _PARTING_SECONDS
            return now > self._parting_until
        return not running

    def _look_after(self, child: Child, now: float) -> None:
        if child.exit_code is not None:
            return
        if child.process is None:
            if now >= child.start_at:
                self._start(child, now)
            return
        status = child.process.poll()
        if status is None:
            return
        child.process.release()
        child.process = None
        if child.role == "server":
            self._requester.tell(Exited(child.role, child.node))
        self._after_exit(child, status, now)

    def _after_exit(self, child: Child, status: int, now: float) -> None:
        """End the job, start the child again later, or neither, by the exit code of its process."""
        # A child that fails again and again right after its start would never get further.
        fails_at_start = status > 0 and status != REPLACED and now - child.started < _QUIET_SECONDS
        told = self.wanted
        is_over = told is not None and ((child.role == "server" and told.finished) or child.node in told.retired)
        if status == 0 or is_over:
            child.exit_code = 0
        elif child.role == "scheduler" and (error := self._error_of_job()):
            # An error of the job as a whole is named by the scheduler.
            self.fail(error)
        elif child.starts > self._max_restarts or (fails_at_start and child.starts > 3):
            text = f"{child.role} {child.index} ended with exit code {status} after {child.starts} starts"
            self.fail(text, exit_code_of(status))
        elif status > 0 and child.role in ("worker", "scheduler"):
            # A positive status is the program's own error, which a restart would repeat.
            self.fail(f"{child.role} {child.index} ended with exit code {status}", status)
        else:
            # Twice as long after each start, so that a broken process does not fill the machine.
            child.start_at = now + min(0.05 * (2 ** max(0, child.starts - 4)), _LONGEST_BACKOFF)

    def _error_of_job(self) -> str:
        """Why the scheduler has ended the job, as it said, or as it wrote down where no process heard it."""
        if self.wanted is not None and self.wanted.error:
            return self.wanted.error
        with suppress(OSError, SporaxRuntimeError):
            return read_journal(journal_path(self.directory, int(self.address.rpartition(":")[2]))).error
        return ""

    def _start(self, child: Child, now: float) -> None:
        child.starts += 1
        child.started = now
        output: int | IO[bytes] = subprocess.DEVNULL
        if child.log is not None:
            try:
                child.log.parent.mkdir(parents=True, exist_ok=True)
                output = open(child.log, "ab")  # noqa: SIM115 (closed below)
            except OSError as error:
                self.fail(
                    f"the output of {child.role} {child.index} must go to '{child.log}', but got: {error.strerror}"
                )
                return
        child.process = BoundProcess(functools.partial(self._command, child), child.environ, output)
        if not isinstance(output, int):
            output.close()

    def _command(self, child: Child, watched: int) -> list[str]:
        if child.role == "worker":
            assert self._worker is not None
            return rank_command(self._worker, watched, None)
        return [sys.executable, "-m", "sporax.launch.servers.ps_process", child.role, str(watched)]

    def _follow(self, target: Wanted | None) -> None:
        """Start what `sporax ps scale` has requested."""
        if target is None:
            return
        # What is new of it.
        for notice in target.notices[self._num_notices :]:
            print(f"sporax run: {notice}.", file=sys.stderr, flush=True)
        self._num_notices = len(target.notices)
        self.wanted = target
        if target.error:
            self.fail(target.error)
        if target.finished:
            return
        for role, count in (("server", target.servers), ("worker", target.workers if self._worker else 0)):
            for index in range(count):
                # Numbers may grow while the job runs.
                child = self.children.get((role, index))
                if child is None:
                    if self._share.owns(role, index):
                        self._add(role, index)
                elif child.exit_code is not None and child.node in target.retired:
                    # A retired process is replaced by one with a new name, as the scheduler never takes an old name back.
                    self._add(role, index, f"{child.node}+")

    def _end_latecomers(self, target: Wanted) -> None:
        """End workers that were added so late that the job was over before they could join: no scheduler would answer them."""
        for child in self.children.values():
            if child.role == "worker" and child.exit_code is None and child.node not in target.joined:
                child.end()
                child.exit_code = 0

    def fail(self, reason: str, exit_code: int = FAILED) -> None:
        """End the job for a reason, and with an exit code; the first one counts."""
        if not self.failure:
            self.failure, self.exit_code = reason, exit_code

    def fail_elsewhere(self, reason: str, exit_code: int) -> None:
        """End the job because another launcher has; what has failed here meanwhile has failed because of that."""
        self.failure, self.exit_code = reason, exit_code

    def close(self) -> None:
        """End everything that still runs."""
        for child in self.children.values():
            child.end()
        self._requester.close()
