"""How programs run: state, compiled programs, random numbers. Works on `jax.Array`s; knows no Tensor and no Cell.

MindSpore has a module of this name too; its functions about device memory are here as well. They are loaded when they are
first used, so that the `session` of a process can be looked at without loading JAX.
"""

from typing import TYPE_CHECKING, Any

from sporax.mindspore._names.missing import missing_name

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

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            return missing_name(__name__, name)
        from sporax.mindspore.runtime import _blocking, _memory, _streams

        home = next(module for module in (_blocking, _memory, _streams) if hasattr(module, name))
        return getattr(home, name)
