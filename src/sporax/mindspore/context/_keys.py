"""Names and types of the settings that `set_context` and `set_auto_parallel_context` take, for editors and type checkers.

Values are checked where they are set; what each setting means is in ``docs/parallel_context.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from sporax.ir.pipeline_schedule import PipelineSchedule


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
