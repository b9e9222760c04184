"""Collectives of CPU processes: one compiled program, one input, thousands of runs, compared bit by bit.

XLA runs the collectives of CPUs through gloo once `jax.distributed` is initialized. Every program here is run again and again
from the same input, with ranks that arrive together or after random sleeps, while other processes keep the cores busy. The
collectives are those that Sporax's operators are lowered to. The scenario `control` is gloo's reduce-scatter, which Sporax does
not use: it is known to be wrong (https://github.com/jax-ml/jax/issues/40830), but seldom in so small a program: a difference
proves the defect, no difference proves nothing. See `KNOWN_BAD` and `sporax.runtime.world.has_reduce_scatter`.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from soaks.scenario import RUNNER, Scenario, Trial

KNOWN_BAD = ("0.10", "0.13")
"""Versions of jaxlib, from and below, whose reduce-scatter between CPU processes is known to be wrong, or not known to be mended.

In 60,000 runs with 0.12.0.1 none differed, which proves little: the issue saw it in large programs of many devices."""
_CONTROL = "psum_scatter"
_COLLECTIVES = ("all_reduce", "pairs", "all_gather", "all_to_all", "permute", "broadcast", "reduce_scatter")
SIZES = {"small": 64, "middle": 4096, "large": 131_072, "huge": 1_048_576}
"""Float32 numbers that a device sends to another one where there are two; huge ones shrink with the square of the devices."""
_SHARES = {"small": 0.6, "middle": 0.34, "large": 0.05, "huge": 0.01}
"""Shares of the runs: large messages take long."""
_PROCESSES, _MODES = (1, 2, 3, 4), ("true", "false")
"""Numbers of processes, and values of JAX_CPU_ENABLE_ASYNC_DISPATCH."""
_SLEEP_SECONDS = 0.001
"""Longest random sleep before a run: about what a small exchange takes."""
_DEVICES_OF_ONE = 8
"""Devices where there is one process."""
_LIMIT_SECONDS = 3600.0
"""Time after which a job is ended."""


@dataclass(frozen=True, slots=True)
class Job:
    """A start of a job: `processes`, one has eight devices, and `mode`, whether JAX starts programs asynchronously."""

    processes: int
    mode: str

    def __str__(self) -> str:
        return f"{self.processes} processes, asynchronous {self.mode}"


def job_of(seed: int, number: int) -> Job:
    """All numbers of processes in both modes, by turns."""
    return Job(_PROCESSES[number // len(_MODES) % len(_PROCESSES)], _MODES[number % len(_MODES)])


def repeat(trial: Trial, job: Job) -> str:
    """One compiled collective gives the same bits from the same input, run by run, and those of numpy."""
    return _repeated(trial, job, _COLLECTIVES)


def control(trial: Trial, job: Job) -> str:
    """The same with gloo's reduce-scatter alone, whose differences are known."""
    return _repeated(trial, job, [_CONTROL])


def _repeated(trial: Trial, job: Job, names: Sequence[str]) -> str:
    counts = _job(job.processes, job.mode, names, trial.size, f"{trial.seed} {trial.number}")
    for name, (tried, different) in counts.items():
        trial.faults.counts[f"runs of {name}"] += tried
        trial.faults.counts[f"differences of {name}"] += different
    if wrong := {name: different for name, (_, different) in counts.items() if different}:
        raise AssertionError(f"of {trial.size} runs each, others differ: {wrong}")
    return "equal"


def _job(num_processes: int, mode: str, names: Sequence[str], runs: int, seed: str) -> dict[str, tuple[int, int]]:
    """Runs that were tried and those of which some device had another result, by collective."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    devices = _DEVICES_OF_ONE if num_processes == 1 else 1
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}".strip()
    environ = {**os.environ, "XLA_FLAGS": flags, "JAX_CPU_ENABLE_ASYNC_DISPATCH": mode, "JAX_PLATFORMS": "cpu"}
    ranks = []
    for rank in range(num_processes):
        task = {"rank": rank, "size": num_processes, "port": port, "names": list(names), "runs": runs, "seed": seed}
        command = [sys.executable, str(RUNNER), "--process", "collectives", json.dumps(task)]
        ranks.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    wrong: dict[str, set[int]] = {}
    try:
        for process in ranks:
            out, errors = process.communicate(timeout=_LIMIT_SECONDS)
            if process.returncode:
                raise AssertionError(
                    f"a rank of {num_processes} ended with exit code {process.returncode}:\n{errors[-3000:]}"
                )
            for name, numbers in json.loads(out.splitlines()[-1]).items():
                wrong.setdefault(name, set()).update(numbers)
    finally:
        for process in ranks:
            process.kill()
    return {name: (runs, len(numbers)) for name, numbers in wrong.items()}


# ------------------------------------------------------------------------------------------------------- in a rank


def process(words: Sequence[str]) -> int:
    """Be a rank of a job."""
    _rank(**json.loads(words[0]))
    return 0


def _rank(rank: int, size: int, port: int, names: Sequence[str], runs: int, seed: str) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)
    result = {name: _different_runs(name, runs, random.Random(f"{seed} {rank} {name}")) for name in names}
    print(json.dumps(result))
    jax.distributed.shutdown()


def _different_runs(name: str, runs: int, draw: random.Random) -> list[int]:
    """The runs in which a device of this process had another result than the first time."""
    wrong: list[int] = []
    first = 0
    for size, share in _SHARES.items():
        last = runs if size == "huge" else first + round(runs * share)
        program, argument, expected = _program(name, size)
        for number in range(first, last):
            # Every other run the ranks arrive together, as far as the machine lets them.
            if number % 2:
                time.sleep(draw.random() * _SLEEP_SECONDS)
            blocks = program(argument)
            if any(block.tobytes() != right for block, right in zip(_blocks(blocks), expected, strict=True)):
                wrong.append(number)
        first = last
    return wrong


def _blocks(array: Any) -> list[Any]:
    import numpy as np

    return [np.asarray(shard.data) for shard in sorted(array.addressable_shards, key=lambda shard: shard.device.id)]


def _program(name: str, size_name: str) -> tuple[Callable[[Any], Any], Any, list[bytes]]:
    """A compiled program, its argument, and the bytes that each device of this process must get from it.

    Numbers are whole, so that sums are exact in any order.
    """
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = jax.devices()
    size = min(SIZES[size_name], 4 * SIZES["huge"] // len(devices) ** 2)
    mesh, rows = Mesh(np.array(devices), ("rank",)), PartitionSpec("rank")
    values = np.random.default_rng(5).integers(-1000, 1000, (len(devices), len(devices) * size)).astype(np.float32)
    sharding = NamedSharding(mesh, rows)
    argument = jax.make_array_from_callback(values.shape, sharding, lambda where: values[where])
    mapped = jax.shard_map(_bodies(len(devices))[name], mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)
    program = jax.jit(mapped).lower(argument).compile()
    own = [number for number, device in enumerate(devices) if device.process_index == jax.process_index()]
    right = _expected(name, values)
    return program, argument, [right[number].tobytes() for number in own]


def _bodies(count: int) -> dict[str, Callable[[Any], Any]]:
    """What a device does with its row [1, count * size], by name. It gives an array with a leading dimension of one."""
    import jax.numpy as jnp
    from jax import lax

    from sporax.lowering.execute.reductions import sum_in_order

    def in_pairs(x: Any) -> Any:
        # As `sporax.runtime.ranks.exchanges` sums over two and four ranks; others have a partner as well, or none.
        distance = 1
        while distance < count:
            pairs = [(place, place ^ distance) for place in range(count) if place ^ distance < count]
            x = x + lax.ppermute(x, "rank", pairs)
            distance *= 2
        return x

    def scattered(x: Any) -> Any:
        parts = lax.all_to_all(x.reshape(count, -1), "rank", 0, 0, tiled=True)
        return sum_in_order(parts)[None]

    def from_last(x: Any) -> Any:
        bits = lax.bitcast_convert_type(x, jnp.uint32)
        bits = jnp.where(lax.axis_index("rank") == count - 1, bits, jnp.zeros_like(bits))
        return lax.bitcast_convert_type(lax.psum(bits, "rank"), jnp.float32)

    return {
        "all_reduce": lambda x: lax.psum(x, "rank"),
        "pairs": in_pairs,
        "all_gather": lambda x: lax.all_gather(x, "rank", axis=1, tiled=True),
        "all_to_all": lambda x: lax.all_to_all(x, "rank", 1, 1, tiled=True),
        "permute": lambda x: lax.ppermute(x, "rank", [(place, (place + 1) % count) for place in range(count)]),
        "broadcast": from_last,
        "reduce_scatter": scattered,
        _CONTROL: lambda x: lax.psum_scatter(x, "rank", scatter_dimension=1, tiled=True),
    }


def _expected(name: str, values: Any) -> list[Any]:
    """What each device must get, by numpy."""
    import numpy as np

    count = len(values)
    pieces = values.reshape(count, count, -1)
    if name == "pairs":
        distance = 1
        while distance < count:
            partners = [place ^ distance for place in range(count)]
            values = values + np.stack([values[p] if p < count else np.zeros_like(values[0]) for p in partners])
            distance *= 2
        return list(values)
    return {
        "all_reduce": lambda: [values.sum(0)] * count,
        "all_gather": lambda: [values.ravel()] * count,
        "all_to_all": lambda: [np.ascontiguousarray(pieces[:, place]) for place in range(count)],
        "permute": lambda: [values[place - 1] for place in range(count)],
        "broadcast": lambda: [values[-1]] * count,
        "reduce_scatter": lambda: list(pieces.sum(0)),
        _CONTROL: lambda: list(pieces.sum(0)),
    }[name]()


_SETTINGS: dict[str, Any] = {"cases": 8, "case": job_of, "size": 250, "unit": "runs of each collective", "load": 2}
COLLECTIVES_SCENARIO = Scenario("collectives", repeat, **_SETTINGS)
CONTROL_SCENARIO = Scenario("control", control, **_SETTINGS, tolerated=1.0)
