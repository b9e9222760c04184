"""Workers' log files: show them as they grow, and quote their last lines.

When a rank is lost, JAX's coordinator ends the others with a C++ stack trace that says nothing of the cause, and gloo says at
every start that ranks are connected. The files keep both; what is shown has one line in place of the trace, unless the job is
verbose.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

_QUOTED_BYTES = 16384
QUOTED_LINES = 20
ENDED_BY_JAX = "sporax: JAX has ended this rank, since another one is lost"
# Patterns of XLA's log format: a letter for the severity, then date and time.
_TERMINATING = re.compile(r"F\d{4} .*\] Terminating process because the JAX distributed service detected fatal errors")
_COORDINATION = re.compile(r"[WEF]\d{4} [\d:.]+ +\d+ \w*(coordination|preemption)\w*\.(cc|h):\d+\] ")
_FURTHER_LINES = re.compile(
    r"Additional GRPC error information|RPC: /|:UNKNOWN:|\*\*\* Check failure stack trace|\s+@\s+0x[0-9a-f]+"
)


_CONNECTED = re.compile(r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\.")


class _WithoutTraces:
    """Takes lines, and gives them back without what JAX's coordination service says when a rank is lost: complaints of several
    lines, and a C++ stack trace, for which there is one line. That gloo has connected ranks is left out, too.
    """

    def __init__(self) -> None:
        self._has_complained = False

    def __call__(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            is_the_end = _TERMINATING.match(line) is not None
            if is_the_end:
                yield ENDED_BY_JAX
            # Only after such a complaint are the further lines a part of it.
            if is_the_end or _COORDINATION.match(line):
                self._has_complained = True
            elif not (_CONNECTED.match(line) or (self._has_complained and _FURTHER_LINES.match(line))):
                yield line


class LogTail:
    """Follows a growing file.

    Args:
        path: the file; it must exist.
        label: put before each line.
        start: what is in it before this byte is not shown.
        is_verbose: what JAX and gloo say is shown, too.
    """

    def __init__(self, path: str, label: str, start: int = 0, is_verbose: bool = False) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (closed by `close`)
        self._file.seek(start)
        self.label = label
        self._partial = b""
        self._filter: Callable[[Iterable[str]], Iterable[str]] = iter if is_verbose else _WithoutTraces()

    def new_lines(self) -> Iterator[str]:
        """The whole lines that were written since the last call."""
        # An unfinished line waits for its end.
        *lines, self._partial = (self._partial + self._file.read()).split(b"\n")
        return self._labelled(lines)

    def close(self) -> Iterator[str]:
        """The rest, with a last line that was not ended; afterwards the file is closed."""
        yield from self.new_lines()
        if self._partial:
            yield from self._labelled([self._partial])
        self._file.close()

    def _labelled(self, lines: list[bytes]) -> Iterator[str]:
        for line in self._filter(line.decode(errors="replace") for line in lines):
            yield f"{self.label}{line}"


def show(lines: Iterable[str]) -> None:
    """Show ranks' output; when no one reads it any more (``| head``), the job goes on and its logs have the rest."""
    try:
        for line in lines:
            print(line, flush=True)
    except BrokenPipeError:
        # Later writes, and Python's own flush at the end, must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def without_traces(text: str) -> list[str]:
    """The lines of a log without the C++ stack traces of ranks that JAX has ended."""
    return list(_WithoutTraces()(text.splitlines()))


def last_lines(path: str, count: int) -> list[str]:
    """The last lines of a file, at most `count`; none when the file is not there."""
    try:
        with open(path, "rb") as file:
            # The end of a large file is enough.
            file.seek(-min(_QUOTED_BYTES, os.path.getsize(path)), os.SEEK_END)
            return without_traces(file.read().decode(errors="replace"))[-count:]
    except OSError:
        return []


def write_problem(path: str) -> str | None:
    """Why nothing more can be written to a log that no process writes to any more (a full disk, say); None where it can."""
    try:
        with open(path, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.write(b"\n")  # only the attempt shows that a disk is full or a quota is used up
            file.truncate(size)
    except OSError as error:
        return error.strerror
    return None
