"""What `Model.train` reports of its progress to who asks the job: the Kubernetes operator."""

from __future__ import annotations

import time

from sporax.cluster.job_progress import is_asked_for, report_progress
from sporax.mindspore import context
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss

REPORT_SECONDS = 10.0
"""Between reports; each reads the loss, so it makes training wait for the device once."""


class JobProgress(Callback):
    """Reports step, epoch, loss and samples per second: after the first step, every `REPORT_SECONDS`, and at the end."""

    hears_evaluation_in_fit = False

    def on_train_begin(self, run_context: RunContext) -> None:
        """Only the time is noted."""
        self._since, self._num_samples, self._steps = time.perf_counter(), 0, 0
        self._due = 0.0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Report, if the last report is long ago."""
        facts = run_context.original_args()
        self._num_samples += facts.get("num_samples", 0)
        self._steps = facts.cur_step_num
        if time.perf_counter() >= self._due:
            self._report(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """The last report."""
        if self._steps:
            self._report(run_context)

    def _report(self, run_context: RunContext) -> None:
        facts = run_context.original_args()
        loss = scalar_loss(facts.get("net_outputs"))  # waits for the device, so it comes before the clock is read
        now = time.perf_counter()
        report_progress(
            self._steps,
            epoch=facts.cur_epoch_num,
            loss=loss if isinstance(loss, float) else None,
            samples_per_second=self._num_samples / (now - self._since) if self._num_samples else None,
        )
        self._since, self._num_samples, self._due = now, 0, now + REPORT_SECONDS


def job_progress() -> list[Callback]:
    """The callback, where someone asks for it."""
    return [JobProgress()] if rank() == 0 and not context.plans_only() and is_asked_for() else []
