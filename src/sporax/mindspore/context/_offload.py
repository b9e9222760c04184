"""Settings of host offload: `set_offload_context`, which takes one dict, and the size strings in it."""

from __future__ import annotations

import dataclasses
import re
import warnings
from operator import attrgetter
from typing import Any

from sporax.base.errors import SporaxValueError, check_type
from sporax.ir.config.placement_config import OffloadConfig
from sporax.mindspore.context._settings import Check, Settings, kind, number, one_of, stored

_SET = "set_offload_context"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)GB")


def set_offload_context(offload_config: dict[str, Any]) -> None:
    """Say where parameters and saved activations live when the device is too small. Same as MindSpore r2.0 to r2.3.

    Args:
        offload_config: settings by name; `OffloadConfig` lists them.

    Raises:
        SporaxTypeError: not a dict, or a value of the wrong type.
        SporaxValueError: unknown setting, a malformed size, or a value that is not allowed.

    Example:
        >>> set_offload_context({"offload_param": "cpu", "auto_offload": False, "offload_cpu_size": "512GB"})
    """
    check_type(_SET, "the argument", offload_config, "a dict", dict)
    _settings.set(offload_config)
    for key in offload_config:
        # Told once, and only where a flag asks for something that does not happen.
        if key in _WITHOUT_EFFECT and key not in _warned and getattr(_settings.current, key) is not True:
            _warned.add(key)
            warnings.warn(f"For '{_SET}', '{key}' {_WITHOUT_EFFECT[key]}", UserWarning, stacklevel=2)


def get_offload_context() -> dict[str, Any]:
    """The present settings of host offload, all of them."""
    return dataclasses.asdict(_settings.current)


def reset_offload_context() -> None:
    """Bring the settings of host offload back to their defaults."""
    _settings.reset()


def offload_snapshot() -> OffloadConfig:
    """The present settings of host offload."""
    return _settings.current


def gigabytes(function: str, key: str, value: Any) -> str:
    """A size: a number above 0 and ``GB``.

    Raises:
        SporaxTypeError: not a string.
        SporaxValueError: anything but such a size.
    """
    kind(str)(function, key, value)
    match = _SIZE.fullmatch(value)
    # 0 GB would be no memory at all, which is not meant.
    if match is None or float(match.group(1)) == 0:
        raise SporaxValueError.must(function, key, "be a number above 0 followed by 'GB'", f"'{value}'")
    return str(value)


_WITHOUT_EFFECT = {
    "host_mem_block_size": "is kept and has no effect: the backend allocates host memory in blocks of its own size.",
    "enable_pinned_mem": "False is kept and has no effect: host memory is always pinned.",
}
"""What is said once of settings that change nothing. Flags that are on ask for what happens, or for how files are read."""

_warned: set[str] = set()

_TARGETS = ("offload_param", "offload_checkpoint")
_SIZES = ("offload_cpu_size", "offload_disk_size", "host_mem_block_size", "aio_block_size")
_FLAGS = ("enable_aio", "enable_pinned_mem", "auto_offload")
_RATIOS = ("cpu_ratio", "hbm_ratio")

# MindSpore's names of places; "" is the device.
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(_TARGETS, one_of("cpu", "disk", "")),
    **dict.fromkeys(_SIZES, gigabytes),
    **dict.fromkeys(_FLAGS, kind(bool)),
    **dict.fromkeys(_RATIOS, number(0, 1, types=(float,), above=True)),
    "offload_path": kind(str),
    "aio_queue_depth": number(1),
}

_settings: Settings[OffloadConfig] = Settings(
    "offload_context",
    OffloadConfig(),
    {key: stored(_SET, key, check) for key, check in _CHECKS.items()},
    {key: attrgetter(key) for key in _CHECKS},
)
