"""Files that are there as a whole or not at all.

A checkpoint that was half written when the machine went down is worse than none: it has the name of a good one. So the
bytes go to a temporary name in the same directory, are forced to disk, and only then take the final name, which the file
system does in one step. A process that is killed leaves the old file as it was, and at most a ``.tmp`` next to it.
"""

from __future__ import annotations

import contextlib
import os
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
        OSError: the directory cannot be written to, or is full.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _force_directory(target.parent)


def _force_directory(directory: Path) -> None:
    """Make the new name itself durable, where the system can open directories."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
