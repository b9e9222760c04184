"""What does the parameter server cost over raw sockets, and how many embedding rows does a server core update per second?

Side by side in one run: a push and pull through `sporax.ps.store` for each durability, beside the same bytes over plain
TCP sockets with an echoing process; and SGD on a table of embedding rows over two servers.

    python benchmarks/parameter_server.py [--quick] [--rows N]

Ratios are what counts; each line gives medians and the ratio to the sockets of the same run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable

import numpy as np

from sporax.launch.ps_cluster import background
from sporax.ps.messages import OptimizerSpec, VariableSpec
from sporax.ps.store import Dense, Store

SGD = OptimizerSpec("sgd")


def _serve(listener: socket.socket, size: int) -> None:
    """Take `size` bytes, add them to a buffer, send `size` bytes back."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    values, buffer = np.zeros(size // 4, np.float32), bytearray(size)
    with connection:
        while True:
            view = memoryview(buffer)
            while len(view):
                got = connection.recv_into(view)
                if not got:
                    return
                view = view[got:]
            values += np.frombuffer(buffer, np.float32)
            connection.sendall(values.data)


def sockets(size: int, repeat: int) -> float:
    """Median seconds of a push and pull over plain sockets."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, size), daemon=True)
    process.start()
    with socket.create_connection(listener.getsockname()) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data, buffer = np.ones(size // 4, np.float32), bytearray(size)

        def once() -> None:
            connection.sendall(data.data)
            view = memoryview(buffer)
            while len(view):
                view = view[connection.recv_into(view) :]

        result = median(once, repeat)
    process.join(5)
    listener.close()
    return result


def median(once: Callable[[], object], repeat: int) -> float:
    """Median seconds of a call."""
    for _ in range(max(2, repeat // 5)):
        once()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        once()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def served(size: int, repeat: int, durability: str, slots: int) -> tuple[float, float]:
    """Median seconds of a push and pull, and of a push alone, through one server."""
    variables = {"MS_PS_DURABILITY": durability, "MS_PS_STALENESS": "-1", "MS_PS_SLOTS": str(slots)}
    with background(1, 1, None, **variables) as cluster:
        store = Store(cluster.cluster.address, timeout=60.0)
        store.declare([Dense("w", size // 4, 0)], [SGD])
        store.initialise([np.zeros(size // 4, np.float32)])
        gradient = np.ones(size // 4, np.float32)

        def both() -> None:
            ticket = store.push([gradient], [0.1])
            plan = store.start_pull()
            store.wait(ticket)
            store.finish_pull(plan)

        result = median(both, repeat), median(lambda: store.wait(store.push([gradient], [0.1])), repeat)
        store.close()
    return result


def rows(count: int, batch: int, repeat: int) -> dict[str, float]:
    """Row updates per second of the servers' processor time, and per second of the clock, two servers."""
    variables = {"MS_PS_DURABILITY": "memory", "MS_PS_STALENESS": "-1", "MS_PS_SLOTS": "2"}
    with background(2, 1, None, **variables) as cluster:
        store = Store(cluster.cluster.address, timeout=120.0)
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
    sizes = [(64 << 10, 200, 1)] if arguments.quick else [(64 << 10, 300, 1), (64 << 20, 15, 16)]
    for size, repeat, slots in sizes:
        floor = sockets(size, repeat)
        print(f"{size >> 10:>6} KiB  sockets         push + pull {floor * 1e3:8.3f} ms", flush=True)
        for durability in ("memory", "process", "disk"):
            both, push = served(size, repeat, durability, slots)
            print(
                f"{size >> 10:>6} KiB  {durability:<14}  push + pull {both * 1e3:8.3f} ms ({both / floor:4.2f} x)   "
                f"push {push * 1e3:8.3f} ms ({push / floor:4.2f} x)",
                flush=True,
            )
    count = 200_000 if arguments.quick else arguments.rows
    result = rows(count, 1 << 17, 10 if arguments.quick else 40)
    print(
        f"SGD on {count} rows of 64 over 2 servers: {result['per_core'] / 1e6:.2f} M rows/s per core of the servers, "
        f"{result['per_second'] / 1e6:.2f} M rows/s by the clock"
    )


if __name__ == "__main__":
    main()
