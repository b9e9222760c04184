"""`Track`: sends the figures of a run to trackers, on rank 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

import jax
import numpy as np

from sporax.base.errors import SporaxTypeError
from sporax.mindspore import context
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.train._checks import check_count
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss
from sporax.mindspore.train.callback._figures import FigureCount, memory_bytes
from sporax.mindspore.train.callback._trackers import Scalar, Tracker, as_trackers


class Track(Callback):
    """Sends loss, learning rate, throughput, memory and metrics of evaluations to trackers. Sporax's own.

    Throughput is ``samples_per_second``, and ``tokens_per_second`` and ``mfu`` where they are known; ``compile_seconds`` comes
    where something was compiled.
    Parameters of the run are epochs, steps, devices, parallel mode and optimizer, with the user's.

    Args:
        trackers: a `Tracker`, or several.
        every: send every so many steps (groups of steps in sink mode), and at the first.
        parameters: of the user, by name: sent once, at the beginning.
        figures: called after each epoch with the `RunContext`, on all ranks; gives pictures of matplotlib by name.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxImportError: (at the start of a run) a tracker's package is not installed.

    Example:
        >>> model.train(10, data, callbacks=[Track(TensorBoardTracker("runs"), parameters={"width": 64})])
    """

    hears_evaluation_in_fit = False

    def __init__(
        self,
        trackers: Tracker | list[Tracker],
        every: int = 10,
        parameters: Mapping[str, Scalar] | None = None,
        figures: Callable[[RunContext], Mapping[str, Any]] | None = None,
    ) -> None:
        self._trackers = as_trackers(trackers)
        self._every = check_count("Track", "every", every, minimum=1)
        if parameters is not None and not isinstance(parameters, Mapping):
            raise SporaxTypeError(
                f"For 'Track', 'parameters' must be a dict by name, but got {type(parameters).__name__}."
            )
        if figures is not None and not callable(figures):
            raise SporaxTypeError(f"For 'Track', 'figures' must be a function, but got {type(figures).__name__}.")
        self._parameters = dict(parameters or {})
        self._figures = figures
        self._open: list[Tracker] = []
        self._stack = ExitStack()
        self._count = FigureCount()
        self._events = 0

    def __enter__(self) -> Self:
        # Rank 0 alone writes, and `sporax plan` leaves no files.
        speaks = rank() == 0 and not context.plans_only()
        for tracker in self._trackers if speaks else []:
            tracker.open()
            self._stack.callback(tracker.close)
            self._open.append(tracker)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open = []
        self._stack.close()

    def on_train_begin(self, run_context: RunContext) -> None:
        """Send the parameters."""
        facts = run_context.original_args()
        self._events = 0
        self._count.begin(facts)
        found: dict[str, Scalar] = {
            "epochs": facts.epoch_num,
            "steps_per_epoch": facts.batch_num,
            "devices": jax.device_count(),
            "platform": jax.default_backend(),
            "parallel_mode": str(facts.get("parallel_mode", "")),
            "optimizer": type(facts.optimizer).__name__ if facts.get("optimizer") is not None else "",
        }
        for tracker in self._open:
            tracker.log_parameters({**found, **self._parameters})

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Send what is known, if it is this step's turn."""
        facts = run_context.original_args()
        self._events += 1
        self._count.add(facts)
        # The first step, then every so many.
        if self._events != 1 and self._events % self._every:
            return
        # All ranks read the values: some of them must be gathered.
        metrics = {"loss": scalar_loss(facts.net_outputs), "memory_bytes": float(memory_bytes())}
        rate = getattr(facts.get("optimizer"), "learning_rate", None)
        if isinstance(rate, Parameter) and not rate.shape:
            metrics["learning_rate"] = float(rate.value().asnumpy())
        figures = self._count.figures(facts)
        metrics |= figures.values()
        if figures.compile_seconds:
            metrics["compile_seconds"] = figures.compile_seconds
        self._count.begin(facts)
        self._send(metrics, facts.cur_step_num)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Send the metrics of this epoch's evaluation, if there was one, and the user's pictures."""
        facts = run_context.original_args()
        self._send_metrics(facts.get("eval_results") or {}, facts.cur_step_num)
        pictures = {} if self._figures is None else self._figures(run_context)
        for tracker in self._open:
            for name, picture in pictures.items():
                tracker.log_figure(name, picture, facts.cur_step_num)

    def on_eval_end(self, run_context: RunContext) -> None:
        """Send the metrics of an evaluation."""
        facts = run_context.original_args()
        self._send_metrics(facts.get("metrics") or {}, facts.cur_step_num)

    def _send_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        # Trackers draw numbers; metrics per class are arrays.
        self._send({f"metrics/{name}": float(value) for name, value in metrics.items() if np.ndim(value) == 0}, step)

    def _send(self, metrics: Mapping[str, Any], step: int) -> None:
        numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
        for tracker in self._open if numbers else []:
            tracker.log_metrics(numbers, step)
