"""The global context: every switch and setting that MindSpore keeps for the whole process.

    set_context                 mode, device, and MindSpore's own compiler            _global
    set_auto_parallel_context   how a step is spread over devices                     _parallel, _nested, _fusion
    set_algo_parameters, …      how plans are searched for                            _groups
    set_ps_context              parameter servers                                     _groups
    set_offload_context         host memory                                           _groups

It exists in the facade only. Each group is one frozen value (`sporax.ir`) that is replaced as a whole; a step takes the
values it finds when it is compiled (`snapshot`), and is compiled again when they have changed. `_supported` says what of
all this a step may request today, `_input_shardings` whether `dataset_strategy` fits the inputs of one.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes, homes_in
from sporax.mindspore.context import _supported  # it gives sessions what the settings require of steps

_HOMES = homes("sporax.ir.config.parallel_config", "ParallelMode") | homes_in(
    __name__,
    """
    _global: COMPATIBLE GRAPH_MODE LAX PYNATIVE_MODE STRICT get_context graph_mode set_context set_deterministic set_device
    _groups: get_algo_parameters get_cost_model_context get_offload_context get_ps_context offload_snapshot ps_snapshot
        reset_algo_parameters reset_cost_model_context reset_offload_context reset_ps_context search_snapshot
        set_algo_parameters set_cost_model_context set_offload_context set_ps_context
    _parallel: changed get_auto_parallel_context num_devices parallel_mode ranks_of_process reset_auto_parallel_context
        set_auto_parallel_context set_world snapshot starts_from_first_rank using world_size
    _supported: check_step check_supported check_with_servers enter_step note_not_joined note_size_of_all_ranks plan_settings
        plan_settings_of_training plans_only refuse_eager shards_compiled_steps
    _unused: forget_reported warn_unused
    """,
)
# MindSpore's module has them under these names too.
_PRIVATE = {f"_{name}": _HOMES[name] for name in _HOMES if name.endswith("et_auto_parallel_context")}
_PRIVATE |= homes("sporax.mindspore._c_expression", "K_CONTEXT")

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES, unlisted=_PRIVATE)
