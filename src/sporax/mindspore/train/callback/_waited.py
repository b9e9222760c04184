"""`WaitedDSCallback`: events of a pipeline that wait for the training they feed."""

from __future__ import annotations

import threading
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._callbacks import DSCallback, DSRunContext
from sporax.mindspore.train.callback._callback import Callback, RunContext


class WaitedDSCallback(Callback, DSCallback):
    """Base class of callbacks that are given both to `Dataset.map` and to `Model.train`, without sink mode.

    From the second step (epoch) on, a row waits until the training has ended the step (epoch) before, so that what the
    pipeline does may follow from what the training has learned.

    Args:
        step_size: rows of a step: the batch size.

    Example:
        >>> class Policy(WaitedDSCallback):
        ...     def sync_epoch_begin(self, train_run_context, ds_run_context):
        ...         update(train_run_context.original_args().net_outputs)
        >>> policy = Policy()
        >>> model.train(3, dataset.map(augment, callbacks=policy).batch(8), callbacks=[policy])
    """

    def __init__(self, step_size: int = 1) -> None:
        DSCallback.__init__(self, step_size)
        self._step = _Turn("ds_step_begin")
        self._epoch = _Turn("ds_epoch_begin")

    def sync_epoch_begin(self, train_run_context: RunContext, ds_run_context: DSRunContext) -> None:
        """Called before an epoch of the pipeline, after the training ended the one before."""

    def sync_step_begin(self, train_run_context: RunContext, ds_run_context: DSRunContext) -> None:
        """Called before a step of the pipeline, after the training ended the one before."""

    def epoch_end(self, run_context: RunContext) -> None:
        """The training has ended an epoch; not to be overridden."""
        self._epoch.give(run_context)

    def step_end(self, run_context: RunContext) -> None:
        """The training has ended a step; not to be overridden."""
        self._step.give(run_context)

    def end(self, run_context: RunContext) -> None:
        """The training has ended; not to be overridden."""
        self.epoch_end(run_context)
        self.step_end(run_context)

    def ds_epoch_begin(self, ds_run_context: DSRunContext) -> None:
        """The pipeline begins an epoch; not to be overridden."""
        # The first epoch has no training before it that it could wait for.
        if ds_run_context.cur_epoch_num > 1 and self._receives("sync_epoch_begin") and self._epoch.take():
            self.sync_epoch_begin(self._epoch.context, ds_run_context)

    def ds_step_begin(self, ds_run_context: DSRunContext) -> None:
        """The pipeline begins a step; not to be overridden."""
        if ds_run_context.cur_step_num > self.step_size and self._receives("sync_step_begin") and self._step.take():
            self.sync_step_begin(self._step.context, ds_run_context)

    def overridden(self) -> bool:
        return self._receives("sync_epoch_begin") or self._receives("sync_step_begin")

    def prepare(self) -> None:
        """Forget earlier runs."""
        # An object may serve several runs, and a run that was broken off leaves its turns behind.
        self._step.reset()
        self._epoch.reset()

    def release(self) -> None:
        """Let waiting rows pass without events."""
        self._step.open()
        self._epoch.open()

    def _receives(self, event: str) -> bool:
        # A callback that overrides one event alone must not wait for the other.
        return getattr(type(self), event) is not getattr(WaitedDSCallback, event)


class _Turn:
    """Lets the pipeline pass once for each time that the training has ended something.

    Args:
        event: what waits, for the message.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self._answered = threading.Event()
        self._is_open = False
        self.context: Any = None

    # The context is set before the event, since a waiting row reads it as soon as it wakes.
    def give(self, context: RunContext) -> None:
        """Let the pipeline pass."""
        self.context = context
        self._answered.set()

    def take(self) -> bool:
        """Wait; False when no rows are wanted any more.

        Raises:
            SporaxRuntimeError: the training did not come for `config.get_callback_timeout()` seconds.
        """
        seconds = config.get_callback_timeout()
        # With a limit: a callback that is missing in `Model.train` would block the pipeline for ever.
        if not self._answered.wait(seconds):
            raise SporaxRuntimeError(
                f"For 'WaitedDSCallback', {self._event} timed out after {seconds} second(s); is the callback also among "
                "those of 'Model.train', and sink mode off?"
            )
        self._answered.clear()
        return not self._is_open

    def reset(self) -> None:
        """Begin again."""
        self._answered.clear()
        self._is_open = False

    def open(self) -> None:
        """Let everything pass from now on."""
        self._is_open = True
        self._answered.set()
