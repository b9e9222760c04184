"""How ranks that compute on the CPU share a node: cores, memory, and simulated devices.

Ranks that compute on the CPU each start as many threads as they may use cores; without shares, N ranks start N times
as many threads as there are cores. XLA sizes its thread pool by the cores a process may run on, so binding the
process is enough for it; libraries that look elsewhere get the variables of `thread_limits`.

How ranks that compute on the CPU get their memory: large buffers are kept between steps, on large pages.

A training step takes and gives back the same buffers every time. The C library (glibc) fetches those above 32 MB from the
system again at each step and returns free memory early, so every page of them is cleared and mapped again: over 8,000
page faults in a data-parallel step of an MLP of 4 layers of 1024, a third of the processor time of its ranks.
`GLIBC_TUNABLES` says otherwise. Systems with another C library ignore it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from itertools import pairwise

from msgspec import Struct

from sporax.base.errors import SporaxValueError
from sporax.cluster.environment import SIMULATED_DEVICES, RankEnvironment
from sporax.launch.options import Binding

_NUMA_NODES = "/sys/devices/system/node/node[0-9]*"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Share(Struct, frozen=True):
    """What one rank may use of its node.

    Attributes:
        cores: ids of CPU cores; None leaves the process unbound.
        memory_node: NUMA node its memory comes from; None leaves that open.
    """

    cores: tuple[int, ...] | None = None
    memory_node: int | None = None


def computes_on_cpu(environ: Mapping[str, str]) -> bool:
    """Whether ranks started with `environ` compute on the CPU: JAX is set to, or there is no accelerator."""
    platforms = environ.get("JAX_PLATFORMS", "")
    if platforms:
        # A list of several platforms, such as "cuda,cpu", prefers an accelerator.
        return platforms == "cpu"
    # Device files of NVIDIA GPUs and of TPUs.
    return not (glob("/dev/nvidia[0-9]*") or glob("/dev/accel*") or glob("/dev/vfio/[0-9]*"))


def available_cores() -> tuple[int, ...]:
    """Ids of the cores this process may run on; none where the system does not say."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def numa_nodes(cores: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """This machine's NUMA nodes with those of `cores` that belong to each."""
    allowed, nodes = set(cores), {}
    for path in sorted(glob(_NUMA_NODES)):
        with open(os.path.join(path, "cpulist"), encoding="ascii") as file:
            # Such as `0-3,8`.
            bounds = [word.split("-") for word in file.read().strip().split(",") if word]
        members = (core for first, *last in bounds for core in range(int(first), int(last[0] if last else first) + 1))
        nodes[int(path.rpartition("node")[2])] = tuple(core for core in members if core in allowed)
    return nodes


def split(cores: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Divide `cores` into `count` runs of neighbours, as equal as possible; one each in turn when there are too few."""
    if count > len(cores):
        return [(cores[index % len(cores)],) for index in range(count)]
    # The first ranks get one core more where the division leaves a rest.
    size, larger = divmod(len(cores), count)
    starts = [index * size + min(index, larger) for index in range(count + 1)]
    return [tuple(cores[start:end]) for start, end in pairwise(starts)]


def shares(
    count: int,
    bind_core: bool | Binding,
    bind_numa: bool | Binding,
    *,
    cores: tuple[int, ...],
    nodes: Mapping[int, tuple[int, ...]],
) -> list[Share]:
    """What each of `count` local ranks may use.

    Args:
        count: number of local ranks.
        bind_core: False, True (equal shares), or cores by local rank; a rank the table leaves out stays unbound.
        bind_numa: False, True (ranks dealt out in runs), or one NUMA node by local rank. A rank takes its node's memory
            and its cores, which `bind_core=True` shares among the ranks there.
        cores: the cores there are.
        nodes: the NUMA nodes there are, with their cores.

    Raises:
        SporaxValueError: a table names a core or node that is not there.
    """
    placed = _nodes_of_ranks(count, bind_numa, nodes)
    if isinstance(bind_core, Mapping):
        _check_ids("bind_core", bind_core, cores)
    result = []
    for rank, node in enumerate(placed):
        pool = cores if node is None else nodes[node]
        neighbours = [other for other in range(count) if placed[other] == node]
        # Binding memory to a node is of use only with the cores of that node.
        bound = None if node is None else pool
        if isinstance(bind_core, Mapping):
            bound = bind_core.get(rank, bound)
        elif bind_core and pool:
            bound = split(pool, len(neighbours))[neighbours.index(rank)]
        result.append(Share(bound, node))
    return result


def thread_limits(share: Share, environ: Mapping[str, str]) -> dict[str, str]:
    """Thread counts for a bound rank, except those the user has set already."""
    if share.cores is None:
        return {}
    # The user's own limits stay.
    return {name: str(len(share.cores)) for name in _THREAD_VARIABLES if name not in environ}


def memory_prefix(share: Share) -> list[str]:
    """The command that starts a process with its memory on the share's NUMA node.

    Raises:
        SporaxValueError: `numactl`, which does this, is not installed.
    """
    if share.memory_node is None:
        return []
    numactl = shutil.which("numactl")
    if numactl is None:
        raise SporaxValueError(
            "For 'bind_numa', the command 'numactl' must be installed, but got none on PATH. Install it, or bind "
            "cores alone with --bind_core."
        )
    return [numactl, f"--membind={share.memory_node}"]


def _nodes_of_ranks(count: int, bind_numa: bool | Binding, nodes: Mapping[int, tuple[int, ...]]) -> list[int | None]:
    """The NUMA node of each local rank; None where it has none."""
    if isinstance(bind_numa, Mapping):
        _check_ids("bind_numa", bind_numa, tuple(nodes))
        if any(len(ids) != 1 for ids in bind_numa.values()):
            raise SporaxValueError(f"For 'bind_numa', each rank must have one node, but got {dict(bind_numa)}.")
        return [bind_numa[rank][0] if rank in bind_numa else None for rank in range(count)]
    # A node may have memory and no cores for this process.
    usable = [node for node, cores in sorted(nodes.items()) if cores]
    if not bind_numa or not usable:
        return [None] * count
    # Neighbouring ranks exchange the most data, so they share a node.
    return [usable[rank * len(usable) // count] for rank in range(count)]


def _check_ids(flag: str, table: Binding, present: tuple[int, ...]) -> None:
    """Check that a table names only what is there."""
    unknown = sorted({number for ids in table.values() for number in ids} - set(present))
    if unknown:
        raise SporaxValueError(f"For '{flag}', the ids must be among {list(present)}, but got {unknown}.")


MOST_DEVICES = 1 << 14
"""Each costs some 0.1 MB and a moment of the start."""


def simulated_devices(environ: Mapping[str, str], count: int) -> dict[str, str]:
    """The variables that give a process `count` CPU devices.

    Args:
        environ: the environment it would have otherwise; its other XLA_FLAGS are kept.
        count: number of devices.

    Raises:
        SporaxValueError: more devices than one process can act as, or JAX_PLATFORMS names something other than the CPU.
    """
    if count > MOST_DEVICES:
        raise SporaxValueError(
            f"For 'simulated devices', their number must be at most {MOST_DEVICES} in one process, but got {count}."
        )
    platforms = environ.get("JAX_PLATFORMS", "")
    if platforms not in ("", "cpu"):
        raise SporaxValueError(
            f"For 'simulated devices', JAX_PLATFORMS must be 'cpu' or unset, but got '{platforms}'. Name no number of devices to "
            "use the real ones."
        )
    # An older count in the flags would win or lose by its place, so it is left out.
    others = [flag for flag in environ.get("XLA_FLAGS", "").split() if not flag.startswith(SIMULATED_DEVICES)]
    return {"XLA_FLAGS": " ".join([*others, f"{SIMULATED_DEVICES}={count}"]), "JAX_PLATFORMS": "cpu"}


def only_process(environ: Mapping[str, str], count: int) -> dict[str, str]:
    """The variables of a process that is alone with `count` simulated devices: also MindSpore's names for rank and job.

    Raises:
        SporaxValueError: as `simulated_devices`, or variables of a job make no sense.
    """
    variables = simulated_devices(environ, count)
    names = {"RANK_SIZE": str(count), "RANK_ID": "0", "DEVICE_ID": environ.get("DEVICE_ID", "0")}
    names["DEVICE_NUM"] = environ.get("DEVICE_NUM", str(count))  # start scripts of public programs export it
    # A script that was started like this may start another.
    inherits = f"{SIMULATED_DEVICES}={environ.get('RANK_SIZE')}" in environ.get("XLA_FLAGS", "").split()
    place = RankEnvironment.from_environ({**environ, **variables, **(names if inherits else {})})
    is_job = place.size > 1 or place.scheduler_address is not None or place.simulation_level is not None
    return variables if is_job else variables | names


_VARIABLE = "GLIBC_TUNABLES"
_TUNABLES = {
    "glibc.malloc.hugetlb": 1,  # request transparent large pages
    "glibc.malloc.mmap_threshold": 2**30,  # bytes up to which a buffer is taken from the heap, and stays there
    "glibc.malloc.trim_threshold": 2**32,  # bytes of free heap that are kept
}


def allocation_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a process keep its large buffers; tunables the user has set stay as they are."""
    # Entries look like `name=value`, with colons in between.
    own = [entry for entry in environ.get(_VARIABLE, "").split(":") if entry]
    names = {entry.partition("=")[0] for entry in own}
    added = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in names]
    return {_VARIABLE: ":".join([*own, *added])}
