"""Measuring the devices at hand: a hardware profile from a few seconds of matrix products, copies and collectives.

All devices work at the same time, as they do in a step: simulated devices share the cores of one machine, and what counts
is what each gets. A rate is the best of many rounds, since everything else that runs can only make a round slower. In a job of
several nodes the devices of each node are one ring, and those with the same place in all nodes another one; all processes get
the figures of the first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.cluster.environment import RankEnvironment
from sporax.ir.hardware import HardwareProfile, Link, load_profile
from sporax.planner import fitting_hardware
from sporax.runtime import world
from sporax.runtime.session import SESSION

_AXIS = "devices"
_ROUNDS, _SECONDS = 7, 0.4
"""How often every program is run at least, and for how long."""
_MATRIX = {"cpu": 512, "gpu": 8192, "tpu": 8192}
_VECTOR = {"cpu": 1 << 18, "gpu": 1 << 27, "tpu": 1 << 26}
"""Elements; on CPUs no more than arrays of a step have, since the system must find larger ones first, which is slower."""
_CHAIN, _FEW = 64, 9
"""Lengths of chains of small operators and of collectives."""
_DTYPES = ("float32", "bfloat16", "float16")
_SMALL, _LARGE = 1 << 8, {"cpu": 1 << 15, "gpu": 1 << 20, "tpu": 1 << 20}
"""Elements per device of the collectives that are timed."""

Report = Callable[[str], None]


def calibrate(name: str = "measured", report: Report = lambda line: None) -> HardwareProfile:
    """Measure all devices that JAX sees; in a job all processes must call it.

    Args:
        report: is called with each measurement when it is done.

    Returns:
        A profile whose efficiencies are 1, since its rates are those that programs reach. What the compiler merges is not
        measured: that, and with one device the link, is that of the profile that comes with Sporax for this kind of device.
    """
    devices = jax.devices()
    platform = devices[0].platform
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    flops = {dtype: _matrix_rate(mesh, platform, dtype) for dtype in _DTYPES}
    for dtype, rate in flops.items():
        report(f"matrix product in {dtype}: {rate / 1e9:.4g} GFLOP/s per device")
    bandwidth = _memory_rate(mesh, platform)
    report(f"memory: {bandwidth / 1e9:.4g} GB/s per device")
    # What one of many small operators that wait for each other takes
    # XLA fuses neither a product nor a sort with its neighbour, so one round is two kernels.
    launch = _one_of(mesh, lambda x: jnp.sort(x @ x, axis=0), (8, 8), _CHAIN) / 2
    report(f"one small operator: {launch * 1e6:.3g} us")
    known = load_profile(fitting_hardware(platform))
    measured = [_link(mesh, platform, rings) for rings in _rings(len(devices))]
    measured = measured or [(known.links[0], known.collective_seconds)]
    for link, collective in measured:
        report(
            f"{link.name}: {link.alpha_seconds * 1e6:.3g} us a step, {link.bandwidth / 1e9:.4g} GB/s; "
            f"collective {collective * 1e6:.3g} us"
        )
    return HardwareProfile(
        name=name,
        source=f"measured on {len(devices)} x {devices[0].device_kind} with JAX {jax.__version__}",
        flops={**flops, "default": flops["float32"]},
        memory_bandwidth=bandwidth,
        memory_bytes=_memory_bytes(),
        links=tuple(link for link, _ in measured),
        compute_efficiency=1.0,
        memory_efficiency=1.0,
        launch_seconds=launch,
        collective_seconds=measured[0][1],
        merged_bytes=known.merged_bytes,
        platform=platform if platform in ("cpu", "gpu", "tpu") else "",
    )


def _everywhere(mesh: Mesh, function: Callable[..., Any], *shapes: tuple[tuple[int, ...], str]) -> float:
    """Best time of `function` on arrays of these shapes, run by every device on its own copy."""
    replicated = NamedSharding(mesh, PartitionSpec())
    arrays = [jax.device_put(np.full(shape, 0.5, dtype), replicated) for shape, dtype in shapes]
    everywhere = PartitionSpec()
    program = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False))
    # The first run includes compilation.
    jax.block_until_ready(program(*arrays))
    best, rounds, begin = float("inf"), 0, time.perf_counter()
    # Processes run equally many rounds, or one would wait for the others' collectives.
    is_alone = jax.process_count() == 1
    while rounds < _ROUNDS or (is_alone and time.perf_counter() - begin < _SECONDS):
        start = time.perf_counter()
        jax.block_until_ready(program(*arrays))
        best, rounds = min(best, time.perf_counter() - start), rounds + 1
    return best if is_alone else float(multihost_utils.broadcast_one_to_all(np.float32(best)))


def _one_of(mesh: Mesh, step: Callable[[Any], Any], shape: tuple[int, ...], length: int) -> float:
    """What one of many steps that wait for each other takes, beyond the dispatch of the program."""

    def chain(count: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for _ in range(count):
                x = step(x)
            return x

        return run

    # The difference of two lengths leaves out what every program costs, its dispatch included.
    long, short = (_everywhere(mesh, chain(count), (shape, "float32")) for count in (length, 1))
    return max((long - short) / (length - 1), 1e-9)


def _matrix_rate(mesh: Mesh, platform: str, dtype: str) -> float:
    size = _MATRIX.get(platform, 1024)
    numpy_dtype = jnp.dtype(dtype).name
    seconds = _everywhere(mesh, lambda a: a @ a, ((size, size), numpy_dtype))
    # One multiplication and one addition for each of size**3 terms.
    return float(2 * size**3 / seconds)


def _memory_rate(mesh: Mesh, platform: str) -> float:
    """Reading two vectors and writing one that is new, as the results of operators are."""
    count = _VECTOR.get(platform, 1 << 22)
    vectors = [((count,), "float32")] * 2
    # The same program on one element measures the dispatch, which is no memory traffic.
    nothing = _everywhere(mesh, lambda a, b: a[:1] + b[:1], *vectors)
    seconds = max(_everywhere(mesh, lambda a, b: a + b, *vectors) - nothing, 1e-9)
    # Two vectors are read and one is written, with 4 bytes an element.
    return float(3 * 4 * count / seconds)


Rings = Sequence[Sequence[int]]
"""Groups of devices that exchange at the same time, all of one size."""


def _num_here() -> int:
    """Devices of this node: of all its processes."""
    return jax.local_device_count() * (1 if SESSION.world is None else SESSION.world.local_size)


def _rings(count: int) -> list[Rings]:
    """The rings of each level of the network, the innermost first; none of one device, one where nodes differ in size."""
    inside = _num_here()
    if count % inside or inside == count:
        return [[range(count)]] if count > 1 else []
    near = [range(first, first + inside) for first in range(0, count, inside)]
    far = [range(place, count, inside) for place in range(inside)]
    return [near, far] if inside > 1 else [far]


def _link(mesh: Mesh, platform: str, rings: Rings) -> tuple[Link, float]:
    """Latency and bandwidth of equal rings, and the fixed time of a collective.

    The time of an all-gather is ``fixed + (n - 1) * (alpha + bytes / bandwidth)``. Two sizes give the bandwidth. What is left
    is shared out between the fixed time and the steps by comparing with a ring of two devices.
    """
    count = len(rings[0])
    large_size = _LARGE.get(platform, 1 << 20)

    def gather(size: int, groups: Rings) -> float:
        def step(x: Any) -> Any:
            # The first piece of the result has the shape of the operand, so the next round waits for this one.
            return jax.lax.all_gather(x, _AXIS, axis_index_groups=[*map(list, groups)], tiled=True)[:size]

        return _one_of(mesh, step, (size,), _FEW)

    small, large = gather(_SMALL, rings), gather(large_size, rings)
    # 4 bytes an element. Noise can make the larger collective look faster, hence the positive floor.
    seconds_per_byte = max((large - small) / ((count - 1) * 4 * (large_size - _SMALL)), 1e-13)
    left = max(small - (count - 1) * seconds_per_byte * 4 * _SMALL, 1e-7)
    # Without a smaller ring to compare with, the fixed time counts like one more step of the ring.
    alpha, fixed = left / count, left / count
    if count > 2 and count % 2 == 0:
        # All pairs run at once, so every device is as busy as in a step.
        two = gather(_SMALL, [ring[first : first + 2] for ring in rings for first in range(0, count, 2)])
        alpha = min(max((small - two) / (count - 2), 1e-9), left / count)
        fixed = max(left - (count - 1) * alpha, 1e-7)
    # The outermost level joins all devices, however many.
    is_node = count < mesh.size and rings[0][1] - rings[0][0] == 1
    return Link("node" if is_node else "network", count if is_node else 1 << 20, alpha, 1 / seconds_per_byte), fixed


def _memory_bytes() -> int:
    statistics: Mapping[str, int] = jax.local_devices()[0].memory_stats() or {}
    limit = statistics.get("bytes_limit")
    # Simulated devices share the machine's memory.
    return int(limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _num_here())


def main(name: str, path: str) -> None:
    """Measure, say what was found, and write the profile to a file; in a job the first process does."""
    if RankEnvironment.from_environ(os.environ).size > 1:
        world.start()
    if jax.process_index():
        calibrate(name)
        return
    profile = calibrate(name, print)
    with open(path, "w") as file:
        file.write(profile.to_json() + "\n")
    print(f"written to {path}; use it as hardware='{path}'")
