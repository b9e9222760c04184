"""Callbacks that report how training goes: the loss, the time, and a record of both.

Rank 0 prints: lines of many ranks, which say the same of each step, are hard to read. MindSpore prints on every rank.

How fast a run is: samples and tokens per second, model FLOPs utilization, time of compiling, memory.

One count for all who report it: the default progress, `Progress`, `TimeMonitor`, and trackers. Tokens are known where the first
column of a batch is a matrix of whole numbers (ids of tokens). The utilization needs the FLOPs of a step, which a plan knows, and
the rates of the devices, which its hardware profile knows; it is left out where one of them is unknown.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from dataclasses import replace
from typing import Any

import jax

from sporax.base.errors import For, named
from sporax.base.lazy_members import dataclass
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss
from sporax.runtime.session import SESSION


def memory_bytes() -> int:
    """Most memory that was in use: of the first device where it can be read, else of this process."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    # The system counts in KiB, on macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of some steps.

    Attributes:
        steps: how many.
        seconds: they took, with what was compiled in between.
        compile_seconds: of them for tracing, planning and compiling.
        samples, tokens: of the steps; 0 where they are unknown.
        of_one_second: model FLOPs utilization of a step of one second, and the hardware of whose rates it is a share; None
            where they are unknown.
    """

    steps: int
    seconds: float
    compile_seconds: float
    samples: int
    tokens: int
    of_one_second: tuple[float, str] | None

    @property
    def utilization(self) -> float | None:
        """Model FLOPs utilization of the steps, 0 to 1."""
        return None if self.of_one_second is None else self.of_one_second[0] * self.steps / self.running_seconds

    @property
    def running_seconds(self) -> float:
        """Without compiling."""
        return max(self.seconds - self.compile_seconds, 1e-9)

    def rates(self) -> list[str]:
        """Words for what is known: tokens per second and utilization."""
        words = [f"{self.tokens / self.running_seconds:.0f} tokens/s"] if self.tokens else []
        if self.of_one_second is not None:
            words.append(f"MFU {100 * (self.utilization or 0.0):.3g} % ({self.of_one_second[1]})")
        return words

    def values(self) -> dict[str, float]:
        """What is known, by name."""
        found = {"samples_per_second": self.samples / self.running_seconds} if self.samples else {}
        if self.tokens:
            found["tokens_per_second"] = self.tokens / self.running_seconds
        if self.utilization is not None:
            found["mfu"] = self.utilization
        if self.steps:
            found["step_seconds"] = self.running_seconds / self.steps
        return found


class FigureCount:
    """Counts the steps of a run from `begin` on."""

    def __init__(self) -> None:
        self._planned: Any = None
        self._utilization: tuple[float, str] | None = None

    def begin(self, facts: Any) -> None:
        """Start again.

        Args:
            facts: of the run, see `RunContext`.
        """
        self._started = time.perf_counter()
        self._compiled = SESSION.compile_seconds
        self._first_step = facts.get("cur_step_num", 0)
        self._samples = self._tokens = 0

    def add(self, facts: Any) -> None:
        """A step, or a group of them, has ended."""
        samples = facts.get("num_samples", 0)
        self._samples += samples
        self._tokens += samples * tokens_of_sample(facts.get("train_dataset_element"))

    def figures(self, facts: Any) -> Figures:
        """What is known by now."""
        seconds = time.perf_counter() - self._started
        compiling = SESSION.compile_seconds - self._compiled
        steps = facts.get("cur_step_num", 0) - self._first_step
        return Figures(steps, seconds, compiling, self._samples, self._tokens, self._of_one_second(facts))

    def _of_one_second(self, facts: Any) -> tuple[float, str] | None:
        """The utilization of one step per second; worked out once for each plan, since it walks through all operators."""
        planned = getattr(getattr(facts.get("train_network"), "program", None), "planned", None)
        if planned is not self._planned:
            self._planned, self._utilization = planned, None if planned is None else planned.utilization()
        return self._utilization


def tokens_of_sample(batch: Any) -> int:
    """How many tokens a sample of a batch has: the second dimension of its first column, if that has ids; else 0."""
    first = batch[0] if isinstance(batch, tuple | list) and batch else None
    if isinstance(first, Tensor) and first.ndim == 2 and "int" in str(first.dtype).lower():
        return int(first.shape[1])
    return 0


def _say(text: str) -> None:
    """Print a line, on rank 0."""
    if rank() == 0:
        print(text, flush=True)


class LossMonitor(Callback):
    """Prints the loss, e.g. ``epoch: 1 step: 10, loss is 2.3``, and metrics after each evaluation of `Model.fit`.

    Rank 0 prints, where in MindSpore all ranks do; `TimeMonitor` adds samples per second.

    Args:
        per_print_times: print once in this many steps; 0 never. In sink mode at the end of the group of steps.

    Raises:
        SporaxValueError: `per_print_times` is no whole number >= 0; or, during training, the loss is NaN or infinite.
    """

    receives_evaluation_in_fit = False

    def __init__(self, per_print_times: int = 1) -> None:
        For("LossMonitor").integer("per_print_times", per_print_times, 0)
        self._per_print_times = per_print_times
        self._last_print_step = math.inf  # before the first step

    def step_end(self, run_context: RunContext) -> None:
        """Print the loss when it is time to."""
        facts = run_context.original_args()
        # In sink mode and after a rollback steps do not grow by one.
        step = facts.cur_step_num
        if step <= self._last_print_step and self._per_print_times:  # a new run, one that is resumed or was rolled back
            self._last_print_step = (step - 1) // self._per_print_times * self._per_print_times
        loss = scalar_loss(facts.net_outputs)
        epoch, step_in_epoch = facts.get("cur_epoch_num", 1), (step - 1) % facts.batch_num + 1
        # MindSpore ends training here, too.
        if isinstance(loss, float) and not math.isfinite(loss):
            raise For("LossMonitor").error(
                f"the loss must be finite, but got {loss} in epoch {epoch}, step {step_in_epoch}; training cannot go on"
            )
        if self._per_print_times and step - self._last_print_step >= self._per_print_times:
            self._last_print_step = step
            _say(f"epoch: {epoch} step: {step_in_epoch}, loss is {loss}")

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Print the metrics of this epoch's evaluation, if there was one."""
        facts = run_context.original_args()
        if facts.get("metrics"):
            _say(f"Eval result: epoch {facts.cur_epoch_num}, metrics: {facts.metrics}")


@dataclass(slots=True)
class _Clock:
    """Times of one epoch of training or evaluation, in seconds."""

    started: float
    waiting_since: float
    waited: float = 0.0
    num_samples: int = 0


class TimeMonitor(Callback):
    """Prints the time of each epoch, of a step in it, and how many samples per second that is; on rank 0.

    Tokens per second and the model FLOPs utilization follow where they are known (`_figures`).

    Args:
        data_size: steps per epoch, where the run does not say.
        data_time: also report how long the host waited for data, per step.

    Raises:
        SporaxTypeError, SporaxValueError: `data_size` is no positive number or `data_time` no bool.
    """

    def __init__(self, data_size: int | None = None, data_time: bool = False) -> None:
        if data_size is not None:
            For("TimeMonitor").integer("data_size", data_size, 1)
        self.data_size = data_size
        self.data_time = For("TimeMonitor").boolean("data_time", data_time)
        # An evaluation in `Model.fit` is inside a training epoch, so each mode has a clock.
        self._clocks: dict[str, _Clock] = {}
        self._count = FigureCount()

    def epoch_begin(self, run_context: RunContext) -> None:
        """Start the clock."""
        now = time.time()
        facts = run_context.original_args()
        self._clocks[facts.mode] = _Clock(now, now)
        if facts.mode == "train":
            self._count.begin(facts)

    def step_begin(self, run_context: RunContext) -> None:
        """Note how long the data took."""
        clock = self._clocks[run_context.original_args().mode]
        # From the end of the step before, or the beginning of the epoch.
        clock.waited += time.time() - clock.waiting_since

    def step_end(self, run_context: RunContext) -> None:
        """Count the samples; from here on the next data are waited for."""
        facts = run_context.original_args()
        clock = self._clocks[facts.mode]
        clock.num_samples += facts.get("num_samples", 0)
        clock.waiting_since = time.time()
        if facts.mode == "train":
            self._count.add(facts)

    def epoch_end(self, run_context: RunContext) -> None:
        """Print the times of this epoch."""
        facts = run_context.original_args()
        clock = self._clocks[facts.mode]
        seconds = time.time() - clock.started
        num_steps = facts.get("batch_num") or self.data_size
        # Without a data set the run does not know its steps.
        if not isinstance(num_steps, int) or num_steps <= 0:
            raise For("TimeMonitor").error("'data_size' must be given where the run does not know its steps", num_steps)
        text = (
            f"{facts.mode.title()} epoch time: {seconds * 1e3:5.3f} ms, "
            f"per step time: {seconds * 1e3 / num_steps:5.3f} ms"
        )
        if self.data_time:
            text += f" (data time: {clock.waited * 1e3 / num_steps:5.3f} ms)"
        if clock.num_samples and seconds > 0:
            text += f", {clock.num_samples / seconds:.1f} samples/s"
        if facts.mode == "train":
            # Of the same time as the samples, with what was compiled in it.
            known = replace(self._count.figures(facts), seconds=seconds, compile_seconds=0.0).rates()
            text = ", ".join([text, *known])
        _say(text)


class History(Callback):
    """Records the last output of each epoch (the loss) and its metrics.

    Attributes:
        epoch: ``{"epoch": [1, 2, ...]}``.
        history: ``{"net_output": [...], metric: [...]}``.
    """

    receives_evaluation_in_fit = False

    def __init__(self) -> None:
        self.history: dict[str, list[Any]] = {}
        self.epoch: dict[str, list[int]] = {"epoch": []}

    def begin(self, run_context: RunContext) -> None:
        """Start a new list of epochs."""
        self.epoch = {"epoch": []}

    def epoch_end(self, run_context: RunContext) -> None:
        """Record this epoch."""
        facts = run_context.original_args()
        self.epoch["epoch"].append(facts.get("cur_epoch_num", 1))
        for name, value in {"net_output": scalar_loss(facts.net_outputs), **(facts.get("metrics") or {})}.items():
            self.history.setdefault(name, []).append(value)


class LambdaCallback(Callback):
    """A callback made of functions, each called with the `RunContext` at its event.

    Args:
        functions: ``on_train_begin``, ``on_train_epoch_begin``, ``on_train_step_begin``, their ``_end`` and the same
            with ``on_eval``; None does nothing.

    Example:
        >>> LambdaCallback(on_train_epoch_end=lambda run: print(run.original_args().net_outputs))
    """

    def __init__(
        self,
        on_train_epoch_begin: Any = None,
        on_train_epoch_end: Any = None,
        on_train_step_begin: Any = None,
        on_train_step_end: Any = None,
        on_train_begin: Any = None,
        on_train_end: Any = None,
        on_eval_epoch_begin: Any = None,
        on_eval_epoch_end: Any = None,
        on_eval_step_begin: Any = None,
        on_eval_step_end: Any = None,
        on_eval_begin: Any = None,
        on_eval_end: Any = None,
    ) -> None:
        # All parameters of this method, by name.
        functions = {name: value for name, value in locals().items() if name.startswith("on_") and value is not None}
        for name, function in functions.items():
            if not callable(function):
                raise For("LambdaCallback").type_error(f"{named(name)} must be a function", type(function).__name__)
            setattr(self, name, function)
