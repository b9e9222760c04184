"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.train.checkpoint.assembly import merge_sliced_parameter as merge_sliced_parameter
from sporax.mindspore.train.checkpoint.loading import load_distributed_checkpoint as load_distributed_checkpoint
from sporax.mindspore.train.checkpoint.loading import load_segmented_checkpoints as load_segmented_checkpoints
from sporax.mindspore.train.checkpoint.strategy import build_searched_strategy as build_searched_strategy
from sporax.mindspore.train.checkpoint.strategy import merge_pipeline_strategys as merge_pipeline_strategys
from sporax.mindspore.train.checkpoint.strategy import restore_group_info_list as restore_group_info_list
from sporax.mindspore.train.checkpoint.transform import rank_list_for_transform as rank_list_for_transform
from sporax.mindspore.train.checkpoint.transform import transform_checkpoint_by_rank as transform_checkpoint_by_rank
from sporax.mindspore.train.checkpoint.transform import transform_checkpoints as transform_checkpoints
from sporax.mindspore.train.checkpoint.unified import unified_safetensors as unified_safetensors


