"""Device memory: MindSpore's `mindspore.runtime` functions about it.

XLA manages memory here. What MindSpore's pool can be asked is answered from JAX; how the pool is set up has no counterpart
and is accepted with a warning, so that scripts run.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax


def set_memory(
    init_size: str = "2GB",
    increase_size: str = "2GB",
    max_size: str = "1024GB",
    optimize_level: str = "O0",
    huge_page_reserve_size: str = "0GB",
    **options: Any,
) -> None:
    """Accepted with a warning: XLA's allocator has settings of its own (XLA_PYTHON_CLIENT_MEM_FRACTION and others)."""
    warnings.warn("'runtime.set_memory' is accepted for compatibility; XLA manages memory here.", stacklevel=2)


def memory_allocated() -> int:
    """Bytes of arrays that live on the first local device now."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats:
        return int(stats["bytes_in_use"])
    # CPU devices keep no statistics, so what JAX knows to be alive is counted.
    return sum(_bytes_on(array, device) for array in jax.live_arrays())


def max_memory_allocated() -> int:
    """The most bytes that were in use on the first local device so far; on CPU, where no one counts, those in use now."""
    stats = jax.local_devices()[0].memory_stats()
    return int(stats["peak_bytes_in_use"]) if stats else memory_allocated()


def empty_cache() -> None:
    """Forget compiled programs that are no longer used and the memory they hold."""
    jax.clear_caches()


def synchronize() -> None:
    """Wait until everything that was started on the local devices is done."""
    jax.block_until_ready(jax.live_arrays())


def _bytes_on(array: jax.Array, device: Any) -> int:
    return sum(shard.data.nbytes for shard in array.addressable_shards if shard.device == device)
