"""What training scripts ask about the parallel context: the helpers of MindSpore's `parallel._utils` that they import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.communication.management import GlobalComm, get_group_size, get_rank
from sporax.mindspore.context import ParallelMode, get_auto_parallel_context

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)


def _get_parallel_mode() -> str:
    """The parallel mode."""
    return str(get_auto_parallel_context("parallel_mode"))


def _is_in_auto_parallel_mode() -> bool:
    """Whether steps are sharded by a plan."""
    return _get_parallel_mode() in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL)


def _is_in_data_parallel_mode() -> bool:
    """Whether the mode is data parallel."""
    return _get_parallel_mode() == ParallelMode.DATA_PARALLEL


def _is_in_hybrid_parallel_mode() -> bool:
    """Whether the mode is hybrid parallel."""
    return _get_parallel_mode() == ParallelMode.HYBRID_PARALLEL


def _is_sharding_propagation() -> bool:
    """Whether automatic parallelism spreads the user's strategies."""
    return get_auto_parallel_context("search_mode") == "sharding_propagation"


def _get_device_num() -> int:
    """The number of devices: as set, else that of the job that was joined, else 1."""
    setting = int(get_auto_parallel_context("device_num"))
    # 1 is the default, so nothing was set.
    return get_group_size() if setting == 1 and GlobalComm.INITED else setting


def _get_stage_device_num() -> int:
    """The number of devices of one pipeline stage."""
    return _get_device_num() // _get_pipeline_stages()


def _get_global_rank() -> int:
    """This rank: as set, else that in the job that was joined, else 0."""
    setting = int(get_auto_parallel_context("global_rank"))
    return get_rank() if setting == 0 and GlobalComm.INITED else setting


def _get_pipeline_stages() -> int:
    """The number of pipeline stages."""
    return int(get_auto_parallel_context("pipeline_stages"))


def _get_full_batch() -> bool:
    """Whether every rank is fed the whole batch."""
    return bool(get_auto_parallel_context("full_batch"))


def _get_gradients_mean() -> bool:
    """Whether gradients of ranks are averaged, not summed."""
    return bool(get_auto_parallel_context("gradients_mean"))


def _get_parameter_broadcast() -> bool:
    """Whether data-parallel ranks start with rank 0's Parameters."""
    return bool(get_auto_parallel_context("parameter_broadcast"))


def _get_enable_parallel_optimizer() -> bool:
    """Whether optimizer state is sharded over data-parallel ranks."""
    return bool(get_auto_parallel_context("enable_parallel_optimizer"))


def _is_parallel_mode() -> bool:
    """Whether there is any parallel mode."""
    return _get_parallel_mode() != ParallelMode.STAND_ALONE


def _reset_op_id() -> None:
    """MindSpore numbers operators as programs are compiled; here each plan numbers its own from 0, so nothing is kept."""
