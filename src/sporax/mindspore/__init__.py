"""MindSpore's names on the engine of Sporax: ``import sporax.mindspore as ms``.

Names are loaded when they are first used. The first Tensor switches JAX to 64-bit types; see
`sporax.mindspore.common.tensor`. The engine, which is everything outside of this package, knows nothing of it.
"""

from __future__ import annotations

from typing import Any

from sporax import __version__
from sporax.mindspore._names import module_paths
from sporax.mindspore._names.alias import import_module
from sporax.mindspore._names.missing import MissingNameError, missing_name, placeholder_module, resolved

module_paths.install()

_SUBMODULES = frozenset(
    """
    amp boost common communication context dataset device_context experimental graph hal log mindrecord mint nn numpy ops
    parallel profiler runtime scipy train version
    """.split()
)
_INTERNAL_SUBMODULES = frozenset(["_c_expression", "_checkparam", "_extends"])
"""Modules of MindSpore's that programs reach although they are no part of its interface."""
_WITHOUT_NAMES = frozenset(
    """
    _c_dataengine _c_mindrecord _check_jit_forbidden_api _op_impl arg_dtype_cast arg_handler default_config device_manager
    dryrun multiprocessing onnx rewrite safeguard tools utils
    """.split()
)
"""Attributes of MindSpore that are modules and of which Sporax has nothing: modules whose names explain that they are missing."""

# Which module each top-level name lives in.
_MODULES = {
    "sporax.mindspore._run_check": "run_check",
    "sporax.mindspore.runtime._memory": """
        empty_cache max_memory_allocated max_memory_reserved memory_allocated memory_reserved memory_stats memory_summary
        reset_max_memory_allocated reset_max_memory_reserved reset_peak_memory_stats set_memory synchronize
    """,
    "sporax.mindspore.runtime._streams": """
        Event Stream StreamCtx communication_stream current_stream default_stream set_cur_stream
    """,
    "sporax.runtime.ranks.server_exchange": "sample_ranges",
    "sporax.mindspore.profiler": "Profiler",
    "sporax.mindspore.mindrecord": "FileReader FileWriter MindPage set_dec_mode set_enc_key set_enc_mode",
    "sporax.mindspore.log": "get_level get_log_config",
    "sporax.mindspore.common.dtype": """
        bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 complex128
        qint4x2 float8_e4m3fn float8_e5m2
        byte short int_ long ubyte ushort uint ulong half float_ single double
        int_type uint_type float_type complex_type number_type
        dtype_to_nptype dtype_to_pytype pytype_to_dtype get_py_obj_dtype DType QuantDtype
        intc intp uintc uintp cfloat cdouble list_ tuple_ string number tensor_type type_none TensorType Type Int
    """,
    "sporax.mindspore.common.tensor": "Tensor tensor",
    "sporax.mindspore.common.parameter": "Parameter ParameterTuple",
    "sporax.mindspore.common.sparse_tensor": "COOTensor CSRTensor RowTensor SparseTensor",
    "sporax.mindspore.common.symbol": "Symbol",
    "sporax.mindspore.common.seed": "set_seed get_seed",
    "sporax.mindspore.common.generator": "Generator default_generator seed manual_seed initial_seed get_rng_state set_rng_state",
    "sporax.mindspore.common.api": "JitConfig ms_memory_recycle _no_grad from_numpy is_tensor mutable set_recursion_limit",
    "sporax.mindspore.common.jit": "jit jit_class ms_function recompilations lazy_inline no_inline",
    "sporax.mindspore.common.recompute": "recompute",
    "sporax.mindspore.common.transforms": "value_and_grad grad get_grad jvp vjp GradOperation vmap jacfwd jacrev",
    "sporax.mindspore.ops": "constexpr",
    "sporax.mindspore.context": """
        GRAPH_MODE PYNATIVE_MODE STRICT COMPATIBLE LAX set_context get_context set_device set_deterministic
        set_ps_context get_ps_context reset_ps_context set_offload_context get_offload_context
    """,
    "sporax.mindspore.parallel": """
        ParallelMode set_auto_parallel_context get_auto_parallel_context reset_auto_parallel_context Layout
        set_algo_parameters get_algo_parameters reset_algo_parameters set_op_strategy_config shard
        sync_pipeline_shared_parameters
    """,
    "sporax.mindspore.parallel.function": """
        reshard
    """,
    "sporax.mindspore.train": """
        Model data_sink DatasetHelper ConvertModelUtils ConvertNetUtils connect_network_with_dataset
        build_train_network LossScaleManager FixedLossScaleManager DynamicLossScaleManager
        export load save_checkpoint load_checkpoint load_checkpoint_async load_param_into_net
        async_ckpt_thread_status ckpt_to_safetensors safetensors_to_ckpt
        build_searched_strategy load_distributed_checkpoint load_segmented_checkpoints merge_pipeline_strategys
        merge_sliced_parameter rank_list_for_transform restore_group_info_list transform_checkpoint_by_rank
        transform_checkpoints unified_safetensors get_ckpt_path_with_strategy
        Callback RunContext LossMonitor TimeMonitor History LambdaCallback CheckpointConfig ModelCheckpoint
        LearningRateScheduler EarlyStopping ReduceLROnPlateau OnRequestExit BackupAndRestore SummaryCollector SummaryRecord
        ResumableCheckpoint
        names get_metric_fn rearrange_inputs Metric Accuracy Loss MAE MSE TopKCategoricalAccuracy
        Top1CategoricalAccuracy Top5CategoricalAccuracy Precision Recall Fbeta F1 Perplexity CosineSimilarity
        ConfusionMatrix ConfusionMatrixMetric ROC auc BleuScore Dice HausdorffDistance MeanSurfaceDistance
        RootMeanSquareDistance OcclusionSensitivity
    """,
}
_SECOND_NAMES = {
    "dtype": "sporax.mindspore.common.dtype",
    "bool": "sporax.mindspore.common.dtype:bool_",
    "int": "sporax.mindspore.common.dtype:int32",
    "float": "sporax.mindspore.common.dtype:float32",
}
"""Never attributes of this module, whose code has Python's `int`."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

# Names that hand out Tensors, which are complete only together with their operators.
_WITH_OPERATORS = frozenset(
    """
    Tensor COOTensor CSRTensor RowTensor SparseTensor Parameter ParameterTuple tensor from_numpy mutable
    load_checkpoint load_distributed_checkpoint load_segmented_checkpoints merge_sliced_parameter
    """.split()
)

__all__ = ["__version__", *_SUBMODULES, *_HOMES, *_SECOND_NAMES]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES or name in _INTERNAL_SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name in _SECOND_NAMES:
        return resolved(_SECOND_NAMES[name])
    if name in _HOMES:
        if name in _WITH_OPERATORS:
            import_module("sporax.mindspore.ops")  # gives Tensors their operators and methods
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    try:
        return missing_name(__name__, name)
    except MissingNameError:
        # An attribute, and no from-import: those answer as for any other name.
        if name not in _WITHOUT_NAMES:
            raise
        # Not kept as an attribute: a guarded from-import of the name must go on to fail.
        return placeholder_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
