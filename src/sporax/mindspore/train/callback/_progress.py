"""`Progress`: how far a run is, on one line that changes in a terminal, in plain lines elsewhere.

What `Model.train` reports of its progress where no callback does: a bar on terminals, a line now and then in logs.

It goes to the standard error, so that output of scripts stays theirs, and rank 0 alone speaks. Runs of a few seconds print
nothing into logs.

What `Model.train` reports of its progress on request: the Kubernetes operator.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from sporax.base import progress
from sporax.cluster import job_progress as progress_of_job
from sporax.mindspore import context
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss
from sporax.mindspore.train.callback._monitors import FigureCount, Figures, LossMonitor, TimeMonitor, memory_bytes

# Most processes show no progress, and importing rich would be a twentieth of what they import.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

# Ten times a second is enough for people.
_REFRESH_SECONDS = 0.1
_WORTH_SECONDS = 0.05  # of compiling
# Columns of epoch, bar, steps and time left.
_BESIDE_STATUS = 56


class Progress(Callback):
    """Shows epoch, step, loss, time per step, samples and tokens per second, model FLOPs utilization and memory; on rank 0 only.

    Sporax's own. In a terminal it is a bar, else one line per epoch. Between refreshes it does not look at the loss, so
    it does not make training wait for the device.

    Args:
        console: where to show it; standard output by default.
    """

    receives_evaluation_in_fit = False
    _reports_compiling = False

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _console(sys.stdout)
        self._bar: Bar | None = None
        self._speaks = True
        self._last_epoch = 0
        self._count = FigureCount()

    def on_train_begin(self, run_context: RunContext) -> None:
        """Open the bar."""
        # Lines of several ranks would mix.
        self._speaks = rank() == 0
        if self._speaks and self._console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn, TimeRemainingColumn
            from rich.table import Column

            # On narrow terminals the end of the status is left out.
            room = Column(no_wrap=True, overflow="ellipsis", max_width=max(self._console.width - _BESIDE_STATUS, 8))
            self._bar = Bar(
                "{task.description}",
                BarColumn(bar_width=16),
                MofNCompleteColumn(table_column=Column(no_wrap=True)),
                TimeRemainingColumn(table_column=Column(no_wrap=True)),
                TextColumn("{task.fields[status]}", table_column=room),
                console=self._console,
            )
            self._bar.start()

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """Begin a new bar."""
        facts = run_context.original_args()
        self._reported = time.perf_counter()
        self._first_step = facts.cur_step_num
        self._count.begin(facts)
        # Epochs before those of a run that is resumed are among `epoch_num`.
        self._last_epoch = facts.cur_epoch_num + facts.epoch_num - 1 - facts.cur_step_num // facts.batch_num
        if self._bar is not None:
            title = f"epoch {facts.cur_epoch_num}/{self._last_epoch}"
            self._task = self._bar.add_task(title, total=facts.batch_num, status="")

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Move the bar on."""
        facts = run_context.original_args()
        self._count.add(facts)
        now = time.perf_counter()
        # Reading the loss would make training wait for the device.
        if self._bar is not None and now - self._reported > _REFRESH_SECONDS:
            self._reported = now
            self._bar.update(self._task, completed=facts.cur_step_num - self._first_step, status=self._status(facts))

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Show how the epoch went."""
        facts = run_context.original_args()
        status = self._status(facts)
        for name, value in (facts.get("eval_results") or {}).items():
            status += f", {name} {value:.4g}" if isinstance(value, float) else f", {name} {value}"
        if self._bar is not None:
            self._bar.update(self._task, completed=facts.cur_step_num - self._first_step, status=status)
        elif self._speaks:
            print(f"epoch {facts.cur_epoch_num}: {status}", file=self._console.file, flush=True)

    def _status(self, facts: Any) -> str:
        loss = scalar_loss(facts.get("net_outputs"))  # waits for the device, so it comes before the clock is read
        figures = self._count.figures(facts)
        parts = [f"loss {loss:.4g}" if isinstance(loss, float) else "", *rates(figures)]
        if self._reports_compiling or self._bar is not None:
            parts += compiling(figures)
        parts.append(f"{memory_bytes() / 2**20:.0f} MiB")
        return ", ".join(filter(None, parts))

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def rates(figures: Figures) -> list[str]:
    """Words for how fast steps are, without the time of compiling."""
    if not figures.steps:
        return []
    seconds = figures.running_seconds
    milliseconds = seconds * 1e3 / figures.steps
    return [f"{milliseconds:.2f} ms/step", f"{figures.samples / seconds:.0f} samples/s", *figures.rates()]


def compiling(figures: Figures) -> list[str]:
    """Words for the time of compiling; what took no time is not worth any."""
    return [f"compiled in {figures.compile_seconds:.1f} s"] if figures.compile_seconds >= _WORTH_SECONDS else []


def on_terminal(file: TextIO) -> Progress:
    """A bar on a stream that is a terminal."""
    return Progress(_console(file))


def _console(file: TextIO) -> Console:
    from rich.console import Console

    return Console(file=file)


LINE_SECONDS = 10.0
"""Between lines in logs."""
FIGURE_SECONDS = 10.0
"""The same, of what monitors leave out."""


class ProgressLines(Progress):
    """A line with epoch, step, loss, time per step and samples per second, every `LINE_SECONDS` and at the end.

    Args:
        file: where to print it.
    """

    _reports_compiling = True

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._bar = None
        self._count = FigureCount()

    def on_train_begin(self, run_context: RunContext) -> None:
        """Only the time is noted: there is no bar."""
        self._speaks = rank() == 0
        self._begun = self._last = time.perf_counter()
        self._line = 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Print a line, if the last one is long ago."""
        super().on_train_step_end(run_context)
        if time.perf_counter() - self._last >= LINE_SECONDS:
            self._report_times(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Nothing more: the last step has reported the epoch."""

    def on_train_end(self, run_context: RunContext) -> None:
        """Print the last line, unless the run was short."""
        is_printed = self._line == run_context.original_args().cur_step_num
        if time.perf_counter() - self._begun >= progress.DELAY_SECONDS and not is_printed:
            self._report_times(run_context)

    def _report_times(self, run_context: RunContext) -> None:
        if not self._speaks:
            return
        self._last = time.perf_counter()
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

    receives_evaluation_in_fit = False

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._count = FigureCount()

    def on_train_begin(self, run_context: RunContext) -> None:
        """Begin to count."""
        self._speaks, self._last = rank() == 0, time.perf_counter()
        self._count.begin(run_context.original_args())

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Count."""
        self._count.add(run_context.original_args())

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Print a line, if the last one is long ago, and begin to count again."""
        now = time.perf_counter()
        if self._speaks and now - self._last >= FIGURE_SECONDS:
            self._last = now
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


REPORT_SECONDS = 10.0
"""Between reports; each reads the loss, so it makes training wait for the device once."""


class JobProgress(Callback):
    """Reports step, epoch, loss and samples per second: after the first step, every `REPORT_SECONDS`, and at the end."""

    receives_evaluation_in_fit = False

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
        progress_of_job.report_progress(
            self._steps,
            epoch=facts.cur_epoch_num,
            loss=loss if isinstance(loss, float) else None,
            samples_per_second=self._num_samples / (now - self._since) if self._num_samples else None,
        )
        self._since, self._num_samples, self._due = now, 0, now + REPORT_SECONDS


def job_progress() -> list[Callback]:
    """The callback, where it is requested."""
    return [JobProgress()] if rank() == 0 and not context.plans_only() and progress_of_job.is_requested() else []
