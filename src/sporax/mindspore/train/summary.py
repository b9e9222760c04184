"""`SummaryRecord`: numbers, images and distributions of a run, in files that TensorBoard shows.

MindSpore writes files for its own viewer, MindInsight; these are for TensorBoard, by the package tensorboardX. The words that
`SummaryRecord` takes are those of `mindspore.train.summary.enums`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, Self

import numpy as np

from sporax.base.errors import (
    SporaxImportError,
    SporaxNotImplementedError,
    SporaxValueError,
    check_type,
)
from sporax.mindspore import context
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops.control import debug
from sporax.mindspore.train._checks import check_integer, check_text

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["SummaryRecord"]
answer_missing_names(__name__)

_PLUGINS = ("scalar", "image", "histogram", "tensor")
# Names that MindInsight alone understands.
_OF_MINDINSIGHT = ("graph", "train_lineage", "eval_lineage", "dataset_graph", "custom_lineage_data", "LANDSCAPE")


class SummaryRecord:
    """Collects values and writes them to a TensorBoard file, step by step.

    Args:
        log_dir: directory of the file; made if needed.
        file_prefix: accepted for compatibility; TensorBoard wants files to be called ``events…``.
        file_suffix: end of the file's name.
        num_process, max_file_size, raise_exception: accepted for compatibility; one thread writes one file, and errors
            are raised.
        network: must be None: graphs are MindInsight's.
        export_options: must be None.

    Raises:
        SporaxImportError: tensorboardX is not installed.
        SporaxNotImplementedError: `network` or `export_options`.

    Example:
        >>> with SummaryRecord("runs") as record:
        ...     record.add_value("scalar", "loss", Tensor(0.1))
        ...     record.record(1)
    """

    def __init__(
        self,
        log_dir: str,
        file_prefix: str = "events",
        file_suffix: str = "_MS",
        num_process: int = 32,
        network: Any = None,
        max_file_size: int | None = None,
        raise_exception: bool = False,
        export_options: dict[str, Any] | None = None,
    ) -> None:
        check_text("SummaryRecord", "log_dir", log_dir)
        check_text("SummaryRecord", "file_suffix", file_suffix)
        for name, value in (("network", network), ("export_options", export_options)):
            if value is not None:
                raise SporaxNotImplementedError(f"For 'SummaryRecord', '{name}' is not offered, but it is given.")
        # `sporax plan` leaves no files.
        self._writer = _writer_class()(log_dir, filename_suffix=file_suffix, write_to_disk=not context.plans_only())
        self._values: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
        self._closed = False
        self._mode = "train"
        # What was put aside before belongs to another run.
        debug.take()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def log_dir(self) -> str:
        """Path of the file."""
        # tensorboardX has no public name for it.
        return str(self._writer.file_writer.event_writer._ev_writer._file_name)

    def set_mode(self, mode: str) -> None:
        """Say what the program does: `record` writes what summary operators have put aside in training only.

        Raises:
            SporaxValueError: neither ``"train"`` nor ``"eval"``.
        """
        check_text("SummaryRecord.set_mode", "mode", mode, ("train", "eval"))
        self._mode = mode

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        """Keep a value for the next `record`; the last one of a name counts.

        Args:
            plugin: ``"scalar"``, ``"image"`` ([N, C, H, W] or [C, H, W]), ``"histogram"``, or ``"tensor"`` (shown as a
                histogram).
            name: what it is called.
            value: a Tensor.

        Raises:
            SporaxValueError: an unknown plugin, or an empty name.
            SporaxTypeError: not a Tensor.
            SporaxNotImplementedError: a plugin of MindInsight's.
        """
        if plugin in _OF_MINDINSIGHT:
            raise SporaxNotImplementedError(f"For 'SummaryRecord.add_value', '{plugin}' is MindInsight's; not offered.")
        if plugin not in _PLUGINS:
            raise SporaxValueError.must("SummaryRecord.add_value", "plugin", f"be one of {_PLUGINS}", repr(plugin))
        if not isinstance(name, str) or not name:
            raise SporaxValueError.must("SummaryRecord.add_value", "name", "be a string, not empty", repr(name))
        check_type("SummaryRecord.add_value", "value", value, "a Tensor", Tensor)
        # Copied to the host now: the Tensor may change before `record`.
        self._values[plugin, name] = value.float().asnumpy()

    def record(self, step: int, train_network: Any = None, plugin_filter: Callable[[str], bool] | None = None) -> bool:
        """Write what was added since the last time, and, in training, what summary operators have put aside.

        Args:
            step: number to show it at.
            train_network: must be None.
            plugin_filter: says by plugin what to write; the rest is dropped.

        Returns:
            Whether it was written: not after `close`.

        Raises:
            SporaxTypeError: `step` is no whole number.
        """
        check_integer("SummaryRecord.record", "step", step)
        if train_network is not None:
            raise SporaxNotImplementedError(
                "For 'SummaryRecord.record', graphs are not offered; leave out 'train_network'."
            )
        if self._closed:
            return False
        if self._mode == "train":
            self._values.update(debug.take())
        # Exchanged first, so that a value is never written twice, even after an error.
        values, self._values = self._values, {}
        for (plugin, name), value in values.items():
            if plugin_filter is None or plugin_filter(plugin):
                self._write(plugin, name, value, step)
        return True

    def _write(self, plugin: str, name: str, value: Any, step: int) -> None:
        if plugin == "scalar":
            self._writer.add_scalar(name, float(value.mean()), step)
        elif plugin == "image":
            # A batch of images is shown as a grid.
            show = self._writer.add_images if value.ndim == 4 else self._writer.add_image
            show(name, value, step)
        else:
            self._writer.add_histogram(name, value, step)

    def flush(self) -> None:
        """Force to disk what was recorded."""
        if not self._closed:
            self._writer.flush()

    def close(self) -> None:
        """Write everything and close the file."""
        if not self._closed:
            self._writer.close()
            self._closed = True


def _writer_class() -> Any:
    try:
        return importlib.import_module("tensorboardX").SummaryWriter
    except ModuleNotFoundError as error:
        raise SporaxImportError(
            "For 'SummaryRecord', the package tensorboardX must be installed, but it is not: "
            "pip install 'sporax[summary]' (or tensorboardX)."
        ) from error


class BaseEnum(Enum):
    """Words that can be listed."""

    @classmethod
    def to_list(cls) -> list[str]:
        """All of them."""
        return [member.value for member in cls]


class PluginEnum(BaseEnum):
    """Kinds of values: the first argument of `SummaryRecord.add_value`."""

    GRAPH = "graph"
    SCALAR = "scalar"
    IMAGE = "image"
    TENSOR = "tensor"
    HISTOGRAM = "histogram"
    TRAIN_LINEAGE = "train_lineage"
    EVAL_LINEAGE = "eval_lineage"
    CUSTOM_LINEAGE_DATA = "custom_lineage_data"
    DATASET_GRAPH = "dataset_graph"
    EXPLAINER = "explainer"
    LANDSCAPE = "landscape"


class ModeEnum(BaseEnum):
    """What a program does: the argument of `SummaryRecord.set_mode`."""

    TRAIN = "train"
    EVAL = "eval"
