"""MindSpore's older way to the auto-parallel context: an object with a method per setting.

Two settings have no other name: where AllReduce is split, by position and by size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sporax.base.errors import SporaxAttributeError, SporaxNotImplementedError, SporaxValueError, check_type
from sporax.mindspore import context

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
        check_type("auto_parallel_context", name, enable_all_reduce_fusion, "a bool", bool)
        if not enable_all_reduce_fusion:
            raise SporaxNotImplementedError(
                f"For 'auto_parallel_context', '{name}' must be True, but got False: set 'comm_fusion' in "
                "set_auto_parallel_context."
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

    def allgather_fusion_threshold_mb(self) -> int:
        """As `fusion_threshold_mb`, for weights that are gathered."""
        return self.fusion_threshold_mb("allgather")

    def reducescatter_fusion_threshold_mb(self) -> int:
        """As `fusion_threshold_mb`, for gradients that are scattered."""
        return self.fusion_threshold_mb("reducescatter")

    def reset(self) -> None:
        """Same as `reset_auto_parallel_context`."""
        context.reset_auto_parallel_context()


_instance = AutoParallelContext()


def auto_parallel_context() -> AutoParallelContext:
    """The settings of the parallel run as an object."""
    return _instance


def _check_group(group: str) -> None:
    check_type("auto_parallel_context", "group", group, "a string", str)
    if group not in _WORLD_GROUPS:
        raise SporaxValueError.must("auto_parallel_context", "group", "be '' or the world group", f"'{group}'")
