"""What JAX knows about the devices of this process, under MindSpore's names for kinds of devices."""

from __future__ import annotations

from typing import Any

import jax

KINDS = ("CPU", "GPU", "Ascend")
_PLATFORMS = {"GPU": "gpu"}


def of_kind(kind: str) -> list[Any]:
    """The devices of a kind; of CPUs one, however many JAX simulates, and of Ascend none.

    Another kind than ``"CPU"`` is there if the process computes on it.
    """
    if kind == "CPU":
        return jax.local_devices(backend="cpu")[:1]
    return jax.local_devices() if jax.default_backend() == _PLATFORMS.get(kind) else []


def kind_in_use() -> str:
    """The kind that the process computes on; a TPU is of none of MindSpore's, and counts as Ascend does: not at all."""
    return "GPU" if of_kind("GPU") else "CPU"
