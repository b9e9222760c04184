"""`SummaryCollector`: what `Model` does, as curves in TensorBoard."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.train._checks import check_bool, check_count
from sporax.mindspore.train._ranks import rank
from sporax.mindspore.train.callback._callback import Callback, RunContext, scalar_loss
from sporax.mindspore.train.summary import SummaryRecord

# MindSpore's number, too.
_FIRST_PARAMETERS = 5
_COLLECTED = ("collect_metric", "collect_input_data", "histogram_regular")
_OF_MINDINSIGHT = ("collect_graph", "collect_train_lineage", "collect_eval_lineage", "collect_dataset_graph")


class SummaryCollector(Callback):
    """Writes loss, learning rate, distributions of Parameters, input images and evaluation metrics to TensorBoard files.

    Rank 0 writes. `Track` sends figures to other trackers as well.

    Args:
        summary_dir: directory of the files.
        collect_freq: collect every so many steps (groups of steps in sink mode), and at the first.
        num_process, max_file_size: accepted for compatibility; one thread writes one file.
        collect_specified_data: what to collect: ``collect_metric`` (bool), ``collect_input_data`` (bool: images of the
            first column), ``histogram_regular`` (regular expression for names of Parameters; the first five by
            default). Graph and lineage are MindInsight's: False is accepted, True refused.
        keep_default_action: collect what `collect_specified_data` does not mention, too.
        custom_lineage_data, export_options: must be None.
        collect_tensor_freq: accepted for compatibility.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxNotImplementedError: something that only MindInsight shows.
        SporaxImportError: (at the start of a run) tensorboardX is not installed.
    """

    hears_evaluation_in_fit = False

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
        check_type("SummaryCollector", "summary_dir", summary_dir, "a string", str)
        for name, value in (("custom_lineage_data", custom_lineage_data), ("export_options", export_options)):
            if value is not None:
                raise SporaxNotImplementedError(f"For 'SummaryCollector', '{name}' is not offered, but it is given.")
        self._directory = summary_dir
        self._every = check_count("SummaryCollector", "collect_freq", collect_freq, minimum=1)
        check_bool("SummaryCollector", "keep_default_action", keep_default_action)
        choices = _checked_choice(collect_specified_data)
        self._collect_metric = choices.get("collect_metric", keep_default_action)
        self._collect_input = choices.get("collect_input_data", keep_default_action)
        self._pattern = choices.get("histogram_regular")
        self._collect_histograms = "histogram_regular" in choices or keep_default_action
        self._record: SummaryRecord | None = None
        self._events = 0

    def __enter__(self) -> SummaryCollector:
        # Opened at the start of a run, so that an unused callback needs no package; rank 0 alone writes.
        self._record = SummaryRecord(self._directory) if rank() == 0 else None
        self._events = 0
        return self

    def __exit__(self, *error: Any) -> None:
        if self._record is not None:
            self._record.close()
            self._record = None

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Collect, if it is this step's turn."""
        self._events += 1
        # The first step, then every so many.
        if self._events != 1 and self._events % self._every:
            return
        facts = run_context.original_args()
        if self._collect_metric:
            self._add("loss", scalar_loss(facts.net_outputs))
            rate = getattr(facts.get("optimizer"), "learning_rate", None)
            if isinstance(rate, Parameter) and not rate.shape:
                self._add("learning_rate", rate.value())
        if self._collect_histograms:
            for parameter in self._chosen(facts.network.trainable_params()):
                self._add(parameter.name, parameter.value(), "histogram")
        # Once is enough: the data set does not change.
        if self._collect_input and self._events == 1:
            self._add_images(facts.get("train_dataset_element"))
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

    def _chosen(self, parameters: list[Parameter]) -> list[Parameter]:
        if self._pattern is None:
            return parameters[:_FIRST_PARAMETERS]
        return [parameter for parameter in parameters if re.match(self._pattern, parameter.name)]

    def _add_metrics(self, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            # TensorBoard draws numbers; metrics per class are arrays.
            if np.ndim(value) == 0:
                self._add(f"metrics/{name}", float(value))

    def _add_images(self, element: Any) -> None:
        first = element[0] if element else None
        # Images in the order batch, channel, height, width.
        if isinstance(first, Tensor) and first.ndim == 4 and first.shape[1] in (1, 3):
            self._add("input_data", first, "image")

    def _add(self, name: str, value: Any, plugin: str = "scalar") -> None:
        # All ranks read the value: slices of it may be on the devices of others.
        host = Tensor(value.float().asnumpy()) if isinstance(value, Tensor) else Tensor(float(value))
        if self._record is not None:
            self._record.add_value(plugin, name, host)

    def _write(self, step: int) -> None:
        if self._record is not None:
            self._record.record(step)


def _checked_choice(choice: Any) -> dict[str, Any]:
    if choice is None:
        return {}
    check_type("SummaryCollector", "collect_specified_data", choice, "a dict", dict)
    for name, value in choice.items():
        if name in (*_OF_MINDINSIGHT, "collect_landscape"):
            # Switching them off is no request.
            if value:
                raise SporaxNotImplementedError(f"For 'SummaryCollector', '{name}' is MindInsight's and not offered.")
        elif name not in _COLLECTED:
            raise SporaxValueError(
                f"For 'SummaryCollector', 'collect_specified_data' knows {_COLLECTED}, but got '{name}'."
            )
        elif name == "histogram_regular":
            if value is not None and not isinstance(value, str):
                raise SporaxTypeError("For 'SummaryCollector', 'histogram_regular' must be a string or None.")
        else:
            check_bool("SummaryCollector", name, value)
    return {name: value for name, value in choice.items() if name in _COLLECTED}
