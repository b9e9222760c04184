"""`Progress`: how far a run is, on one line that changes in a terminal, in plain lines elsewhere."""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

import jax

from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss

# Most processes show no progress, and importing rich would be a twentieth of what they import.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

# Ten times a second is enough for people.
_REFRESH_SECONDS = 0.1


class Progress(Callback):
    """Shows epoch, step, loss, time per step, samples per second and memory; on rank 0 only.

    Sporax's own. In a terminal it is a bar, else one line per epoch. Between refreshes it does not look at the loss, so
    it does not make training wait for the device.

    Args:
        console: where to show it; standard output by default.
    """

    hears_evaluation_in_fit = False

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _console(sys.stdout)
        self._bar: Bar | None = None
        self._speaks = True
        self._last_epoch = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        """Open the bar."""
        # Lines of several ranks would mix.
        self._speaks = rank() == 0
        self._last_epoch = 0  # known once the first epoch has a number
        if self._speaks and self._console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[status]}"))
            self._bar = Bar(*columns, TimeRemainingColumn(), console=self._console, transient=False)
            self._bar.start()

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """Begin a new bar."""
        facts = run_context.original_args()
        self._started = self._reported = time.perf_counter()
        self._first_step = facts.cur_step_num
        # Samples of this epoch, for the rate.
        self._num_samples = 0
        if self._bar is not None:
            self._last_epoch = self._last_epoch or facts.cur_epoch_num + facts.epoch_num - 1
            title = f"epoch {facts.cur_epoch_num}/{self._last_epoch}"
            self._task = self._bar.add_task(title, total=facts.batch_num, status="")

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Move the bar on."""
        facts = run_context.original_args()
        self._num_samples += facts.get("num_samples", 0)
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
        seconds = time.perf_counter() - self._started
        num_steps = facts.cur_step_num - self._first_step
        parts = [f"loss {loss:.4g}" if isinstance(loss, float) else ""]
        if num_steps:
            parts += [f"{seconds * 1e3 / num_steps:.2f} ms/step", f"{self._num_samples / seconds:.0f} samples/s"]
        parts.append(f"{memory_bytes() / 2**20:.0f} MiB")
        return ", ".join(filter(None, parts))

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def on_terminal(file: TextIO) -> Progress:
    """A bar on a stream that is a terminal."""
    return Progress(_console(file))


def _console(file: TextIO) -> Console:
    from rich.console import Console

    return Console(file=file)


def memory_bytes() -> int:
    """Most memory that was in use: of the first device where it can tell, else of this process."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    # The system counts in KiB, on macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
