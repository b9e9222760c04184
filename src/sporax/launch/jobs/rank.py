"""The first thing a rank runs: tie its life to the launcher's, take its cores, then become the user's program.

Started as `python -m sporax.launch.jobs.rank <fd> <cores> <kind> <name> [arguments]`; `rank_command` writes that command
line and `main` reads it.

**No orphans.** Each rank holds the reading end of a pipe whose writing end only the launcher has. However the launcher
ends, even by `kill -9`, the kernel closes that end. On Linux the pipe is set to answer with SIGKILL to the rank's
whole process group: it needs no thread, works while the rank is deep in C code or has become another executable, and
takes the rank's children along (the parent-death signal of `prctl` would leave those behind). Elsewhere a thread waits
on the pipe and kills the group.

A process that ends with the process that started it, together with all that it has started.

It leads a session of its own, so that the terminal's Ctrl-C does not reach it and a signal can be sent to its whole group. It
inherits the reading end of a pipe whose writing end only the starter has: however the starter ends, the kernel closes that end,
and that ends the group (`sporax.launch.jobs.rank`).
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from sporax.base.errors import SporaxError
from sporax.launch.target import Target, TargetKind, execute

_UNBOUND = "-"
_CANNOT_RUN = 126  # the shell's code for a command that was found and could not be run


def rank_command(target: Target, watched: int, cores: tuple[int, ...] | None) -> list[str]:
    """The command line of a rank.

    Args:
        target: the user's program.
        watched: descriptor of the pipe that ends with the launcher; the rank must inherit it.
        cores: ids of the cores it may use; None leaves it unbound.
    """
    bound = ",".join(map(str, cores)) if cores else _UNBOUND
    wrapper = [sys.executable, "-m", __name__, str(watched), bound]
    return [*wrapper, target.kind.value, target.name, *target.arguments]


def main() -> int:
    """Read the command line that `rank_command` wrote and run the program; returns its exit code."""
    watched, bound, kind, name, *arguments = sys.argv[1:]
    target = Target(TargetKind(kind), name, tuple(arguments))
    end_with_launcher(int(watched), inherit=target.kind is TargetKind.EXECUTABLE)
    if bound != _UNBOUND:
        os.sched_setaffinity(0, {int(core) for core in bound.split(",")})
    try:
        # Only after binding: XLA counts the cores of its process when it starts.
        return execute(target)
    except (SporaxError, OSError) as problem:  # the program could not be started; its own errors do not come here
        print(f"sporax run: {problem}", file=sys.stderr)
        return _CANNOT_RUN


def end_with_launcher(watched: int, *, inherit: bool) -> None:
    """Make this process's group end when the pipe `watched` loses its writer.

    Args:
        watched: descriptor of the reading end.
        inherit: keep it through `exec`.
    """
    os.set_inheritable(watched, inherit)
    if hasattr(fcntl, "F_SETSIG"):
        # A negative owner is a process group.
        fcntl.fcntl(watched, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(watched, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | os.O_ASYNC)
    else:
        threading.Thread(target=_kill_group_at_end, args=(watched,), daemon=True).start()
    # The launcher was gone before the pipe was being watched: no one ever writes to it.
    gone, _, _ = select.select([watched], [], [], 0)
    if gone:
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _kill_group_at_end(watched: int) -> None:
    """Wait until the launcher is gone, then kill this process group."""
    os.read(watched, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())


class BoundProcess(subprocess.Popen[bytes]):
    """Starts at once; without input, with its output and errors in one place.

    Args:
        command: (descriptor of the pipe) -> command line.
        environ: all environment variables.
        output: a file, or `subprocess.DEVNULL`.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, command: Callable[[int], Sequence[str]], environ: Mapping[str, str], output: int | IO[bytes]
    ) -> None:
        watched, self._held = os.pipe()
        try:
            super().__init__(
                command(watched),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[watched],
            )
        except BaseException:
            self.release()
            raise
        finally:
            # The process has its own copy of the reading end.
            os.close(watched)

    def signal_group(self, signum: int) -> None:
        """Send a signal to the process and those that it has started."""
        # A group may be gone already, or belong to another user.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)
            # A stopped process heeds a signal when it goes on.
            if signum != signal.SIGKILL:
                os.killpg(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill the group, if the process still runs, and release the pipe."""
        if self.poll() is None:
            self.signal_group(signal.SIGKILL)
            self.wait()
        self.release()

    def release(self) -> None:
        """Close the pipe, which has done its work once the process has ended."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
