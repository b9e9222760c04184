"""Device memory: MindSpore's `mindspore.runtime` functions about it.

XLA manages memory here. What MindSpore's pool reports is answered from JAX. Of its settings the largest size is kept to: it
bounds what plans, ``recompute="auto"`` and ``memory_offload="ON"`` leave on a device, and on GPUs what XLA's client allocates,
where that has not started yet. How the pool grows up to there is XLA's affair.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from typing import Any

import jax

from sporax.base.errors import For, SporaxRuntimeError, named
from sporax.base.lazy_members import dataclass
from sporax.runtime.state import frames

# MindSpore's default, which means no limit.
_NO_LIMIT = "1024GB"
_SIZE = re.compile(r"([1-9][0-9]*\.?[0-9]*|0\.[0-9]*)GB", re.ASCII)
_RESERVE = re.compile(r"([0-9]+\.?[0-9]*)GB", re.ASCII)
# JAX reads either of the two; one that the user has set stays.
_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_FLOOR = 0.01
"""The least share of a GPU that is requested: with 0 the client refuses to start."""


@dataclass(slots=True)
class _Pool:
    """What `set_memory` said; None before."""

    max_bytes: int | None = None


_POOL = _Pool()


def set_memory(
    init_size: str = "2GB",
    increase_size: str = "2GB",
    max_size: str = _NO_LIMIT,
    optimize_level: str = "O0",
    huge_page_reserve_size: str = "0GB",
) -> None:
    """Bound the memory of a device; at most once per process, as in MindSpore.

    Args:
        init_size, increase_size, optimize_level, huge_page_reserve_size: checked, and without effect: XLA's allocator has no
            counterparts.
        max_size: the most that a device may use, as `set_context(max_device_memory=…)`; the smaller one counts. On GPUs the
            client takes a share of this size when it starts, at the first array: call this before. A share that the environment
            says already stays. ``"1024GB"`` is no limit.

    Raises:
        SporaxTypeError: not a string.
        SporaxValueError: not a size in GB, or an unknown level.
        SporaxRuntimeError: it was called before.
    """
    sizes = {"init_size": init_size, "increase_size": increase_size, "max_size": max_size}
    texts = {**sizes, "optimize_level": optimize_level, "huge_page_reserve_size": huge_page_reserve_size}
    for name, text in texts.items():
        For("set_memory").typed(name, text, "a str", str)
    # `None` is "never called"; a call that sets no limit counts as well.
    if _POOL.max_bytes is not None:
        raise SporaxRuntimeError("For 'set_memory', it can not be set repeatedly: memory is bounded once per process.")
    for name, text in sizes.items():
        _check_size(_SIZE, name, text)
    _check_size(_RESERVE, "huge_page_reserve_size", huge_page_reserve_size)
    if optimize_level not in ("O0", "O1"):
        raise For("set_memory").error("'optimize_level' must be one of ['O0', 'O1']", f"'{optimize_level}'")
    _POOL.max_bytes = 0 if max_size == _NO_LIMIT else int(float(max_size.removesuffix("GB")) * 2**30)
    if _POOL.max_bytes:
        _bound_client(_POOL.max_bytes)
    frames.touch()


def pool_limit() -> int:
    """Bytes that `set_memory` allows on one device; 0 where it set no limit."""
    return _POOL.max_bytes or 0


def _check_size(pattern: re.Pattern[str], name: str, text: str) -> None:
    if pattern.fullmatch(text) is None:
        raise For("set_memory").error(f"{named(name)} must be a number above 0 followed by 'GB'", f"'{text}'")


def _bound_client(max_bytes: int) -> None:
    """Give XLA's client of a GPU this much of its memory: it reads its share from the environment when it starts.

    Whether it runs already cannot be found out without starting it, which must not be before the ranks are joined.
    """
    total = _gpu_bytes()
    if not total or any(name in os.environ for name in _FRACTIONS):
        return
    os.environ[_FRACTIONS[1]] = f"{min(max(max_bytes / total, _FLOOR), 1.0):.4f}"


def _gpu_bytes() -> int:
    """Memory of the smallest GPU that JAX would use, without starting its client; 0 where there is none."""
    platforms = os.environ.get("JAX_PLATFORMS") or "cuda"
    # `nvidia-smi` answers without starting the client, which must not run before the ranks are joined.
    query = shutil.which("nvidia-smi")
    if query is None or not {"cuda", "gpu"}.intersection(platforms.split(",")):
        return 0
    requested = subprocess.run(
        [query, "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=False,
    )
    sizes = [int(line) for line in requested.stdout.split() if line.isdigit()]
    # The tool prints MiB.
    return min(sizes, default=0) * 2**20


def memory_allocated() -> int:
    """Bytes of arrays that live on the first local device now."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats:
        return int(stats["bytes_in_use"])
    # CPU devices keep no statistics, so what JAX knows to be alive is counted.
    shards = (shard for array in jax.live_arrays() for shard in array.addressable_shards)
    return sum(shard.data.nbytes for shard in shards if shard.device == device)


def max_memory_allocated() -> int:
    """The most bytes that were in use on the first local device so far; on CPU, where no one counts, those in use now."""
    stats = jax.local_devices()[0].memory_stats()
    return int(stats["peak_bytes_in_use"]) if stats else memory_allocated()


def empty_cache() -> None:
    """Forget compiled programs that are no longer used and the memory they hold."""
    # JAX gives the memory of programs and constants back with them; arrays are freed by reference counts.
    jax.clear_caches()


def synchronize() -> None:
    """Wait until everything that was started on the local devices is done."""
    jax.block_until_ready(jax.live_arrays())


def memory_reserved() -> int:
    """Bytes that the allocator of the first local device holds, used or not; on CPU, which has no pool, those in use."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("pool_bytes", stats.get("bytes_reserved", 0))) or memory_allocated()


def max_memory_reserved() -> int:
    """The most bytes that the allocator of the first local device held so far; on CPU, where no one counts, those in use."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("peak_pool_bytes", 0)) or max(memory_reserved(), max_memory_allocated())


def memory_stats() -> dict[str, Any]:
    """What the functions of this module report, in bytes, under MindSpore's keys.

    XLA's allocator has no blocks of MindSpore's kinds, so their statistics are empty.
    """
    reserved, allocated = memory_reserved(), memory_allocated()
    blocks = {"block_unit_size": 0, "block_counts": 0, "blocks_info": {}}
    return {
        "total_reserved_memory": reserved,
        "total_allocated_memory": allocated,
        "total_idle_memory": max(reserved - allocated, 0),
        "total_eager_free_memory": 0,
        "max_reserved_memory": max_memory_reserved(),
        "max_allocated_memory": max_memory_allocated(),
        "common_mem_pool_stats": dict(blocks),
        "persistent_mem_pool_stats": dict(blocks),
    }


def memory_summary() -> str:
    """The numbers of `memory_stats` as a table."""
    rows = [
        (name.replace("_", " ").capitalize(), _readable(size))
        for name, size in memory_stats().items()
        if isinstance(size, int)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(f"{name:<{widths[0]}}  {size:>{widths[1]}}" for name, size in rows) + "\n"


def _readable(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def _no_reset(name: str) -> None:
    # A CPU has no peak that could be forgotten.
    if jax.local_devices()[0].memory_stats():
        warnings.warn(f"For '{name}', JAX cannot reset the peak of a device; it stays.", stacklevel=3)


def reset_peak_memory_stats() -> None:
    """Request new peaks; JAX keeps those of the whole process, which is said."""
    _no_reset("reset_peak_memory_stats")


def reset_max_memory_allocated() -> None:
    """As `reset_peak_memory_stats`."""
    _no_reset("reset_max_memory_allocated")


def reset_max_memory_reserved() -> None:
    """As `reset_peak_memory_stats`."""
    _no_reset("reset_max_memory_reserved")
