"""`SummaryCollector`: what `Model` does, as curves in TensorBoard."""

from __future__ import annotations

import re
import warnings
from typing import Any, ClassVar

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.common import Parameter, Tensor
from sporax.mindspore.nn.optim import Optimizer
from sporax.mindspore.train._checks import check_directory, check_entries, check_kind
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, InternalCallbackParam, RunContext, scalar_loss
from sporax.mindspore.train.summary import SummaryRecord, export_format, say_left_out

_FIRST_PARAMETERS = 5  # MindSpore's number, too
_OF_MINDINSIGHT = tuple(
    "collect_" + what for what in "graph train_lineage eval_lineage dataset_graph landscape".split()
)
_DATA: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("collect_metric", "collect_input_data", *_OF_MINDINSIGHT), (bool,)),
    "histogram_regular": (str, type(None)),
    "collect_landscape": (dict, type(None)),
}
_LANDSCAPE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("landscape_size", "num_samples"), (int,)),
    "unit": (str,),
    "create_landscape": (dict,),
    "intervals": (list,),
}


class SummaryCollector(Callback):
    """Writes loss, learning rate, distributions of Parameters, input images and evaluation metrics to TensorBoard files.

    Rank 0 writes. `Track` sends figures to other trackers as well. Names in the files and words of errors are MindSpore's.

    Args:
        summary_dir: directory of the files.
        collect_freq: collect every so many steps (groups of steps in sink mode), and at the first.
        num_process, max_file_size: accepted for compatibility; one thread writes one file.
        collect_specified_data: what to collect: ``collect_metric`` (bool), ``collect_input_data`` (bool: images of the
            first column), ``histogram_regular`` (regular expression for names of Parameters; the first five by
            default). Graph, lineage and landscape are MindInsight's: a line says that they are not written.
        keep_default_action: collect what `collect_specified_data` does not mention, too.
        custom_lineage_data: lineage, too.
        collect_tensor_freq: accepted for compatibility.
        export_options: as of `SummaryRecord`.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxNotADirectoryError: an argument is not valid.
        SporaxImportError: (at the start of a run) tensorboardX is not installed.
    """

    receives_evaluation_in_fit = False
    _DEFAULT_SPECIFIED_DATA: ClassVar = {"collect_metric": True, "collect_input_data": True, "histogram_regular": None}

    def __init__(
        self,
        summary_dir: str,
        collect_freq: int = 10,
        num_process: int = 32,
        collect_specified_data: dict[str, Any] | None = None,
        keep_default_action: bool = True,
        custom_lineage_data: dict[str, Any] | None = None,
        collect_tensor_freq: int | None = None,
        max_file_size: int | None = None,
        export_options: dict[str, Any] | None = None,
    ) -> None:
        self._directory = check_directory("summary_dir", summary_dir)
        limits = {"collect_tensor_freq": collect_tensor_freq, "max_file_size": max_file_size}
        for name, count in {"collect_freq": collect_freq, **limits}.items():
            if count is not None or name == "collect_freq":
                check_kind(name, count, int)
            if count is not None and count <= 0:
                words = f"the value of `{name}` should be greater than 0, but got `{count}`."
                raise SporaxValueError(f'For "SummaryCollector", {words}')
        self._every = collect_freq
        export_format(export_options)
        self._export_options = export_options
        check_kind("keep_default_action", keep_default_action, bool)
        chosen = _checked_choice(collect_specified_data)
        left_out = [name for name in _OF_MINDINSIGHT if chosen.pop(name, None)]
        check_kind("custom_lineage_data", custom_lineage_data, dict, type(None))
        for key, value in (custom_lineage_data or {}).items():
            check_kind(f"custom_lineage_data -> {key}", key, str)
            check_kind(f"the value of custom_lineage_data -> {key}", value, int, str, float)
        if left_out := [*left_out, *(["custom_lineage_data"] if custom_lineage_data else [])]:
            say_left_out("SummaryCollector", left_out)
        self._collect_specified_data = {**(self._DEFAULT_SPECIFIED_DATA if keep_default_action else {}), **chosen}
        self._record: SummaryRecord | None = None
        self._events = 0
        self._temp_optimizer: Any = None
        self._is_parse_loss_success = True

    def __enter__(self) -> SummaryCollector:
        # Opened at the start of a run, so that an unused callback needs no package; rank 0 alone writes.
        self._record = SummaryRecord(self._directory, export_options=self._export_options) if rank() == 0 else None
        self._events, self._temp_optimizer = 0, None
        return self

    def __exit__(self, *error: Any) -> None:
        if self._record is not None:
            self._record.close()
            self._record = None

    def begin(self, run_context: RunContext) -> None:
        """Refuse a second collector."""
        self._check_callbacks(run_context.original_args())

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Collect, if it is this step's turn."""
        self._events += 1
        # The first step, then every so many.
        if self._events != 1 and self._events % self._every:
            return
        facts = run_context.original_args()
        self._collect_metric(facts)
        self._collect_histogram(facts)
        # Once is enough: the data set does not change.
        if self._events == 1:
            self._collect_input_data(facts)
        self._write(facts.cur_step_num)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Collect the metrics of this epoch's evaluation, if there was one."""
        facts = run_context.original_args()
        self._add_metrics(facts.get("eval_results") or {})
        self._write(facts.cur_step_num)

    def on_eval_end(self, run_context: RunContext) -> None:
        """Collect the metrics of an evaluation."""
        facts = run_context.original_args()
        self._add_metrics(facts.get("metrics") or {})
        self._write(facts.cur_step_num)

    def _check_callbacks(self, facts: InternalCallbackParam) -> None:
        if sum(isinstance(callback, SummaryCollector) for callback in facts.get("list_callback") or ()) > 1:
            raise SporaxValueError(
                "There are more than one SummaryCollector instance in callback list, "
                "but expected only one SummaryCollector instance."
            )

    def _collect_metric(self, facts: InternalCallbackParam) -> None:
        if not self._collect_specified_data.get("collect_metric"):
            return
        if (loss := self._get_loss(facts)) is not None:
            self._add("loss/auto", loss)
        rate = getattr(self._get_optimizer(facts), "learning_rate", None)
        if isinstance(rate, Parameter) and not rate.shape:
            self._add("learning_rate", rate.value())

    def _get_loss(self, facts: InternalCallbackParam) -> Tensor | None:
        """Mean of the first output, or None, from then on, where that is no number; a line says so."""
        if self._is_parse_loss_success:
            loss = scalar_loss(facts.net_outputs)
            if isinstance(loss, int | float):
                return Tensor(float(loss))
            self._is_parse_loss_success = False
            warnings.warn(f"For 'SummaryCollector', the first output is no loss: {type(loss).__name__}.", stacklevel=2)
        return None

    def _get_optimizer(self, facts: InternalCallbackParam) -> Optimizer | None:
        """That of the run, or else the first inside of the network."""
        if self._temp_optimizer is None:
            optimizer = facts.get("optimizer")
            if optimizer is None:
                network = facts.train_network if facts.mode == "train" else facts.eval_network
                cells = (cell for _, cell in network.cells_and_names())
                optimizer = next((cell for cell in cells if isinstance(cell, Optimizer)), None)
            self._temp_optimizer = optimizer if isinstance(optimizer, Optimizer) else "Failed"
        return self._temp_optimizer if isinstance(self._temp_optimizer, Optimizer) else None

    def _collect_histogram(self, facts: InternalCallbackParam) -> None:
        """Distributions of the Parameters that are chosen: of the optimizer, or of a network without one."""
        if "histogram_regular" not in self._collect_specified_data:
            return
        optimizer, pattern = self._get_optimizer(facts), self._collect_specified_data["histogram_regular"]
        parameters = facts.network.trainable_params() if optimizer is None else optimizer.parameters
        chosen = (parameter for parameter in parameters if pattern is not None and re.match(pattern, parameter.name))
        for parameter in parameters[:_FIRST_PARAMETERS] if pattern is None else chosen:
            self._add(f"{parameter.name}/auto", parameter.value(), "histogram")

    def _collect_input_data(self, facts: InternalCallbackParam) -> None:
        """Images of the first column, in the order batch, channel, height, width; no more where it has none."""
        if not self._collect_specified_data.get("collect_input_data"):
            return
        element = facts.get("train_dataset_element")
        first = element[0] if isinstance(element, tuple | list) and element else element
        if isinstance(first, Tensor) and first.ndim == 4 and first.shape[1] in (1, 3):
            self._add("input_data/auto", first, "image")
        else:
            self._collect_specified_data["collect_input_data"] = False

    def _add_metrics(self, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            # TensorBoard draws numbers; metrics per class are arrays.
            if np.ndim(value) == 0:
                self._add(f"metrics/{name}", float(value))

    def _add(self, name: str, value: Any, plugin: str = "scalar") -> None:
        # All ranks read the value: slices of it may be on the devices of others.
        host = Tensor(value.asnumpy() if isinstance(value, Tensor) else float(value))
        if self._record is not None:
            self._record.add_value(plugin, name, host)

    def _write(self, step: int) -> None:
        if self._record is not None:
            self._record.record(step)


def _checked_choice(choice: dict[str, Any] | None) -> dict[str, Any]:
    """`collect_specified_data`, a dict also where it is None."""
    check_kind("collect_specified_data", choice, dict, type(None))
    chosen = dict(choice or {})
    check_entries("SummaryCollector", "`collect_specified_data`", chosen, _DATA)
    try:
        re.compile(chosen.get("histogram_regular") or "")
    except re.error as error:
        words = f"the value of `histogram_regular` is not a valid regular expression. Detail: {error}."
        raise SporaxValueError(f"For `collect_specified_data`, {words}") from error
    landscape = chosen.get("collect_landscape") or {}
    check_entries("SummaryCollector", "`collect_landscape`", landscape, _LANDSCAPE)
    sides = landscape.get("create_landscape", {})
    check_entries("SummaryCollector", "`create_landscape`", sides, dict.fromkeys(("train", "result"), (bool,)))
    return chosen
