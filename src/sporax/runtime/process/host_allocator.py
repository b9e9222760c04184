"""Memory that one step used is kept for the next, on hosts with glibc.

Problem. XLA for CPUs allocates the temporaries of a program when a run begins and frees them when it ends. glibc takes large
blocks from the system and returns them, so the kernel clears every page again in every step. A GPT's step with 101 MiB of
temporaries spent 57 of its 132 ms so.

Method. `mallopt` makes glibc take everything from one heap and never shrink it. A freed block is then the next step's block. A
process so keeps the most that it ever needed, as it does with the pools of accelerators. This is for processes that Python
starts; ranks get settings with large pages from what starts them (`launch/jobs/cores.py`).

Reference: mallopt(3).

All objects of the process that the garbage collector tracks.

Problem: a program that calls `gc.freeze` (before it forks, say) hides its objects from `gc.get_objects`, and whoever looks for
the functions that run some code, or for all Tensors, would miss them.

Method: what was frozen is given back to the oldest generation first. It is still alive, and only costs the collector time.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Mapping
from typing import Any

from sporax.ir.variables import read

# Numbers of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Make this process keep what it frees, before its threads allocate.

    Args:
        environ: with ``SPORAX_KEEP_MEMORY=0``, or with settings of glibc's allocator, nothing is changed.

    Returns:
        Whether the allocator took the setting; other C libraries have none.
    """
    tuned = "glibc.malloc." in environ.get("GLIBC_TUNABLES", "") or any(name.startswith("MALLOC_") for name in environ)
    if read(environ, "SPORAX_KEEP_MEMORY") == "0" or tuned:
        return False
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):  # musl has no settings
        return False
    # Heaps of other threads hold 64 MiB at most, and what is larger is mapped: hence a single heap.
    return all(
        library.mallopt(setting, value) == 1
        for setting, value in ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1))
    )


def tracked_objects() -> list[Any]:
    """Every tracked object, frozen ones included."""
    if gc.get_freeze_count():
        gc.unfreeze()
    return gc.get_objects()
