"""The global context: what `set_context` and its relatives change.

MindSpore keeps one process-wide set of switches. It exists in the facade only: a compiled step reads what it needs while
it is traced. Switches whose meaning ends at Ascend's compiler are known by name, stored, and answered with a warning, so
scripts run unchanged and nobody is misled.
"""

from __future__ import annotations

import warnings
from typing import Any

from sporax.ir.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.runtime import state

GRAPH_MODE = 0
PYNATIVE_MODE = 1

_TARGETS = ("CPU", "GPU", "Ascend", "TPU")

# Switches that change something here, with the Python types they take.
_TYPES: dict[str, tuple[type, ...]] = {
    "mode": (int,),
    "device_target": (str,),
    "device_id": (int,),
    "deterministic": (str,),
}

# Switches that have no counterpart on XLA. Setting one warns once per name.
_WITHOUT_MEANING: dict[str, Any] = {
    "save_graphs": False,
    "save_graphs_path": ".",
    "enable_graph_kernel": False,
    "graph_kernel_flags": "",
    "enable_reduce_precision": True,
    "enable_dump": False,
    "save_dump_path": ".",
    "enable_profiling": False,
    "profiling_options": "",
    "enable_compile_cache": False,
    "compile_cache_path": ".",
    "max_call_depth": 1000,
    "max_device_memory": "1024GB",
    "mempool_block_size": "1GB",
    "memory_optimize_level": "O0",
    "variable_memory_max_size": "30GB",
    "runtime_num_threads": 30,
    "inter_op_parallel_num": 0,
    "ascend_config": {},
    "gpu_config": {},
    "jit_config": {},
    "jit_level": "",
    "jit_syntax_level": 2,
    "jit_enable_inplace_ops": True,
    "pynative_synchronize": False,
    "precompile_only": False,
    "reserve_class_name_in_scope": True,
    "check_bprop": False,
    "debug_level": 0,
    "env_config_path": "",
    "aoe_tune_mode": "",
    "aoe_config": {},
    "op_timeout": 900,
    "exec_order": "",
    "disable_format_transform": False,
    "support_binary": False,
    "print_file_path": "",
    "grad_for_scalar": False,
    "enable_mem_offload": False,
    "enable_sparse": False,
    "auto_tune_mode": "NO_TUNE",
}


def _default_target() -> str:
    import jax

    return {"gpu": "GPU", "cuda": "GPU", "tpu": "TPU"}.get(jax.default_backend(), "CPU")


_settings: dict[str, Any] = {"mode": PYNATIVE_MODE, "device_id": 0, "deterministic": "OFF"}
_noted: dict[str, Any] = {}


def set_context(**kwargs: Any) -> None:
    """Change switches of the global context. Same as MindSpore; ``mode`` starts as PYNATIVE_MODE.

    Raises:
        SporaxValueError: unknown switch, or a value outside its range.
        SporaxTypeError: a value of the wrong type.
        SporaxRuntimeError: ``device_target`` names hardware this process does not have.
    """
    for name, value in kwargs.items():
        if name in _TYPES:
            _check(name, value)
            _settings[name] = value
        elif name in _WITHOUT_MEANING:
            _note(name, value)
        else:
            raise SporaxValueError(
                f"For 'set_context', the keyword must be one of {sorted((*_TYPES, *_WITHOUT_MEANING))}, but got '{name}'."
            )
    state.touch()


def get_context(attr_key: str) -> Any:
    """The value of one switch.

    Raises:
        SporaxValueError: unknown switch.
    """
    if attr_key == "device_target":
        return _settings.get("device_target") or _default_target()
    if attr_key in _settings:
        return _settings[attr_key]
    if attr_key in _WITHOUT_MEANING:
        return _noted.get(attr_key, _WITHOUT_MEANING[attr_key])
    raise SporaxValueError(
        f"For 'get_context', the key must be one of {sorted((*_TYPES, *_WITHOUT_MEANING))}, but got '{attr_key}'."
    )


def set_device(device_target: str, device_id: int | None = None) -> None:
    """Choose the kind of device and which of them new arrays go to.

    Raises:
        SporaxValueError, SporaxTypeError: as `set_context`.
        SporaxRuntimeError: this process has no such device.
    """
    set_context(device_target=device_target)
    if device_id is not None:
        set_context(device_id=device_id)


def graph_mode() -> bool:
    """Whether Cells and gradients compile as a whole."""
    return bool(_settings["mode"] == GRAPH_MODE)


def _check(name: str, value: Any) -> None:
    if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
        wanted = " or ".join(kind.__name__ for kind in _TYPES[name])
        raise SporaxTypeError(f"For 'set_context', '{name}' must be {wanted}, but got {type(value).__name__}.")
    if name == "mode" and value not in (GRAPH_MODE, PYNATIVE_MODE):
        raise SporaxValueError(
            f"For 'set_context', 'mode' must be GRAPH_MODE (0) or PYNATIVE_MODE (1), but got {value}."
        )
    if name == "deterministic" and value not in ("ON", "OFF"):
        raise SporaxValueError(f"For 'set_context', 'deterministic' must be 'ON' or 'OFF', but got '{value}'.")
    if name == "device_target":
        _check_target(value)
    if name == "device_id":
        _check_device_id(value)


def _check_target(target: str) -> None:
    if target not in _TARGETS:
        raise SporaxValueError(f"For 'set_context', 'device_target' must be one of {_TARGETS}, but got '{target}'.")
    present = _default_target()
    if target == "Ascend":
        _note("device_target='Ascend'", target, f"this process runs on {present} instead")
    elif target != "CPU" and target != present:
        raise SporaxRuntimeError(
            f"For 'set_context', 'device_target' is '{target}', but JAX found only {present} in this process. "
            f"Install JAX for {target}, or choose '{present}'."
        )


def _check_device_id(index: int) -> None:
    import jax

    count = jax.local_device_count()
    if not 0 <= index < count:
        raise SporaxValueError(f"For 'set_context', 'device_id' must be in [0, {count - 1}], but got {index}.")


def _note(name: str, value: Any, reason: str = "it has no counterpart in XLA and changes nothing here") -> None:
    if name not in _noted:
        warnings.warn(f"'{name}' is accepted for compatibility; {reason}.", UserWarning, stacklevel=4)
    _noted[name] = value
