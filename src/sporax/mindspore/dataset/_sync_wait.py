"""`sync_wait` and `sync_update`: rows that wait until the program that reads the pipeline has released them.

A pipeline reads ahead of its user. Where a function of it needs something that the user learns from earlier batches (a loss,
say), a gate in front of it lets only as many rows pass as were released: `num_batch` batches at the beginning of each epoch,
and as many again with every `sync_update`, after its callback was called.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._rows import Row


class Gate:
    """Lets released rows pass.

    Args:
        name: name of the condition.
        num_batch: batches that pass without a release.
        callback: called with the data of each release.
    """

    def __init__(self, name: str, num_batch: int, callback: Callable[[Any], Any] | None) -> None:
        self.name = name
        self.num_batch = num_batch
        self.callback = callback
        self._condition = threading.Condition()
        self._free = 0
        # Number of the reading; rows of an earlier one compare it and end.
        self._reading = 0
        self._is_open = True  # until an iterator begins

    def __reduce__(self) -> tuple[Any, ...]:
        return Gate, (self.name, self.num_batch, self.callback)

    def start_epoch(self, batch_size: int, *, is_first: bool) -> None:
        """Let `num_batch` batches pass; the first epoch of an iterator forgets what was released before.

        Args:
            batch_size: rows of a batch.
            is_first: whether an iterator begins; rows of earlier ones do not wait any more, and end.
        """
        with self._condition:
            # Rows that an earlier iterator was given do not count for this one.
            if is_first:
                self._free = 0
                self._reading += 1
            # From the first row on rows must wait.
            self._is_open = False
            self._free += self.num_batch * batch_size
            self._condition.notify_all()

    def release(self, rows: int, data: Any) -> None:
        """Call the callback and let `rows` more rows pass."""
        with self._condition:
            if self.callback is not None:
                self.callback(data)
            self._free += rows
            self._condition.notify_all()

    def open(self) -> None:
        """Let all rows pass: no row waits for the condition any more."""
        with self._condition:
            self._is_open = True
            self._condition.notify_all()

    def passing(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows, each when it was released. After `config.get_callback_timeout()` without release all pass, with a warning."""
        reading = self._reading
        for row in rows:
            with self._condition:
                # Never without a limit: a script that forgets `sync_update` would hang for ever.
                if not self._condition.wait_for(lambda: self._may_pass(reading), config.get_callback_timeout()):
                    warnings.warn(
                        f"For 'sync_wait', no 'sync_update' of the condition {self.name!r} came for "
                        f"{config.get_callback_timeout()} seconds; rows do not wait any more."
                    )
                    # Once given up, later rows do not wait for the limit again.
                    self._is_open = True
                if reading != self._reading:
                    return
                # May become negative while the gate is open; the next epoch adds to it.
                self._free -= 1
            yield row

    def _may_pass(self, reading: int) -> bool:
        return self._free > 0 or self._is_open or reading != self._reading
