"""The part `removals` of `soak_servers.py`: workers and servers are added and removed again and again while a job trains.

Every sample adds 1 to its own number in each parameter, so at the end each number tells how often its sample counted: 1, if the
members of every clock agreed on who they were. Workers are started with `sporax ps scale`'s message, at once or while an earlier
change is under way; first workers are removed as well as added ones; in two of three jobs processes are also killed, and servers
come and go. A job that ends with an error, stands still, or counts a sample twice or not at all is a failure.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from background_cluster import DrivenCluster
from sporax.cluster import ports
from sporax.launch.target import Target, TargetKind
from sporax.ps.client.store import ServerStore
from sporax.ps.protocol.messages import OptimizerSpec
from sporax.ps.worker.server_connection import ServerConnection

FIRST_WORKERS, FIRST_SERVERS, MOST_WORKERS, MOST_SERVERS = 3, 2, 4, 3
STEPS, SIZE, PARAMETERS = 500, 4, 4
JOB_SECONDS = 300
CHANGES_PER_JOB = 16  # then it may come to its end
_FOLDER = "SOAK_FOLDER"


def work() -> None:
    """Be a worker; the one that finds all samples used leaves what it saw in ``end-<rank>``."""
    rank = int(os.environ["RANK_ID"])
    address = f"{os.environ['MS_SCHED_HOST']}:{int(os.environ['MS_SCHED_PORT']) + 1}"
    store = ServerStore(address, rank=rank, node=os.environ["MS_NODE_ID"], timeout=120.0)
    connection = ServerConnection(store, first_workers=FIRST_WORKERS, step_seconds=120.0)
    total = STEPS * SIZE * FIRST_WORKERS
    zeros = [np.zeros(total, np.float32)] * PARAMETERS
    part = connection.attach([f"w{i}" for i in range(PARAMETERS)], zeros, [0] * PARAMETERS, [OptimizerSpec("sgd")], [])
    connection.values(part)
    synchronous, per_clock = store.options.staleness == 0, SIZE * FIRST_WORKERS
    for samples in connection.leases.ranges(total, SIZE, 120.0):
        gradient = np.zeros(total, np.float32)
        # A mean over the members, weighted by their samples, or a sum.
        gradient[list(samples)] = -(per_clock / max(1, len(samples)) if synchronous else 1.0)
        connection.exchange(part, np.array([1.0], np.float32), [gradient] * PARAMETERS)
        time.sleep(0.02)
    values, _ = store.pull(newest=True)
    temporary = Path(os.environ[_FOLDER]) / f"end-{rank}.new"
    temporary.write_bytes(np.concatenate(values).tobytes())
    os.replace(temporary, temporary.with_suffix(""))
    connection.close()


class RemovalJob:
    """One job.

    Args:
        draw: of everything random.
        staleness: of the job.
        kinds: what happens: ``workers``, ``servers``, ``kill``.
    """

    def __init__(self, draw: random.Random, staleness: int, kinds: tuple[str, ...]) -> None:
        self._draw, self._staleness, self._kinds = draw, staleness, kinds
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Run it.

        Raises:
            AssertionError: it failed, stood still, or a sample counted other than once.
        """
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cluster = self._cluster(folder)
            try:
                self._supervise(cluster)
            finally:
                cluster.close()
            if cluster.failure:
                tails = [f"{path.name}: {path.read_text('utf-8')[-600:]}" for path in sorted(folder.glob("out/*.log"))]
                raise AssertionError(f"the job failed: {cluster.failure}\n" + "\n".join(tails))
            ends = [np.frombuffer(path.read_bytes(), np.float32) for path in folder.glob("end-?")]
            assert ends, "no worker has seen the end"
            # Asynchronous workers may look before the last sample of another one is there; the last one sees all.
            off = min(int((np.abs(end - 1) > 1e-3).sum()) for end in ends)
            assert off == 0, f"{off} samples counted other than once"

    def _cluster(self, folder: Path) -> DrivenCluster:
        variables = {
            **os.environ,
            "MS_SCHED_HOST": "127.0.0.1",
            "MS_SCHED_PORT": str(ports.two_free_ports()),
            "MS_PS_STALENESS": str(self._staleness),
            "MS_PS_LEASE": "2.0",
            "MS_PS_WORKER_LEASE": "60",  # the successor of a killed worker takes its place
            _FOLDER: str(folder),
        }
        return DrivenCluster(
            variables,
            folder,
            servers=FIRST_SERVERS,
            workers=FIRST_WORKERS,
            worker=Target(TargetKind.SCRIPT, __file__),
            log_dir=folder / "out",
            max_restarts=500,
        )

    def _supervise(self, cluster: DrivenCluster) -> None:
        ends = time.monotonic() + JOB_SECONDS
        next_change, workers, changes = time.monotonic() + 1.5, FIRST_WORKERS, 0
        while cluster.step():
            now = time.monotonic()
            assert now < ends, f"the job stands still after {dict(self.counts)}: {cluster.status()}"
            if now >= next_change and changes < CHANGES_PER_JOB:
                # Now and then before the change before has been agreed on.
                next_change = now + self._draw.choice([0.05, 0.6, 2.0]) * self._draw.uniform(0.5, 1.5)
                workers, changes = self._change(cluster, workers), changes + 1
            time.sleep(0.01)

    def _change(self, cluster: DrivenCluster, workers: int) -> int:
        """Do one thing to the job; gives how many workers it is to have then."""
        kind = self._draw.choice(self._kinds)
        if kind == "workers":
            wanted = self._draw.choice([count for count in range(1, MOST_WORKERS + 1) if count != workers])
            cluster.scale(workers=wanted)
            self.counts["workers removed"] += max(0, workers - wanted)
            self.counts["workers added"] += max(0, wanted - workers)
            return wanted
        if kind == "servers":
            cluster.scale(servers=self._draw.randint(1, MOST_SERVERS))
            self.counts["server scalings"] += 1
            return workers
        with suppress(ProcessLookupError, KeyError):
            role = self._draw.choice(["server", "worker", "worker", "scheduler"])
            index = (
                0 if role == "scheduler" else self._draw.randrange(MOST_WORKERS if role == "worker" else MOST_SERVERS)
            )
            self.counts[f"{role}s killed"] += bool(cluster.kill(role, index))
        return workers


def trial(seed: int, removals: int, show: Callable[[str], None], first: int = 0) -> dict[str, Any]:
    """Jobs until so many workers were removed; gives the figures."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    jobs = 0
    while counts["workers removed"] < removals:
        number = first + jobs
        staleness = (0, 0, -1)[number % 3]
        kinds = (("workers",), ("workers", "workers", "kill"), ("workers", "workers", "kill", "servers"))[
            number // 3 % 3
        ]
        job = RemovalJob(random.Random(f"removals {seed} {number}"), staleness, kinds)
        problem = ""
        try:
            job.run()
        except Exception as error:  # whatever goes wrong is a finding
            problem = f"{type(error).__name__}: {error}"
        jobs += 1
        counts.update(job.counts)
        label = f"removals {number}, staleness {staleness}, {'/'.join(sorted(set(kinds)))}"
        failures.extend([f"{label}: {problem}"] if problem else [])
        show(f"{label}: {problem or 'exact'} after {dict(job.counts)}")
    return {"seed": seed, "jobs": jobs, "counts": dict(counts), "failures": failures}


if __name__ == "__main__" and "MS_ROLE" in os.environ:
    work()
    sys.exit(0)
