"""Kills and stops of every process of a job with parameter servers: is an acknowledged update ever lost, or applied twice?

A job has a scheduler, three servers and two workers, all supervised. Processes are killed (SIGKILL) or stopped for a while
(SIGSTOP, shorter and longer than a lease) at random moments, one or two at a time, and in the scenario `points` at chosen points
of their own code: in the middle of a record of the log, before an acknowledgement, after half of the slots of a push, and so on.

* ``asynchronous``: every sample adds 1 to all weights and to one row of a table; samples come from leases. At the end each
  value must be the number of its samples exactly: less is a lost update, more is one that counted twice.
* ``synchronous``: Adam on weights and a table, gradients that depend on the pulled values. The end must have the bits of
  the run without kills.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from background_cluster import DrivenCluster
from soaks.scenario import RUNNER, Faults, Scenario, Trial
from sporax.cluster import ports
from sporax.cluster.board import process_state
from sporax.launch.jobs.rank import end_with_launcher
from sporax.launch.servers.ps_cluster import Child
from sporax.launch.target import Target, TargetKind
from sporax.ps import process as main
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.events import Reply, ToServer
from sporax.ps.protocol.messages import Acked, OptimizerSpec, Pulled, Record, SlotImage, VariableSpec
from sporax.ps.scheduler import scheduler
from sporax.ps.server import server
from sporax.ps.slots import record_log
from sporax.ps.sockets.shared_area import SharedArea

SERVERS, WORKERS, IDS = 3, 2, 40
SIZE = 20_000  # values, so that those of each slot go through shared memory
LEASE_SECONDS = 1.0
JOB_SECONDS = 240
DURABILITIES = ("process", "disk", "replica")
SAMPLES_PER_LEASE, LEASES, STEPS = 5, 600, 150
MODES = ("asynchronous", "synchronous")
ADAM = OptimizerSpec("adam", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8})
SGD = OptimizerSpec("sgd")

# ------------------------------------------------------------------------------------------------------ chosen points

POINTS = {
    "server": (
        "before a record is logged",
        "in the middle of a record",
        "after a record was logged",
        "before an acknowledgement",
        "after an acknowledgement",
        "before a pull is answered",
        "after a record went to the backup",
        "after a slot went to its backup",
        "before a snapshot replaces the old one",
        "before old logs are deleted",
    ),
    "scheduler": ("before its journal is replaced", "after its journal was replaced"),
    "worker": (
        "after half of a push",
        "before a push is acknowledged",
        "after a push was acknowledged",
        "in a pull",
        "after arrays were put into shared memory",
    ),
}
"""Where a process may end by itself: names of `_Point.reached` calls that `arm` puts around the project's functions."""


class _Point:
    """Ends or stops this process when a named point is reached for the n-th time.

    Args:
        text: ``name:n:signal:file``; the file gets a line per signal.
    """

    def __init__(self, text: str) -> None:
        self.name, count, signum, self.path = text.split(":")
        self.left, self.signum = int(count), int(signum)

    def reached(self, name: str) -> None:
        if name != self.name:
            return
        self.left -= 1
        if self.left == 0:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(f"{name}\n")
            os.kill(os.getpid(), self.signum)


def arm(text: str) -> None:
    """Put the point of a process around the functions where it lies."""
    if not text:
        return
    reached = _Point(text).reached
    append, delete_old, replace = record_log.SlotLog.append, record_log.SlotLog.delete_old, os.replace
    carry_out, write, wait = dict(server.ACTIONS), scheduler.write_journal, ServerStore.wait
    submit, finish_pull = ServerStore._submit_push, ServerStore.finish_pull
    put = SharedArea.put

    def watched_append(self: Any, message: Any, frames: Any) -> None:
        reached("before a record is logged")
        append(self, message, frames)
        reached("after a record was logged")

    def torn_write(file: int, parts: Any) -> int:
        whole = b"".join(bytes(part) for part in parts)
        os.write(file, whole[: len(whole) // 2])
        reached("in the middle of a record")
        os.write(file, whole[len(whole) // 2 :])
        return len(whole)

    def watched_do(self: Any, action: Any) -> Any:
        acknowledges = isinstance(action, Reply) and isinstance(action.message, Acked)
        if acknowledges:
            reached("before an acknowledgement")
        if isinstance(action, Reply) and isinstance(action.message, Pulled):
            reached("before a pull is answered")
        result = carry_out[type(action)](self, action)
        if acknowledges:
            reached("after an acknowledgement")
        if isinstance(action, ToServer) and isinstance(action.message, Record):
            reached("after a record went to the backup")
        if isinstance(action, ToServer) and isinstance(action.message, SlotImage):
            reached("after a slot went to its backup")
        return result

    def watched_replace(old: Any, new: Any) -> None:
        if Path(new).name.startswith("slot-"):
            reached("before a snapshot replaces the old one")
        if Path(new).name.startswith("scheduler-"):
            reached("before its journal is replaced")
        replace(old, new)

    def watched_delete(self: Any) -> None:
        reached("before old logs are deleted")
        delete_old(self)

    def watched_write(path: Any, journal: Any) -> None:
        write(path, journal)
        reached("after its journal was replaced")

    def watched_submit(self: Any, slot: int, *arguments: Any) -> int:
        if slot == self.options.num_slots // 2:
            reached("after half of a push")
        return submit(self, slot, *arguments)

    def watched_put(self: Any, frames: Any) -> tuple[int, int] | None:
        result = put(self, frames)
        if result is not None:
            reached("after arrays were put into shared memory")
        return result

    def watched_wait(self: Any, ticket: Any) -> None:
        reached("before a push is acknowledged")
        wait(self, ticket)
        reached("after a push was acknowledged")

    def watched_pull(self: Any, plan: Any) -> Any:
        reached("in a pull")
        return finish_pull(self, plan)

    record_log.SlotLog.append, record_log.SlotLog.delete_old, os.replace = (
        watched_append,
        watched_delete,
        watched_replace,
    )
    record_log.write_all = torn_write
    server.ACTIONS.update(dict.fromkeys(server.ACTIONS, watched_do))
    scheduler.write_journal, ServerStore.wait = watched_write, watched_wait
    ServerStore._submit_push, ServerStore.finish_pull, SharedArea.put = watched_submit, watched_pull, watched_put


# ------------------------------------------------------------------------------------------------------------ workers


def work(mode: str, folder: Path) -> None:
    """Be a worker of a job; rank r leaves what it saw at the end in ``end-r``."""
    rank = int(os.environ["RANK_ID"])
    address = f"{os.environ['MS_SCHED_HOST']}:{int(os.environ['MS_SCHED_PORT']) + 1}"
    store = ServerStore(address, rank=rank, node=os.environ["MS_NODE_ID"], timeout=90.0)
    rule = SGD if mode == "asynchronous" else ADAM
    store.declare([Dense("w", SIZE, 0)], [rule], [VariableSpec(1, "table", 0, 2, rule, distribution="zeros")])
    first = np.zeros(SIZE) if mode == "asynchronous" else np.linspace(-1, 1, SIZE)
    store.initialise([first] if rank == 0 else None)
    (_with_leases if mode == "asynchronous" else _in_step)(store)
    (dense,), rows = store.pull({1: np.arange(IDS)}, newest=mode == "asynchronous")
    temporary = folder / f"end-{rank}.new"
    temporary.write_bytes(np.concatenate([dense, rows[1].reshape(-1)]).tobytes())
    os.replace(temporary, folder / f"end-{rank}")
    store.close()


def _with_leases(store: ServerStore) -> None:
    """Every sample adds 1 to all weights and to the row of its number."""
    for lease, samples in store.samples(LEASES * SAMPLES_PER_LEASE, SAMPLES_PER_LEASE):
        ids = np.array(samples) % IDS
        rows = {1: (ids, np.full((len(ids), 2), -1, np.float32), 1.0)}
        store.wait(store.push([np.full(SIZE, -len(ids), np.float32)], [1.0], rows, lease=lease))
        time.sleep(0.02)  # so that kills meet a job that has still something to do


def _in_step(store: ServerStore) -> None:
    """Steps whose gradients depend on rank, clock and pulled values; the members at each clock are both ranks."""
    while store.clock < STEPS:
        ids = np.unique(np.random.default_rng((store.rank, store.clock)).integers(0, IDS, 12))
        (value,), rows = store.pull({1: ids})
        gradient = np.sin(value * (store.rank + 1) + store.clock).astype(np.float32)
        of_rows = np.cos(rows[1] + ids[:, None] + store.clock).astype(np.float32)
        store.wait(store.push([gradient], [0.01], {1: (ids, of_rows, 0.01)}))
        time.sleep(0.02)


# --------------------------------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        mode: ``asynchronous`` or ``synchronous``.
        durability: of its updates.
        points: by role and index, ``name:n``.
        signum: what happens at points.
        draw: text that random faults are drawn from; "" for none.
    """

    mode: str
    durability: str
    points: tuple[tuple[tuple[str, int], str], ...] = ()
    signum: signal.Signals = signal.SIGKILL
    draw: str = ""

    def __str__(self) -> str:
        at = (
            f", {self.points[0][1].partition(':')[0]} ({self.points[0][0][0]}, {self.signum.name})"
            if self.points
            else ""
        )
        return f"{self.mode}, {self.durability}{at}"


class SoakCluster(DrivenCluster):
    """A cluster whose processes may have a point at which they end, in their first start."""

    def __init__(self, job: Job, folder: Path, *arguments: Any, **settings: Any) -> None:
        self.job, self._points = job, folder / "points"
        super().__init__(*arguments, **settings)

    def _command(self, child: Child, watched: int) -> list[str]:
        points = dict(self.job.points) if self._state.members[child.number].starts == 1 else {}
        point = points.get((child.role, child.index), "")
        armed = point and f"{point}:{int(self.job.signum)}:{self._points}"
        words = [child.role, str(watched), armed, self.job.mode, str(self.directory)]
        return [sys.executable, str(RUNNER), "--process", "servers", *words]


def variables(**settings: str) -> dict[str, str]:
    """Of a job of its own on this computer."""
    return {**os.environ, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(ports.two_free_ports()), **settings}


def supervise(cluster: DrivenCluster, seconds: float, counts: Mapping[str, int], turn: Callable[[float], None]) -> None:
    """Run a job to its end; `turn` disturbs it, and is called with the time again and again.

    Raises:
        AssertionError: it failed, or does not end in so many seconds.
    """
    ends = time.monotonic() + seconds
    with cluster:
        while cluster.step():
            now = time.monotonic()
            if now > ends:
                raise AssertionError(f"the job stands still after {dict(counts)}: {cluster.status()}")
            turn(now)
            time.sleep(0.01)
    if cluster.failure:
        logs = sorted((cluster.directory / "out").glob("*.log"))
        tails = [f"{path.name}: {path.read_text('utf-8')[-800:]}" for path in logs]
        raise AssertionError(f"the job failed: {cluster.failure}\n" + "\n".join(tails))


def run(job: Job, faults: Faults, most_faults: int) -> list[bytes]:
    """Run a job with so many random faults at most; its result as each worker saw it."""
    draw = random.Random(job.draw)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = variables(
            MS_PS_STALENESS="-1" if job.mode == "asynchronous" else "0",
            MS_PS_DURABILITY=job.durability,
            MS_PS_LEASE=str(LEASE_SECONDS),
            MS_PS_WORKER_LEASE="60",  # a synchronous run without one of its members has other sums
            MS_PS_SNAPSHOT_BYTES="100000",
        )
        target = Target(TargetKind.SCRIPT, str(RUNNER))
        numbers: dict[str, Any] = {"servers": SERVERS, "workers": WORKERS, "worker": target, "max_restarts": 500}
        cluster = SoakCluster(job, folder, settings, folder, log_dir=folder / "out", **numbers)
        before, next_fault = faults.counts.total(), time.monotonic() + 2.0

        def turn(now: float) -> None:
            nonlocal next_fault
            if job.draw and now >= next_fault and faults.counts.total() - before < most_faults:
                next_fault = now + draw.uniform(0.3, 2.5)
                for _ in range(draw.choice([1, 1, 1, 2])):  # two at once are a mixed kill
                    _kill_one(cluster, faults, draw)
            # Those that have stopped themselves at a point go on, too.
            if job.signum == signal.SIGSTOP:
                for process in cluster.processes.values():
                    if _is_stopped(process.pid):
                        faults.wake_later(process.pid, 1.5 * LEASE_SECONDS)
            faults.wake()

        supervise(cluster, JOB_SECONDS, faults.counts, turn)
        if (folder / "points").exists():
            faults.counts.update(
                f"{job.signum.name} {line}" for line in (folder / "points").read_text("utf-8").splitlines()
            )
        return [(folder / f"end-{rank}").read_bytes() for rank in range(WORKERS)]


def _kill_one(cluster: DrivenCluster, faults: Faults, draw: random.Random) -> None:
    role = draw.choice(["server", "server", "worker", "worker", "scheduler"])
    index = draw.randrange({"server": SERVERS, "worker": WORKERS, "scheduler": 1}[role])
    signum = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
    process = cluster.process_of(role, index)
    seconds = draw.uniform(0.1, 2.5 * LEASE_SECONDS) if process and signum == signal.SIGSTOP else 0.0
    faults.send(process.pid if process else 0, role, signum, seconds)


def _is_stopped(process: int) -> bool:
    return process_state(process) == "T"


def expected_sums() -> bytes:
    """What the asynchronous job must end with."""
    numbers = np.arange(LEASES * SAMPLES_PER_LEASE)
    rows = np.bincount(numbers % IDS, minlength=IDS)
    return np.concatenate([np.full(SIZE, len(numbers)), np.repeat(rows, 2)]).astype(np.float32).tobytes()


def undisturbed(trial: Trial) -> bytes:
    """What the synchronous job must end with."""
    if "synchronous" not in trial.memory:
        first, second = run(Job("synchronous", "replica"), trial.faults, 0)
        if first != second:
            raise AssertionError("the workers of the run without kills disagree")
        trial.memory["synchronous"] = first
    return trial.memory["synchronous"]


def difference(end: bytes, expected: bytes) -> str:
    """How a result differs: how many values are too small (lost) or too large (doubled)."""
    got, right = np.frombuffer(end, np.float32), np.frombuffer(expected, np.float32)
    return f"{int((got < right).sum())} values too small, {int((got > right).sum())} too large"


def job_of(seed: int, number: int) -> Job:
    """Modes and durabilities by turns."""
    mode, turn = MODES[number % 2], number // 2
    return Job(mode, DURABILITIES[turn % len(DURABILITIES)], draw=f"{mode} {seed} {turn}")


def point_of(seed: int, number: int) -> Job:
    """One job for every point, in the order of `POINTS`."""
    draw = random.Random(f"points {seed}")
    jobs = []
    for role, names in POINTS.items():
        for position, name in enumerate(names):
            signum = (signal.SIGKILL, signal.SIGSTOP)[draw.randrange(3) == 2]
            rare = "snapshot" in name or "logs are deleted" in name or "slot went" in name or role == "scheduler"
            at = draw.randint(2, 4) if rare else draw.randint(30, 60)
            roles = [(role, 0)] if role == "scheduler" else [(role, 0), (role, 1)]
            durability = "replica" if "backup" in name else draw.choice(DURABILITIES)
            points = tuple((one, f"{name}:{at + 7 * one[1]}") for one in roles)
            jobs.append(Job(MODES[position % 2], durability, points, signum))
    return jobs[number % len(jobs)]


def disturb(trial: Trial, job: Job) -> str:
    """Processes of a job with parameter servers are killed and stopped; no update is lost or applied twice."""
    expected = expected_sums() if job.mode == "asynchronous" else undisturbed(trial)
    if wrong := [end for end in run(job, trial.faults, trial.size) if end != expected]:
        raise AssertionError(difference(wrong[0], expected))
    return "exact"


def process(words: Sequence[str]) -> int:
    """Be one process of a job."""
    role, watched, point, mode, folder = words
    end_with_launcher(int(watched), inherit=False)
    arm(point)
    if role == "worker":
        work(mode, Path(folder))
        return 0
    return main.main(role)


SERVERS_SCENARIO = Scenario(
    "servers", disturb, cases=12, case=job_of, kind=lambda job: job.mode, kinds=MODES, size=12, unit="faults"
)
POINTS_SCENARIO = Scenario("points", disturb, cases=sum(map(len, POINTS.values())), case=point_of, kind=lambda job: "")
