"""Where a pipeline meets the program that reads it: functions that run when rows reach a `map`, and rows that wait.

A pipeline reads ahead of its user, so the user cannot know when a row is worked on. A `map` with callbacks is a flow of one
thread; what an epoch of the iterator is, the iterator's reader says. `WaitedDSCallback`, which also sees the training, is in
`sporax.mindspore.train.callback`.

Where a function needs something that the user learns from earlier batches (a loss, say), a gate in front of it lets only as many
rows pass as were released: `num_batch` batches at the beginning of each epoch (`sync_wait`), and as many again with every
`sync_update`, after its callback was called.
"""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sporax.base.errors import SporaxAttributeError, SporaxError, SporaxRuntimeError
from sporax.mindspore._names.missing import homes, missing_names
from sporax.mindspore.dataset import _checks as check, config
from sporax.mindspore.dataset._checks import INT32_MAX
from sporax.mindspore.dataset._rows import Row

__all__ = ["DSCallback"]
# Loaded late: this module must not load `train`, a layer above.
if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__, homes("sporax.mindspore.train.callback._waited", "WaitedDSCallback"))


@dataclasses.dataclass(frozen=True, slots=True)
class DSRunContext:
    """Where the pipeline is.

    Attributes:
        cur_epoch_num: epoch of the iterator, from 1; 0 before the first.
        cur_step_num_in_epoch: rows that reached the `map` in this epoch, this one included.
        cur_step_num: the same since the iterator was made.
    """

    cur_epoch_num: int
    cur_step_num_in_epoch: int
    cur_step_num: int


class DSCallback:
    """Base class of callbacks of `Dataset.map`: override the events of interest; each gets a `DSRunContext`.

    Args:
        step_size: the events of steps come for row 1 of an epoch and every `step_size` rows after it.

    Raises:
        SporaxTypeError, SporaxValueError: `step_size` is no positive int.

    Example:
        >>> class PrintEpoch(DSCallback):
        ...     def ds_epoch_begin(self, ds_run_context):
        ...         print(ds_run_context.cur_epoch_num)
        >>> dataset = dataset.map(flip, callbacks=PrintEpoch())
    """

    def __init__(self, step_size: int = 1) -> None:
        self.step_size = check.integer(type(self).__name__, "step_size", step_size, 1, INT32_MAX)

    def ds_begin(self, ds_run_context: DSRunContext) -> None:
        """Called before the first row of an iterator."""

    def ds_epoch_begin(self, ds_run_context: DSRunContext) -> None:
        """Called before the first row of an epoch."""

    def ds_epoch_end(self, ds_run_context: DSRunContext) -> None:
        """Called after the last row of an epoch."""

    def ds_step_begin(self, ds_run_context: DSRunContext) -> None:
        """Called before the operations of the `map` see a row."""

    def ds_step_end(self, ds_run_context: DSRunContext) -> None:
        """Called after them."""

    def overridden(self) -> bool:
        """Whether any event is of interest."""
        events = ("ds_begin", "ds_epoch_begin", "ds_epoch_end", "ds_step_begin", "ds_step_end")
        # Compared on the class: instances have bound methods, which are never identical.
        return any(getattr(type(self), event) is not getattr(DSCallback, event) for event in events)

    def prepare(self) -> None:
        """Called when an iterator begins, in its user's thread."""

    def release(self) -> None:
        """Called when no more rows are wanted: nothing may wait from here on."""


def check_callbacks(where: str, callbacks: object) -> tuple[DSCallback, ...]:
    """A callback, or a list of them, or None.

    Raises:
        SporaxTypeError: something else.
        SporaxAttributeError: a callback that overrides nothing.
    """
    items: list[Any] = (
        # Other iterables are not accepted: MindSpore takes a list or one callback.
        list(callbacks) if isinstance(callbacks, (list, tuple)) else [] if callbacks is None else [callbacks]
    )
    if items:
        check.independent(where, "Dataset Callbacks")
    for i, item in enumerate(items):
        check.instance(where, "callbacks" if item is callbacks else f"callbacks[{i}]", item, DSCallback)
        if not item.overridden():
            raise SporaxAttributeError(
                f"For '{where}', Inheriting Callback class without overriding any methods, check {type(item).__name__}."
            )
    return tuple(items)


class Events:
    """Counts the rows of a `map` and calls its callbacks.

    Args:
        callbacks: those of the `map`.
    """

    def __init__(self, callbacks: Sequence[DSCallback]) -> None:
        # What iterators set below is read by the thread that works on rows; one thread per `map`, so no lock.
        self._callbacks = tuple(callbacks)
        # No events for readings that only need shapes or sizes.
        self._is_read = False
        self._epoch = self._total = self._rows = 0
        self._begins_epoch = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes get fresh counters; events are called in the user's process only.
        return Events, (self._callbacks,)

    def start_epoch(self, *, is_first: bool) -> None:
        """An iterator begins an epoch; its first."""
        if is_first:
            self._epoch = self._total = 0
            for callback in self._callbacks:
                callback.prepare()
        self._epoch += 1
        self._rows = 0
        self._is_read = self._begins_epoch = True

    def end_epoch(self) -> None:
        """The iterator got the last row of an epoch."""
        # Only once per epoch, however often the reader calls at its end.
        if self._is_read:
            self._call("ds_epoch_end", self._rows)
        self._is_read = False

    def stop(self) -> None:
        """The iterator wants no more rows."""
        self._is_read = False
        # A callback may wait for training that will not come any more.
        for callback in self._callbacks:
            callback.release()

    def around(self, rows: Iterator[Row], apply: Callable[[Iterator[Row]], Iterator[Row]]) -> Iterator[Row]:
        """``apply(rows)``, with the events of each row before and after; none where no iterator reads (shapes, sizes)."""
        if not self._is_read:
            yield from apply(rows)
            return
        if self._begins_epoch:
            # Not in `start_epoch`: MindSpore's events come with the first row, in the thread that reads.
            self._begins_epoch = False
            if self._epoch == 1:
                # MindSpore shows epoch 0 before the first epoch.
                self._call("ds_begin", 0, epoch=0)
            self._call("ds_epoch_begin", 0)

        def announced() -> Iterator[Row]:
            for row in rows:
                # The reader has left; rows that were read ahead must not call events.
                if not self._is_read:
                    return
                self._rows += 1
                self._total += 1
                self._call_step("ds_step_begin")
                yield row

        for row in apply(announced()):
            self._call_step("ds_step_end")
            yield row

    def _call_step(self, event: str) -> None:
        self._call(event, self._rows, lambda callback: (self._rows - 1) % callback.step_size == 0)

    def _call(
        self, event: str, rows: int, of_interest: Callable[[DSCallback], bool] | None = None, epoch: int | None = None
    ) -> None:
        context = DSRunContext(self._epoch if epoch is None else epoch, rows, self._total)
        for callback in self._callbacks:
            if of_interest is not None and not of_interest(callback):
                continue
            try:
                getattr(callback, event)(context)
            except SporaxError:
                raise
            except Exception as error:
                raise SporaxRuntimeError(
                    f"For 'map', {event!r} of the callback {type(callback).__name__!r} failed with "
                    f"{type(error).__name__}: {error}"
                ) from error


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
