"""How programs run: state, compiled programs, random numbers. Works on `jax.Array`s; knows no Tensor and no Cell.

MindSpore has a module of this name too; its functions about device memory are here as well. They are loaded when they are
first used, so that the `session` of a process can be looked at without loading JAX.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _memory: empty_cache max_memory_allocated max_memory_reserved memory_allocated memory_reserved memory_stats
        memory_summary reset_max_memory_allocated reset_max_memory_reserved reset_peak_memory_stats set_memory
        synchronize
    _streams: Event Stream StreamCtx communication_stream current_stream default_stream set_cur_stream launch_blocking
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
