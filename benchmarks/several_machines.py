"""What do two machines cost: pushes to a parameter server next to a plain socket, and data parallel next to PyTorch DDP?

    sudo python benchmarks/several_machines.py [--torch PYTHON] [--rounds N] [--pushes N] [--models NAME ...] [--json FILE]

Two machines (`tools/machines.py`) with a cable between them, at 10 Gbit/s and 50 µs by `tc`. A kernel without `netem` cannot
delay: then the cable has its rate and no latency, which makes every ratio of overheads larger, and the first line says so.

* A worker on the first machine pushes 64 KiB to a parameter server on the second: plain TCP sockets (the other side adds the
  bytes up in place and answers by 16 bytes), then each durability, by turns.
* Two ranks, one on each machine and core, train models of `data_parallel.py`: Sporax and PyTorch DDP over gloo, by turns. Without
  ``--torch`` DDP is left out; `pip install torch` makes an interpreter that has it.

Goals: a push <= 1.5 times of a plain socket; a step <= 1.0 times of DDP.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
import machines
import parameter_server

from sporax.ps.client.store import Dense, ServerStore

PEERS = Path(__file__).resolve().parent / "data_parallel_peers"
SIZE = 64 << 10
RATE_BYTES = 10e9 / 8
LATENCY_MS = 0.05
PLAIN_PORT, JOB_PORT = 7000, 7100
ROLE = "import sys; from sporax.ps.process import main; sys.exit(main(sys.argv[1]))"
DURABILITIES = ("memory", "process")
STEPS = {"mlp": 200, "mlp-deep": 100, "mlp-wide": 40, "lenet": 200, "transformer": 30}


def main() -> None:
    """Print both tables."""
    if sys.argv[1:2] == ["answer"]:
        answer(sys.argv[2])
        return
    if sys.argv[1:2] == ["push"]:
        push(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    options = parse()
    try:
        shared = [Path(options.torch).absolute().parents[1]] if options.torch else []
        with tempfile.TemporaryDirectory() as folder, machines.Machines(2, shared=[Path(folder), *shared]) as made:
            measured = compare(made, Path(folder), options)
    except machines.MachinesUnavailableError as error:
        sys.exit(f"Machines cannot be had here: {error}.")
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Two machines, next to plain sockets and PyTorch DDP.")
    parser.add_argument("--torch", help="interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--pushes", type=int, default=2000, help="pushes of a round (2000)")
    parser.add_argument("--models", nargs="*", default=["mlp", "mlp-wide", "transformer"], choices=list(STEPS))
    parser.add_argument("--json", type=Path, help="write all measurements here")
    return parser.parse_args()


def compare(made: machines.Machines, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print."""
    try:
        addresses = made.cable(0, 1, RATE_BYTES, LATENCY_MS)
        print("cable: 10 Gbit/s, 50 µs in each direction", flush=True)
    except machines.MachinesUnavailableError as error:
        print(f"cable: 10 Gbit/s, no latency, since this kernel cannot delay ({error})", flush=True)
        addresses = made.cable(0, 1, RATE_BYTES)
    lines = [f"{address} node{number}" for number, address in enumerate(addresses)]
    for machine in made:
        machine.set_hosts(["127.0.0.1 localhost", *lines])
    found: dict[str, Any] = {}
    if options.pushes:
        found["pushes"] = pushes(made, addresses, options)
    if options.models:
        found["steps"] = steps(made, addresses, folder, options)
    return found


# ---------------------------------------------------------------------------------------------------------------------- pushes


def pushes(made: machines.Machines, addresses: tuple[str, str], options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of pushes by each way; prints the table."""
    with ExitStack() as stack:
        plain = [sys.executable, __file__, "answer", addresses[1]]
        stack.enter_context(running(made[1].popen(["taskset", "-c", str(core(1)), *plain])))
        for number, durability in enumerate(DURABILITIES):
            variables = job_variables(addresses[0], number, durability)
            for machine, role in ((made[0], "scheduler"), (made[1], "server")):
                command = ["taskset", "-c", str(core(1)), sys.executable, "-c", ROLE, role]
                environ = {**os.environ, **variables, "MS_WORKER_IP": addresses[machine.number]}
                stack.enter_context(running(machine.popen(command, env=environ)))
        command = [sys.executable, __file__, "push", addresses[1], str(options.rounds), str(options.pushes)]
        environ = {**os.environ, **job_variables(addresses[0], 0, "memory"), "MS_WORKER_IP": addresses[0]}
        done = made[0].run(["taskset", "-c", str(core(0)), *command], env=environ, timeout=600)
    if done.returncode:
        sys.exit(f"the pushes failed:\n{done.stdout[-3000:]}")
    seconds: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    typical = {name: statistics.median(times) for name, times in seconds.items()}
    for name, times in seconds.items():
        least, base = min(times), min(seconds["plain socket"])
        print(
            f"push of 64 KiB  {name:<12}  median {typical[name] * 1e6:6.0f} µs, {typical[name] / typical['plain socket']:4.2f} x"
            f"   least {least * 1e6:6.0f} µs, {least / base:4.2f} x",
            flush=True,
        )
    return seconds


def core(number: int) -> int:
    """The core of a machine."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[min(number, len(cores) - 1)]


def job_variables(host: str, number: int, durability: str) -> dict[str, str]:
    """What the processes of a job need to know."""
    port = JOB_PORT + 10 * number
    counts = {"MS_WORKER_NUM": "1", "MS_SERVER_NUM": "1", "MS_PS_SLOTS": "1"}
    place = {"MS_SCHED_HOST": host, "MS_SCHED_PORT": str(port), "MS_PS_INSECURE": "1"}  # plain sockets encrypt nothing
    return {**counts, **place, "MS_PS_DURABILITY": durability, "MS_PS_STALENESS": "-1"}


@contextmanager
def running(process: subprocess.Popen[Any]) -> Iterator[None]:
    """A process that ends with the block."""
    try:
        yield
    finally:
        machines.Machine.send_signal(process, signal.SIGKILL)
        process.wait(20)


def answer(host: str) -> None:
    """The other side of the plain socket."""
    with socket.create_server((host, PLAIN_PORT)) as listener:
        parameter_server.serve(listener, SIZE, parameter_server.ANSWER_BYTES)


def push(host: str, rounds: int, count: int) -> None:
    """The worker: push by each way in turns, and print seconds as JSON."""
    scheduler, gradient = os.environ["MS_SCHED_HOST"], np.ones(SIZE // 4, np.float32)
    connection = connected(host)
    parameter_server.prepare(connection)
    buffer = bytearray(parameter_server.ANSWER_BYTES)

    def plain() -> None:
        connection.sendall(gradient.data)
        parameter_server.read_all(connection, buffer)

    ways: dict[str, Any] = {"plain socket": plain}
    for number, durability in enumerate(DURABILITIES):
        store = ServerStore(f"{scheduler}:{JOB_PORT + 10 * number + 1}", timeout=60.0)
        store.declare([Dense("w", SIZE // 4, 0)], [parameter_server.SGD])
        store.initialise([np.zeros(SIZE // 4, np.float32)])
        ways[durability] = lambda store=store: store.wait(store.push([gradient], [0.1]))
    time.sleep(1.0)  # servers get their logs ready
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, once in ways.items():
            times = [parameter_server.timed(once) for _ in range(count)]
            seconds[name] += times if number else []  # the first round warms up
    print(json.dumps(seconds))


def connected(host: str) -> socket.socket:
    """A connection to the plain socket, which may not listen yet."""
    for _ in range(100):
        try:
            return socket.create_connection((host, PLAIN_PORT))
        except OSError:
            time.sleep(0.2)
    sys.exit(f"nobody listens at {host}:{PLAIN_PORT}")


# ----------------------------------------------------------------------------------------------------------------------- steps


def steps(
    made: machines.Machines, addresses: tuple[str, str], folder: Path, options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of a step of each model by each way; prints the table."""
    ways = {"Sporax": [str(PEERS / "by_names.py")]}
    if options.torch:
        ways["PyTorch DDP"] = [options.torch, str(PEERS / "by_torch.py")]
    else:
        print(
            "PyTorch DDP is left out: `pip install torch` in an environment of its own, and give its Python by --torch."
        )
    times: dict[str, dict[str, list[float]]] = {model: {name: [] for name in ways} for model in options.models}
    for _ in range(options.rounds):
        for model in options.models:
            for name, program in ways.items():
                times[model][name].append(step(made, addresses, folder, [*program, model, str(STEPS[model])]))
    for model, row in times.items():
        least = {name: min(each) for name, each in row.items()}
        cells = [f"{name} {value:.2f} ms (median {statistics.median(row[name]):.2f})" for name, value in least.items()]
        ratio = f"   {least['Sporax'] / least['PyTorch DDP']:.2f} x DDP" if options.torch else ""
        print(f"step of {model:<12} {', '.join(cells)}{ratio}", flush=True)
    return times


def step(made: machines.Machines, addresses: tuple[str, str], folder: Path, program: list[str]) -> float:
    """Milliseconds of a step at rank 0."""
    environ = {**os.environ, "BENCHMARK_HOST": addresses[0], "BENCHMARK_PORT": "7900", "JAX_PLATFORMS": "cpu"}
    launchers = []
    logs = f"logs-{time.monotonic_ns()}"  # of this job alone
    for machine in made:
        flags = ["--worker_num", "2", "--local_worker_num", "1", "--node_rank", str(machine.number)]
        flags += ["--master_addr", addresses[0], "--log_dir", f"/tmp/{logs}"]
        command = ["taskset", "-c", str(core(machine.number)), sys.executable, "-m", "sporax", "run", *flags, *program]
        own = {**environ, "GLOO_SOCKET_IFNAME": "cable0", "MS_WORKER_IP": addresses[machine.number]}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        launchers.append(machine.popen(command, env=own, cwd=folder, **pipes))
    output = "".join(launcher.communicate(timeout=600)[0] for launcher in launchers)
    output += "".join(
        log.read_text() for machine in made for log in (machine.folder / "tmp").glob(f"{logs}/worker_*.log")
    )
    found = re.search(r"rank 0 milliseconds ([\d.]+)", output)
    if found is None or any(launcher.returncode for launcher in launchers):
        sys.exit(f"{' '.join(program)} gave no time:\n{output[-3000:]}")
    return float(found[1])


if __name__ == "__main__":
    main()
