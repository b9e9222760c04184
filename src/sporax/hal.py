"""Devices and their memory: `mindspore.hal`. Streams and events are not here: XLA orders what runs by its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ir.missing import missing_names
from sporax.runtime import memory
from sporax.runtime.memory import synchronize

__path__: list[str] = []  # a package in MindSpore, see `sporax._module_paths`

__all__ = [
    *("DeviceProperties", "device_count", "get_device_name", "get_device_properties", "is_available", "is_initialized"),
    *(
        "empty_cache",
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_allocated",
        "memory_reserved",
        "memory_stats",
    ),
    "synchronize",
]

_TARGETS = ("CPU", "GPU", "Ascend")


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What is known of an accelerator.

    Attributes:
        name: its kind.
        total_memory: bytes that programs may use.
        free_memory: those of them that are not in use.
    """

    name: str
    total_memory: int
    free_memory: int


def _current() -> str:
    return "GPU" if jax.default_backend() == "gpu" else "CPU"


def _checked(function: str, device_target: Any) -> str:
    """The device target, the current one for None."""
    if device_target is None:
        return _current()
    if device_target not in _TARGETS:
        raise SporaxValueError(
            f"For 'hal.{function}', the argument 'device_target' must be one of {list(_TARGETS)}, but got {device_target}."
        )
    return str(device_target)


def is_available(device_target: str) -> bool:
    """Whether devices of this kind can be used: ``"CPU"`` always, ``"GPU"`` where JAX has one, ``"Ascend"`` never.

    Raises:
        SporaxValueError: another kind.
    """
    target = _checked("is_available", device_target)
    return target == "CPU" or target == _current()


def is_initialized(device_target: str | None = None) -> bool:
    """As `is_available`: JAX starts its devices when it is asked about them."""
    return is_available(_checked("is_initialized", device_target))


def device_count(device_target: str | None = None) -> int:
    """Number of this process's devices of this kind; 0 where there are none."""
    target = _checked("device_count", device_target)
    if not is_available(target):
        return 0
    return jax.local_device_count(target.lower())


def get_device_name(device_id: int, device_target: str | None = None) -> str:
    """Kind of a device: ``"CPU"``, or what the accelerator says.

    Raises:
        SporaxTypeError: `device_id` is no int.
        SporaxValueError: there is no such device.
    """
    target = _checked("get_device_name", device_target)
    return "CPU" if target == "CPU" else str(_device("get_device_name", device_id, target).device_kind)


def get_device_properties(device_id: int, device_target: str | None = None) -> DeviceProperties | None:
    """Name and memory of an accelerator; None for CPUs.

    Raises:
        SporaxTypeError: `device_id` is no int.
        SporaxValueError: there is no such device.
    """
    target = _checked("get_device_properties", device_target)
    if target == "CPU":
        return None
    device = _device("get_device_properties", device_id, target)
    stats = device.memory_stats() or {}
    total, used = int(stats.get("bytes_limit", 0)), int(stats.get("bytes_in_use", 0))
    return DeviceProperties(str(device.device_kind), total, total - used)


def _device(function: str, device_id: Any, target: str) -> Any:
    if isinstance(device_id, bool) or not isinstance(device_id, int):
        raise SporaxTypeError(
            f"For 'hal.{function}', the argument 'device_id' must be int, but got {type(device_id).__name__}."
        )
    count = device_count(target)
    if not 0 <= device_id < count:
        raise SporaxValueError(
            f"For 'hal.{function}', the argument 'device_id' must be in [0, {count}), the number of devices of {target}, "
            f"but got {device_id}."
        )
    return jax.local_devices(backend=target.lower())[device_id]


def _of_current_devices(function: Callable[[], Any]) -> Callable[..., Any]:
    """A function about memory that takes a device target, which must be the current one."""

    def asked(device_target: str | None = None) -> Any:
        target = _checked(function.__name__, device_target)
        if target != _current():
            raise SporaxValueError(
                f"For 'hal.{function.__name__}', the argument 'device_target' must be '{_current()}', the kind of this "
                f"process's devices, but got '{target}'."
            )
        return function()

    asked.__name__, asked.__doc__ = function.__name__, function.__doc__
    return asked


memory_allocated = _of_current_devices(memory.memory_allocated)
max_memory_allocated = _of_current_devices(memory.max_memory_allocated)
memory_reserved = _of_current_devices(memory.memory_reserved)
max_memory_reserved = _of_current_devices(memory.max_memory_reserved)
memory_stats = _of_current_devices(memory.memory_stats)

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
