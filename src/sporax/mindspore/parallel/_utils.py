"""MindSpore's inner modules of parallel runs: what programs import of `parallel._utils`, and of those named below.

`_ps_context`: the role of this process in a parameter-server job. `_cost_model_context`: settings of the cost model, three of
which have no key in the context. `_auto_parallel_context`: the older way to the context, an object with a method per setting.
`sporax.mindspore._names.module_paths` makes modules of these names.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sporax.base.errors import For, SporaxAttributeError, SporaxNotImplementedError, SporaxValueError, named
from sporax.mindspore import context
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.communication.management import GlobalComm, get_group_size, get_rank
from sporax.mindspore.context import ParallelMode, get_auto_parallel_context

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)

_set_ps_context = context.set_ps_context
_get_ps_context = context.get_ps_context
_reset_ps_context = context.reset_ps_context
set_cost_model_context = context.set_cost_model_context
get_cost_model_context = context.get_cost_model_context
reset_cost_model_context = context.reset_cost_model_context


_get_parallel_mode, _get_pipeline_stages, _get_full_batch = (
    functools.partial(get_auto_parallel_context, key) for key in ("parallel_mode", "pipeline_stages", "full_batch")
)
_get_gradients_mean, _get_parameter_broadcast, _get_enable_parallel_optimizer = (
    functools.partial(get_auto_parallel_context, key)
    for key in ("gradients_mean", "parameter_broadcast", "enable_parallel_optimizer")
)
_get_multi_subgraphs, _get_algo_single_loop, _get_rp_matmul_mem_coef = (
    functools.partial(get_cost_model_context, key)
    for key in ("is_multi_subgraphs", "dp_algo_single_loop", "rp_matmul_mem_coef")
)


def _has_mode(*modes: str) -> bool:
    return _get_parallel_mode() in modes


_is_in_auto_parallel_mode = functools.partial(_has_mode, ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL)
_is_in_data_parallel_mode = functools.partial(_has_mode, ParallelMode.DATA_PARALLEL)
_is_in_hybrid_parallel_mode = functools.partial(_has_mode, ParallelMode.HYBRID_PARALLEL)


def _is_parallel_mode() -> bool:
    """Whether there is any parallel mode."""
    return not _has_mode(ParallelMode.STAND_ALONE)


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
    return _get_device_num() // int(_get_pipeline_stages())


def _get_global_rank() -> int:
    """This rank: as set, else that in the job that was joined, else 0."""
    setting = int(get_auto_parallel_context("global_rank"))
    return get_rank() if setting == 0 and GlobalComm.INITED else setting


def _reset_op_id() -> None:
    """MindSpore numbers operators as programs are compiled; here each plan numbers its own from 0, so nothing is kept."""


def _is_ps_mode() -> bool:
    """Whether `set_ps_context` has switched parameter servers on."""
    return bool(context.ps_snapshot().enable_ps)


def _has_role(*names: str) -> bool:
    return _is_ps_mode() and os.environ.get("MS_ROLE") in names


_is_role_worker = functools.partial(_has_role, "MS_WORKER")
_is_role_pserver = functools.partial(_has_role, "MS_PSERVER", "MS_SERVER")
_is_role_sched = functools.partial(_has_role, "MS_SCHED")


def _set_multi_subgraphs(multi_subgraph: bool = True) -> None:
    set_cost_model_context(is_multi_subgraphs=multi_subgraph)


def _set_algo_single_loop(single_loop: bool = True) -> None:
    set_cost_model_context(dp_algo_single_loop=single_loop)


def _set_rp_matmul_mem_coef(coef: float) -> None:
    set_cost_model_context(rp_matmul_mem_coef=float(coef))


# MindSpore's names of the world group on its backends; "" stands for it, too.
_WORLD_GROUPS = ("", "hccl_world_group", "nccl_world_group", "mccl_world_group")


class AutoParallelContext:
    """The settings about splitting AllReduce. They are kept for the world group; other groups are refused."""

    def set_all_reduce_fusion_split_indices(self, indices: list[int], group: str = "") -> None:
        """Split AllReduce after these positions, counted over the Parameters.

        Raises:
            SporaxTypeError: not a list of ints.
            SporaxValueError: empty, negative, repeated or not ascending; another group than the world.
        """
        _check_group(group)
        context.set_auto_parallel_context(all_reduce_fusion_config=indices)

    def get_all_reduce_fusion_split_indices(self, group: str = "") -> list[int]:
        """The positions."""
        _check_group(group)
        return list(context.snapshot().all_reduce_fusion_config)

    def set_all_reduce_fusion_split_sizes(self, sizes: list[int], group: str = "") -> None:
        """Split AllReduce when this many bytes have come together, for one buffer after another.

        Raises:
            SporaxTypeError: not a list of ints.
            SporaxValueError: a group other than the world.
        """
        _check_group(group)
        context.set_auto_parallel_context(all_reduce_fusion_sizes=sizes)

    def get_all_reduce_fusion_split_sizes(self, group: str = "") -> list[int]:
        """The sizes in bytes."""
        _check_group(group)
        return list(context.snapshot().all_reduce_fusion_sizes)

    def set_enable_all_reduce_fusion(self, enable_all_reduce_fusion: bool) -> None:
        """Say that gradients are summed in common buffers, which they are.

        Raises:
            SporaxTypeError: not a bool.
            SporaxNotImplementedError: False.
        """
        name = "enable_all_reduce_fusion"
        For("auto_parallel_context").typed(name, enable_all_reduce_fusion, "a bool", bool)
        if not enable_all_reduce_fusion:
            raise For("auto_parallel_context").fault(
                SporaxNotImplementedError,
                f"{named(name)} must be True",
                "False: set 'comm_fusion' in set_auto_parallel_context",
            )

    def get_enable_all_reduce_fusion(self) -> bool:
        """True."""
        return True

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """``get_x()`` and ``set_x(value)`` for every setting `x` of `set_auto_parallel_context`."""
        verb, _, setting = name.partition("_")
        get = functools.partial(context.get_auto_parallel_context, setting)
        with suppress(SporaxValueError):  # there is no such setting
            if verb in ("get", "set"):
                get()
                return get if verb == "get" else lambda value: context.set_auto_parallel_context(**{setting: value})
        raise SporaxAttributeError(f"'AutoParallelContext' object has no attribute '{name}'")

    def fusion_threshold_mb(self, kind: str = "allreduce") -> int:
        """MiB of one buffer of `comm_fusion`; 64 unless its mode is "size"."""
        chosen = context.get_auto_parallel_context("comm_fusion")[kind]
        return int(chosen["config"]) if chosen["mode"] == "size" else 64

    allgather_fusion_threshold_mb = functools.partialmethod(fusion_threshold_mb, "allgather")
    reducescatter_fusion_threshold_mb = functools.partialmethod(fusion_threshold_mb, "reducescatter")

    def reset(self) -> None:
        """Same as `reset_auto_parallel_context`."""
        context.reset_auto_parallel_context()


_instance = AutoParallelContext()


def auto_parallel_context() -> AutoParallelContext:
    """The settings of the parallel run as an object."""
    return _instance


def _check_group(group: str) -> None:
    For("auto_parallel_context").typed("group", group, "a string", str)
    if group not in _WORLD_GROUPS:
        raise For("auto_parallel_context").error("'group' must be '' or the world group", f"'{group}'")
