"""Settings that are fields of one config each: host offload, the search for plans and its costs, parameter servers."""

from __future__ import annotations

import dataclasses
import re
import warnings
from typing import Any

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, named
from sporax.ir.config import DURABILITIES, CostModelConfig, OffloadConfig, PsConfig, SearchConfig
from sporax.mindspore.context._settings import Check, flag, kind, number, of_fields, one_of
from sporax.runtime.session import SESSION

ROLES = ("MS_WORKER", "MS_PSERVER", "MS_SERVER", "MS_SCHED", "MS_NOT_PS")
_SET_OFFLOAD, _SET_PS = "set_offload_context", "set_ps_context"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)GB")
# The largest TCP port.
_MAX_PORT = 65535


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
    For(_SET_OFFLOAD).typed("the argument", offload_config, "a dict", dict)
    _offload.set(offload_config)
    for key in offload_config:
        # Reported once, and only where a flag requests something that does not happen.
        if key in _WITHOUT_EFFECT and key not in _warned and getattr(_offload.current, key) is not True:
            _warned.add(key)
            warnings.warn(f"For '{_SET_OFFLOAD}', '{key}' {_WITHOUT_EFFECT[key]}", UserWarning, stacklevel=2)


def get_offload_context() -> dict[str, Any]:
    """The present settings of host offload, all of them."""
    return dataclasses.asdict(_offload.current)


def reset_offload_context() -> None:
    """Bring the settings of host offload back to their defaults."""
    _offload.reset()


def offload_snapshot() -> OffloadConfig:
    """The present settings of host offload."""
    return _offload.current


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
        raise For(function).error(f"{named(key)} must be a number above 0 followed by 'GB'", f"'{value}'")
    return str(value)


_WITHOUT_EFFECT = {
    "host_mem_block_size": "is kept and has no effect: the backend allocates host memory in blocks of its own size.",
    "enable_pinned_mem": "False is kept and has no effect: host memory is always pinned.",
}
"""What is said once of settings that change nothing. Flags that are on request what happens, or for how files are read."""

_warned: set[str] = set()

_offload = of_fields(
    "offload_context",
    OffloadConfig(),
    {
        # MindSpore's names of places; "" is the device.
        **dict.fromkeys(["offload_param", "offload_checkpoint"], one_of("cpu", "disk", "")),
        **dict.fromkeys(["offload_cpu_size", "offload_disk_size", "host_mem_block_size", "aio_block_size"], gigabytes),
        **dict.fromkeys(["enable_aio", "enable_pinned_mem", "auto_offload"], kind(bool)),
        **dict.fromkeys(["cpu_ratio", "hbm_ratio"], number(0, 1, types=(float,), above=True)),
        "offload_path": kind(str),
        "aio_queue_depth": number(1),
    },
)


def set_algo_parameters(**kwargs: Any) -> None:
    """Change settings of the search for plans. Same as MindSpore, with one more setting.

    Args:
        kwargs: ``fully_use_devices``, ``elementwise_op_strategy_follow``, ``tensor_slice_align_enable``,
            ``tensor_slice_align_size`` (1 to 1024), ``enable_algo_approxi``, ``algo_approxi_epsilon`` (in (0, 1]);
            ``recursive_keeps_strategies``, which MindSpore does not have: recursive programming keeps `shard`'s strategies.

    Raises:
        SporaxValueError: unknown setting, or a size outside its range.
        SporaxRuntimeError: an epsilon outside its range.
        SporaxTypeError: a value of the wrong type.
    """
    _algo.set(kwargs)


def get_algo_parameters(attr_key: str) -> Any:
    """The present value of one setting of the search.

    Raises:
        SporaxValueError: unknown setting.
    """
    return _algo.get(attr_key)


def reset_algo_parameters() -> None:
    """Bring the settings of the search back to their defaults."""
    _algo.reset()


def set_cost_model_context(**kwargs: Any) -> None:
    """Change numbers of the cost model. Same as MindSpore; `CostModelConfig` lists them.

    Raises:
        SporaxValueError: unknown setting, or an int outside its range.
        SporaxRuntimeError: a float outside its range.
        SporaxTypeError: a value of the wrong type.
    """
    _cost_model.set(kwargs)


def get_cost_model_context(attr_key: str) -> Any:
    """The present value of one number of the cost model.

    Raises:
        SporaxValueError: unknown setting.
    """
    return _cost_model.get(attr_key)


def reset_cost_model_context() -> None:
    """Bring the cost model back to its defaults."""
    _cost_model.reset()


def search_snapshot() -> tuple[SearchConfig, CostModelConfig]:
    """The present settings of the search and of the cost model, for a step that is being planned."""
    # Both are frozen, so a plan that takes long sees no later change.
    return _algo.current, _cost_model.current


def _real(high: float | None = None, *, above: bool = False) -> Check:
    """A float of at least 0 (more with `above`); another one is a RuntimeError, as in MindSpore."""
    return number(0, high, types=(float,), above=above, error=SporaxRuntimeError)


_algo = of_fields(
    "algo_parameters",
    SearchConfig(),
    {
        **{field.name: flag(type(None)) for field in dataclasses.fields(SearchConfig)},
        "tensor_slice_align_size": number(1, 1024),
        "algo_approxi_epsilon": _real(1, above=True),
    },
)
_cost_model = of_fields(
    "cost_model_context",
    CostModelConfig(),
    # The kind of a number follows from its default; those with other bounds come after.
    {
        **{
            field.name: _real() if isinstance(field.default, float) else kind(type(field.default))
            for field in dataclasses.fields(CostModelConfig)
        },
        # 0 would mean that memory or communication costs nothing.
        **dict.fromkeys(["device_memory_capacity", "costmodel_alpha", "costmodel_beta"], _real(above=True)),
        "costmodel_gamma": _real(1),
        "run_phase": number(0, 1),
        "costmodel_allreduce_fusion_algorithm": number(0, 2),
        "costmodel_allreduce_fusion_times": number(0),
        "costmodel_allreduce_fusion_tail_percent": _real(1),
    },
)


def set_ps_context(**kwargs: Any) -> None:
    """Change settings of parameter-server training. Same as MindSpore.

    Args:
        kwargs: ``enable_ps``, ``server_mode``, ``ms_role``, ``worker_num``, ``server_num``, ``scheduler_ip``,
            ``scheduler_port``, ``enable_ssl``, ``client_password``, ``server_password``, ``config_file_path``; and two
            that MindSpore has not: ``staleness`` (0 synchronous, k bounded, -1 unbounded) and ``durability``
            (``"memory"``, ``"process"``, ``"disk"`` or ``"replica"``), see docs/parameter_server.md.

    Raises:
        SporaxValueError: unknown setting.
        SporaxTypeError: a value of the wrong type, a negative number, or a port beyond 65535.
        SporaxRuntimeError: a server mode or a role that does not exist; or a change after `init`, which has read the settings.
    """
    _check_in_time(_ps.changed(_ps.current, kwargs))
    _ps.set(kwargs)


def _check_in_time(wanted: PsConfig) -> None:
    # The scheduler, the servers and the connection to them were made by the settings that held then.
    if SESSION.servers is None:
        return
    for name in (field.name for field in dataclasses.fields(PsConfig)):
        if getattr(wanted, name) != getattr(_ps.current, name):
            raise SporaxRuntimeError(
                f"For '{_SET_PS}', '{name}' comes too late: init() has joined the job with other settings. Call it before init()."
            )


def get_ps_context(attr_key: str) -> Any:
    """The present value of one setting of parameter-server training.

    Raises:
        SporaxValueError: unknown setting, or a password, which can only be set.
    """
    return _ps.get(attr_key)


def reset_ps_context() -> None:
    """Bring the settings of parameter-server training back to their defaults."""
    _ps.reset()


def ps_snapshot() -> PsConfig:
    """The present settings of parameter-server training."""
    return _ps.current


def _member(*allowed: str) -> Any:
    def check(function: str, key: str, value: Any) -> str:
        kind(str)(function, key, value)
        # Unknown roles and modes are a RuntimeError in MindSpore.
        For(function).one_of(key, value, allowed, kind=SporaxRuntimeError)
        return str(value)

    return check


def _staleness(function: str, key: str, value: Any) -> int:
    kind(int)(function, key, value)
    For(function).refuse(value < -1, f"'{key}' must be -1 (unbounded), 0 or positive", value)
    return int(value)


_unsigned = number(0, error=SporaxTypeError)  # as in MindSpore

_ps = of_fields(
    "ps_context",
    PsConfig(),
    {
        "enable_ps": flag(type(None)),
        "server_mode": _member("PARAMETER_SERVER"),
        "ms_role": _member(*ROLES),
        "worker_num": _unsigned,
        "server_num": _unsigned,
        "scheduler_ip": kind(str),
        "scheduler_port": number(0, _MAX_PORT, error=SporaxTypeError),
        "enable_ssl": flag(int),
        "client_password": kind(str),
        "server_password": kind(str),
        "config_file_path": kind(str),
        "staleness": _staleness,
        "durability": _member(*DURABILITIES),
    },
    only_set=("client_password", "server_password"),
)
