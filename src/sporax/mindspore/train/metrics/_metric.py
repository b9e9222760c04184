"""What a metric is: something that is cleared, updated with batches, and evaluated.

Metrics by the names that `Model` takes for them.
"""

from __future__ import annotations

import functools
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from sporax.base.errors import For, SporaxKeyError, SporaxTypeError, SporaxValueError
from sporax.mindspore._names.missing import resolved
from sporax.mindspore.common.tensor import Tensor

Array = np.ndarray[Any, Any]


class Metric(metaclass=ABCMeta):
    """Base class of metrics.

    `clear` forgets everything, `update` takes one batch, `eval` gives the result. Values live on the host as numpy arrays.

    Example:
        >>> metric = Accuracy()
        >>> metric(Tensor([[0.1, 0.9]]), Tensor([1]))
        1.0
    """

    _indexes: list[int] | None = None

    @property
    def indexes(self) -> list[int] | None:
        """Which inputs of `update` are used, and in which order; None for all."""
        return self._indexes

    def set_indexes(self, indexes: list[int]) -> Self:
        """Choose the inputs of `update`, where a network has more outputs than the metric takes.

        Raises:
            SporaxValueError: not a list of whole numbers.
        """
        if not isinstance(indexes, list) or not all(isinstance(index, int) for index in indexes):
            words = "must be a list and all its elements must be int, please check whether it is correct"
            raise SporaxValueError(f"For 'set_indexes', the argument 'indexes' {words}: {indexes!r}.")
        self._indexes = indexes
        return self

    def __call__(self, *inputs: Any) -> Any:
        """The result for one batch alone."""
        self.clear()
        self.update(*inputs)
        return self.eval()

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @abstractmethod
    def update(self, *inputs: Any) -> None:
        """Take one batch."""

    @abstractmethod
    def eval(self) -> Any:
        """The result over all batches since `clear`."""

    def _convert_data(self, data: Any) -> Array:
        """A Tensor, list or numpy array, as numpy array.

        Raises:
            SporaxTypeError: something else.
        """
        if isinstance(data, Tensor):
            return data.asnumpy()
        if isinstance(data, list | np.ndarray):
            return np.asarray(data)
        raise For(type(self).__name__).type_error("inputs must be Tensors, lists or numpy arrays", type(data).__name__)

    def _inputs(self, inputs: tuple[Any, ...], *names: str) -> list[Array]:
        """The inputs of `update` as numpy arrays.

        Raises:
            SporaxValueError: not as many as there are `names`.
        """
        self._check_count(inputs, *names)
        return [self._convert_data(value) for value in inputs]

    def _check_count(self, inputs: tuple[Any, ...], *names: str) -> None:
        For(f"{type(self).__name__}.update").refuse(
            len(inputs) != len(names), f"there must be {len(names)} inputs ({', '.join(names)}), but got {len(inputs)}"
        )

    def _check_seen(self, seen: Any) -> None:
        """Raise if nothing was seen.

        Raises:
            SporaxRuntimeError: `eval` was called before `update`.
        """
        For(f"{type(self).__name__}.eval").refuse_state(
            not seen, "there must be samples to compute from, but 'update' was not called since the last 'clear'"
        )


class MeanMetric(Metric):
    """Base of metrics that are a sum divided by a count; `update` adds to `_sum` and `_total`."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._sum = 0.0
        self._total = 0

    def eval(self) -> float:
        """The sum divided by the count.

        Raises:
            SporaxRuntimeError: nothing was counted.
        """
        self._check_seen(self._total)
        return self._sum / self._total


def rearrange_inputs(func: Callable[..., None]) -> Callable[..., None]:
    """Decorator for `update` that makes `Metric.set_indexes` choose its inputs."""

    @functools.wraps(func)
    # Users call `update` with all outputs of a network.
    def chosen(self: Metric, *inputs: Any) -> None:
        indexes = self.indexes
        return func(self, *(inputs if not indexes else [inputs[index] for index in indexes]))

    return chosen


def labels_of(y_pred: Array, y: Array) -> Array:
    """True classes: `y`, or where it is one-hot like `y_pred`, the positions of its ones."""
    return y.argmax(axis=1) if y_pred.ndim == y.ndim and is_one_hot(y) else y


def is_one_hot(y: Array) -> bool:
    """Whether dimension 1 of `y` holds a single 1 and zeros."""
    # The sum alone would take (0.5, 0.5) for one-hot.
    return y.ndim > 1 and bool(np.isin(y, (0, 1)).all()) and bool((y.sum(axis=1) == 1).all())


_BY_NAME = dict(
    pair.split("=")
    for pair in """
    accuracy=Accuracy acc=Accuracy precision=Precision recall=Recall F1=F1 cosine_similarity=CosineSimilarity
    topk=TopKCategoricalAccuracy top_1_accuracy=Top1CategoricalAccuracy top_5_accuracy=Top5CategoricalAccuracy mae=MAE mse=MSE
    loss=Loss perplexity=Perplexity confusion_matrix=ConfusionMatrix confusion_matrix_metric=ConfusionMatrixMetric roc=ROC
    auc=auc bleu_score=BleuScore dice=Dice hausdorff_distance=HausdorffDistance mean_surface_distance=MeanSurfaceDistance
    root_mean_square_distance=RootMeanSquareDistance occlusion_sensitivity=OcclusionSensitivity
    """.split()
)


def names() -> list[str]:
    """Names that `Model(metrics={...})` and `get_metric_fn` know."""
    return sorted(_BY_NAME)


def get_metric_fn(name: str, *args: Any, **kwargs: Any) -> Any:
    """The metric called `name`, made with these arguments.

    Raises:
        SporaxKeyError: there is none.
    """
    if name not in _BY_NAME:
        raise SporaxKeyError(f"For 'get_metric_fn', the name must be one of {names()}, but got {name!r}.")
    return resolved(f"sporax.mindspore.train.metrics:{_BY_NAME[name]}")(*args, **kwargs)


def get_metrics(metrics: Any) -> dict[str, Metric] | None:
    """A set of names, or a dict of metrics, as a dict of metrics.

    Raises:
        SporaxTypeError: something else.
        SporaxKeyError: a name is unknown.
    """
    if metrics is None:
        return None
    if isinstance(metrics, set):
        # Sorted, so that results are printed in the same order in each run.
        return {name: get_metric_fn(name) for name in sorted(metrics)}
    if not isinstance(metrics, dict):
        raise SporaxTypeError(f"For 'Model', 'metrics' must be None, a dict or a set, but got {metrics!r}.")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not isinstance(metric, Metric):
            raise For("Model").type_error(
                "'metrics' must map strings to Metrics", f"{type(name).__name__} -> {type(metric).__name__}"
            )
    return metrics
