"""What does the parameter server cost over raw sockets, and how many embedding rows does a server core update per second?

Side by side in one run: pushes and pulls through `sporax.ps.client.store` for each durability, beside the same bytes over plain
sockets with a process that adds them up; and SGD on a table of embedding rows over two servers.

    python benchmarks/parameter_server.py [--quick] [--rows N]

Plain sockets do what a push and a pull need at least: a push sends the gradient, the other process adds it to its values in
place, and answers by 16 bytes; push and pull gets the values as the answer. Both sides have their memory ready. TCP sockets are
what two machines would use; Unix sockets are what processes of one machine can use, ours among them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import OptimizerSpec, VariableSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from background_cluster import background

SGD = OptimizerSpec("sgd")
ANSWER_BYTES = 16
ROUNDS = 6
SEND_BUFFER_BYTES = 1 << 20


@dataclass
class Way:
    """What is measured, and the processes that serve it."""

    calls: dict[str, Callable[[], object]] = field(default_factory=dict)
    processes: list[int] = field(default_factory=list)


def read_all(connection: socket.socket, buffer: bytearray) -> bool:
    view = memoryview(buffer)
    while len(view):
        count = connection.recv_into(view)
        if not count:
            return False
        view = view[count:]
    return True


def serve(listener: socket.socket, size: int, answer: int) -> None:
    """Take `size` bytes, add them to values in place, send the first `answer` bytes of the values back."""
    connection, _ = listener.accept()
    prepare(connection)
    values, buffer = np.zeros(size // 4, np.float32), bytearray(size)
    back = memoryview(values).cast("B")[:answer]
    with connection:
        while read_all(connection, buffer):
            values += np.frombuffer(buffer, np.float32)
            connection.sendall(back)


def prepare(connection: socket.socket) -> None:
    if connection.family == socket.AF_UNIX:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    else:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@contextmanager
def sockets(family: int, size: int) -> Iterator[Way]:
    """A push, and a push with a pull, over plain sockets."""
    with ExitStack() as stack:
        way = Way()
        for name, answer in (("push", ANSWER_BYTES), ("push + pull", size)):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            address = ("127.0.0.1", 0) if family == socket.AF_INET else os.path.join(folder, "s")
            listener = stack.enter_context(socket.socket(family))
            listener.bind(address)
            listener.listen()
            process = multiprocessing.get_context("fork").Process(
                target=serve, args=(listener, size, answer), daemon=True
            )
            process.start()
            connection = stack.enter_context(socket.socket(family))
            connection.connect(listener.getsockname())
            prepare(connection)
            stack.callback(process.terminate)
            data, buffer = np.ones(size // 4, np.float32), bytearray(answer)

            def once(connection: socket.socket = connection, buffer: bytearray = buffer, data: object = data) -> None:
                connection.sendall(data.data)
                read_all(connection, buffer)

            way.calls[name] = once
            assert process.pid is not None
            way.processes.append(process.pid)
        yield way


@contextmanager
def served(size: int, durability: str, slots: int) -> Iterator[Way]:
    """A push, and a push with a pull, through one server."""
    variables = {"MS_PS_DURABILITY": durability, "MS_PS_STALENESS": "-1", "MS_PS_SLOTS": str(slots)}
    with background(1, 1, None, **variables) as cluster:
        store = ServerStore(cluster.cluster.address, timeout=60.0)
        store.declare([Dense("w", size // 4, 0)], [SGD])
        store.initialise([np.zeros(size // 4, np.float32)])
        gradient = np.ones(size // 4, np.float32)

        def both() -> None:
            ticket = store.push([gradient], [0.1])
            plan = store.start_pull()
            store.wait(ticket)
            store.finish_pull(plan)

        process = cluster.cluster.children[("server", 0)].process
        assert process is not None
        yield Way({"push": lambda: store.wait(store.push([gradient], [0.1])), "push + pull": both}, [process.pid])
        store.close()


def compare(size: int, repeat: int, slots: int, placements: dict[str, tuple[int, int]]) -> None:
    """Print a line for each way to push and pull `size` bytes, for each placement (core of the worker, core of the server)."""
    everywhere = os.sched_getaffinity(0)
    with ExitStack() as stack:
        ways = {"Unix sockets": stack.enter_context(sockets(socket.AF_UNIX, size))}
        ways["TCP sockets"] = stack.enter_context(sockets(socket.AF_INET, size))
        for durability in ("memory", "process", "disk"):
            ways[durability] = stack.enter_context(served(size, durability, slots))
        stack.callback(os.sched_setaffinity, 0, everywhere)
        time.sleep(1.0)  # servers get their logs ready
        for placement, (worker_core, server_core) in placements.items():
            os.sched_setaffinity(0, {worker_core})
            for process in [process for way in ways.values() for process in way.processes]:
                os.sched_setaffinity(process, {server_core})
            report(f"{size >> 10:>6} KiB, {placement}", measured(ways, repeat))


def measured(ways: dict[str, Way], repeat: int) -> dict[tuple[str, str], list[float]]:
    """Seconds of each call of each way."""
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(ROUNDS + 1):
        for name, way in ways.items():
            for call, once in way.calls.items():
                seconds = [timed(once) for _ in range(max(2, repeat // ROUNDS))]
                if number:  # the first round warms up
                    times.setdefault((name, call), []).extend(seconds)
    return times


def report(title: str, times: dict[tuple[str, str], list[float]]) -> None:
    """Print the lines: the median, the least time in brackets, and the ratios of the medians to TCP and to Unix sockets."""
    for name in dict.fromkeys(name for name, _ in times):
        line = f"{title}  {name:<12}"
        for call in ("push", "push + pull"):
            seconds = times[(name, call)]
            typical = statistics.median(seconds)
            to_tcp, to_unix = (
                typical / statistics.median(times[(floor, call)]) for floor in ("TCP sockets", "Unix sockets")
            )
            least = min(seconds) * 1e3
            line += f"  {call} {typical * 1e3:8.3f} ({least:8.3f}) ms, {to_tcp:5.2f} x TCP, {to_unix:5.2f} x Unix"
        print(line, flush=True)


def timed(once: Callable[[], object]) -> float:
    """Seconds of a call."""
    begin = time.perf_counter()
    once()
    return time.perf_counter() - begin


def rows(count: int, batch: int, repeat: int) -> dict[str, float]:
    """Row updates per second of the servers' processor time, and per second of the clock, two servers."""
    variables = {"MS_PS_DURABILITY": "memory", "MS_PS_STALENESS": "-1", "MS_PS_SLOTS": "2"}
    with background(2, 1, None, **variables) as cluster:
        store = ServerStore(cluster.cluster.address, timeout=120.0)
        store.declare([], [], [VariableSpec(0, "table", 0, 64, SGD, distribution="zeros")])
        store.initialise([])
        gradient = np.ones((batch, 64), np.float32)
        fill = np.ones((400_000, 64), np.float32)
        for start in range(0, count, len(fill)):
            ids = np.arange(start, min(start + len(fill), count))
            store.wait(store.push([], [], {0: (ids, fill[: len(ids)], 0.1)}))

        def processor() -> float:
            time.sleep(1.2)
            status = json.loads(cluster.cluster.status().text)
            return sum(server["cpu_seconds"] for server in status["servers"])

        rng = np.random.default_rng(0)
        batches = [np.unique(rng.integers(0, count, batch)) for _ in range(8)]
        before, begin, updated = processor(), time.perf_counter(), 0
        waiting = []
        for step in range(repeat):
            ids = batches[step % len(batches)]
            waiting.append(store.push([], [], {0: (ids, gradient[: len(ids)], 0.1)}))
            updated += len(ids)
            if len(waiting) > 4:
                store.wait(waiting.pop(0))
        for ticket in waiting:
            store.wait(ticket)
        clock = time.perf_counter() - begin
        used = processor() - before
        store.close()
    return {"per_core": updated / used, "per_second": updated / clock}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the embedding table")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    apart, together = {"two cores": (cores[0], cores[-1])}, {"one core": (cores[0], cores[0])}
    compare(64 << 10, 300 if arguments.quick else 900, 1, apart | together)
    if not arguments.quick:
        compare(64 << 20, 18, 16, apart)
    count = 200_000 if arguments.quick else arguments.rows
    result = rows(count, 1 << 17, 10 if arguments.quick else 40)
    print(
        f"SGD on {count} rows of 64 over 2 servers: {result['per_core'] / 1e6:.2f} M rows/s per core of the servers, "
        f"{result['per_second'] / 1e6:.2f} M rows/s by the clock"
    )


if __name__ == "__main__":
    main()
