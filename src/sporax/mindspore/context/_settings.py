"""How every group of settings works: one frozen value, changed key by key, each key with its check.

A group is a frozen dataclass that holds the present values, and a table that says for each key how a new value of it is
checked and which new dataclass results. Either all keys of a call take effect or, when one is refused, none.

Names and types of the settings that `set_context` and `set_auto_parallel_context` take are for editors and type checkers; what
each setting means is in ``docs/parallel_context.md``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypedDict, TypeVar

from sporax.base.errors import SporaxError, SporaxTypeError, SporaxValueError, did_you_mean
from sporax.ir import PipelineSchedule
from sporax.ir.config import SEARCH_NAMES, full_name
from sporax.runtime.state import frames

Config = TypeVar("Config")
Check = Callable[[str, str, Any], Any]
"""``check(function, key, value)`` gives the value to store, or raises an error that names function and key."""
Setter = Callable[[Any, Any], Any]
"""``setter(config, value)`` gives the config with that setting changed, or raises."""
Reader = Callable[[Any], Any]


class Settings(Generic[Config]):
    """A group of settings.

    Args:
        name: how functions of the group are called: ``set_name``, ``get_name``, ``reset_name``.
        defaults: the value before anything is set.
        setters: keys that can be set.
        readers: keys that can be read.
    """

    def __init__(
        self, name: str, defaults: Config, setters: Mapping[str, Setter], readers: Mapping[str, Reader]
    ) -> None:
        self.name = name
        self.defaults = defaults
        self.current = defaults
        self._setters = setters
        self._readers = readers

    def set(self, settings: Mapping[str, Any]) -> None:
        """Change settings, all or none.

        Raises:
            SporaxValueError: unknown key; and whatever the check of a key raises.
        """
        # Assigned at once: if a later key is refused, no earlier one has changed anything.
        self.current = self.changed(self.current, settings)
        # Compiled steps look whether their settings still hold.
        frames.touch()

    def changed(self, config: Config, settings: Mapping[str, Any]) -> Config:
        """`config` with other settings; what `set` does, without doing it."""
        for key, value in settings.items():
            if key not in self._setters:
                raise SporaxValueError(
                    f"For 'set_{self.name}', the key must be one of {sorted(self._setters)}, but got '{key}'."
                    f"{did_you_mean(key, self._setters)}"
                )
            config = self._setters[key](config, value)
        return config

    def get(self, key: Any) -> Any:
        """The present value of one setting.

        Raises:
            SporaxValueError: unknown key, or one that can only be set.
        """
        if key not in self._readers:
            # Passwords, for example.
            only_set = " (it can be set, not read)" if key in self._setters else ""
            raise SporaxValueError(
                f"For 'get_{self.name}', the key must be one of {sorted(self._readers)}, but got {key!r}{only_set}."
                f"{'' if only_set else did_you_mean(key, self._readers)}"
            )
        return self._readers[key](self.current)

    def reset(self) -> None:
        """Go back to the values at the start."""
        self.current = self.defaults
        frames.touch()


def stored(function: str, key: str, check: Check, field: str | None = None) -> Setter:
    """A setter that stores what `check` lets pass in the config's field `field` (called like the key by default)."""
    name = field or key

    def setter(config: Any, value: Any) -> Any:
        return dataclasses.replace(config, **{name: check(function, key, value)})

    return setter


def of_fields(
    name: str, defaults: Config, checks: Mapping[str, Check], only_set: Sequence[str] = ()
) -> Settings[Config]:
    """A group of settings that are fields of its config, each with its check; passwords, for example, are `only_set`."""
    setters = {key: stored(f"set_{name}", key, check) for key, check in checks.items()}
    return Settings(name, defaults, setters, {key: attrgetter(key) for key in checks if key not in only_set})


def kind(*types: type) -> Check:
    """The value must be of one of these types; a bool is no int."""
    expected = " or ".join(type_.__name__ for type_ in types)

    def check(function: str, key: str, value: Any) -> Any:
        # bool is a subclass of int.
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise SporaxTypeError(f"For '{function}', '{key}' must be {expected}, but got {type(value).__name__}.")
        return value

    return check


def flag(*also: type) -> Check:
    """A bool, or a value of one of the types that MindSpore takes for one here, such as None."""
    is_flag = kind(bool, *also)
    return lambda function, key, value: bool(is_flag(function, key, value))


def one_of(*allowed: Any, type_error: bool = True) -> Check:
    """The value must be one of these strings; ``type_error=False``: whatever its type, a wrong value is a ValueError."""

    def check(function: str, key: str, value: Any) -> Any:
        if type_error:
            # MindSpore distinguishes a wrong type from a wrong value for most keys.
            kind(str)(function, key, value)
        # True is 1 in Python, but no level.
        if not any(value == option and isinstance(value, bool) == isinstance(option, bool) for option in allowed):
            meant = did_you_mean(value, [option for option in allowed if isinstance(option, str)])
            raise SporaxValueError(
                f"For '{function}', '{key}' must be one of {list(allowed)}, but got {value!r}.{meant}"
            )
        return value

    return check


def search_name(function: str, key: str, value: Any) -> str:
    """The value must name a search; short names stand for full ones, in letters of any case."""
    kind(str)(function, key, value)
    name: str = one_of(*SEARCH_NAMES)(function, key, full_name(value))
    return name


def number(
    low: float,
    high: float | None = None,
    *,
    types: tuple[type, ...] = (int,),
    above: bool = False,
    error: type[SporaxError] = SporaxValueError,
) -> Check:
    """The value must be a number in [low, high], or in (low, high] with ``above=True``; `error` is raised where it is not.

    Neither infinity nor what is not a number is one.
    """
    bounds = f"{'>' if above else '>='} {low}" if high is None else f"in {'(' if above else '['}{low}, {high}]"

    def check(function: str, key: str, value: Any) -> Any:
        kind(*types)(function, key, value)
        inside = low <= value and not (above and value == low) and (high is None or value <= high)
        # nan is in no interval, and infinity in those without an upper bound.
        if not inside or not math.isfinite(value):
            finite = "" if math.isfinite(value) else "finite and "
            raise error(f"For '{function}', '{key}' must be {finite}{bounds}, but got {value}.")
        return value

    return check


class GlobalSettings(TypedDict, total=False):
    """What `set_context` takes."""

    mode: int
    device_target: str
    device_id: int
    deterministic: str
    memory_offload: str
    pynative_synchronize: bool
    max_device_memory: str
    jit_syntax_level: int
    # Without a counterpart on XLA.
    save_graphs: bool | int
    save_graphs_path: str
    enable_graph_kernel: bool
    graph_kernel_flags: str
    enable_reduce_precision: bool
    enable_dump: bool
    save_dump_path: str
    enable_profiling: bool
    profiling_options: str
    enable_compile_cache: bool
    compile_cache_path: str
    max_call_depth: int
    mempool_block_size: str
    memory_optimize_level: str
    variable_memory_max_size: str
    runtime_num_threads: int
    inter_op_parallel_num: int
    ascend_config: dict[str, Any]
    gpu_config: dict[str, Any]
    jit_config: dict[str, Any]
    jit_level: str
    jit_enable_inplace_ops: bool
    precompile_only: bool
    reserve_class_name_in_scope: bool
    check_bprop: bool
    debug_level: int
    env_config_path: str
    aoe_tune_mode: str
    aoe_config: dict[str, Any]
    op_timeout: int
    exec_order: str
    disable_format_transform: bool
    support_binary: bool
    print_file_path: str
    grad_for_scalar: bool
    enable_mem_offload: bool
    enable_sparse: bool
    auto_tune_mode: str
    enable_auto_mixed_precision: bool


class ParallelSettings(TypedDict, total=False):
    """What `set_auto_parallel_context` takes."""

    all_reduce_fusion_config: Sequence[int]
    all_reduce_fusion_sizes: Sequence[int]
    auto_parallel_new_interface: bool
    auto_parallel_search_mode: str
    auto_pipeline: bool
    comm_fusion: Mapping[str, Any]
    communi_parallel_mode: str
    dataset_strategy: Any  # "data_parallel", "full_batch", tuples of numbers, or Layouts
    device_num: int
    dump_device_local_norm: bool
    dump_local_norm: bool
    dump_local_norm_path: str
    enable_alltoall: bool
    enable_parallel_optimizer: bool
    force_fp32_communication: bool
    full_batch: bool
    global_rank: int
    grad_accumulation_step: int
    gradient_fp32_sync: bool
    gradients_mean: bool
    group_ckpt_save_file: str
    init_param_in_compile: bool
    loss_repeated_mean: bool
    op_strategy_load_file: str
    op_strategy_save_file: str
    optimizer_weight_shard_aggregated_save: bool
    optimizer_weight_shard_size: int
    parallel_mode: str
    parallel_optimizer_config: Mapping[str, Any]
    parameter_broadcast: bool
    pipeline_config: Mapping[str, Any]
    pipeline_result_broadcast: bool
    pipeline_schedule: PipelineSchedule | None
    pipeline_segments: int
    pipeline_stages: int
    recompute: str
    search_mode: str
    sharding_propagation: bool
    strategy_ckpt_config: Mapping[str, Any]
    strategy_ckpt_load_file: str
    strategy_ckpt_save_file: str
