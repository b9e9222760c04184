"""`Track`: sends the figures of a run to trackers, on rank 0.

Trackers: where figures of a run go, TensorBoard, MLflow or Weights & Biases, behind one protocol.

A tracker is made on every rank, and opened, written and closed on rank 0 alone, by the callback `Track`. Nothing is imported
before it is opened. Weights & Biases is offline unless the user sets another mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol, Self, runtime_checkable

import jax
import numpy as np

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore import context
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.train._checks import package
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss
from sporax.mindspore.train.callback._monitors import FigureCount, memory_bytes

Scalar = bool | int | float | str
"""A value of a run's parameters."""


@runtime_checkable
class Tracker(Protocol):
    """Takes the figures of a run; a class of one's own with these methods is one."""

    def open(self) -> None:
        """Begin a run.

        Raises:
            SporaxImportError: the package is not installed.
        """

    def log_parameters(self, parameters: Mapping[str, Scalar]) -> None:
        """Note what the run was started with."""

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Note numbers of a step."""

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """Note a picture of matplotlib."""

    def close(self) -> None:
        """Write everything, and end the run."""


class TensorBoardTracker:
    """Writes files for TensorBoard, as `SummaryCollector` does.

    Args:
        directory: where the files go.

    Raises:
        SporaxTypeError: `directory` is no text.
    """

    def __init__(self, directory: str) -> None:
        self._directory = For("TensorBoardTracker").text("directory", directory)
        self._writer: Any = None

    def open(self) -> None:
        """Begin a file."""
        self._writer = package("TensorBoardTracker", "tensorboardX", "summary").SummaryWriter(self._directory)

    def log_parameters(self, parameters: Mapping[str, Scalar]) -> None:
        """Note the parameters as a table of text."""
        rows = "\n".join(f"| {name} | {value} |" for name, value in parameters.items())
        self._writer.add_text("parameters", f"| parameter | value |\n|---|---|\n{rows}", 0)

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Note numbers as curves."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """Note a picture."""
        self._writer.add_figure(name, figure, step)

    def close(self) -> None:
        """Write the file."""
        self._writer.close()


class MLflowTracker:
    """A run of MLflow.

    Args:
        experiment: its name.
        run_name: of the run; MLflow makes one by default.
        tracking_uri: a server, or a database such as ``sqlite:///runs.db``; by default what MLFLOW_TRACKING_URI says.

    Raises:
        SporaxTypeError: an argument is no text.
    """

    def __init__(self, experiment: str, run_name: str = "", tracking_uri: str = "") -> None:
        self._experiment = For("MLflowTracker").text("experiment", experiment)
        self._run_name = For("MLflowTracker").text("run_name", run_name)
        self._uri = For("MLflowTracker").text("tracking_uri", tracking_uri)
        self._mlflow: Any = None

    def open(self) -> None:
        """Start a run."""
        self._mlflow = package("MLflowTracker", "mlflow", "mlflow")
        if self._uri:
            self._mlflow.set_tracking_uri(self._uri)
        self._mlflow.set_experiment(self._experiment)
        self._mlflow.start_run(run_name=self._run_name or None)

    def log_parameters(self, parameters: Mapping[str, Scalar]) -> None:
        """Note the parameters."""
        self._mlflow.log_params(dict(parameters))

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Note numbers of a step."""
        self._mlflow.log_metrics(dict(metrics), step=step)

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """Note a picture as a file of the run."""
        self._mlflow.log_figure(figure, f"{name}_{step}.png")

    def close(self) -> None:
        """End the run."""
        self._mlflow.end_run()


class WandbTracker:
    """A run of Weights & Biases.

    Args:
        project: its name.
        run_name: of the run; Weights & Biases makes one by default.
        directory: where files go; ``./wandb`` by default.
        mode: ``"offline"``: files that ``wandb sync`` can send later; or ``"online"``.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, project: str, run_name: str = "", directory: str = "", mode: str = "offline") -> None:
        self._project = For("WandbTracker").text("project", project)
        self._run_name = For("WandbTracker").text("run_name", run_name)
        self._directory = For("WandbTracker").text("directory", directory)
        self._mode = For("WandbTracker").text("mode", mode, ("offline", "online"))
        self._wandb: Any = None
        self._run: Any = None

    def open(self) -> None:
        """Start a run."""
        self._wandb = package("WandbTracker", "wandb", "wandb")
        self._run = self._wandb.init(
            project=self._project, name=self._run_name or None, dir=self._directory or None, mode=self._mode
        )

    def log_parameters(self, parameters: Mapping[str, Scalar]) -> None:
        """Note the parameters."""
        self._run.config.update(dict(parameters))

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Note numbers of a step."""
        self._run.log(dict(metrics), step=step)

    def log_figure(self, name: str, figure: Any, step: int) -> None:
        """Note a picture."""
        if type(figure).__module__.startswith("matplotlib"):
            package("WandbTracker", "matplotlib.pyplot", "wandb")  # `Image` uses it without importing it
        self._run.log({name: self._wandb.Image(figure)}, step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


def as_trackers(trackers: Any) -> list[Tracker]:
    """A tracker or several as a list.

    Raises:
        SporaxTypeError: something among them is none.
    """
    items = list(trackers) if isinstance(trackers, list | tuple) else [trackers]
    for item in items:
        if isinstance(item, type) or not isinstance(item, Tracker):
            raise SporaxTypeError(
                "For 'Track', 'trackers' must be a Tracker (methods open, log_parameters, log_metrics, log_figure and close) "
                f"or a list of them, but got {item!r}."
            )
    return items


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

    receives_evaluation_in_fit = False

    def __init__(
        self,
        trackers: Tracker | list[Tracker],
        every: int = 10,
        parameters: Mapping[str, Scalar] | None = None,
        figures: Callable[[RunContext], Mapping[str, Any]] | None = None,
    ) -> None:
        self._trackers = as_trackers(trackers)
        self._every = For("Track").integer("every", every, 1)
        For("Track").typed("parameters", parameters, "a dict by name", Mapping | None)
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
