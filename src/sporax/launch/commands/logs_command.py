"""`sporax logs`: the logs of all machines of a job in one place, those of the rank that failed first.

A job on several machines leaves logs on each of them, or in one folder that all of them see. A place to look at is a folder of
this machine, or `HOST:FOLDER` as for `scp`; the second is read over `ssh`, so nothing of Sporax's listens for it. Launchers have
noted in their own logs which rank was the first to fail; most of them agree on it.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from sporax.base.errors import For, SporaxValueError
from sporax.launch.jobs.logs import show, without_traces

_MOST_BYTES = 4 << 20
"""Read of each log, from its end."""
_FETCH_SECONDS = 60.0
_LINES, _LINES_OF_THE_FIRST = 10, 40
_REMOTE = re.compile(r"(?P<host>\[[^\]/]+\]|[^:/\[\]]+):(?P<folder>.*)")
_NAME = re.compile(r"(?P<name>.+)_(?P<number>\d+)\.log")
_LAUNCHER = re.compile(r"scheduler\.log|launcher_.+\.log")
_ROLES = ("server", "scheduler")
"""Processes of jobs with parameter servers, by the names of their logs; all others are ranks."""
_SAYS = re.compile(r"(?P<time>\d\d:\d\d:\d\d) sporax run: (?P<text>.+)")
_BLAMED = re.compile(r"\b(?P<role>rank|worker|server|scheduler) (?P<number>\d+)\b")
_END_OF_A_START = "the launcher ends with exit code"
# Names, times of change and ends of all logs of a folder, a line for each; $1 is the folder and $2 a number of bytes.
_SCRIPT = (
    'cd -- "$1" || exit 1; for log in *.log; do [ -f "$log" ] || continue; '
    'printf "%s\\t%s\\t" "$log" "$(stat -c %Y -- "$log")"; tail -c "$2" -- "$log" | base64 -w 0; echo; done'
)


_ENTRY = re.compile(r"(?P<name>[^\t]+\.log)\t(?P<changed>\d+)\t(?P<content>[A-Za-z0-9+/=]*)")
"""A line that `_SCRIPT` prints."""


class Log(Struct, frozen=True):
    """The end of a log.

    Attributes:
        place: where it was found, as the user has written it.
        name: of the file.
        changed: when, in seconds since 1970 by the clock of its machine.
        text: the end of it, at most `_MOST_BYTES`.
    """

    place: str
    name: str
    changed: float
    text: str

    @property
    def is_launchers(self) -> bool:
        """Whether a launcher has written it."""
        return _LAUNCHER.fullmatch(self.name) is not None

    @property
    def process(self) -> tuple[str, int]:
        """Whose it is: "rank", "server" or "scheduler" with the number; -1 where the scheduler had not numbered it."""
        found = _NAME.fullmatch(self.name)
        if found is None:
            return "rank", -1
        return (found["name"] if found["name"] in _ROLES else "rank"), int(found["number"])

    @property
    def path(self) -> str:
        """Where it is."""
        return os.path.join(self.place, self.name)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "places",
        nargs="*",
        default=["."],
        metavar="FOLDER",
        help="folders with logs, on other machines HOST:FOLDER (default: the current one)",
    )
    parser.add_argument("--rank", default="", help="only these ranks, as 0,3")
    parser.add_argument(
        "--lines",
        type=int,
        default=None,
        help=f"the last lines of each log; 0 for all (default: {_LINES}; {_LINES_OF_THE_FIRST} of the rank that failed first)",
    )
    parser.add_argument("--rsh", default="ssh", help="command that runs another on a host, as rsync's (default: ssh)")


def run(arguments: argparse.Namespace) -> int:
    """Show the logs; 1 where a place could not be read.

    Raises:
        SporaxValueError: a wrong flag, or there is no log in any place.
    """
    ranks, rsh = _numbers(arguments.rank), _words(arguments.rsh)
    if arguments.lines is not None and arguments.lines < 0:
        raise SporaxValueError(f"For 'sporax logs', --lines must be at least 0, but got {arguments.lines}.")
    found: list[Log] = []
    problems = []
    for place in arguments.places:
        try:
            found += _read(place, rsh)
        except (OSError, subprocess.SubprocessError) as error:
            problems.append(f"'{place}' cannot be read: {_reason(error)}")
    for problem in problems:
        print(f"sporax logs: {problem}", file=sys.stderr)
    if not found:
        where = ", ".join(f"'{place}'" for place in arguments.places)
        raise SporaxValueError(f"For 'sporax logs', there must be logs of a job in {where}, but there is none.")
    show(_report(found, ranks, arguments.lines))
    return 1 if problems else 0


def _numbers(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise SporaxValueError(f"For 'sporax logs', --rank must be numbers with commas between them, but got '{text}'.")
    return tuple(map(int, words))


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    For("sporax logs").refuse(not words, f"--rsh must be a command, but got '{text}'")
    return words


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return str(error.stderr).strip().rpartition("\n")[2] or f"exit code {error.returncode}"
    if isinstance(error, OSError):
        return f"{error.strerror}: '{error.filename}'"
    return f"no answer in {_FETCH_SECONDS:.0f} s"


def _read(place: str, rsh: Sequence[str]) -> list[Log]:
    """The logs of a place.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be read.
    """
    remote = _REMOTE.fullmatch(place)
    if remote is None:
        paths = sorted(path for path in Path(place).iterdir() if path.suffix == ".log" and path.is_file())
        return [_local_log(place, path) for path in paths]
    host = remote["host"].strip("[]")
    For("sporax logs").refuse(host.startswith("-"), f"a host must not begin with a dash, but got '{host}'")
    # The host's own shell reads the command, whichever it is: so it is one word for `sh`.
    script = shlex.join(["sh", "-c", _SCRIPT, "sh", remote["folder"] or ".", str(_MOST_BYTES)])
    command = [*rsh, host, script]
    done = subprocess.run(command, capture_output=True, timeout=_FETCH_SECONDS, text=True)
    done.check_returncode()
    logs = []
    for line in done.stdout.splitlines():
        # Some shells greet whoever comes, on the same stream.
        if match := _ENTRY.fullmatch(line):
            text = base64.b64decode(match["content"]).decode(errors="replace")
            logs.append(Log(place, match["name"], float(match["changed"]), text))
    return logs


def _local_log(place: str, path: Path) -> Log:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        file.seek(max(status.st_size - _MOST_BYTES, 0))
        return Log(place, path.name, status.st_mtime, file.read(_MOST_BYTES).decode(errors="replace"))


def headline(text: str) -> tuple[str, str] | None:
    """When and what a launcher's log says first of the end of a job, of its last start that failed; None where all went well."""
    found: tuple[str, str] | None = None
    is_new = True
    for line in text.splitlines():
        match = _SAYS.fullmatch(line)
        if match and is_new:
            found, is_new = (match["time"], match["text"]), False
        elif _END_OF_A_START in line:
            # A start that ends well has nothing to say, and takes back what the one before had said.
            found, is_new = (None if is_new else found), True
    return found


def first_to_fail(headlines: Iterable[tuple[str, str]]) -> tuple[str, int] | None:
    """The process that most headlines name, of several the one that was named first; None where they name none."""
    named = []
    for _, text in sorted(headlines):
        if match := _BLAMED.search(text):
            role = "rank" if match["role"] == "worker" else match["role"]
            named.append((role, int(match["number"])))
    # `most_common` leaves equal counts in the order in which they came.
    return Counter(named).most_common(1)[0][0] if named else None


def _report(found: Sequence[Log], ranks: Sequence[int], count: int | None) -> Iterator[str]:
    """The lines to print: headlines, the logs of processes, what is left out."""
    headlines = {log: line for log in found if log.is_launchers and (line := headline(log.text)) is not None}
    for log, (when, text) in sorted(headlines.items(), key=lambda entry: entry[1]):
        yield f"{log.path}: {when} {text}"
    first = first_to_fail(headlines.values())
    numbered, unnumbered, older = _sorted(found)
    for log in [
        *sorted(numbered, key=lambda log: (log.process != first, log.process[0] != "rank", log.process)),
        *unnumbered,
    ]:
        if not ranks or (log.process[0] == "rank" and log.process[1] in ranks):
            yield from _end_of(log, log.process == first, count)
    for log in older:
        age = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(log.changed))
        yield f"\nleft out: {log.path}, of {age}; there is a newer one of {' '.join(map(str, log.process))}"


def _sorted(found: Sequence[Log]) -> tuple[list[Log], list[Log], list[Log]]:
    """Logs of processes: the newest of each, those without a number, and older ones, of a job whose ranks ran elsewhere."""
    own = sorted((log for log in found if not log.is_launchers), key=lambda log: log.changed)
    newest = {log.process: log for log in own if log.process[1] >= 0}
    unnumbered = [log for log in own if log.process[1] < 0]
    older = [log for log in own if log.process[1] >= 0 and newest[log.process] is not log]
    return list(newest.values()), unnumbered, older


def _end_of(log: Log, is_first: bool, count: int | None) -> Iterator[str]:
    """The last lines of a log under a heading."""
    lines = without_traces(log.text)
    most = (_LINES_OF_THE_FIRST if is_first else _LINES) if count is None else count
    lines = lines[-most:] if most else lines
    name = " ".join(map(str, log.process)) if log.process[1] >= 0 else "a rank without a number"
    yield f"\n== {name}{', the first to fail' if is_first else ''}: {log.path}, {len(lines)} lines =="
    yield from lines
