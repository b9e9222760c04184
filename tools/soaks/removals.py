"""Workers and servers are added and removed again and again while a job with parameter servers trains.

Every sample adds 1 to its own number in each parameter, so at the end each number says how often its sample counted: 1, if the
members of every clock agreed on who they were. Workers are started with `sporax ps scale`'s message, at once or while an earlier
change is under way; first workers are removed as well as added ones; in two of three jobs processes are also killed, and servers
come and go. A job that ends with an error, stands still, or counts a sample twice or not at all is a failure.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from soaks.scenario import RUNNER, Scenario, Trial
from soaks.servers import DrivenCluster, supervise, variables
from sporax.launch.target import Target, TargetKind
from sporax.ps.client.store import ServerStore
from sporax.ps.protocol.messages import OptimizerSpec
from sporax.ps.worker.server_connection import ServerConnection

FIRST_WORKERS, FIRST_SERVERS, MOST_WORKERS, MOST_SERVERS = 3, 2, 4, 3
STEPS, SIZE, PARAMETERS = 500, 4, 4
JOB_SECONDS = 300
_FOLDER = "SOAK_FOLDER"


def process(words: Sequence[str]) -> int:
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
    return 0


@dataclass(frozen=True, slots=True)
class Job:
    """One job: its `staleness`, and what happens to it: ``workers``, ``servers``, ``kill``."""

    staleness: int
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return f"staleness {self.staleness}, {'/'.join(sorted(set(self.kinds)))}"


def job_of(seed: int, number: int) -> Job:
    """All kinds by turns."""
    kinds = (("workers",), ("workers", "workers", "kill"), ("workers", "workers", "kill", "servers"))
    return Job((0, 0, -1)[number % 3], kinds[number // 3 % 3])


def remove(trial: Trial, job: Job) -> str:
    """Workers and servers are added and removed while a job trains; every sample counts once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = variables(
            MS_PS_STALENESS=str(job.staleness),
            MS_PS_LEASE="2.0",
            MS_PS_WORKER_LEASE="60",  # the successor of a killed worker takes its position
            **{_FOLDER: str(folder)},
        )
        cluster = DrivenCluster(
            settings,
            folder,
            servers=FIRST_SERVERS,
            workers=FIRST_WORKERS,
            worker=Target(TargetKind.SCRIPT, str(RUNNER), ("--process", "removals")),
            log_dir=folder / "out",
            max_restarts=500,
        )
        next_change, workers, changes = time.monotonic() + 1.5, FIRST_WORKERS, 0

        def turn(now: float) -> None:
            nonlocal next_change, workers, changes
            if now >= next_change and changes < trial.size:
                # Now and then before the change before has been agreed on.
                next_change = now + trial.draw.choice([0.05, 0.6, 2.0]) * trial.draw.uniform(0.5, 1.5)
                workers, changes = _change(trial, job, cluster, workers), changes + 1

        supervise(cluster, JOB_SECONDS, trial.faults.counts, turn)
        ends = [np.frombuffer(path.read_bytes(), np.float32) for path in folder.glob("end-?")]
        assert ends, "no worker has seen the end"
        # Asynchronous workers may look before the last sample of another one is there; the last one sees all.
        off = min(int((np.abs(end - 1) > 1e-3).sum()) for end in ends)
        assert off == 0, f"{off} samples counted other than once"
    return "exact"


def _change(trial: Trial, job: Job, cluster: DrivenCluster, workers: int) -> int:
    """Do one thing to the job; gives how many workers it is to have then."""
    draw, counts = trial.draw, trial.faults.counts
    kind = draw.choice(job.kinds)
    if kind == "workers":
        wanted = draw.choice([count for count in range(1, MOST_WORKERS + 1) if count != workers])
        cluster.scale(workers=wanted)
        counts["workers removed"] += max(0, workers - wanted)
        counts["workers added"] += max(0, wanted - workers)
        return wanted
    if kind == "servers":
        cluster.scale(servers=draw.randint(1, MOST_SERVERS))
        counts["server scalings"] += 1
        return workers
    role = draw.choice(["server", "worker", "worker", "scheduler"])
    index = 0 if role == "scheduler" else draw.randrange(MOST_WORKERS if role == "worker" else MOST_SERVERS)
    found = cluster.process_of(role, index)
    trial.faults.send(found.pid if found else 0, role)
    return workers


REMOVALS_SCENARIO = Scenario("removals", remove, cases=24, case=job_of, kind=lambda job: "", size=16, unit="changes")
