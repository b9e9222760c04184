"""Directories that only this user can enter, for what the processes of a job on one machine share.

Problem: names in the shared temporary folder that others can predict can be taken by others first, and files of killed jobs stay.
Method: a launcher makes a directory with a random name and mode 700 for each job, notes its process in it, and removes it at the
end; the next launcher of the same user removes those whose process is gone. Processes that no launcher has started share a
directory below the user's own cache, not in the temporary folder.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sporax.base.errors import SporaxRuntimeError

DIRECTORY_VARIABLE = "SPORAX_JOB_DIRECTORY"
"""Path of the job's private directory, for the ranks that a launcher starts."""

_PREFIX = "sporax-job-"
_OWNER = "launcher"


def make_job_directory() -> Path:
    """A new private directory for a job of this process. Directories of this user's jobs whose launcher is gone are removed.

    Raises:
        SporaxRuntimeError: there is no place for it; names the folder and the reason.
    """
    folder = Path(tempfile.gettempdir())
    # Removed here, since a launcher that was killed could not do it.
    remove_stale(folder)
    try:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        claim(directory)
    except OSError as error:
        raise SporaxRuntimeError(
            f"For 'sporax run', a private directory must be made in the temporary folder '{folder}', but got: "
            f"{error.strerror}. Another folder can be named in TMPDIR."
        ) from error
    return directory


def claim(directory: Path) -> None:
    """Note this process as the one that a job's directory lives with."""
    # With its start time: numbers of processes are used again.
    (directory / _OWNER).write_text(f"{os.getpid()} {_start_of(os.getpid())}")


def remove(directory: Path) -> None:
    """Remove a job's directory with all that is in it."""
    shutil.rmtree(directory, ignore_errors=True)


def remove_stale(folder: Path) -> None:
    """Remove what killed launchers of this user have left in a folder."""
    for directory in job_directories(folder):
        with suppress(OSError, ValueError):
            process, _, started = (directory / _OWNER).read_text().partition(" ")
            if _start_of(int(process)) != started:  # gone, or another process has its number now
                remove(directory)


def job_directories(folder: Path | None = None) -> Iterator[Path]:
    """This user's directories of jobs, of those that run and of those that were killed."""
    for directory in (folder or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            # `lstat`: a link to somebody's directory is no directory of ours.
            facts = directory.lstat()
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid():
                yield directory


def shared_directory(environ: Mapping[str, str]) -> Path:
    """Where ranks of one machine share files: the launcher's directory for the job, else one of the user's own.

    Raises:
        SporaxRuntimeError: the directory belongs to another user or is open to others.
        OSError: it cannot be made.
    """
    named = environ.get(DIRECTORY_VARIABLE)
    directory = Path(named) if named else _own_directory(environ)
    if not named:
        # The launcher's directory exists; one that disappeared must not be made with other rights.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Checked after it is made, since it may have existed before.
    facts = directory.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise SporaxRuntimeError(
            f"For 'init', the directory '{directory}' must belong to this user alone (mode 700), but it is owned by user "
            f"{facts.st_uid} with mode {stat.S_IMODE(facts.st_mode):o}. Remove it, or correct its owner and mode."
        )
    return directory


def _own_directory(environ: Mapping[str, str]) -> Path:
    runtime = environ.get("XDG_RUNTIME_DIR")
    # The system empties this directory at logout.
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "sporax"
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sporax" / "jobs"


def _start_of(process: int) -> str:
    """When a process has started, which distinguishes it from a later one of the same number; "" for one that is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        # Without /proc processes cannot be distinguished by their start.
        return "" if os.path.exists("/proc/self") else _alive(process)
    # The 22nd field of the file: start time in clock ticks since boot.
    return "" if fields[0] in ("Z", "X") else fields[19]


def _alive(process: int) -> str:
    """On systems without /proc: whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        # It exists, and belongs to another user.
        return "alive"
    return "alive"
