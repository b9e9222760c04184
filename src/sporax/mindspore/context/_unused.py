"""Settings that change nothing in the training step that is compiled: each is reported, once.

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

from sporax.base.errors import SporaxRuntimeError
from sporax.ir import config as config_values
from sporax.mindspore.context import _global, _groups, _parallel
from sporax.runtime.session import SESSION

Condition = tuple[Callable[[Any], bool], str]
"""Whether a step under this config reads the setting, and what it needs, in words."""


class Trained(Protocol):
    """What is read of a Parameter."""

    @property
    def name(self) -> str: ...
    @property
    def layerwise_parallel(self) -> bool: ...
    @property
    def comm_fusion(self) -> int: ...


def _ranked(config: config_values.ParallelConfig) -> bool:
    return config.parallel_mode != config_values.ParallelMode.STAND_ALONE


def _sharded_state(config: config_values.ParallelConfig) -> bool:
    return config.in_global_view and config.enable_parallel_optimizer


def _searched(config: config_values.ParallelConfig) -> bool:
    return config.parallel_mode == config_values.ParallelMode.AUTO_PARALLEL


_VIEW = "the parallel mode 'semi_auto_parallel' or 'auto_parallel'"
_ALWAYS: Condition = (lambda config: True, "")
_MODE: Condition = (_ranked, "a parallel mode other than 'stand_alone'")
_BY_RANK: Condition = (
    lambda config: _ranked(config) and not config.in_global_view,
    "the parallel mode 'data_parallel' or 'hybrid_parallel'",
)
_GLOBAL: Condition = (lambda config: config.in_global_view, _VIEW)
_STAGES: Condition = (lambda config: config.pipeline_stages > 1, "'pipeline_stages' above 1")
_STATE: Condition = (_sharded_state, f"enable_parallel_optimizer=True and {_VIEW}")
_NORMS: Condition = (
    lambda config: config.in_global_view and config.dump_local_norm,
    f"dump_local_norm=True and {_VIEW}",
)


def _nothing(reason: str) -> Condition:
    return (lambda config: False, f"nothing: {reason}")


def _by_field(conditions: Mapping[Condition, str]) -> Mapping[str, Condition]:
    """Conditions by the names of the fields that each holds for."""
    return {name: condition for condition, names in conditions.items() for name in names.split()}


PARALLEL = _by_field(
    {
        (lambda config: _ranked(config) or config.device_num == SESSION.job[0], _MODE[1]): "device_num",
        (lambda config: _ranked(config) or config.global_rank == SESSION.job[1], _MODE[1]): "global_rank",
        # The first is a fact about the devices, pipeline stages are refused outside of the global view, the last two warn when
        # they are set.
        _ALWAYS: """has_reduce_scatter parallel_mode pipeline_stages recompute communi_parallel_mode
            auto_parallel_new_interface""",
        _MODE: """gradients_mean enable_parallel_optimizer comm_fusion all_reduce_fusion_config all_reduce_fusion_sizes""",
        (_GLOBAL[0], f"{_VIEW}; between ranks gradients are always summed in float32"): "gradient_fp32_sync",
        _GLOBAL: """loss_repeated_mean force_fp32_communication dataset_strategy enable_alltoall strategy_ckpt_load_file
            strategy_ckpt_save_file strategy_ckpt_only_trainable_params group_ckpt_save_file op_strategy_load_file
            op_strategy_save_file dump_local_norm""",
        _BY_RANK: "parameter_broadcast",
        (_searched, "the parallel mode 'auto_parallel'"): "search_mode",
        _STATE: """gradient_accumulation_shard parallel_optimizer_threshold optimizer_weight_shard_size optimizer_level""",
        _nothing("checkpoints of one file are always whole"): "optimizer_weight_shard_aggregated_save",
        _STAGES: """pipeline_segments pipeline_interleave pipeline_scheduler pipeline_result_broadcast auto_pipeline
            pipeline_schedule""",
        _nothing("lazy Parameters get values when the first step runs"): "init_param_in_compile",
        _NORMS: "dump_local_norm_path dump_device_local_norm",
    }
)
"""By field of `ParallelConfig`."""

_Searched = tuple[config_values.SearchConfig, config_values.ParallelConfig]


def _in_search(*modes: str) -> Callable[[_Searched], bool]:
    return lambda pair: _searched(pair[1]) and (not modes or pair[1].search_mode in modes)


_SEARCH: Condition = (_in_search(), "the parallel mode 'auto_parallel'")
_DYNAMIC = f"{_SEARCH[1]} with search_mode='dynamic_programming'"

SEARCH = _by_field(
    {
        _SEARCH: "fully_use_devices elementwise_op_strategy_follow tensor_slice_align_enable",
        (
            lambda state: _searched(state[1]) and state[0].tensor_slice_align_enable,
            f"tensor_slice_align_enable=True and {_SEARCH[1]}",
        ): "tensor_slice_align_size",
        (_in_search("dynamic_programming"), _DYNAMIC): "enable_algo_approxi",
        (
            lambda state: _in_search("dynamic_programming")(state) and state[0].enable_algo_approxi,
            f"enable_algo_approxi=True and {_DYNAMIC}",
        ): "algo_approxi_epsilon",
        (
            _in_search("recursive_programming"),
            f"{_SEARCH[1]} with search_mode='recursive_programming'",
        ): "recursive_keeps_strategies",
    }
)
"""By field of `SearchConfig`."""


def _on(config: config_values.OffloadConfig) -> bool:
    return _global.memory_offload()


def _on_disk(config: config_values.OffloadConfig) -> bool:
    return _on(config) and "disk" in (config.offload_param, config.offload_checkpoint)


_OFFLOAD: Condition = (_on, "set_context(memory_offload='ON')")
_DISK: Condition = (_on_disk, f"{_OFFLOAD[1]} and 'disk' as a place")

OFFLOAD = _by_field(
    {
        _OFFLOAD: "offload_param offload_checkpoint auto_offload",
        _DISK: "offload_path offload_disk_size enable_aio aio_block_size aio_queue_depth",
        (
            lambda config: _on(config) and config.offload_param != "disk",
            f"{_OFFLOAD[1]}, and Parameters that are not on disk",
        ): "offload_cpu_size",
        _ALWAYS: "host_mem_block_size enable_pinned_mem",  # reported when they are set
        (
            lambda config: _on(config) and bool(config.offload_cpu_size),
            f"'offload_cpu_size' and {_OFFLOAD[1]}",
        ): "cpu_ratio",
        (lambda config: _on(config) and config.auto_offload, f"auto_offload=True and {_OFFLOAD[1]}"): "hbm_ratio",
    }
)
"""By field of `OffloadConfig`."""


_SERVERS: Condition = (
    lambda _: SESSION.servers is not None,
    "enable_ps=True before init(), in a job with parameter servers",
)
_KEYS = _nothing("connections are encrypted by the keys that `sporax ps keys` makes")

PS = _by_field(
    {
        _SERVERS: """enable_ps server_mode ms_role worker_num server_num scheduler_ip scheduler_port enable_ssl staleness
            durability""",
        _KEYS: "client_password server_password config_file_path",
    }
)
"""By field of `PsConfig`."""

_reported: set[tuple[str, str, str]] = set()


def warn_unused(parameters: Sequence[Trained]) -> None:
    """Warn of each setting that was made and that the training step which is compiled does not read; of each value once.

    Args:
        parameters: those that are trained.
    """
    config = _parallel.snapshot()
    for function, name, value, needs in _unused(config):
        entry = (f"{function} {config.parallel_mode}", name, repr(value))
        if entry not in _reported:
            _reported.add(entry)
            warnings.warn(f"For '{function}', '{name}' has no effect in this step: it needs {needs}.", stacklevel=2)
    if config.in_global_view:
        _warn_of_parameters(config, parameters)
    elif SESSION.plans_all and any(parameter.layerwise_parallel for parameter in parameters):
        raise SporaxRuntimeError(
            "For 'sporax plan', each rank must be a process where Parameters have 'layerwise_parallel', which one plan of all "
            "devices cannot show: start one process for each device, `sporax run --worker_num`."
        )


def forget_reported() -> None:
    """Report all of it again."""
    _reported.clear()


def _unused(config: config_values.ParallelConfig) -> Iterator[tuple[str, str, Any, str]]:
    """Function, name, value and needs of each such setting."""
    search, cost = _groups.search_snapshot()
    # `AutoParallel` brings settings of its own, and on one device runs its network as it is.
    if config.in_global_view or not config.auto_parallel_new_interface:
        yield from _moved("set_auto_parallel_context", PARALLEL, config, config_values.ParallelConfig(), config)
    yield from _moved("set_algo_parameters", SEARCH, search, config_values.SearchConfig(), (search, config))
    yield from _moved("set_offload_context", OFFLOAD, _groups.offload_snapshot(), config_values.OffloadConfig())
    yield from _moved("set_ps_context", PS, _groups.ps_snapshot(), config_values.PsConfig())
    if config_values.reuse_limit(os.environ) and not _ranked(config) and SESSION.job[0] == 1:
        yield config_values.VARIABLE, os.environ[config_values.VARIABLE], os.environ[config_values.VARIABLE], _MODE[1]
    # A search says by itself which numbers it does not read.
    if not _searched(config):
        costs = config_values.COEFFICIENTS if config.in_global_view else frozenset()
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


def _warn_of_parameters(config: config_values.ParallelConfig, parameters: Sequence[Trained]) -> None:
    """Settings that do not fit the Parameters or the devices of a step that a plan shards."""
    own = [parameter.name for parameter in parameters if parameter.layerwise_parallel]
    if own:
        _warn_once(
            f"For 'Parameter', 'layerwise_parallel' of '{own[0]}' has no effect in this step: it needs the parallel mode "
            "'data_parallel' or 'hybrid_parallel'."
        )
    size, devices = config.optimizer_weight_shard_size, config.num_stage_devices
    if _sharded_state(config) and size > 1 and devices % size:
        _warn_once(
            f"For 'set_auto_parallel_context', 'optimizer_weight_shard_size' must divide the {devices} devices of a stage to "
            f"have an effect, but got {size}: weights stay whole."
        )
    rule = config.comm_fusion.fusion_rule_for("allreduce")
    positions = rule.config if rule is not None and rule.mode == "index" else config.all_reduce_fusion_config
    count = sum(bool(parameter.comm_fusion) for parameter in parameters)
    if isinstance(positions, tuple) and positions and max(positions) >= count:
        _warn_once(
            f"For 'set_auto_parallel_context', 'all_reduce_fusion_config' is {list(positions)}, but there are only {count} "
            "gradients."
        )


def _warn_once(text: str) -> None:
    if (text, "", "") not in _reported:
        _reported.add((text, "", ""))
        warnings.warn(text, stacklevel=4)
