"""The process of one server, set up by the environment.

Freed memory stays with it. Problem: every message and every update needs arrays of the same sizes again. glibc gives freed
ones back to the operating system, and the next ones are new pages, which have to be cleared: several times the cost of the
arithmetic. Method: two settings of glibc's `malloc` (mallopt(3)). Other C libraries go on as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

from sporax.cluster.private import shared_directory
from sporax.ps.environment import DAMAGED_LOGS_VARIABLE, REPLACED, SERVING_FILE_VARIABLE, PsEnvironment
from sporax.ps.server.server import Server
from sporax.ps.sockets.security import keys_for

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


def run(place: PsEnvironment, environ: Mapping[str, str]) -> None:
    """Be a server."""
    keep_freed_memory()
    directory = Path(place.recovery_path or shared_directory(environ)) / "sporax-ps"
    server = Server(
        place.scheduler,
        directory,
        host=place.own_host,
        node=place.node,
        index=place.index,
        keys=keys_for(place.host, environ),
        silent_seconds=place.node_timeout,
        metrics_port=place.metrics_port,
        damaged_directory=Path(damaged) if (damaged := environ.get(DAMAGED_LOGS_VARIABLE, "")) else None,
        serving_file=Path(serving) if (serving := environ.get(SERVING_FILE_VARIABLE, "")) else None,
    )
    server.run()
    if server.ends_for_another:
        # A supervisor sees by this code that the job goes on with a new process.
        raise SystemExit(REPLACED)
