"""A process that ends with the process that started it, together with all that it has started.

It leads a session of its own, so that the terminal's Ctrl-C does not reach it and a signal can be sent to its whole group. It
inherits the reading end of a pipe whose writing end only the starter has: however the starter ends, the kernel closes that end,
and that ends the group (`sporax.launch.jobs.rank`).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO


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
