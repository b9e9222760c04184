"""Files that are there as a whole or not at all.

A checkpoint that was half written when the machine went down is worse than none: it has the name of a good one. So the
bytes go to a temporary name in the same directory, are forced to disk, and only then take the final name, which the file
system does in one step. A process that is killed leaves the old file as it was, and a ``.tmp`` next to it, which the next
save to the same name removes: a writer holds a lock on its temporary file, and the system gives the lock back at its end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends without an error.

    Args:
        path: final name; a file of that name is replaced.

    Raises:
        OSError: the directory cannot be written to, or is full; names the file.
    """
    target = Path(path)
    # The lock of a living writer is respected; a dead one's file is removed.
    _remove_leftovers(target)
    temporary, file = _locked_file(target)
    try:
        with file:
            yield file
            file.flush()
            # On disk before it gets its name: a rename may otherwise survive a power loss that the bytes do not.
            os.fsync(file.fileno())
            os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(error.errno, f"{error.strerror}, while it was written", str(target)) from error
        raise
    _force_directory(target.parent)


def _locked_file(target: Path) -> tuple[Path, BinaryIO]:
    """A new temporary file for `target`, locked by this process."""
    while True:
        # In the same directory: a rename across file systems is not atomic.
        temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        file = open(temporary, "xb")  # noqa: SIM115 (closed by the caller)
        with contextlib.suppress(OSError):  # a file system without locks: then it is never taken for a leftover
            fcntl.flock(file, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, file
        file.close()  # taken for a leftover before it was locked


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of killed writers of `target`: those that no process holds a lock on."""
    ours = re.compile(rf"\.{re.escape(target.name)}\.\d+-[0-9a-f]{{8}}\.tmp")
    for leftover in map(target.with_name, filter(ours.fullmatch, os.listdir(target.parent))):
        with contextlib.suppress(OSError), open(leftover, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()


def _force_directory(directory: Path) -> None:
    """Make the new name itself durable, where the system can open directories."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
