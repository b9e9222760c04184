"""How programs run: state, compiled programs, random numbers. Works on `jax.Array`s; knows no Tensor and no Cell.

MindSpore has a module of this name too; its functions about device memory are here as well. They are loaded when they are
first used, so that the `session` of a process can be looked at without loading JAX.
"""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import homes, missing_names

if TYPE_CHECKING:
    from sporax.mindspore.runtime._blocking import launch_blocking
    from sporax.mindspore.runtime._memory import (
        empty_cache,
        max_memory_allocated,
        max_memory_reserved,
        memory_allocated,
        memory_reserved,
        memory_stats,
        memory_summary,
        reset_max_memory_allocated,
        reset_max_memory_reserved,
        reset_peak_memory_stats,
        set_memory,
        synchronize,
    )
    from sporax.mindspore.runtime._streams import (
        Event,
        Stream,
        StreamCtx,
        communication_stream,
        current_stream,
        default_stream,
        set_cur_stream,
    )

__all__ = [
    "Event",
    "Stream",
    "StreamCtx",
    "communication_stream",
    "current_stream",
    "default_stream",
    "empty_cache",
    "launch_blocking",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "reset_peak_memory_stats",
    "set_cur_stream",
    "set_memory",
    "synchronize",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(
        __name__,
        {
            **homes("sporax.mindspore.runtime._blocking", "launch_blocking"),
            **homes(
                "sporax.mindspore.runtime._memory",
                """
                empty_cache max_memory_allocated max_memory_reserved memory_allocated memory_reserved memory_stats
                memory_summary reset_max_memory_allocated reset_max_memory_reserved reset_peak_memory_stats set_memory
                synchronize
                """,
            ),
            **homes(
                "sporax.mindspore.runtime._streams",
                "Event Stream StreamCtx communication_stream current_stream default_stream set_cur_stream",
            ),
        },
    )
