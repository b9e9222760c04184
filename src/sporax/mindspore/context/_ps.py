"""Settings of parameter-server training: `set_ps_context` and its relatives."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.ir.config.placement_config import DURABILITIES, PsConfig
from sporax.mindspore.context._settings import Settings, kind, stored
from sporax.runtime.session import SESSION

_SET = "set_ps_context"
ROLES = ("MS_WORKER", "MS_PSERVER", "MS_SERVER", "MS_SCHED", "MS_NOT_PS")
# The largest TCP port.
_MAX_PORT = 65535


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
    _check_in_time(_settings.changed(_settings.current, kwargs))
    _settings.set(kwargs)


def _check_in_time(wanted: PsConfig) -> None:
    # The scheduler, the servers and the connection to them were made by the settings that held then.
    if SESSION.servers is None:
        return
    for name in (field.name for field in dataclasses.fields(PsConfig)):
        if getattr(wanted, name) != getattr(_settings.current, name):
            raise SporaxRuntimeError(
                f"For '{_SET}', '{name}' comes too late: init() has joined the job with other settings. Call it before init()."
            )


def get_ps_context(attr_key: str) -> Any:
    """The present value of one setting of parameter-server training.

    Raises:
        SporaxValueError: unknown setting, or a password, which can only be set.
    """
    return _settings.get(attr_key)


def reset_ps_context() -> None:
    """Bring the settings of parameter-server training back to their defaults."""
    _settings.reset()


def ps_snapshot() -> PsConfig:
    """The present settings of parameter-server training."""
    return _settings.current


def _flag_or_number(function: str, key: str, value: Any) -> bool:
    """MindSpore takes 0 and 1 here."""
    return bool(kind(bool, int)(function, key, value))


def _unsigned(limit: int | None = None) -> Any:
    def check(function: str, key: str, value: Any) -> int:
        kind(int)(function, key, value)
        # Numbers out of range are a TypeError in MindSpore.
        if value < 0 or (limit is not None and value > limit):
            bounds = ">= 0" if limit is None else f"in [0, {limit}]"
            raise SporaxTypeError(f"For '{function}', '{key}' must be {bounds}, but got {value}.")
        return int(value)

    return check


def _member(*allowed: str) -> Any:
    def check(function: str, key: str, value: Any) -> str:
        kind(str)(function, key, value)
        # Unknown roles and modes are a RuntimeError in MindSpore.
        SporaxRuntimeError.raise_unless_in(function, key, value, allowed)
        return str(value)

    return check


def _staleness(function: str, key: str, value: Any) -> int:
    kind(int)(function, key, value)
    SporaxValueError.raise_if(value < -1, function, key, "be -1 (unbounded), 0 or positive", value)
    return int(value)


_CHECKS = {
    "enable_ps": kind(bool),
    "server_mode": _member("PARAMETER_SERVER"),
    "ms_role": _member(*ROLES),
    "worker_num": _unsigned(),
    "server_num": _unsigned(),
    "scheduler_ip": kind(str),
    "scheduler_port": _unsigned(_MAX_PORT),
    "enable_ssl": _flag_or_number,
    "client_password": kind(str),
    "server_password": kind(str),
    "config_file_path": kind(str),
    "staleness": _staleness,
    "durability": _member(*DURABILITIES),
}
# Passwords can be set, and never read.
_PASSWORDS = ("client_password", "server_password")

_settings: Settings[PsConfig] = Settings(
    "ps_context",
    PsConfig(),
    {key: stored(_SET, key, check) for key, check in _CHECKS.items()},
    {field.name: attrgetter(field.name) for field in dataclasses.fields(PsConfig) if field.name not in _PASSWORDS},
)
