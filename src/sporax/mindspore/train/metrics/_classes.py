"""Metrics that count, per class, what was predicted and what was true."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.train._checks import check_bool, check_number
from sporax.mindspore.train.metrics._metric import Array, Metric, labels_of, rearrange_inputs

# Keeps 0 / 0 at 0, and is lost in any other sum.
_TINY = sys.float_info.min


class ClassificationMetric(Metric):
    """Base of metrics over classes or labels.

    Args:
        eval_type: ``"classification"`` or ``"multilabel"``.

    Raises:
        SporaxTypeError: another `eval_type`.
    """

    def __init__(self, eval_type: str = "classification") -> None:
        SporaxTypeError.raise_unless_in(type(self).__name__, "eval_type", eval_type, ("classification", "multilabel"))
        self._type = eval_type
        self.clear()

    def clear(self) -> None:
        self._num_classes = 0

    def _checked(self, inputs: tuple[Any, ...]) -> tuple[Array, Array]:
        """Predictions and truth, fitting each other; a one-hot truth as classes."""
        name = type(self).__name__
        y_pred, y = self._inputs(inputs, "predicted value", "true value")
        if self._type == "classification":
            y = labels_of(y_pred, y)
            if y_pred.ndim < 2 or y.shape != (y_pred.shape[0], *y_pred.shape[2:]):
                raise SporaxValueError(
                    f"For '{name}.update', the true value must have the predicted value's shape without dimension 1, "
                    f"but got {y.shape} and {y_pred.shape}."
                )
        else:
            self._check_labels(y_pred, y)
        return self._same_classes(y_pred, y)

    def _check_labels(self, y_pred: Array, y: Array) -> None:
        name = type(self).__name__
        if y_pred.shape != y.shape:
            raise SporaxValueError(
                f"For '{name}.update', both inputs must have the same shape, but got {y_pred.shape} and {y.shape}."
            )
        if not (np.isin(y_pred, (0, 1)).all() and np.isin(y, (0, 1)).all()):
            raise SporaxValueError(f"For '{name}.update', all elements must be 0 or 1 in the multilabel case.")

    def _same_classes(self, y_pred: Array, y: Array) -> tuple[Array, Array]:
        num_classes = y_pred.shape[1]
        # 0 stands for no batch yet.
        if self._num_classes not in (0, num_classes):
            raise SporaxValueError.must(
                f"{type(self).__name__}.update", "the number of classes", f"stay {self._num_classes}", num_classes
            )
        self._num_classes = num_classes
        return y_pred, y

    def _class_indicators(self, y_pred: Array, y: Array) -> tuple[Array, Array]:
        """Predicted and true classes as zeros and ones ``[samples, classes]``."""
        if y.size and int(y.max()) >= self._num_classes:
            raise SporaxValueError(
                f"For '{type(self).__name__}.update', true classes must be below {self._num_classes}, the number of "
                f"predicted classes, but got {int(y.max())}."
            )
        # Rows of the identity are one-hot vectors.
        identity = np.eye(self._num_classes)
        return identity[y_pred.argmax(axis=1).reshape(-1)], identity[y.reshape(-1).astype(np.int64)]


class _Hits(ClassificationMetric):
    """Right positives as a share of some count: per class, or per sample in the multilabel case."""

    def clear(self) -> None:
        super().clear()
        self._hits: Any = 0
        self._counts: Any = 0
        self._sample_shares: list[Array] = []

    def _counted(self, predicted: Array, true: Array) -> Array:
        raise NotImplementedError

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take predictions and truth of one batch.

        Raises:
            SporaxValueError: their shapes do not fit each other or `eval_type`, or a class is out of range.
        """
        y_pred, y = self._checked(inputs)
        if self._type == "classification":
            predicted, true = self._class_indicators(y_pred, y)
            self._hits = self._hits + (predicted * true).sum(axis=0)
            self._counts = self._counts + self._counted(predicted, true).sum(axis=0)
        else:
            # The classes come first, so that all other dimensions become samples.
            predicted, true = (np.moveaxis(value, 1, 0).reshape(self._num_classes, -1) for value in (y_pred, y))
            hits, counts = (predicted * true).sum(axis=0), self._counted(predicted, true).sum(axis=0)
            self._sample_shares.append(hits / (counts + _TINY))

    def eval(self, average: bool = False) -> Any:
        """Share per class (per sample in the multilabel case), or their mean.

        Args:
            average: give the mean.

        Raises:
            SporaxRuntimeError: no batch was seen.
            SporaxTypeError: `average` is not a bool.
        """
        self._check_seen(self._num_classes)
        check_bool(f"{type(self).__name__}.eval", "average", average)
        is_by_class = self._type == "classification"
        shares = self._hits / (self._counts + _TINY) if is_by_class else np.concatenate(self._sample_shares)
        return shares.mean() if average else shares


class Precision(_Hits):
    """Share of what was predicted positive that is: TP / (TP + FP)."""

    def _counted(self, predicted: Array, true: Array) -> Array:
        return predicted


class Recall(_Hits):
    """Share of what is positive that was predicted so: TP / (TP + FN)."""

    def _counted(self, predicted: Array, true: Array) -> Array:
        return true


class Fbeta(_Hits):
    """Weighted harmonic mean of precision and recall, per class: of scores ``[N, C, ...]`` and classes ``[N, ...]`` (or one-hot).

    Args:
        beta: weight of recall.

    Raises:
        SporaxTypeError, SporaxValueError: `beta` is no positive number.
    """

    def __init__(self, beta: float) -> None:
        SporaxValueError.raise_if(check_number("Fbeta", "beta", beta) <= 0, "Fbeta", "beta", "be greater than 0", beta)
        self.beta = beta
        super().__init__("classification")

    def _counted(self, predicted: Array, true: Array) -> Array:
        # (1 + b^2) TP / (b^2 P + predicted positives), which avoids the two quotients.
        square = self.beta**2
        return (square * true + predicted) / (1 + square)


class F1(Fbeta):
    """`Fbeta` with beta = 1."""

    def __init__(self) -> None:
        super().__init__(1.0)
