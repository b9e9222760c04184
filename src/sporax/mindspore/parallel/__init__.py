"""How programs are spread over devices: `mindspore.parallel`.

`auto_parallel` wraps a network with settings of its own, `nn` holds the Cells that run a batch in parts; the settings that hold
for the whole process live in `sporax.mindspore.context`. Beyond MindSpore: `plan_of`, `show_plan` and `show_layout` show plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sporax.mindspore._names.missing import homes, missing_names
from sporax.mindspore.context import (
    ParallelMode,
    get_algo_parameters,
    get_auto_parallel_context,
    reset_algo_parameters,
    reset_auto_parallel_context,
    set_algo_parameters,
    set_auto_parallel_context,
)
from sporax.mindspore.parallel._layout import Layout
from sporax.mindspore.parallel.auto_parallel import set_op_strategy_config

_SUBMODULES = (
    "auto_parallel",
    "function",
    "nn",
)  # loaded when they are requested: they need networks, networks need the settings
_PLANS = homes("sporax.mindspore.parallel._plans", "plan_of show_layout show_plan")  # these need Tensors and rich
_LATER = {
    **{name: f"sporax.mindspore.parallel.{name}" for name in _SUBMODULES},
    **_PLANS,
    **homes("sporax.mindspore.parallel.nn.micro_batch", "sync_pipeline_shared_parameters"),
    **homes("sporax.mindspore.ops._core.sharded_call", "shard"),
    **homes(  # MindSpore has them here as well; `train` is a layer above this one
        "sporax.mindspore.train.checkpoint",
        """
        build_searched_strategy load_distributed_checkpoint load_segmented_checkpoints merge_pipeline_strategys
        merge_sliced_parameter rank_list_for_transform restore_group_info_list transform_checkpoint_by_rank
        transform_checkpoints unified_safetensors get_ckpt_path_with_strategy
        """,
    ),
}

__all__ = [
    "Layout",
    "ParallelMode",
    "get_algo_parameters",
    "get_auto_parallel_context",
    "reset_algo_parameters",
    "reset_auto_parallel_context",
    "set_algo_parameters",
    "set_auto_parallel_context",
    "set_op_strategy_config",
    "shard",
    "sync_pipeline_shared_parameters",
    *_PLANS,
    *_SUBMODULES,
]


if TYPE_CHECKING:
    from sporax.mindspore.ops import shard
    from sporax.mindspore.parallel import auto_parallel, function, nn
    from sporax.mindspore.parallel._plans import plan_of, show_layout, show_plan
    from sporax.mindspore.parallel.nn.micro_batch import sync_pipeline_shared_parameters
else:  # checkers should see a missing name themselves
    _loaded = missing_names(__name__, _LATER)

    def __getattr__(name: str) -> Any:
        if name.startswith(
            "_"
        ):  # a module of our own that `from sporax.mindspore.parallel import _name` is about to import
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return _loaded(name)
