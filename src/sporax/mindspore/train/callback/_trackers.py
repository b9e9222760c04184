"""Trackers: where figures of a run go, TensorBoard, MLflow or Weights & Biases, behind one protocol.

A tracker is made on every rank, and opened, written and closed on rank 0 alone, by the callback `Track`. Nothing is imported
before it is opened. Weights & Biases is offline unless the user sets another mode.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from sporax.base.errors import SporaxImportError, SporaxTypeError
from sporax.mindspore.train._checks import check_text

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
        self._directory = check_text("TensorBoardTracker", "directory", directory)
        self._writer: Any = None

    def open(self) -> None:
        """Begin a file."""
        self._writer = _package("TensorBoardTracker", "tensorboardX", "summary").SummaryWriter(self._directory)

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
        self._experiment = check_text("MLflowTracker", "experiment", experiment)
        self._run_name = check_text("MLflowTracker", "run_name", run_name)
        self._uri = check_text("MLflowTracker", "tracking_uri", tracking_uri)
        self._mlflow: Any = None

    def open(self) -> None:
        """Start a run."""
        self._mlflow = _package("MLflowTracker", "mlflow", "mlflow")
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
        self._project = check_text("WandbTracker", "project", project)
        self._run_name = check_text("WandbTracker", "run_name", run_name)
        self._directory = check_text("WandbTracker", "directory", directory)
        self._mode = check_text("WandbTracker", "mode", mode, ("offline", "online"))
        self._wandb: Any = None
        self._run: Any = None

    def open(self) -> None:
        """Start a run."""
        self._wandb = _package("WandbTracker", "wandb", "wandb")
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
            importlib.import_module("matplotlib.pyplot")  # `Image` asks for it without importing it
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


def _package(where: str, name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SporaxImportError(
            f"For '{where}', the package {name} must be installed, but it is not ({error}): pip install 'sporax[{extra}]'."
        ) from error
