"""What `Model.train` reports of its progress where no callback does: a bar on terminals, a line now and then in logs.

It goes to the standard error, so that output of scripts stays theirs, and rank 0 alone speaks. Runs of a few seconds print
nothing into logs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TextIO

from sporax.base.progress import DELAY_SECONDS
from sporax.mindspore import context
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss
from sporax.mindspore.train.callback._figures import FigureCount, memory_bytes
from sporax.mindspore.train.callback._monitors import LossMonitor, TimeMonitor
from sporax.mindspore.train.callback._progress import Progress, compiling, on_terminal, rates

LINE_SECONDS = 10.0
"""Between lines in logs."""
FIGURE_SECONDS = 10.0
"""The same, of what monitors leave out."""


class ProgressLines(Progress):
    """A line with epoch, step, loss, time per step and samples per second, every `LINE_SECONDS` and at the end.

    Args:
        file: where to print it.
    """

    _tells_of_compiling = True

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._bar = None
        self._count = FigureCount()

    def on_train_begin(self, run_context: RunContext) -> None:
        """Only the time is noted: there is no bar."""
        self._speaks = rank() == 0
        self._begun = self._told = time.perf_counter()
        self._line = 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Print a line, if the last one is long ago."""
        super().on_train_step_end(run_context)
        if time.perf_counter() - self._told >= LINE_SECONDS:
            self._tell(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Nothing more: the last step has told of the epoch."""

    def on_train_end(self, run_context: RunContext) -> None:
        """Print the last line, unless the run was short."""
        is_told = self._line == run_context.original_args().cur_step_num
        if time.perf_counter() - self._begun >= DELAY_SECONDS and not is_told:
            self._tell(run_context)

    def _tell(self, run_context: RunContext) -> None:
        if not self._speaks:
            return
        self._told = time.perf_counter()
        facts = run_context.original_args()
        self._line = facts.cur_step_num
        where = (
            f"epoch {facts.cur_epoch_num}/{self._last_epoch}, step {self._line - self._first_step}/{facts.batch_num}"
        )
        print(f"sporax: {where}: {self._status(facts)}", file=self._file, flush=True)


class MonitorFigures(Callback):
    """A line with what `LossMonitor` and `TimeMonitor` leave out:
    after an epoch, at most every `FIGURE_SECONDS`.

    Lines of monitors are as MindSpore's, which scripts read, so this one goes elsewhere.

    Args:
        file: where to print it.
    """

    hears_evaluation_in_fit = False

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._count = FigureCount()

    def on_train_begin(self, run_context: RunContext) -> None:
        """Begin to count."""
        self._speaks, self._told = rank() == 0, time.perf_counter()
        self._count.begin(run_context.original_args())

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Count."""
        self._count.add(run_context.original_args())

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Print a line, if the last one is long ago, and begin to count again."""
        now = time.perf_counter()
        if self._speaks and now - self._told >= FIGURE_SECONDS:
            self._told = now
            facts = run_context.original_args()
            # Waits for the device, so it comes before the time is read.
            scalar_loss(facts.get("net_outputs"))
            figures = self._count.figures(facts)
            words = [*rates(figures), *compiling(figures), f"{memory_bytes() / 2**20:.0f} MiB"]
            print(f"sporax: epoch {facts.cur_epoch_num}: {', '.join(words)}", file=self._file, flush=True)
            self._count.begin(facts)


def default_progress(callbacks: Iterable[Callback]) -> list[Callback]:
    """What reports the progress of a run with such callbacks: nothing where one of them does, or where nothing is trained."""
    callbacks = list(callbacks)
    if context.plans_only() or any(isinstance(each, Progress) for each in callbacks):
        return []
    if any(isinstance(each, LossMonitor | TimeMonitor) for each in callbacks):
        return [MonitorFigures(sys.stderr)]
    return [on_terminal(sys.stderr) if sys.stderr.isatty() else ProgressLines(sys.stderr)]
