"""Checkpoints of distributed jobs: strategy files, conversion between strategies, loading slices.

| module | subject |
|---|---|
| `strategy` | which block of a Parameter a rank holds; strategy and group files, and the functions that read and merge them |
| `assembly` | a Parameter in any slices from a checkpoint in any others, `merge_sliced_parameter` |
| `transform` | `transform_checkpoints` and its parts, `unified_safetensors` |
| `stores`, `orbax_store` | where `ResumableCheckpoint` keeps the state: a directory of slices for each step, or Orbax |
| `loading` | `load_distributed_checkpoint`, `load_segmented_checkpoints` |

Files of tensors, slices and blocks know nothing of Parameters: they are in `sporax.runtime.storage`.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    loading: load_distributed_checkpoint load_segmented_checkpoints
    assembly: merge_sliced_parameter
    strategy: build_searched_strategy merge_pipeline_strategys restore_group_info_list
    transform: get_ckpt_path_with_strategy rank_list_for_transform transform_checkpoint_by_rank transform_checkpoints
        unified_safetensors
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
