"""Simulated devices: JAX on the CPU can be told, before it starts, to act as if it had N devices."""

from __future__ import annotations

from collections.abc import Mapping

from sporax.base.errors import SporaxValueError

MOST_DEVICES = 1 << 14
"""Each costs some 0.1 MB and a moment of the start."""
_FLAG = "--xla_force_host_platform_device_count"


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
    others = [flag for flag in environ.get("XLA_FLAGS", "").split() if not flag.startswith(_FLAG)]
    return {"XLA_FLAGS": " ".join([*others, f"{_FLAG}={count}"]), "JAX_PLATFORMS": "cpu"}
