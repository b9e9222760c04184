"""`mindspore.hal`: questions about devices, streams, events and device memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore import device_context as devices
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.runtime import _memory
from sporax.mindspore.runtime._memory import empty_cache as empty_cache, synchronize as synchronize
from sporax.mindspore.runtime._streams import (
    Event as Event,
    Stream as Stream,
    StreamCtx as StreamCtx,
    communication_stream as communication_stream,
    current_stream as current_stream,
    default_stream as default_stream,
    set_cur_stream as set_cur_stream,
)

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = [
    *("Event", "Stream", "StreamCtx", "communication_stream", "current_stream", "default_stream", "set_cur_stream"),
    *("device_count", "get_arch_list", "get_device_capability", "get_device_name", "get_device_properties"),
    *("is_available", "is_initialized", "empty_cache", "synchronize"),
    *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats"),
    *("memory_summary", "reset_max_memory_allocated", "reset_max_memory_reserved", "reset_peak_memory_stats"),
]

answer_missing_names(__name__)


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What is known of an accelerator.

    Attributes:
        name: its product name.
        major, minor: its compute capability.
        total_memory: bytes that programs may use.
    """

    name: str
    major: int
    minor: int
    total_memory: int


def _checked(where: str, device_target: str | None) -> str:
    if device_target is None:
        return devices.kind_in_use()
    if device_target not in devices.KINDS:
        raise SporaxValueError(
            f"For 'hal.{where}', the argument 'device_target' must be one of {list(devices.KINDS)}, but got {device_target}."
        )
    return device_target


def _present(where: str, device_target: str | None) -> list[Any]:
    kind = _checked(where, device_target)
    found = devices.of_kind(kind)
    For(f"hal.{where}").refuse(not found, f"the device {kind} is not available in this process, see hal.is_available")
    return found


def _device(where: str, device_id: int, device_target: str | None) -> Any:
    For(f"hal.{where}").typed("device_id", device_id, "an int", int, takes_bool=False)
    found = _present(where, device_target)
    if not 0 <= device_id < len(found):
        raise SporaxValueError(
            f"For 'hal.{where}', the argument 'device_id' must be less than device count: {len(found)}, but got {device_id}."
        )
    return found[device_id]


def is_available(device_target: str) -> bool:
    """Whether devices of a kind (``"CPU"``, ``"GPU"``, ``"Ascend"``) are there.

    Raises:
        SporaxValueError: no such kind.
    """
    return bool(devices.of_kind(_checked("is_available", device_target)))


def is_initialized(device_target: str) -> bool:
    """Whether this process has started on devices of a kind; this starts it.

    Raises:
        SporaxValueError: no such kind.
    """
    return is_available(device_target)


def device_count(device_target: str | None = None) -> int:
    """Number of devices of a kind; by default, of the one that computes here.

    Raises:
        SporaxValueError: no such kind, or none of it here.
    """
    return len(_present("device_count", device_target))


def get_device_name(device_id: int, device_target: str | None = None) -> str:
    """``"CPU"``, or the product name of an accelerator.

    Raises:
        SporaxTypeError, SporaxValueError: no such device.
    """
    device = _device("get_device_name", device_id, device_target)
    return "CPU" if device.platform == "cpu" else str(device.device_kind)


def get_device_capability(device_id: int, device_target: str | None = None) -> tuple[int, int] | None:
    """Major and minor number of a GPU's compute capability; None for a CPU.

    Raises:
        SporaxTypeError, SporaxValueError: no such device.
    """
    device = _device("get_device_capability", device_id, device_target)
    version = getattr(device, "compute_capability", None)
    if version is None:
        return None
    major, _, minor = str(version).partition(".")
    return int(major), int(minor or 0)


def get_device_properties(device_id: int, device_target: str | None = None) -> DeviceProperties | None:
    """What is known of an accelerator; None for a CPU.

    Raises:
        SporaxTypeError, SporaxValueError: no such device.
    """
    device = _device("get_device_properties", device_id, device_target)
    capability = get_device_capability(device_id, device_target)
    if capability is None:
        return None
    stats = device.memory_stats() or {}
    return DeviceProperties(str(device.device_kind), *capability, int(stats.get("bytes_limit", 0)))


def get_arch_list(device_target: str | None = None) -> list[str] | None:
    """Architectures of the GPUs that are here, such as ``"sm_90"``; None for CPUs.

    Raises:
        SporaxValueError: no such kind, or none of it here.
    """
    count = len(_present("get_arch_list", device_target))
    found = {get_device_capability(index, device_target) for index in range(count)}
    return sorted(f"sm_{pair[0]}{pair[1]}" for pair in found if pair is not None) or None


def _for_target(query: Callable[[], Any]) -> Callable[..., Any]:
    """`query` with MindSpore's argument, which must be the kind of device that computes here."""

    def queried(device_target: str | None = None) -> Any:
        kind = _checked(query.__name__, device_target)
        if kind != devices.kind_in_use():
            raise For(f"hal.{query.__name__}").error(
                f"'device_target' must be '{devices.kind_in_use()}', which computes here, but got '{kind}'"
            )
        return query()

    queried.__name__ = queried.__qualname__ = query.__name__
    queried.__doc__ = query.__doc__
    return queried


memory_allocated = _for_target(_memory.memory_allocated)
max_memory_allocated = _for_target(_memory.max_memory_allocated)
memory_reserved = _for_target(_memory.memory_reserved)
max_memory_reserved = _for_target(_memory.max_memory_reserved)
memory_stats = _for_target(_memory.memory_stats)
memory_summary = _for_target(_memory.memory_summary)
reset_max_memory_allocated = _for_target(_memory.reset_max_memory_allocated)
reset_max_memory_reserved = _for_target(_memory.reset_max_memory_reserved)
reset_peak_memory_stats = _for_target(_memory.reset_peak_memory_stats)
