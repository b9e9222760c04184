"""Simulated devices: JAX on the CPU can be told, before it starts, to act as if it had N devices.

How ranks that compute on the CPU get their memory: large buffers are kept between steps, on large pages.

A training step takes and gives back the same buffers every time. The C library (glibc) fetches those above 32 MB from the
system again at each step and returns free memory early, so every page of them is cleared and mapped again: over 8,000
page faults in a data-parallel step of an MLP of 4 layers of 1024, a third of the processor time of its ranks.
`GLIBC_TUNABLES` says otherwise. Systems with another C library ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sporax.base.errors import SporaxValueError
from sporax.cluster.environment import SIMULATED_DEVICES, RankEnvironment

MOST_DEVICES = 1 << 14
"""Each costs some 0.1 MB and a moment of the start."""


def simulated_devices(environ: Mapping[str, str], count: int) -> dict[str, str]:
    """The variables that give a process `count` CPU devices.

    Args:
        environ: the environment it would have otherwise; its other XLA_FLAGS are kept.
        count: number of devices.

    Raises:
        SporaxValueError: more devices than one process can act as, or JAX_PLATFORMS asks for something other than the CPU.
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
    # A script that was started like this may start another.
    inherits = f"{SIMULATED_DEVICES}={environ.get('RANK_SIZE')}" in environ.get("XLA_FLAGS", "").split()
    place = RankEnvironment.from_environ({**environ, **variables, **(names if inherits else {})})
    is_job = place.size > 1 or place.scheduler_address is not None or place.simulation_level is not None
    return variables if is_job else variables | names


_VARIABLE = "GLIBC_TUNABLES"
_TUNABLES = {
    "glibc.malloc.hugetlb": 1,  # ask for transparent large pages
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
