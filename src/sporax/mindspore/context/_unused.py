"""Settings that change nothing in the training step that is compiled: each is told, once.

Problem: a setting may be right by itself and still do nothing, because the mode, or another setting that it belongs to, is
missing: the user believes in something that does not happen. Method: for every setting the condition under which a step reads
it, in tables that hold all fields of the groups' values; a setting that was moved from its default and whose condition does not
hold is a warning when an optimizer becomes part of a program. Then all settings of a script have been made.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from sporax.ir.config.parallel_config import VARIABLE, ParallelConfig, ParallelMode, reuse_limit
from sporax.ir.config.placement_config import OffloadConfig, PsConfig
from sporax.ir.config.search_config import COEFFICIENTS, SearchConfig
from sporax.mindspore.context import _global, _offload, _parallel, _ps, _search
from sporax.runtime.session import SESSION

Condition = tuple[Callable[[Any], bool], str]
"""Whether a step under this config reads the setting, and what it needs, in words."""


class Trained(Protocol):
    """What is asked of a Parameter."""

    @property
    def name(self) -> str: ...
    @property
    def layerwise_parallel(self) -> bool: ...
    @property
    def comm_fusion(self) -> int: ...


def _ranked(config: ParallelConfig) -> bool:
    return config.parallel_mode != ParallelMode.STAND_ALONE


def _by_rank(config: ParallelConfig) -> bool:
    return _ranked(config) and not config.in_global_view


def _piped(config: ParallelConfig) -> bool:
    return config.pipeline_stages > 1


def _sharded_state(config: ParallelConfig) -> bool:
    return config.in_global_view and config.enable_parallel_optimizer


def _searched(config: ParallelConfig) -> bool:
    return config.parallel_mode == ParallelMode.AUTO_PARALLEL


def _norms(config: ParallelConfig) -> bool:
    return config.in_global_view and config.dump_local_norm


_VIEW = "the parallel mode 'semi_auto_parallel' or 'auto_parallel'"
_ALWAYS: Condition = (lambda config: True, "")
_MODE: Condition = (_ranked, "a parallel mode other than 'stand_alone'")
_GLOBAL: Condition = (lambda config: config.in_global_view, _VIEW)
_STAGES: Condition = (_piped, "'pipeline_stages' above 1")
_STATE: Condition = (_sharded_state, f"enable_parallel_optimizer=True and {_VIEW}")
_NORMS: Condition = (_norms, f"dump_local_norm=True and {_VIEW}")

PARALLEL: Mapping[str, Condition] = {
    "device_num": (lambda config: _ranked(config) or config.device_num == SESSION.job[0], _MODE[1]),
    "global_rank": (lambda config: _ranked(config) or config.global_rank == SESSION.job[1], _MODE[1]),
    "has_reduce_scatter": _ALWAYS,  # a fact about the devices, which users do not set
    "parallel_mode": _ALWAYS,
    "gradients_mean": _MODE,
    "gradient_fp32_sync": (_GLOBAL[0], f"{_VIEW}; between ranks gradients are always summed in float32"),
    "loss_repeated_mean": _GLOBAL,
    "parameter_broadcast": (_by_rank, "the parallel mode 'data_parallel' or 'hybrid_parallel'"),
    "force_fp32_communication": _GLOBAL,
    "dataset_strategy": _GLOBAL,
    "search_mode": (_searched, "the parallel mode 'auto_parallel'"),
    "enable_alltoall": _GLOBAL,
    "enable_parallel_optimizer": _MODE,
    "gradient_accumulation_shard": _STATE,
    "parallel_optimizer_threshold": _STATE,
    "optimizer_weight_shard_size": _STATE,
    "optimizer_level": _STATE,
    "optimizer_weight_shard_aggregated_save": (
        lambda config: False,
        "nothing: checkpoints of one file are always whole",
    ),
    "pipeline_stages": _ALWAYS,  # refused outside of the global view
    "pipeline_segments": _STAGES,
    "pipeline_interleave": _STAGES,
    "pipeline_scheduler": _STAGES,
    "pipeline_result_broadcast": _STAGES,
    "auto_pipeline": _STAGES,
    "pipeline_schedule": _STAGES,
    "recompute": _ALWAYS,
    "comm_fusion": _MODE,
    "all_reduce_fusion_config": _MODE,
    "all_reduce_fusion_sizes": _MODE,
    "communi_parallel_mode": _ALWAYS,  # warns when it is set
    "strategy_ckpt_load_file": _GLOBAL,
    "strategy_ckpt_save_file": _GLOBAL,
    "strategy_ckpt_only_trainable_params": _GLOBAL,
    "group_ckpt_save_file": _GLOBAL,
    "op_strategy_load_file": _GLOBAL,
    "op_strategy_save_file": _GLOBAL,
    "init_param_in_compile": (lambda config: False, "nothing: lazy Parameters get values when the first step runs"),
    "auto_parallel_new_interface": _ALWAYS,  # warns when it is set
    "dump_local_norm": _GLOBAL,
    "dump_local_norm_path": _NORMS,
    "dump_device_local_norm": _NORMS,
}
"""By field of `ParallelConfig`."""

_Searched = tuple[SearchConfig, ParallelConfig]


def _in_search(*modes: str) -> Callable[[_Searched], bool]:
    return lambda pair: _searched(pair[1]) and (not modes or pair[1].search_mode in modes)


_SEARCH: Condition = (_in_search(), "the parallel mode 'auto_parallel'")
_DYNAMIC = f"{_SEARCH[1]} with search_mode='dynamic_programming'"

SEARCH: Mapping[str, Condition] = {
    "fully_use_devices": _SEARCH,
    "elementwise_op_strategy_follow": _SEARCH,
    "tensor_slice_align_enable": _SEARCH,
    "tensor_slice_align_size": (
        lambda state: _searched(state[1]) and state[0].tensor_slice_align_enable,
        f"tensor_slice_align_enable=True and {_SEARCH[1]}",
    ),
    "enable_algo_approxi": (_in_search("dynamic_programming"), _DYNAMIC),
    "algo_approxi_epsilon": (
        lambda state: _in_search("dynamic_programming")(state) and state[0].enable_algo_approxi,
        f"enable_algo_approxi=True and {_DYNAMIC}",
    ),
    "recursive_keeps_strategies": (
        _in_search("recursive_programming"),
        f"{_SEARCH[1]} with search_mode='recursive_programming'",
    ),
}
"""By field of `SearchConfig`."""


def _on(config: OffloadConfig) -> bool:
    return _global.memory_offload()


def _on_disk(config: OffloadConfig) -> bool:
    return _on(config) and "disk" in (config.offload_param, config.offload_checkpoint)


_OFFLOAD: Condition = (_on, "set_context(memory_offload='ON')")
_DISK: Condition = (_on_disk, f"{_OFFLOAD[1]} and 'disk' as a place")

OFFLOAD: Mapping[str, Condition] = {
    "offload_param": _OFFLOAD,
    "offload_checkpoint": _OFFLOAD,
    "offload_path": _DISK,
    "offload_cpu_size": (
        lambda config: _on(config) and config.offload_param != "disk",
        f"{_OFFLOAD[1]}, and Parameters that are not on disk",
    ),
    "offload_disk_size": _DISK,
    "host_mem_block_size": _ALWAYS,  # told when it is set, as the next but three
    "enable_aio": _DISK,
    "aio_block_size": _DISK,
    "aio_queue_depth": _DISK,
    "enable_pinned_mem": _ALWAYS,
    "auto_offload": _OFFLOAD,
    "cpu_ratio": (
        lambda config: _on(config) and bool(config.offload_cpu_size),
        f"'offload_cpu_size' and {_OFFLOAD[1]}",
    ),
    "hbm_ratio": (lambda config: _on(config) and config.auto_offload, f"auto_offload=True and {_OFFLOAD[1]}"),
}
"""By field of `OffloadConfig`."""


def _joined(config: PsConfig) -> bool:
    return SESSION.servers is not None


_SERVERS: Condition = (_joined, "enable_ps=True before init(), in a job with parameter servers")
_KEYS: Condition = (lambda config: False, "nothing: connections are encrypted by the keys that `sporax ps keys` makes")

PS: Mapping[str, Condition] = {
    **dict.fromkeys(
        (
            "enable_ps",
            "server_mode",
            "ms_role",
            "worker_num",
            "server_num",
            "scheduler_ip",
            "scheduler_port",
            "enable_ssl",
            "staleness",
            "durability",
        ),
        _SERVERS,
    ),
    **dict.fromkeys(("client_password", "server_password", "config_file_path"), _KEYS),
}
"""By field of `PsConfig`."""

_told: set[tuple[str, str, str]] = set()


def tell_unused(parameters: Sequence[Trained]) -> None:
    """Warn of each setting that was made and that the training step which is compiled does not read; of each value once.

    Args:
        parameters: those that are trained.
    """
    config = _parallel.snapshot()
    for function, name, value, needs in _unused(config):
        entry = (f"{function} {config.parallel_mode}", name, repr(value))
        if entry not in _told:
            _told.add(entry)
            warnings.warn(f"For '{function}', '{name}' has no effect in this step: it needs {needs}.", stacklevel=2)
    if config.in_global_view:
        _tell_of_parameters(config, parameters)


def forget_told() -> None:
    """Tell all of it again."""
    _told.clear()


def _unused(config: ParallelConfig) -> Iterator[tuple[str, str, Any, str]]:
    """Function, name, value and needs of each such setting."""
    search, cost = _search.search_snapshot()
    # `AutoParallel` brings settings of its own, and on one device runs its network as it is.
    if config.in_global_view or not config.auto_parallel_new_interface:
        yield from _moved("set_auto_parallel_context", PARALLEL, config, ParallelConfig(), config)
    yield from _moved("set_algo_parameters", SEARCH, search, SearchConfig(), (search, config))
    yield from _moved("set_offload_context", OFFLOAD, _offload.offload_snapshot(), OffloadConfig())
    yield from _moved("set_ps_context", PS, _ps.ps_snapshot(), PsConfig())
    if reuse_limit(os.environ) and not _ranked(config) and SESSION.job[0] == 1:
        yield VARIABLE, os.environ[VARIABLE], os.environ[VARIABLE], _MODE[1]
    # A search says by itself which numbers it does not read.
    if not _searched(config):
        costs = COEFFICIENTS if config.in_global_view else frozenset()
        limits = {"device_memory_capacity"} if config.in_global_view or config.recompute == "auto" else set()
        for name in sorted(cost.changed - costs - limits):
            yield "set_cost_model_context", name, getattr(cost, name), _SEARCH[1]


def _moved(
    function: str, table: Mapping[str, Condition], config: Any, defaults: Any, state: Any = None
) -> Iterator[tuple[str, str, Any, str]]:
    for field in dataclasses.fields(config):
        name, (applies, needs) = field.name, table[field.name]
        value = getattr(config, name)
        if value != getattr(defaults, name) and not applies(config if state is None else state):
            # Passwords are never printed.
            yield function, _KEY.get(name, name), "" if not field.repr else value, needs


_KEY = {
    "strategy_ckpt_only_trainable_params": "strategy_ckpt_config",
    "pipeline_interleave": "pipeline_config",
    "pipeline_scheduler": "pipeline_config",
}
"""Keys of settings whose fields are called otherwise."""


def _tell_of_parameters(config: ParallelConfig, parameters: Sequence[Trained]) -> None:
    """Settings that do not fit the Parameters or the devices of a step that a plan shards."""
    own = [parameter.name for parameter in parameters if parameter.layerwise_parallel]
    if own:
        _tell_once(
            f"For 'Parameter', 'layerwise_parallel' of '{own[0]}' has no effect in this step: it needs the parallel mode "
            "'data_parallel' or 'hybrid_parallel'."
        )
    size, devices = config.optimizer_weight_shard_size, config.num_stage_devices
    if _sharded_state(config) and size > 1 and devices % size:
        _tell_once(
            f"For 'set_auto_parallel_context', 'optimizer_weight_shard_size' must divide the {devices} devices of a stage to "
            f"have an effect, but got {size}: weights stay whole."
        )
    rule = config.comm_fusion.fusion_rule_for("allreduce")
    positions = rule.config if rule is not None and rule.mode == "index" else config.all_reduce_fusion_config
    count = sum(bool(parameter.comm_fusion) for parameter in parameters)
    if isinstance(positions, tuple) and positions and max(positions) >= count:
        _tell_once(
            f"For 'set_auto_parallel_context', 'all_reduce_fusion_config' is {list(positions)}, but there are only {count} "
            "gradients."
        )


def _tell_once(text: str) -> None:
    if (text, "", "") not in _told:
        _told.add((text, "", ""))
        warnings.warn(text, stacklevel=4)
