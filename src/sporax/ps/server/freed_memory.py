"""Freed memory stays with a server.

Problem: every message and every update needs arrays of the same sizes again. glibc gives freed ones back to the operating system,
and the next ones are new pages, which have to be cleared: several times the cost of the arithmetic.
Method: two settings of glibc's `malloc` (mallopt(3)). Other C libraries go on as they are.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_FREE_BYTES = 256 << 20  # given back above this
_PAD_BYTES = 16 << 20  # taken at a time
_LARGEST_BYTES = 32 << 20  # the most that glibc allows; larger arrays are mapped one by one


def keep_freed_memory() -> bool:
    """Keep it from now on; False where the C library has no such settings."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    settings = ((_MMAP_THRESHOLD, _LARGEST_BYTES), (_TRIM_THRESHOLD, _FREE_BYTES), (_TOP_PAD, _PAD_BYTES))
    return all(library.mallopt(name, value) == 1 for name, value in settings)
