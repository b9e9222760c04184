"""The global context: what `set_context` and its relatives change.

MindSpore keeps one process-wide set of switches. It exists in the facade only: a compiled step reads what it needs while
it is traced. Switches whose meaning ends at Ascend's compiler are known by name, checked, stored, and answered with a
warning when they are moved from their default, so scripts run unchanged and no one is misled.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Sequence
from typing import Any, Unpack, get_type_hints

from sporax.base.errors import For, SporaxRuntimeError
from sporax.cluster import SIMULATED_DEVICES
from sporax.mindspore.context._groups import gigabytes
from sporax.mindspore.context._settings import Check, GlobalSettings, Reader, Setter, Settings, kind, number, one_of
from sporax.mindspore.runtime import _streams
from sporax.mindspore.runtime._memory import pool_limit

GRAPH_MODE = 0
PYNATIVE_MODE = 1

STRICT = 0
COMPATIBLE = 1
LAX = 2

_SET = "set_context"
_TARGETS = ("CPU", "GPU", "Ascend", "TPU")
_MOST_DEVICES = 4096  # of a machine, by MindSpore's documentation of `device_id`
_PLATFORMS = {"gpu": "GPU", "cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}

_text, _flag = kind(str), kind(bool)

_OF_KIND: dict[Any, tuple[Any, Check]] = {bool: (False, _flag), str: ("", _text), dict[str, Any]: ({}, kind(dict))}
_SAVED_GRAPHS = number(0, 3, types=(bool, int))
_LEVELS = ("O0", "O1")


def _dict_of(**allowed: tuple[str, ...]) -> Check:
    """A dict of words, each one of those that its key has."""

    def check(function: str, key: str, value: Any) -> Any:
        for name, word in kind(dict)(function, key, value).items():
            For(function).one_of(f"the keys of '{key}'", name, allowed)
            one_of(*allowed[name], type_error=False)(function, f"{name} in {key}", word)
        return value

    return check


def _path(function: str, key: str, value: Any) -> str:
    """A file or folder; relative to where the script is when it names it."""
    For(function).refuse(not _text(function, key, value), f"'{key}' must be a path", value)
    return str(os.path.realpath(value))


# Switches that have no counterpart on XLA: default, and what a value must be; those of the usual kinds follow from their types.
# Some are read back in another form than they are set in, as in MindSpore.
_WITHOUT_MEANING: dict[str, tuple[Any, Check]] = {
    **{key: _OF_KIND[hint] for key, hint in get_type_hints(GlobalSettings).items() if hint in (*_OF_KIND,)},
    **dict.fromkeys(
        ("enable_reduce_precision", "jit_enable_inplace_ops", "reserve_class_name_in_scope"), (True, _flag)
    ),
    "save_graphs_path": (".", _path),
    "save_dump_path": (".", _text),
    # MindSpore takes True for 2.
    "save_graphs": (0, lambda *setting: 2 if _SAVED_GRAPHS(*setting) is True else int(setting[-1])),
    "max_call_depth": (1000, number(1)),
    "mempool_block_size": (1.0, lambda *setting: float(gigabytes(*setting).removesuffix("GB"))),
    "memory_optimize_level": (0, lambda *setting: _LEVELS.index(one_of(*_LEVELS, type_error=False)(*setting))),
    "variable_memory_max_size": ("30GB", gigabytes),
    "runtime_num_threads": (30, number(0)),
    "inter_op_parallel_num": (0, number(0)),
    "debug_level": (0, number(0, 1)),
    "op_timeout": (900, number(0)),
    "profiling_options": ("training_trace", _text),
    "exec_order": ("bfs", one_of("bfs", "dfs", "gpto", type_error=False)),
    "aoe_tune_mode": ("", one_of("online", "offline")),
    "aoe_config": ({}, _dict_of(job_type=("1", "2"))),
    "jit_config": ({}, _dict_of(jit_level=("O0", "O1", "O2"), infer_boost=("on", "off"))),
    "auto_tune_mode": ("NO_TUNE", _text),
}

_warned: set[str] = set()


def set_context(**kwargs: Unpack[GlobalSettings]) -> None:
    """Change switches of the global context. Same as MindSpore; ``mode`` starts as PYNATIVE_MODE.

    A switch with no counterpart on XLA warns when it is moved from its default; so does a device that is not here, in whose place
    the process uses what there is.

    Raises:
        SporaxValueError: unknown switch, or a value outside its range.
        SporaxTypeError: a value of the wrong type.
        SporaxRuntimeError: ``device_target`` is ``"TPU"`` where there is none.
    """
    # First, since the number of the device is one of that kind.
    first = {"device_target": kwargs["device_target"]} if "device_target" in kwargs else {}
    _settings.set({**first, **kwargs})
    if "device_target" in kwargs or "device_id" in kwargs:
        # JAX keeps a default device of its own.
        _use_device()


def get_context(attr_key: str) -> Any:
    """The value of one switch. ``max_device_memory`` comes as a number of GB.

    Raises:
        SporaxTypeError: the name is not a string.
        SporaxValueError: unknown switch.
    """
    For("get_context").typed("the name", attr_key, "a string", str)
    return _settings.get(attr_key)


def set_device(device_target: str, device_id: int | None = None) -> None:
    """Choose the kind of device and which of them new arrays go to.

    Raises:
        SporaxValueError, SporaxTypeError: as `set_context`.
        SporaxRuntimeError: as `set_context`.
    """
    chosen: GlobalSettings = {"device_target": device_target}
    if device_id is not None:
        chosen["device_id"] = device_id
    set_context(**chosen)


def set_deterministic(deterministic: bool) -> None:
    """As ``set_context(deterministic="ON")`` or ``"OFF"``.

    Raises:
        SporaxTypeError: `deterministic` is not a bool.
    """
    For("set_deterministic").typed("the parameter 'deterministic'", deterministic, "bool", bool)
    set_context(deterministic="ON" if deterministic else "OFF")


def graph_mode() -> bool:
    """Whether Cells and gradients compile as a whole."""
    return bool(_settings.current["mode"] == GRAPH_MODE)


def device_limit() -> int:
    """Bytes that ``max_device_memory`` and `runtime.set_memory` allow on one device; 0 where both are at their defaults."""
    value = _settings.current["max_device_memory"]
    requested = 0 if value == _DEFAULTS["max_device_memory"] else int(float(value.removesuffix("GB")) * 2**30)
    # The smaller of both limits; 0 means that there is none.
    return min((limit for limit in (requested, pool_limit()) if limit), default=0)


def memory_offload() -> bool:
    """Whether values may be kept on the host."""
    return bool(_settings.current["memory_offload"] == "ON")


def _present_target() -> str:
    import jax

    return _PLATFORMS.get(jax.default_backend(), "CPU")


def _set_target(values: dict[str, Any], target: Any) -> dict[str, Any]:
    one_of(*_TARGETS)(_SET, "device_target", target)
    # JAX is not queried about "Ascend": the query starts its backend. A CPU is always there.
    if target == "Ascend" or target == "GPU" != _present_target():
        found = "simulated devices" if SIMULATED_DEVICES in os.environ.get("XLA_FLAGS", "") else "what JAX finds"
        _warn_once(f"device_target='{target}'", f"is accepted for compatibility; this process runs on {found} instead.")
    elif target == "TPU" != _present_target():
        # No script of MindSpore's names it, so whoever does means this machine.
        raise SporaxRuntimeError(
            f"For '{_SET}', 'device_target' is '{target}', but JAX found only {_present_target()} in this process. "
            f"Install JAX for {target}, or choose '{_present_target()}'."
        )
    return {**values, "device_target": target}


def _set_device_id(values: dict[str, Any], index: Any) -> dict[str, Any]:
    number(0, _MOST_DEVICES - 1)(_SET, "device_id", index)
    if index and not _is_there(index, values["device_target"]) and os.environ.get("DEVICE_ID") != str(index):
        _warn_once(
            f"device_id={index}",
            f"is accepted for compatibility; this process has {len(_local_devices(values['device_target']))} device(s) and "
            "runs on device 0 instead.",
        )
    return {**values, "device_id": index}


def _is_there(index: int, target: str | None) -> bool:
    """Whether this process has a device of that number.

    A launched rank that has one device sees it as its only one, whatever number the launcher has given it among those of the
    node (DEVICE_ID).
    """
    return index < len(_local_devices(target))


def _local_devices(target: str | None) -> Sequence[Any]:
    import jax

    # None stands for the devices of JAX's default backend.
    devices: Sequence[Any] = jax.local_devices(backend="cpu" if target == "CPU" else None)
    return devices


def _use_device() -> None:
    """Make JAX put new arrays where the context says. Device 0 needs no device object, so no backend is started for it."""
    import jax

    target, index = _settings.current["device_target"], _settings.current["device_id"]
    # "cpu" by name needs no device object, and None is JAX's own choice.
    default = (
        _local_devices(target)[index] if index and _is_there(index, target) else "cpu" if target == "CPU" else None
    )
    jax.config.update("jax_default_device", default)


def _warn_once(name: str, text: str) -> None:
    # Once per switch: a script may set it in a loop.
    if name not in _warned:
        _warned.add(name)
        warnings.warn(f"For '{_SET}', {name} {text}", UserWarning, stacklevel=6)  # the line that called set_context


def _switch(key: str, check: Check) -> Setter:
    return lambda values, value: {**values, key: check(_SET, key, value)}


def _idle_switch(key: str, default: Any, check: Check) -> Setter:
    """A switch that changes nothing: it says so when it is moved from its default."""

    def setter(values: dict[str, Any], value: Any) -> dict[str, Any]:
        checked = check(_SET, key, value)
        if checked != default:
            _warn_once(
                f"'{key}'", "is accepted for compatibility; it has no counterpart in XLA and changes nothing here."
            )
        return {**values, key: checked}

    return setter


def _set_deterministic(values: dict[str, Any], value: Any) -> dict[str, Any]:
    one_of("ON", "OFF")(_SET, "deterministic", value)
    # XLA reads the flag at its start, so it is too late to set it here.
    missing = "xla_gpu_deterministic_ops=true" not in os.environ.get("XLA_FLAGS", "")
    if value == "ON" and values["device_target"] == "GPU" and missing:
        _warn_once("deterministic='ON'", "needs XLA_FLAGS=--xla_gpu_deterministic_ops=true before the program starts.")
    return {**values, "deterministic": value}


def _set_synchronize(values: dict[str, Any], value: Any) -> dict[str, Any]:
    _streams.turn(_flag(_SET, "pynative_synchronize", value))
    return {**values, "pynative_synchronize": value}


def _set_max_memory(values: dict[str, Any], value: Any) -> dict[str, Any]:
    checked = gigabytes(_SET, "max_device_memory", value)
    _warn_once(
        "'max_device_memory'",
        "bounds what plans, recompute='auto' and memory_offload='ON' leave on a device; what XLA allocates is not limited by it.",
    )
    return {**values, "max_device_memory": checked}


_DEFAULTS: dict[str, object] = {
    **{key: default for key, (default, _) in _WITHOUT_MEANING.items()},
    "mode": PYNATIVE_MODE,
    "device_target": None,
    "device_id": 0,
    "deterministic": "OFF",
    "memory_offload": "OFF",
    "pynative_synchronize": False,
    "max_device_memory": "1024GB",
    "jit_syntax_level": LAX,
}
_SWITCHES: dict[str, Check] = {
    "mode": number(GRAPH_MODE, PYNATIVE_MODE),
    "memory_offload": one_of("ON", "OFF"),
    "jit_syntax_level": number(STRICT, LAX),
}
_SETTERS: dict[str, Setter] = {
    **{key: _idle_switch(key, *entry) for key, entry in _WITHOUT_MEANING.items()},
    **{key: _switch(key, check) for key, check in _SWITCHES.items()},
    "device_target": _set_target,
    "device_id": _set_device_id,
    "deterministic": _set_deterministic,
    "pynative_synchronize": _set_synchronize,
    "max_device_memory": _set_max_memory,
}
_READERS: dict[str, Reader] = {
    **{key: operator.itemgetter(key) for key in _DEFAULTS},
    "device_target": lambda values: values["device_target"] or _present_target(),
    "pynative_synchronize": lambda values: _streams.is_on(),
    "max_device_memory": lambda values: float(values["max_device_memory"].removesuffix("GB")),
    "enable_ge": lambda values: False,  # of Ascend's graph engine
}

_settings: Settings[dict[str, Any]] = Settings("context", _DEFAULTS, _SETTERS, _READERS)
