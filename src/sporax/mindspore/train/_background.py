"""Checkpoints written behind the back of training: one at a time, by a thread, from copies on the host."""

from __future__ import annotations

import threading
from collections.abc import Callable

THREAD_NAME = "asyn_save_ckpt"  # MindSpore's, which scripts look for


class BackgroundWriter:
    """Runs one piece of writing at a time in a thread; an error comes up at the next call."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin `write`, after the one before has ended.

        Raises:
            BaseException: what the one before raised.
        """
        # One at a time: two would compete for the disk and the host's memory.
        self.wait()

        def run() -> None:
            try:
                write()
            # Also KeyboardInterrupt and SystemExit: nothing may be lost in a thread.
            except BaseException as error:  # raised again by `wait`
                self._error = error

        # Not a daemon: the interpreter waits for the file to be whole before it ends.
        self._thread = threading.Thread(target=run, name=THREAD_NAME)
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is being written.

        Raises:
            BaseException: what the writing raised.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        # Raised once.
        error, self._error = self._error, None
        if error is not None:
            raise error

    def busy(self) -> bool:
        """Whether something is being written."""
        return self._thread is not None and self._thread.is_alive()


writer = BackgroundWriter()
"""The process's only one, so that two checkpoints never compete for the disk."""
