"""A parameter server for a test or a benchmark: scheduler and servers, which a thread of this process keeps running."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster import ports, private
from sporax.launch.jobs.rank import BoundProcess
from sporax.launch.servers.ps_cluster import LocalCluster
from sporax.ps.protocol.messages import GetStatus, Scale, StatusReply, Wanted
from sporax.ps.sockets.security import keys_for

POLL_SECONDS = 0.02


class DrivenCluster(LocalCluster):
    """A `LocalCluster` whose processes and numbers a test changes."""

    def kill(self, role: str, index: int, signum: int = signal.SIGKILL) -> int:
        """Send a signal to a process; gives its id, 0 when it is not running."""
        process = self.process_of(role, index)
        if process is None:
            return 0
        os.kill(process.pid, signum)
        return process.pid

    def process_of(self, role: str, index: int) -> BoundProcess | None:
        """A process, if it runs."""
        child = self.children.get((role, index))
        return None if child is None else self.processes.get(child.number)

    def status(self) -> StatusReply | None:
        """State of the job."""
        return self._requester.request(GetStatus(), StatusReply, 1.0)

    def scale(self, workers: int = -1, servers: int = -1) -> None:
        """Change the numbers of processes."""
        self._follow(self._requester.request(Scale(workers, servers), Wanted, 2.0))


@dataclass(slots=True)
class BackgroundCluster:
    """A cluster that a thread looks after, as a context manager."""

    cluster: DrivenCluster
    own_directory: Path | None = None
    _thread: threading.Thread | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> BackgroundCluster:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self.lock:
                if not self.cluster.step():
                    return
            time.sleep(POLL_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join(10)
        self.cluster.close()
        if self.own_directory is not None:
            private.remove(self.own_directory)
        if self.cluster.failure:
            raise SporaxRuntimeError(f"For 'sporax.ps', the job must run, but {self.cluster.failure}.")


def background(servers: int, workers: int, directory: Path | None = None, **variables: str) -> BackgroundCluster:
    """A cluster without workers of its own, on free ports of this machine.

    Args:
        servers, workers: numbers the scheduler expects.
        directory: of journal and logs; by default a private one that is removed at the end.
        variables: of the environment, e.g. ``MS_PS_STALENESS="-1"``.
    """
    environ = {**os.environ, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(ports.two_free_ports()), **variables}
    environ["MS_WORKER_NUM"] = str(workers)
    own = private.make_job_directory() if directory is None else None
    directory = directory or own or Path()
    environ |= {private.DIRECTORY_VARIABLE: str(own)} if own is not None else {}
    cluster = DrivenCluster(
        environ, directory, servers=servers, log_dir=directory / "output", keys=keys_for("127.0.0.1", environ)
    )
    return BackgroundCluster(cluster, own)
