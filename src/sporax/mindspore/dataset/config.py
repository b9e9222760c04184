"""Process-wide settings of the input pipeline: `mindspore.dataset.config`.

Pipelines read these when an iterator is made, so a change affects the iterators made after it. Settings of MindSpore's that
steer its C++ runtime (NUMA, autotune, shared memory, watchdog, …) are kept and can be read again; setting one to anything but
what happens here anyway warns that it has no effect. Those that change the rows do what they say.
"""

from __future__ import annotations

import enum
import json
import os
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import INT32_MAX, UINT32_MAX, in_words, refuse
from sporax.mindspore.dataset.debug import DebugHook

__all__ = """
    set_seed get_seed set_num_parallel_workers get_num_parallel_workers set_prefetch_size get_prefetch_size
    set_callback_timeout get_callback_timeout load set_enable_autotune get_enable_autotune set_autotune_interval
    get_autotune_interval set_auto_num_workers get_auto_num_workers set_numa_enable get_numa_enable
    set_enable_shared_mem get_enable_shared_mem set_enable_watchdog get_enable_watchdog set_monitor_sampling_interval
    get_monitor_sampling_interval set_multiprocessing_timeout_interval get_multiprocessing_timeout_interval
    set_multiprocessing_start_method get_multiprocessing_start_method set_auto_offload get_auto_offload
    set_dynamic_shape get_dynamic_shape set_fast_recovery get_fast_recovery set_iterator_mode get_iterator_mode
    set_sending_batches set_debug_mode get_debug_mode ErrorSamplesMode set_error_samples_mode get_error_samples_mode
    set_video_backend get_video_backend
""".split()

answer_missing_names(__name__)

T = TypeVar("T")

DEFAULT_SEED = 5489
"""The seed reported, and used for sharded shuffles, when none was set."""

DEBUG_SEED = 1
"""The seed of debug mode when none was set: that of MindSpore."""


def _inherited_seed() -> int | None:
    """The seed of an earlier `mindspore.set_seed`, which could not reach this module before it was imported."""
    # Only looked up: importing it would load JAX.
    common = sys.modules.get("sporax.mindspore.common.seed")
    seed = common.get_seed() if common is not None else None
    # `mindspore.set_seed` accepts larger numbers; the pipeline's are 32 bits.
    return None if seed is None else seed & UINT32_MAX


class ErrorSamplesMode(enum.IntEnum):
    """What happens to a row whose `map` fails."""

    RETURN, REPLACE, SKIP = range(3)


@dataclass(slots=True)
class _Settings:
    """The present settings; what each means is at its setter."""

    seed: int | None = field(default_factory=_inherited_seed)
    num_parallel_workers: int | None = None
    # Rows read ahead: MindSpore's size of a connector.
    prefetch_size: int = 16
    callback_timeout_seconds: int = 60
    debug_mode: bool = False
    debug_hooks: list[DebugHook] = field(default_factory=list)
    error_samples_mode: ErrorSamplesMode = ErrorSamplesMode.RETURN
    without_effect: dict[str, Any] = field(default_factory=dict)


_settings = _Settings()

_WORKERS = 8

_MOST = "INT32_MAX(2147483647)]"

_OF_TYPE_BOOL = ("set_enable_autotune", "set_auto_num_workers", "set_enable_shared_mem")


def _flag(where: str, name: str, value: object) -> bool:
    """A bool, about which MindSpore has one of four sentences."""
    words = "must be of type bool." if where in _OF_TYPE_BOOL else "must be a boolean dtype."
    words = {"set_debug_mode": "isn't of type boolean.", "set_auto_offload": "must be a bool dtype"}.get(where, words)
    if not isinstance(value, bool):
        raise in_words(SporaxTypeError, where, f"{name} {words}", value)
    return value


def _number(where: str, name: str, value: object, low: int, words: str, most: str = "", high: int = INT32_MAX) -> int:
    """An int in [low, high]; `words` say what it is, and `most` how far it may go, where it is not."""
    if isinstance(value, bool) or not isinstance(value, int):
        faults = {"set_autotune_interval": "must be of type int.", "set_sending_batches": "must be an int dtype."}
        fault = faults.get(where, "isn't of type int.")
        raise in_words(SporaxTypeError, where, f"{name} {fault}", value)
    if not low <= value <= high:
        interval = f" {'(['[low == 0]}0, {most}" if most else ""
        raise in_words(SporaxValueError, where, f"{words} is not within the required range{interval}.", value)
    return value


def set_seed(seed: int) -> None:
    """Fix the shuffles and random transforms of all iterators made from now on, and seed Python's and numpy's generators.

    Args:
        seed: int in [0, 2**32 - 1].

    Raises:
        SporaxTypeError: `seed` is not an int.
        SporaxValueError: `seed` is out of range.
    """
    _settings.seed = _number("set_seed", "seed", seed, 0, "seed given", "UINT32_MAX(4294967295)]", UINT32_MAX)
    # As in MindSpore: functions of the user draw from these.
    random.seed(seed)
    np.random.seed(seed)


def get_seed() -> int:
    """The seed of the pipeline; 5489 when it was never set, 1 in debug mode."""
    default = DEBUG_SEED if _settings.debug_mode else DEFAULT_SEED
    return default if _settings.seed is None else _settings.seed


def is_seed_set() -> bool:
    """Whether the seed is fixed: by `set_seed` (here or `mindspore.set_seed`), or by debug mode."""
    return _settings.seed is not None or _settings.debug_mode


def set_num_parallel_workers(num: int) -> None:
    """Set how many threads prepare rows when an operation does not say it.

    More threads than cores are allowed, so that a script written for a large machine runs on a small one.
    """
    _settings.num_parallel_workers = _number(
        "set_num_parallel_workers", "num", num, 1, "Number of parallel workers given", _MOST
    )


def get_num_parallel_workers() -> int:
    """How many workers operations have that do not say it: 8 by default on any machine, as rows may depend on their number."""
    return _settings.num_parallel_workers or _WORKERS


def num_threads() -> int:
    """How many threads prepare rows for such operations: by default no more than there are cores."""
    return _settings.num_parallel_workers or min(_WORKERS, os.cpu_count() or 1)


def set_prefetch_size(size: int) -> None:
    """Set how many rows (batches, after `batch`) an iterator prepares ahead of its user."""
    _settings.prefetch_size = _number("set_prefetch_size", "size", size, 1, "size", _MOST)


def get_prefetch_size() -> int:
    """How many rows an iterator prepares ahead of its user."""
    return _settings.prefetch_size


def set_callback_timeout(timeout: int) -> None:
    """Set for how many seconds rows wait for `sync_update` and for a `WaitedDSCallback`."""
    _settings.callback_timeout_seconds = _number("set_callback_timeout", "timeout", timeout, 1, "Timeout given")


def get_callback_timeout() -> int:
    """For how many seconds rows wait for `sync_update` and for a `WaitedDSCallback`."""
    return _settings.callback_timeout_seconds


def load(file: str) -> None:
    """Take over the settings of a JSON file of MindSpore's: `numParallelWorkers`, `opConnectorSize`, `seed`.

    Raises:
        SporaxRuntimeError: the file cannot be read, or is no JSON object.
    """
    path = Path(check.text("load", "file", file))
    try:
        # MindSpore's JSON of settings.
        settings = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SporaxRuntimeError(f"For 'load', the file {str(path)!r} cannot be read as JSON: {error}") from error
    if not isinstance(settings, dict):
        raise SporaxRuntimeError(f"For 'load', the file {str(path)!r} must hold a JSON object, but got {settings!r}.")
    setters = {"numParallelWorkers": set_num_parallel_workers, "opConnectorSize": set_prefetch_size, "seed": set_seed}
    for name, value in settings.items():
        if name in setters:
            setters[name](value)
        else:
            # MindSpore's files list all settings, so unknown ones are no error.
            warnings.warn(f"For 'load', the setting {name!r} has no effect here.")


def _keep(where: str, value: Any, actual: Any, reason: str) -> None:
    """Remember a setting that changes nothing, and say so if it requests something else than what happens."""
    _settings.without_effect[where.removeprefix("set_")] = value
    # A setting that requests what happens anyway is silent.
    if value != actual:
        warnings.warn(f"For '{where}', {value!r} has no effect: {reason}.")


def _keep_flag(where: str, name: str, value: object, actual: bool, reason: str) -> None:
    _keep(where, _flag(where, name, value), actual, reason)


def _stored(name: str, actual: T, doc: str) -> Callable[[], T]:
    """The function that reads such a setting."""

    def get() -> T:
        value: T = _settings.without_effect.get(name, actual)
        return value

    get.__name__ = get.__qualname__ = f"get_{name}"
    get.__doc__, get.__annotations__ = doc, {"return": type(actual).__name__}
    return get


_NO_TUNING = "the number of workers and what is read ahead are as set"


def set_enable_autotune(enable: bool, filepath_prefix: str | None = None) -> None:
    """Request tuning of workers and queues, which has no effect here."""
    if enable is True:
        check.independent("set_enable_autotune", "Dataset AutoTune")
    _keep_flag("set_enable_autotune", "enable", enable, False, _NO_TUNING)
    if filepath_prefix is None or not (check.text("set_enable_autotune", "filepath_prefix", filepath_prefix) or enable):
        return
    folder = Path(filepath_prefix).absolute().parent
    fault = "" if filepath_prefix else "The value json_filepath cannot be the empty string."
    if fault or Path(filepath_prefix).is_dir():
        fault = fault or f"The value json_filepath is a directory: {filepath_prefix}."
    elif not folder.is_dir():
        fault = f"Directory {folder} does not exist."
    refuse(enable and fault, SporaxRuntimeError, "set_enable_autotune", fault)


get_enable_autotune = _stored("enable_autotune", False, "Whether tuning was requested.")


def set_autotune_interval(interval: int) -> None:
    """Steps between changes of the tuning, which has no effect here."""
    steps = _number("set_autotune_interval", "interval", interval, 0, "Interval given", _MOST)
    _keep("set_autotune_interval", steps, 0, _NO_TUNING)


get_autotune_interval = _stored("autotune_interval", 0, "Steps between changes of the tuning.")


def set_auto_num_workers(enable: bool) -> None:
    """Request tuning of the number of workers, which has no effect here."""
    _keep_flag("set_auto_num_workers", "enable", enable, False, _NO_TUNING)


get_auto_num_workers = _stored("auto_num_workers", False, "Whether tuning of the number of workers was requested.")


def set_numa_enable(numa_enable: bool) -> None:
    """Request memory near the cores of a rank, which has no effect here."""
    _keep_flag(
        "set_numa_enable", "numa_enable", numa_enable, False, "the launcher or the system binds processes to cores"
    )


get_numa_enable = _stored("numa_enable", False, "Whether memory near the cores was requested.")


def set_enable_shared_mem(enable: bool) -> None:
    """Request shared memory between processes, which is always used."""
    _keep_flag("set_enable_shared_mem", "enable", enable, True, "worker processes hand rows over in shared memory")


get_enable_shared_mem = _stored("enable_shared_mem", True, "Whether shared memory was requested.")


def set_enable_watchdog(enable: bool) -> None:
    """Request a thread that ends stuck worker processes; here each ends by itself when its user has gone."""
    _keep_flag("set_enable_watchdog", "enable", enable, True, "each worker process watches its user")


get_enable_watchdog = _stored("enable_watchdog", True, "Whether the watchdog was requested.")


def set_monitor_sampling_interval(interval: int) -> None:
    """Milliseconds between samples of MindSpore's monitor, which does not exist here."""
    milliseconds = _number("set_monitor_sampling_interval", "interval", interval, 1, "Interval given", _MOST)
    reason = "there is no monitor of the pipeline; use 'Profiler'"
    _keep("set_monitor_sampling_interval", milliseconds, 1000, reason)


get_monitor_sampling_interval = _stored(
    "monitor_sampling_interval", 1000, "Milliseconds between samples of the monitor."
)


def set_multiprocessing_timeout_interval(interval: int) -> None:
    """Seconds after which MindSpore warns of rows that do not come; no warning comes here."""
    seconds = _number(
        "set_multiprocessing_timeout_interval", "interval", interval, 1, "Interval given", "INT32_MAX(2147483647))"
    )
    reason = "no warning is given of rows that take long"
    _keep("set_multiprocessing_timeout_interval", seconds, 300, reason)


get_multiprocessing_timeout_interval = _stored(
    "multiprocessing_timeout_interval", 300, "Seconds after which MindSpore warns of rows that do not come."
)


def set_multiprocessing_start_method(start_method: str = "fork") -> None:
    """How worker processes start: 'spawn' always, since a fork copies locks that threads hold."""
    where = "set_multiprocessing_start_method"
    check.choice(where, "start_method", start_method, ("fork", "spawn"))
    _keep(where, start_method, "spawn", "worker processes are spawned")


get_multiprocessing_start_method = _stored(
    "multiprocessing_start_method", "spawn", "How worker processes start, as it was set; they are spawned in any case."
)


def set_auto_offload(offload: bool) -> None:
    """Request transforms on the device, which has no effect here.

    Raises:
        SporaxRuntimeError: MS_INDEPENDENT_DATASET requests a mode without it.
    """
    if offload is True:
        check.independent("set_auto_offload", "Dataset Offload")
    _keep_flag("set_auto_offload", "offload", offload, False, "transforms run on the host")


get_auto_offload = _stored("auto_offload", False, "Whether transforms on the device were requested.")


def set_dynamic_shape(is_dynamic: bool) -> None:
    """Say that shapes differ from batch to batch; they may in any case."""
    # No warning: shapes may differ in any case, so both values are honoured.
    _settings.without_effect["dynamic_shape"] = _flag("set_dynamic_shape", "is_dynamic", is_dynamic)


get_dynamic_shape = _stored("dynamic_shape", False, "Whether shapes were said to differ.")


def set_fast_recovery(fast_recovery: bool) -> None:
    """How a restored pipeline goes on: here always exactly, with the same random numbers."""
    _settings.without_effect["fast_recovery"] = _flag("set_fast_recovery", "fast_recovery", fast_recovery)


get_fast_recovery = _stored("fast_recovery", True, "Whether MindSpore's fast recovery was requested.")


def set_iterator_mode(do_copy: bool = False, parallel_convert: bool = False) -> None:
    """How MindSpore's iterators make Tensors; here they are always copies, made in the user's thread."""
    where = "set_iterator_mode"
    mode = {
        "do_copy": check.boolean(where, "do_copy", do_copy),
        "parallel_convert": check.boolean(where, "parallel_convert", parallel_convert),
    }
    _settings.without_effect["iterator_mode"] = mode
    if parallel_convert:
        warnings.warn(f"For '{where}', parallel_convert=True has no effect: Tensors are made in the user's thread.")


def get_iterator_mode() -> dict[str, bool]:
    """What `set_iterator_mode` was given."""
    return dict(_settings.without_effect.get("iterator_mode", {"do_copy": False, "parallel_convert": False}))


def set_video_backend(backend: str) -> None:
    """What decodes videos: the CPU.

    Raises:
        SporaxNotImplementedError: "Ascend".
    """
    if check.choice("set_video_backend", "backend", backend, ("CPU", "Ascend")) == "Ascend":
        raise SporaxNotImplementedError("For 'set_video_backend', 'backend' must be 'CPU', but got 'Ascend'.")


def get_video_backend() -> str:
    """What decodes videos."""
    return "CPU"


def set_sending_batches(batch_num: int) -> None:
    """How many batches may go to the device: any number.

    Raises:
        SporaxNotImplementedError: a limit.
    """
    if _number("set_sending_batches", "batch_num", batch_num, 0, "batch_num"):
        raise SporaxNotImplementedError(
            f"For 'set_sending_batches', 'batch_num' must be 0 (no limit), but got {batch_num}; use 'sync_wait'."
        )


def set_debug_mode(debug_mode_flag: bool, debug_hook_list: list[DebugHook] | None = None) -> None:
    """Whether hooks see what each transform of a `map` takes and gives.

    The user's own thread then prepares each row when it is requested; numbers of workers, `python_multiprocessing`, caches
    and the mode of error samples have no effect, and the seed is 1 if none was set.

    Args:
        debug_mode_flag: on or off.
        debug_hook_list: hooks before the first and after each operation; `PrintMetaDataHook` by default. An empty list
            keeps those of before.

    Raises:
        SporaxTypeError: an argument has the wrong type.
    """
    where = "set_debug_mode"
    flag = _flag(where, "debug_mode_flag", debug_mode_flag)
    hooks: list[DebugHook] = [] if debug_hook_list is None else debug_hook_list
    if not isinstance(hooks, list) or not all(isinstance(hook, DebugHook) for hook in hooks):
        fault = "All items in debug_hook_list must be of type DebugHook"
        fault = fault if isinstance(debug_hook_list, list) else "debug_hook_list is not a list."
        raise in_words(SporaxTypeError, where, fault, debug_hook_list)
    if flag:
        warnings.warn(f"For '{where}', debug mode is on: one thread prepares all rows, which is slow.")
    if hooks or debug_hook_list is None:
        _settings.debug_hooks = hooks
    _settings.debug_mode = flag


def get_debug_mode() -> bool:
    """Whether debug mode is on."""
    return _settings.debug_mode


def debug_hooks() -> list[DebugHook]:
    """The hooks of debug mode; none stands for one `PrintMetaDataHook`."""
    return _settings.debug_hooks


def set_error_samples_mode(error_samples_mode: ErrorSamplesMode) -> None:
    """What happens to a row for which an operation of a `map` fails.

    `RETURN`: the error is raised. `SKIP`: the row is left out, with a warning; sizes still count it. `REPLACE`: a good row of
    the same epoch comes in its stead, at the end of the epoch, with a warning; the first 16 good rows take turns.

    Raises:
        SporaxTypeError: not an ErrorSamplesMode.
    """
    check.instance("set_error_samples_mode", "error_samples_mode", error_samples_mode, ErrorSamplesMode)
    _settings.error_samples_mode = error_samples_mode


def get_error_samples_mode() -> ErrorSamplesMode:
    """What happens to a row for which an operation of a `map` fails."""
    return _settings.error_samples_mode
