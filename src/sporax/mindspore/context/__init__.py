"""The global context: every switch and setting that MindSpore keeps for the whole process.

    set_context                 mode, device, and MindSpore's own compiler            _global
    set_auto_parallel_context   how a step is spread over devices                     _parallel, _nested, _fusion
    set_algo_parameters, …      how plans are searched for                            _search
    set_ps_context              parameter servers                                     _ps
    set_offload_context         host memory                                           _offload

It exists in the facade only. Each group is one frozen value (`sporax.ir`) that is replaced as a whole; a step takes the
values it finds when it is compiled (`snapshot`), and is compiled again when they have changed. `_supported` says what of
all this a step may ask for today, `_input_shardings` whether `dataset_strategy` fits the inputs of one.
"""

from typing import TYPE_CHECKING

from sporax.ir.config.parallel_config import ParallelMode
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.context._global import (
    COMPATIBLE,
    GRAPH_MODE,
    LAX,
    PYNATIVE_MODE,
    STRICT,
    get_context,
    graph_mode,
    set_context,
    set_deterministic,
    set_device,
)
from sporax.mindspore.context._offload import (
    get_offload_context,
    offload_snapshot,
    reset_offload_context,
    set_offload_context,
)
from sporax.mindspore.context._parallel import (
    changed,
    get_auto_parallel_context,
    num_devices,
    parallel_mode,
    ranks_of_process,
    reset_auto_parallel_context,
    set_auto_parallel_context,
    set_world,
    snapshot,
    starts_from_first_rank,
    using,
    world_size,
)
from sporax.mindspore.context._ps import get_ps_context, ps_snapshot, reset_ps_context, set_ps_context
from sporax.mindspore.context._search import (
    get_algo_parameters,
    get_cost_model_context,
    reset_algo_parameters,
    reset_cost_model_context,
    search_snapshot,
    set_algo_parameters,
    set_cost_model_context,
)
from sporax.mindspore.context._supported import (
    check_step,
    check_supported,
    check_with_servers,
    enter_step,
    note_not_joined,
    note_size_of_all_ranks,
    plan_settings,
    plan_settings_of_training,
    plans_only,
    refuse_eager,
    shards_compiled_steps,
)
from sporax.mindspore.context._unused import forget_told, tell_unused

__all__ = [
    "COMPATIBLE",
    "GRAPH_MODE",
    "LAX",
    "PYNATIVE_MODE",
    "STRICT",
    "ParallelMode",
    "changed",
    "check_step",
    "check_with_servers",
    "check_supported",
    "shards_compiled_steps",
    "enter_step",
    "forget_told",
    "note_not_joined",
    "note_size_of_all_ranks",
    "num_devices",
    "parallel_mode",
    "ranks_of_process",
    "plan_settings",
    "plan_settings_of_training",
    "plans_only",
    "refuse_eager",
    "starts_from_first_rank",
    "get_algo_parameters",
    "get_auto_parallel_context",
    "get_context",
    "get_cost_model_context",
    "get_offload_context",
    "get_ps_context",
    "graph_mode",
    "offload_snapshot",
    "ps_snapshot",
    "reset_algo_parameters",
    "reset_auto_parallel_context",
    "reset_cost_model_context",
    "reset_offload_context",
    "reset_ps_context",
    "search_snapshot",
    "set_algo_parameters",
    "set_auto_parallel_context",
    "set_context",
    "set_cost_model_context",
    "set_deterministic",
    "set_device",
    "set_offload_context",
    "set_ps_context",
    "set_world",
    "snapshot",
    "tell_unused",
    "using",
    "world_size",
]

# MindSpore's module has them under these names too.
_set_auto_parallel_context, _get_auto_parallel_context = set_auto_parallel_context, get_auto_parallel_context
_reset_auto_parallel_context = reset_auto_parallel_context

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
