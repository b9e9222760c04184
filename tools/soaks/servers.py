"""Kills and stops of every process of a job with parameter servers: is an acknowledged update ever lost, or applied twice?

A job has a scheduler, three servers and two workers, all supervised. Processes are killed (SIGKILL) or stopped for a while
(SIGSTOP, shorter and longer than a lease) at random moments, one or two at a time, and at chosen points of their own code:
in the middle of a record of the log, before an acknowledgement, after half of the slots of a push, and so on (`POINTS`).

* ``asynchronous``: every sample adds 1 to all weights and to one row of a table; samples come from leases. At the end each
  value must be the number of its samples exactly: less is a lost update, more is one that counted twice.
* ``synchronous``: Adam on weights and a table, gradients that depend on the pulled values. The end must have the bits of
  the run without kills.
* ``removals``: workers and servers are added and removed while the job trains (`soak_removals.py`).

Run: python tools/soak_servers.py [--seed 0] [--kills 60] [--removals 200] [--json FILE]
     [--only asynchronous|synchronous|points|removals]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import soak_removals
from soak_removals import DrivenCluster

from sporax.cluster import ports
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
KILLS_PER_JOB = 12  # then it may come to its end
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


class SoakCluster(DrivenCluster):
    """A cluster whose processes may have a point at which they end, in their first start."""

    points: dict[tuple[str, int], str]
    mode: str

    def _command(self, child: Child, watched: int) -> list[str]:
        point = self.points.get((child.role, child.index), "") if child.starts == 1 else ""
        return [sys.executable, __file__, "--role", child.role, str(watched), point, self.mode, str(self.directory)]


class Job:
    """One job under kills.

    Args:
        mode: ``asynchronous`` or ``synchronous``.
        durability: of its updates.
        draw: for random kills; None for none.
        points: by role and index, ``name:n``.
        signum: what happens at points.
    """

    def __init__(
        self,
        mode: str,
        durability: str,
        draw: random.Random | None,
        points: dict[tuple[str, int], str] | None = None,
        signum: int = signal.SIGKILL,
    ) -> None:
        self._mode, self._durability, self._draw = mode, durability, draw
        self._points, self._signum = points or {}, signum
        self.kills: Counter[str] = Counter()
        self._stopped: dict[int, float] = {}

    def run(self) -> list[bytes]:
        """The job's result as each worker saw it."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cluster = self._cluster(folder)
            try:
                self._supervise(cluster)
            finally:
                cluster.close()
            log_of_points = folder / "points"
            if log_of_points.exists():
                for line in log_of_points.read_text("utf-8").splitlines():
                    self.kills[f"{signal.Signals(self._signum).name} {line}"] += 1
            if cluster.failure:
                tails = [f"{path.name}: {path.read_text('utf-8')[-800:]}" for path in sorted(folder.glob("out/*.log"))]
                raise AssertionError(f"the job failed: {cluster.failure}\n" + "\n".join(tails))
            return [(folder / f"end-{rank}").read_bytes() for rank in range(WORKERS)]

    def _cluster(self, folder: Path) -> SoakCluster:
        variables = {
            **os.environ,
            "MS_SCHED_HOST": "127.0.0.1",
            "MS_SCHED_PORT": str(ports.two_free_ports()),
            "MS_PS_STALENESS": "-1" if self._mode == "asynchronous" else "0",
            "MS_PS_DURABILITY": self._durability,
            "MS_PS_LEASE": str(LEASE_SECONDS),
            "MS_PS_WORKER_LEASE": "60",  # a synchronous run without one of its members has other sums
            "MS_PS_SNAPSHOT_BYTES": "100000",
        }
        target = Target(TargetKind.SCRIPT, __file__)
        cluster = SoakCluster(
            variables, folder, servers=SERVERS, workers=WORKERS, worker=target, log_dir=folder / "out", max_restarts=500
        )
        cluster.mode = self._mode
        cluster.points = {
            place: f"{point}:{int(self._signum)}:{folder / 'points'}" for place, point in self._points.items()
        }
        return cluster

    def _supervise(self, cluster: SoakCluster) -> None:
        ends = time.monotonic() + JOB_SECONDS
        next_kill = time.monotonic() + 2.0
        while cluster.step():
            now = time.monotonic()
            if now > ends:
                raise AssertionError(f"the job stands still after {dict(self.kills)}: {cluster.status()}")
            if self._draw is not None and now >= next_kill and sum(self.kills.values()) < KILLS_PER_JOB:
                next_kill = now + self._draw.uniform(0.3, 2.5)
                for _ in range(self._draw.choice([1, 1, 1, 2])):  # two at once are a mixed kill
                    self._kill_one(cluster, now)
            self._wake(cluster, now)
            time.sleep(0.01)

    def _kill_one(self, cluster: SoakCluster, now: float) -> None:
        assert self._draw is not None
        role = self._draw.choice(["server", "server", "worker", "worker", "scheduler"])
        index = self._draw.randrange({"server": SERVERS, "worker": WORKERS, "scheduler": 1}[role])
        signum = self._draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
        with suppress(ProcessLookupError):
            process = cluster.kill(role, index, signum)
            if process:
                self.kills[f"{signum.name} {role}"] += 1
            if process and signum == signal.SIGSTOP:
                self._stopped[process] = now + self._draw.uniform(0.1, 2.5 * LEASE_SECONDS)

    def _wake(self, cluster: SoakCluster, now: float) -> None:
        """Let stopped processes go on, those that stopped themselves at a point too."""
        for child in cluster.children.values():
            process = child.process.pid if child.process is not None else 0
            if process and process not in self._stopped and self._signum == signal.SIGSTOP and _is_stopped(process):
                self._stopped[process] = now + 1.5 * LEASE_SECONDS
        for process, until in list(self._stopped.items()):
            if now >= until:
                del self._stopped[process]
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)


def _is_stopped(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


def expected_sums() -> bytes:
    """What the asynchronous job must end with."""
    numbers = np.arange(LEASES * SAMPLES_PER_LEASE)
    rows = np.bincount(numbers % IDS, minlength=IDS)
    return np.concatenate([np.full(SIZE, len(numbers)), np.repeat(rows, 2)]).astype(np.float32).tobytes()


def difference(end: bytes, expected: bytes) -> str:
    """How a result differs: how many values are too small (lost) or too large (doubled)."""
    got, right = np.frombuffer(end, np.float32), np.frombuffer(expected, np.float32)
    return f"{int((got < right).sum())} values too small, {int((got > right).sum())} too large"


def check(job: Job, mode: str, expected: dict[str, bytes]) -> str:
    """Run a job; gives what is wrong with its result, if anything."""
    try:
        ends = job.run()
    except Exception as error:  # whatever goes wrong is a finding
        return f"{type(error).__name__}: {error}"
    wrong = [end for end in ends if end != expected[mode]]
    return difference(wrong[0], expected[mode]) if wrong else ""


# ---------------------------------------------------------------------------------------------------------- the trial


def trial(seed: int, kills: int, only: str, show: Callable[[str], None], first: int = 0) -> dict[str, Any]:
    """Jobs until there were so many random kills in each mode, and one job per point and signal."""
    expected = {"asynchronous": expected_sums()}
    if only != "asynchronous":
        calm = Job("synchronous", "replica", None).run()
        if calm[0] != calm[1]:
            raise AssertionError("the workers of the run without kills disagree")
        expected["synchronous"] = calm[0]
    counts: Counter[str] = Counter()
    failures: list[str] = []
    jobs = 0

    def one(label: str, mode: str, job: Job) -> None:
        nonlocal jobs
        problem = check(job, mode, expected)
        jobs += 1
        counts.update(job.kills)
        failures.extend([f"{label}: {problem}"] if problem else [])
        show(f"{label}: {problem or 'exact'} after {sum(job.kills.values())} kills")

    for mode in ("asynchronous", "synchronous"):
        done, number = 0, first
        while only in ("", mode) and done < kills:
            durability = DURABILITIES[number % len(DURABILITIES)]
            job = Job(mode, durability, random.Random(f"{mode} {seed} {number}"))
            one(f"{mode} {number} {durability}", mode, job)
            done, number = done + sum(job.kills.values()), number + 1
            if number > first + 10 + kills:
                break
    if only in ("", "points"):
        _at_points(seed, one)
    return {
        "seed": seed,
        "jobs": jobs,
        "kills": sum(counts.values()),
        "by_kind": dict(sorted(counts.items())),
        "failures": failures,
    }


def _at_points(seed: int, one: Callable[[str, str, Job], None]) -> None:
    draw = random.Random(f"points {seed}")
    for role, names in POINTS.items():
        for position, name in enumerate(names):
            signum = (signal.SIGKILL, signal.SIGSTOP)[draw.randrange(3) == 2]
            mode = ("asynchronous", "synchronous")[position % 2]
            rare = "snapshot" in name or "logs are deleted" in name or "slot went" in name or role == "scheduler"
            at = draw.randint(2, 4) if rare else draw.randint(30, 60)
            places = [(role, 0)] if role == "scheduler" else [(role, 0), (role, 1)]
            durability = "replica" if "backup" in name else draw.choice(DURABILITIES)
            job = Job(mode, durability, None, {place: f"{name}:{at + 7 * place[1]}" for place in places}, signum)
            one(f"{name} ({role}, {mode}, {durability})", mode, job)


def run_role(words: list[str]) -> int:
    """Be one process of a job."""
    role, watched, point, mode, folder = words
    end_with_launcher(int(watched), inherit=False)
    arm(point)
    if role == "worker":
        work(mode, Path(folder))
        return 0
    return main.main(role)


def run(words: list[str] | None = None) -> int:
    """Run the trial and print its figures; 1 where something was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other kills (0)")
    parser.add_argument("--kills", type=int, default=60, help="random kills in each of the two modes (60)")
    parser.add_argument("--removals", type=int, default=200, help="workers that are removed from jobs (200)")
    parser.add_argument("--first", type=int, default=0, help="number of the first random job")
    parts = ("asynchronous", "synchronous", "points", "removals")
    parser.add_argument("--only", choices=parts, default="", help="one part alone")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args(words)

    def show(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    figures: dict[str, Any] = {"failures": []}
    if arguments.only != "removals":
        figures = trial(arguments.seed, arguments.kills, arguments.only, show, arguments.first)
    if arguments.only in ("", "removals"):
        removals = soak_removals.trial(arguments.seed, arguments.removals, show, arguments.first)
        figures = {**figures, "removals": removals, "failures": figures["failures"] + removals["failures"]}
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return int(bool(figures["failures"]))


if __name__ == "__main__":
    sys.exit(run_role(sys.argv[2:]) if sys.argv[1:2] == ["--role"] else run())
