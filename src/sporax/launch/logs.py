"""Workers' log files: show them as they grow, and quote their last lines."""

from __future__ import annotations

import os
from collections.abc import Iterator

_QUOTED_BYTES = 16384


class LogTail:
    """Follows a growing file.

    Args:
        path: the file; it must exist.
        label: put before each line.
        start: what is in it before this byte is not shown.
    """

    def __init__(self, path: str, label: str, start: int = 0) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (closed by `close`)
        self._file.seek(start)
        self._label = label
        self._partial = b""

    def new_lines(self) -> Iterator[str]:
        """The whole lines that were written since the last call."""
        *lines, self._partial = (self._partial + self._file.read()).split(b"\n")
        for line in lines:
            yield self._labelled(line)

    def close(self) -> Iterator[str]:
        """The rest, with a last line that was not ended; afterwards the file is closed."""
        yield from self.new_lines()
        if self._partial:
            yield self._labelled(self._partial)
        self._file.close()

    def _labelled(self, line: bytes) -> str:
        return f"{self._label}{line.decode(errors='replace')}"


def last_lines(path: str, count: int) -> list[str]:
    """The last lines of a file, at most `count`; none when the file is not there."""
    try:
        with open(path, "rb") as file:
            file.seek(-min(_QUOTED_BYTES, os.path.getsize(path)), os.SEEK_END)
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def write_problem(path: str) -> str | None:
    """Why nothing more can be written to a log (a full disk, say); None where it can. Costs the log an empty line."""
    try:
        with open(path, "ab", buffering=0) as file:
            file.write(b"\n")
    except OSError as error:
        return error.strerror
    return None
