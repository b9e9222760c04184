"""What is said when a disk does not take what it must: the path, what is needed and what is free."""

from __future__ import annotations

import os
from pathlib import Path

from sporax.base.errors import SporaxRuntimeError

_UNKNOWN_BYTES = 1 << 62  # as if there were no limit


class StorageError(SporaxRuntimeError):
    """A file that a job cannot do without cannot be written."""


def free_bytes(directory: Path) -> int:
    """Bytes that this user may still write below a directory."""
    facts = os.statvfs(directory)
    # Some network file systems do not tell their size.
    return facts.f_bavail * facts.f_frsize if facts.f_blocks else _UNKNOWN_BYTES


def storage_error(what: str, path: Path, num_bytes: int, error: OSError | None = None) -> StorageError:
    """The error for a file that cannot be written.

    Args:
        what: it is, e.g. ``the log``.
        path: of the file.
        num_bytes: that it needs.
        error: what the operating system said, None if it was not asked because there is too little room.
    """
    try:
        free = str(free_bytes(path.parent))
    except OSError:  # the directory itself is gone
        free = "?"
    reason = "there is too little room" if error is None else f"got: {error.strerror or error}"
    return StorageError(
        f"For 'sporax.ps', {what} '{path}' must be written, but {reason}. It needs {num_bytes} bytes there, and {free} are free. "
        "Make room, or let MS_RECOVERY_PATH name a folder on another disk (without it `sporax run` takes TMPDIR)."
    )
