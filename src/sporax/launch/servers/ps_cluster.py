"""A parameter server on this machine: scheduler and servers as processes that are started again when they end.

`supervision.Supervision` decides, by the policy of a process's role. The end of a server is reported to the scheduler at once, so
that no one waits for a lease.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgspec import Struct
from msgspec.structs import replace

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster.board import process_state
from sporax.cluster.environment import join_address
from sporax.launch.jobs import supervision
from sporax.launch.jobs.rank import BoundProcess, rank_command
from sporax.launch.jobs.supervisor import Supervisor
from sporax.launch.target import Target
from sporax.ps.client.scheduler_link import Requester
from sporax.ps.environment import DAMAGED_LOGS_VARIABLE, REPLACED
from sporax.ps.protocol.messages import Exited, GetWanted, Wanted
from sporax.ps.scheduler.journal import journal_path, read_journal
from sporax.ps.sockets.security import Keys

_QUERY_SECONDS = 0.25
POLICIES = {
    "scheduler": supervision.RestartRule(directs=True),
    "server": supervision.RestartRule(restart_codes=(REPLACED,), serves=True),
    "worker": supervision.RestartRule(),
}
"""Who of a job with parameter servers is started again; a parameter of the job says how often."""
_RUNNING = ("R", "S", "D", "I", "t")
"""Letters of /proc/<process>/stat: it computes, or waits, or a debugger holds it. Where the system has no such file, none counts
as running, and leases of workers hold.
"""


class Child(Struct, frozen=True):
    """One supervised process; `number` is that by which its supervision knows it."""

    role: str
    index: int
    node: str
    number: int
    environ: dict[str, str]
    log: Path | None = None


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


class LocalCluster(Supervisor):
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
        super().__init__(supervision.Supervision())
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
        """Those that are wanted now, by role and index."""
        self._children: list[Child] = []
        self._started: dict[int, float] = {}
        self.wanted: Wanted | None = None
        self._num_notices = 0
        self._queried = 0.0
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
        child = self.children[(role, index)] = Child(role, index, node, len(self._children), variables, log)
        self._children.append(child)
        policy = replace(POLICIES[role], max_restarts=self._max_restarts)
        self.handle(supervision.MemberAdded(child.number, supervision.Member(f"{role} {index}", policy)))

    def _events(self) -> Iterator[supervision.Event]:
        now = time.monotonic()
        for number in [number for number, moment in self._due.items() if moment <= now]:
            del self._due[number]
            if number in self._state.running:
                yield from self._start(self._children[number], now)
        ended = self._newly_ended()
        # First: what ends here may end because of another machine.
        yield from self._launcher_events()
        for number, status in ended.items():
            self.processes.pop(number).release()
            child = self._children[number]
            if child.role == "server":
                self._requester.notify(Exited(child.role, child.node))
            if child.role == "scheduler" and status != 0 and (error := self._error_of_job()):
                # An error of the job as a whole is named by the scheduler.
                yield supervision.ClusterEnded(error)
        if ended:
            yield supervision.ProcessesEnded(ended, {number: now - self._started[number] for number in ended})
        # The scheduler is not queried at every turn: 50 requests a second would disturb it.
        if now >= self._queried and self.exit_code is None:
            self._queried = now + _QUERY_SECONDS
            # The last that it has said holds after its end.
            self._follow(self._requester.request(GetWanted(self._running_workers()), Wanted, 0.05) or self.wanted)

    def _launcher_events(self) -> Iterator[supervision.Event]:
        """What launchers of other machines say."""
        return iter(())

    def _running_workers(self) -> list[str]:
        """Names of the workers whose processes run. One that gets no processor, or holds Python's lock, sends no heartbeats for
        longer than its lease and is alive all the same; one that was stopped is not among them.
        """
        return [
            child.node
            for child in self.children.values()
            if child.role == "worker"
            and child.number in self.processes
            and process_state(self.processes[child.number].pid) in _RUNNING
        ]

    def _error_of_job(self) -> str:
        """Why the scheduler has ended the job, as it said, or as it wrote down where no process received it."""
        if self.wanted is not None and self.wanted.error:
            return self.wanted.error
        with suppress(OSError, SporaxRuntimeError):
            return read_journal(journal_path(self.directory, int(self.address.rpartition(":")[2]))).error
        return ""

    def _start(self, child: Child, now: float) -> Iterator[supervision.Event]:
        self._started[child.number] = now
        output: int | IO[bytes] = subprocess.DEVNULL
        if child.log is not None:
            try:
                child.log.parent.mkdir(parents=True, exist_ok=True)
                output = open(child.log, "ab")  # noqa: SIM115 (closed below)
            except OSError as error:
                where = f"the output of {child.role} {child.index} must go to '{child.log}'"
                yield supervision.ClusterEnded(f"{where}, but got: {error.strerror}")
                return
        self.processes[child.number] = BoundProcess(functools.partial(self._command, child), child.environ, output)
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
            self.handle(supervision.ClusterEnded(target.error))
        joined, retired = (
            frozenset(child.number for child in self._children if child.node in nodes)
            for nodes in (target.joined, target.retired)
        )
        self.handle(supervision.JobReported(target.finished, joined, retired))
        if target.finished:
            return
        for role, count in (("server", target.servers), ("worker", target.workers if self._worker else 0)):
            for index in range(count):
                # Numbers may grow while the job runs.
                child = self.children.get((role, index))
                if child is None:
                    if self._share.owns(role, index):
                        self._add(role, index)
                elif child.number not in self._state.running and child.node in target.retired:
                    # A retired process is replaced by one with a new name, as the scheduler never takes an old name back.
                    self._add(role, index, f"{child.node}+")

    def close(self) -> None:
        """End everything that still runs."""
        super().close()
        self._requester.close()
