"""`mindspore.device_context`: which devices are there, and settings of MindSpore's own compilers for them.

The settings have no counterparts in XLA. They are known by name, change nothing, and say so.
Kinds of devices have MindSpore's names.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import jax

from sporax.base.errors import For

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


__all__ = ["ascend", "cpu", "gpu"]

# Scripts also import from the modules in it, which are made below.
__path__: list[str] = []

_SETTINGS = {
    "ascend": {
        "op_debug": ("aclinit_config", "debug_option", "execute_timeout"),
        "op_precision": ("conv_allow_hf32", "matmul_allow_hf32", "op_precision_mode", "precision_mode"),
        "op_tuning": ("aclnn_cache", "aoe_job_type", "aoe_tune_mode", "op_compile"),
    },
    "gpu": {
        "op_precision": ("conv_allow_tf32", "matmul_allow_tf32"),
        "op_tuning": ("conv_dgrad_algo", "conv_fprop_algo", "conv_wgrad_algo"),
    },
    "cpu": {"op_tuning": ("threads_num",)},
}
_KINDS = {"ascend": "Ascend", "gpu": "GPU", "cpu": "CPU"}


def _idle(path: str) -> Callable[..., None]:
    def setting(*values: object, **named: Any) -> None:
        warnings.warn(
            f"For 'device_context.{path}', the setting has no counterpart in XLA and changes nothing.", stacklevel=2
        )

    setting.__name__ = setting.__qualname__ = path.rpartition(".")[2]
    setting.__doc__ = "A setting without a counterpart in XLA: it changes nothing, which is said."
    return setting


def _is_available(kind: str) -> Callable[[], bool]:
    def is_available() -> bool:
        """Whether devices of this kind are there."""
        return bool(of_kind(kind))

    return is_available


def _device_count(kind: str) -> Callable[[], int]:
    def device_count() -> int:
        """Number of devices of this kind.

        Raises:
            SporaxRuntimeError: there are none.
        """
        count = len(of_kind(kind))
        For("device_context").refuse_state(not count, f"the device {kind} does not exist in this process")
        return count

    return device_count


def _module(path: str, names: dict[str, Any]) -> ModuleType:
    """A module of these names, which `import` finds as well."""
    module = ModuleType(f"{__name__}.{path}")
    vars(module).update(names, __path__=[], __spec__=ModuleSpec(module.__name__, None, is_package=True))
    sys.modules[module.__name__] = module
    return module


def _made(name: str) -> ModuleType:
    kind = _KINDS[name]
    device = {"is_available": _is_available(kind), "device_count": _device_count(kind)}
    groups, every = {"device": _module(f"{name}.device", device)}, device
    for group, settings in _SETTINGS[name].items():
        idle = {setting: _idle(f"{name}.{group}.{setting}") for setting in settings}
        groups[group], every = _module(f"{name}.{group}", idle), every | idle
    return _module(name, every | groups)


ascend, gpu, cpu = _made("ascend"), _made("gpu"), _made("cpu")
