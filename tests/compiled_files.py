"""The session's store of compiled programs: JAX's persistent compilation cache, shared by all processes and by later runs."""

import os
import zlib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

_SOUND = ".sound"
"""A file that is as old as the last look at all others."""


def remove_damaged(folder: Path) -> None:
    """Remove files that a killed process left unfinished: JAX writes no file again that is there, and warns at every look at it.

    Files that are older than the last look are not read again.
    """
    mark = folder / _SOUND
    looked = mark.stat().st_mtime_ns if mark.exists() else 0
    folder.mkdir(parents=True, exist_ok=True)
    now = folder / f"{_SOUND}-{os.getpid()}"
    now.touch()  # before the look, so that what is written meanwhile is read the next time
    for entry in os.scandir(folder):
        if (
            entry.name.endswith("-cache")
            and entry.stat().st_mtime_ns >= looked
            and not _is_complete(Path(entry).read_bytes())
        ):
            os.unlink(entry)
    now.replace(mark)


def store_programs_of_all_ranks() -> None:
    """Let every rank of a job store what it compiles, which JAX does in the first one alone, as far as this version has such a rule."""
    compiler = import_module("jax._src.compiler")
    write, distributed = getattr(compiler, "_cache_write", None), getattr(compiler, "distributed", None)
    if write is None or distributed is None:
        return

    def write_as_first(*arguments: object) -> None:
        compiler.distributed = SimpleNamespace(global_state=SimpleNamespace(process_id=0))
        try:
            write(*arguments)
        finally:
            compiler.distributed = distributed

    compiler._cache_write = write_as_first


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
