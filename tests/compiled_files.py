"""The session's store of compiled programs: JAX's persistent compilation cache, shared by all processes and by later runs."""

import os
import zlib
from pathlib import Path


def remove_damaged(folder: Path) -> None:
    """Remove files that a killed process left unfinished: JAX writes no file again that is there, and warns at every look at it."""
    for path in folder.glob("*-cache"):
        if not _is_complete(path.read_bytes()):
            path.unlink()


def resident_bytes() -> int:
    """Bytes of memory that this process holds, on Linux; 0 elsewhere."""
    try:
        with open("/proc/self/statm") as numbers:
            return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _is_complete(compressed: bytes) -> bool:
    """Whether a program can be unpacked; where JAX uses another library than zlib, whether there is anything."""
    if compressed[:1] != b"\x78":  # the first byte of what zlib writes
        return bool(compressed)
    try:
        return bool(zlib.decompress(compressed))
    except zlib.error:
        return False
