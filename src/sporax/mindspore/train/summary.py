"""`SummaryRecord`: numbers, images and distributions of a run, in files that TensorBoard shows.

MindSpore writes files for its own viewer, MindInsight; these are for TensorBoard, by the package tensorboardX. The words that
`SummaryRecord` takes are those of `mindspore.train.summary.enums`.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxValueError
from sporax.mindspore import context, log
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops.control import debug
from sporax.mindspore.train._checks import check_directory, check_entries, check_kind, package

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["SummaryRecord"]
answer_missing_names(__name__)

_PLUGINS = ("scalar", "image", "histogram", "tensor")
# Names that MindInsight alone understands.
_OF_MINDINSIGHT = ("graph", "train_lineage", "eval_lineage", "dataset_graph", "custom_lineage_data", "LANDSCAPE")
_DEFAULT_EXPORT_OPTIONS: dict[str, set[str | None]] = {"tensor_format": {"npy", None}}


class SummaryRecord:
    """Collects values and writes them to a TensorBoard file, step by step.

    Args:
        log_dir: directory of the file; made if needed.
        file_prefix: accepted for compatibility; TensorBoard wants files to be called ``events…``.
        file_suffix: end of the file's name.
        num_process, max_file_size: accepted for compatibility; one thread writes one file.
        network: a line says that its graph, MindInsight's, is not written.
        raise_exception: accepted for compatibility; errors are raised.
        export_options: ``{"tensor_format": "npy"}`` writes tensors to ``export_<time>/tensor/<name>_<step>.npy``, too.

    Raises:
        SporaxImportError: tensorboardX is not installed.
        SporaxTypeError, SporaxValueError, SporaxNotADirectoryError: an argument is not valid.

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
        check_directory("log_dir", log_dir)
        for name, text in (("file_prefix", file_prefix), ("file_suffix", file_suffix)):
            check_kind(name, text, str)
        check_kind("max_file_size", max_file_size, int, type(None))
        check_kind("raise_exception", raise_exception, bool)
        if network is not None:
            say_left_out("SummaryRecord", ["network"])
        exports = export_format(export_options) and not context.plans_only()
        self._exported = Path(log_dir, f"export_{int(time.time())}", "tensor") if exports else None
        # `sporax plan` leaves no files.
        writer = package("SummaryRecord", "tensorboardX", "summary").SummaryWriter
        self._writer = writer(log_dir, filename_suffix=file_suffix, write_to_disk=not context.plans_only())
        self._file: Any = getattr(self._writer, "file_writer", None)  # which `close` takes from the writer
        self._values: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
        self._closed = False
        self._mode = "train"
        # What was put aside before belongs to another run.
        debug.take()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def log_dir(self) -> str:
        """Path of the file; of its directory while a script is planned."""
        events = getattr(self._file, "event_writer", None)  # tensorboardX has no public name for the path
        return str(events._ev_writer._file_name if events else self._file.get_logdir())

    def set_mode(self, mode: str) -> None:
        """Say what the program does: `record` writes what summary operators have put aside in training only.

        Raises:
            SporaxValueError: neither ``"train"`` nor ``"eval"``.
        """
        For("SummaryRecord.set_mode").one_of("mode", mode, ("train", "eval"))
        self._mode = mode

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        """Keep a value for the next `record`; the last one of a name counts.

        Args:
            plugin: ``"scalar"``, ``"image"`` ([N, C, H, W] or [C, H, W]), ``"histogram"``, or ``"tensor"`` (shown as a
                histogram).
            name: what it is called.
            value: a Tensor.

        Raises:
            SporaxValueError: an unknown plugin, an empty name, or a scalar of several elements.
            SporaxTypeError: not a Tensor.
            SporaxNotImplementedError: a plugin of MindInsight's.
        """
        if plugin in _OF_MINDINSIGHT:
            raise SporaxNotImplementedError(f"For 'SummaryRecord.add_value', '{plugin}' is MindInsight's; not offered.")
        For("SummaryRecord.add_value").one_of("plugin", plugin, _PLUGINS)
        if not isinstance(name, str) or not name:
            raise For("SummaryRecord.add_value").error("'name' must be a string, not empty", repr(name))
        For("SummaryRecord.add_value").typed("value", value, "a Tensor", Tensor)
        if plugin == "scalar" and value.size != 1:
            raise For("SummaryRecord.add_value").error("'value' must have one element", f"shape {value.shape}")
        # Copied to the host now: the Tensor may change before `record`.
        self._values[plugin, name] = value.asnumpy()

    def record(self, step: int, train_network: Any = None, plugin_filter: Callable[[str], bool] | None = None) -> bool:
        """Write what was added since the last time, and, in training, what summary operators have put aside.

        Args:
            step: number to show it at.
            train_network: as in MindSpore, of use for graphs alone, which are not written.
            plugin_filter: says by plugin what to write; the rest is dropped.

        Returns:
            Whether it was written: not after `close`.

        Raises:
            SporaxTypeError: `step` is no whole number.
        """
        check_kind("step", step, int)
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

    def _write(self, plugin: str, name: str, value: np.ndarray[Any, Any], step: int) -> None:
        if plugin == "scalar":
            self._writer.add_scalar(name, float(value.mean()), step)
        elif plugin == "image":
            if value.ndim not in (3, 4) or value.shape[-3] not in (1, 3) or not value.size:
                log.error(f"For 'SummaryRecord', '{name}' is no image [N, C, H, W] of 1 or 3 channels: {value.shape}.")
                return
            # A batch of images is shown as a grid.
            show = self._writer.add_images if value.ndim == 4 else self._writer.add_image
            show(name, _pixels(value), step)
        else:
            self._write_histogram(name, value.astype(np.float64), step)
            if plugin == "tensor" and self._exported is not None:
                self._exported.mkdir(parents=True, exist_ok=True)
                value = value.astype(np.float32) if value.dtype.kind == "V" else value  # bfloat16
                np.save(self._exported / f"{quote(name, safe='')}_{step}.npy", value)

    def _write_histogram(self, name: str, values: np.ndarray[Any, Any], step: int) -> None:
        """Numbers that are not finite are in no bucket; as soon as there are some, a curve of its own counts them."""
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        margin = 0.0 if low < high else 0.5
        counts, edges = np.histogram(finite, _calc_histogram_bins(finite.size), (low - margin, high + margin))
        self._writer.add_histogram_raw(
            name, low, high, values.size, finite.sum(), (finite**2).sum(), edges[1:].tolist(), counts.tolist(), step
        )
        if finite.size < values.size:
            self._writer.add_scalar(f"{name}/not_finite", values.size - finite.size, step)

    def flush(self) -> None:
        """Force to disk what was recorded."""
        if not self._closed:
            self._writer.flush()

    def close(self) -> None:
        """Write everything and close the file."""
        if not self._closed:
            self._writer.close()
            self._closed = True


def say_left_out(where: str, names: list[str]) -> None:
    """Say that what was requested is written nowhere, since MindInsight alone shows it."""
    warnings.warn(f"For '{where}', {names} are not written: they are MindInsight's.", stacklevel=3)


def export_format(export_options: dict[str, str | None] | None) -> str | None:
    """How `export_options`, checked in MindSpore's words, want tensors to be exported."""
    check_kind("export_options", export_options, dict, type(None))
    options = export_options or {}
    check_entries("SummaryRecord", '"export_options"', options, {"tensor_format": (str, type(None))})
    form, known = options.get("tensor_format"), _DEFAULT_EXPORT_OPTIONS["tensor_format"]
    if form not in known:
        words = f'the export_format { {form} } of "export_options" are unsupported for tensor_format'
        raise SporaxValueError(f'For "SummaryRecord", {words}, expect the follow values: {list(known)}')
    return form


def _pixels(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bytes of images, by MindSpore's rule: numbers beyond 0…1 are mapped to the range of a byte."""
    if value.dtype == np.uint8:
        return value
    value = np.nan_to_num(value.astype(np.float32), posinf=1, neginf=0)
    low, high = value.min(), value.max()
    if not 0 <= low <= high <= 1:
        value = (value - low) / (high - low + 1)
    return (value * 255).astype(np.uint8)


def _calc_histogram_bins(count: int) -> int:
    """Number of buckets, by MindSpore's rule: ten numbers in each, if that makes at most 90."""
    return next((bins for most, bins in ((0, 1), (5, 2), (10, 3), (880, count // 10 + 1)) if count <= most), 90)


def _cache_summary_tensor_data(summary: list[dict[str, Any]]) -> bool:
    """Put values aside as summary operators do: dicts of ``name``, which is ``tag[:Scalar]``, and ``data``, a Tensor."""
    for item in summary:
        if not (parts := re.fullmatch(r"(.+)\[:(\w+)\]", item["name"])) or parts[2].lower() not in _PLUGINS:
            raise For("SummaryRecord").error("'name' must be 'TAG[:TYPE]'", repr(item["name"]))
        debug.keep(parts[2].lower(), parts[1], item["data"].asnumpy())
    return True


def _get_summary_tensor_data() -> dict[str, Tensor]:
    """What summary operators have put aside since the last time, by ``tag[:Scalar]``."""
    return {f"{name}[:{plugin.capitalize()}]": Tensor(value) for (plugin, name), value in debug.take().items()}


class BaseEnum(StrEnum):
    """Words that can be listed."""

    @classmethod
    def to_list(cls) -> list[str]:
        """All of them."""
        return [member.value for member in cls]


class PluginEnum(BaseEnum):
    """Kinds of values: the first argument of `SummaryRecord.add_value`."""

    GRAPH, SCALAR, IMAGE, TENSOR, HISTOGRAM = "graph", "scalar", "image", "tensor", "histogram"
    TRAIN_LINEAGE, EVAL_LINEAGE, CUSTOM_LINEAGE_DATA = "train_lineage", "eval_lineage", "custom_lineage_data"
    DATASET_GRAPH, EXPLAINER, LANDSCAPE = "dataset_graph", "explainer", "landscape"


class ModeEnum(BaseEnum):
    """What a program does: the argument of `SummaryRecord.set_mode`."""

    TRAIN, EVAL = "train", "eval"
