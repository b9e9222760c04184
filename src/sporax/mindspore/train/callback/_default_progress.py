"""What `Model.train` reports of its progress where no callback does: a bar on terminals, a line now and then in logs.

It goes to the standard error, so that output of scripts stays theirs, and rank 0 alone speaks. Runs of a few seconds print
nothing into logs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TextIO

from sporax.mindspore import context
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext
from sporax.mindspore.train.callback._monitors import LossMonitor, TimeMonitor
from sporax.mindspore.train.callback._progress import Progress, on_terminal

LINE_SECONDS = 10.0
"""Between lines in logs."""


class ProgressLines(Progress):
    """A line with epoch, step, loss, time per step and samples per second, every `LINE_SECONDS`.

    Args:
        file: where to print it.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._bar = None

    def on_train_begin(self, run_context: RunContext) -> None:
        """Only the time is noted: there is no bar."""
        self._speaks = rank() == 0
        self._told = time.perf_counter()
        self._last_epoch = 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Print a line, if the last one is long ago."""
        super().on_train_step_end(run_context)
        self._tell(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Nothing more: the last step has told of the epoch."""

    def _tell(self, run_context: RunContext) -> None:
        now = time.perf_counter()
        if not self._speaks or now - self._told < LINE_SECONDS:
            return
        self._told = now
        facts = run_context.original_args()
        self._last_epoch = self._last_epoch or facts.cur_epoch_num + facts.epoch_num - 1
        done = facts.cur_step_num - self._first_step
        where = f"epoch {facts.cur_epoch_num}/{self._last_epoch}, step {done}/{facts.batch_num}"
        print(f"sporax: {where}: {self._status(facts)}", file=self._file, flush=True)


def default_progress(callbacks: Iterable[Callback]) -> list[Callback]:
    """What reports the progress of a run with such callbacks: nothing where one of them does, or where nothing is trained."""
    if context.plans_only() or any(isinstance(each, LossMonitor | TimeMonitor | Progress) for each in callbacks):
        return []
    return [on_terminal(sys.stderr) if sys.stderr.isatty() else ProgressLines(sys.stderr)]
