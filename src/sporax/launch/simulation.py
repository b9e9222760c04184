"""Simulated devices: JAX on the CPU can be told, before it starts, to act as if it had N devices."""

from __future__ import annotations

from collections.abc import Mapping

from sporax.ir.errors import SporaxValueError

_FLAG = "--xla_force_host_platform_device_count"


def simulated_devices(environ: Mapping[str, str], count: int) -> dict[str, str]:
    """The variables that give a process `count` CPU devices.

    Args:
        environ: the environment it would have otherwise; its other XLA_FLAGS are kept.
        count: number of devices.

    Raises:
        SporaxValueError: JAX_PLATFORMS asks for something other than the CPU.
    """
    platforms = environ.get("JAX_PLATFORMS", "")
    if platforms not in ("", "cpu"):
        raise SporaxValueError(
            f"For 'sporax run', --local_devices simulates devices on the CPU, so JAX_PLATFORMS must be 'cpu' or unset, "
            f"but got '{platforms}'. Leave --local_devices away to use the real devices."
        )
    others = [flag for flag in environ.get("XLA_FLAGS", "").split() if not flag.startswith(_FLAG)]
    return {"XLA_FLAGS": " ".join([*others, f"{_FLAG}={count}"]), "JAX_PLATFORMS": "cpu"}
