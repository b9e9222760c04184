"""Metrics that are averages over samples (loss, accuracy, errors, perplexity), or counts per class."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.train.metrics._metric import Array, MeanMetric, Metric, labels_of, rearrange_inputs

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
        For(type(self).__name__).one_of("eval_type", eval_type, ("classification", "multilabel"), kind=SporaxTypeError)
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
        For(f"{name}.update").refuse(
            y_pred.shape != y.shape, "both inputs must have the same shape", y_pred.shape, y.shape
        )
        if not (np.isin(y_pred, (0, 1)).all() and np.isin(y, (0, 1)).all()):
            raise SporaxValueError(f"For '{name}.update', all elements must be 0 or 1 in the multilabel case.")

    def _same_classes(self, y_pred: Array, y: Array) -> tuple[Array, Array]:
        num_classes = y_pred.shape[1]
        # 0 stands for no batch yet.
        if self._num_classes not in (0, num_classes):
            raise For(f"{type(self).__name__}.update").error(
                f"the number of classes must stay {self._num_classes}", num_classes
            )
        self._num_classes = num_classes
        return y_pred, y

    def _class_indicators(self, y_pred: Array, y: Array) -> tuple[Array, Array]:
        """Predicted and true classes as zeros and ones ``[samples, classes]``."""
        if y.size and int(y.max()) >= self._num_classes:
            raise For(f"{type(self).__name__}.update").error(
                f"true classes must be below {self._num_classes}, the number of predicted classes, but got {int(y.max())}"
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
        For(f"{type(self).__name__}.eval").boolean("average", average)
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
        For("Fbeta").refuse(For("Fbeta").number("beta", beta) <= 0, "'beta' must be greater than 0", beta)
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


class Loss(MeanMetric):
    """Mean of the losses of all batches, each counted once whatever its size."""

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take the loss of one batch: a scalar, or one per sample.

        Raises:
            SporaxValueError: more than one input, or more than one dimension.
        """
        (loss,) = self._inputs(inputs, "loss")
        For("Loss.update").refuse(loss.ndim > 1, "the loss must have at most 1 dimension", loss.ndim)
        # The mean also of a loss per sample.
        self._sum += float(loss.mean())
        self._total += 1


class Accuracy(ClassificationMetric, MeanMetric):
    """Share of samples that are predicted rightly.

    Args:
        eval_type: ``"classification"``: scores ``[N, C, ...]`` and classes ``[N, ...]`` (or one-hot); or
            ``"multilabel"``: zeros and ones ``[N, C, ...]`` both, right if all C are.

    Raises:
        SporaxTypeError: another `eval_type`.
    """

    def clear(self) -> None:
        ClassificationMetric.clear(self)
        MeanMetric.clear(self)

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take predictions and truth of one batch.

        Raises:
            SporaxValueError: their shapes do not fit each other or `eval_type`, or the number of classes changes.
        """
        y_pred, y = self._checked(inputs)
        # A sample with several labels is right if all of them are.
        right = y_pred.argmax(axis=1) == y if self._type == "classification" else (y_pred == y).all(axis=1)
        self._sum += int(right.sum())
        self._total += right.size


class TopKCategoricalAccuracy(MeanMetric):
    """Share of samples whose class is among the `k` with the highest scores.

    Args:
        k: how many.

    Raises:
        SporaxTypeError, SporaxValueError: `k` is no positive whole number.
    """

    def __init__(self, k: int) -> None:
        if For("TopKCategoricalAccuracy").integer("k", k) < 1:
            raise SporaxValueError(f"For 'TopKCategoricalAccuracy', 'k' must be at least 1, but got {k}.")
        self.k = k
        self.clear()

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take scores ``[N, C]`` and classes ``[N]`` (or one-hot) of one batch."""
        y_pred, y = self._inputs(inputs, "predicted value", "true value")
        labels = labels_of(y_pred, y).reshape(-1, 1)
        # Sorting the negated scores puts the best first.
        best = np.argsort(-y_pred, axis=1)[:, : self.k]
        self._sum += int((best == labels).sum())
        self._total += len(labels)


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    """`TopKCategoricalAccuracy` with k = 1."""

    def __init__(self) -> None:
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    """`TopKCategoricalAccuracy` with k = 5."""

    def __init__(self) -> None:
        super().__init__(5)


class _Distance(MeanMetric):
    """Sum over all elements of a distance, divided by the number of samples, as in MindSpore."""

    _distance: Callable[[Any], Any]
    """Of a difference, element by element."""

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take predictions and truth of one batch, of equal sizes."""
        y_pred, y = self._inputs(inputs, "predicted value", "true value")
        For(f"{type(self).__name__}.update").refuse(
            y.size != y_pred.size, f"both inputs must have the same size, but got shapes {y_pred.shape} and {y.shape}"
        )
        # Shapes may differ as long as the sizes agree: (N, 1) and (N,).
        self._sum += float(self._distance(y.reshape(y_pred.shape) - y_pred).sum())
        self._total += y.shape[0]


class MAE(_Distance):
    """Absolute error: summed over all elements, divided by the number of samples."""

    _distance = staticmethod(np.abs)


class MSE(_Distance):
    """Squared error: summed over all elements, divided by the number of samples."""

    _distance = staticmethod(np.square)


class Perplexity(MeanMetric):
    """exp of the mean negative log-probability of the true classes.

    Args:
        ignore_label: a class that is not counted.

    Raises:
        SporaxTypeError: `ignore_label` is no whole number.
    """

    def __init__(self, ignore_label: int | None = None) -> None:
        if ignore_label is not None:
            For("Perplexity").integer("ignore_label", ignore_label)
        self.ignore_label = ignore_label
        self.clear()

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take probabilities ``[..., C]`` and classes ``[...]`` of one batch.

        Raises:
            SporaxRuntimeError: their shapes do not fit.
        """
        probabilities, labels = self._inputs(inputs, "predicted value", "label")
        rows = probabilities.reshape(-1, probabilities.shape[-1]) if probabilities.ndim else probabilities
        classes = labels.reshape(-1).astype(np.int64)
        if probabilities.ndim < 1 or len(rows) != classes.size:
            raise For("Perplexity.update").state_error(
                f"the predicted value must have one row per label, but got shapes {probabilities.shape} and {labels.shape}"
            )
        # Padding of sentences is the usual reason.
        if self.ignore_label is not None:
            counted = classes != self.ignore_label
            rows, classes = rows[counted], classes[counted]
        chosen = rows[np.arange(classes.size), classes]
        # The lower bound keeps log(0) finite; MindSpore uses the same number.
        self._sum -= float(np.log(np.maximum(1e-10, chosen)).sum())
        self._total += classes.size

    def eval(self) -> float:
        """The perplexity.

        Raises:
            SporaxRuntimeError: no label was counted.
        """
        return math.exp(super().eval())


class CosineSimilarity(Metric):
    """Similarity of every pair of rows of the last batch.

    Args:
        similarity: ``"cosine"`` or ``"dot"``.
        reduction: ``"none"`` gives the matrix, ``"sum"`` and ``"mean"`` one value per row.
        zero_diagonal: a row's similarity to itself counts as 0.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, similarity: str = "cosine", reduction: str = "none", zero_diagonal: bool = True) -> None:
        self.similarity = For("CosineSimilarity").text("similarity", similarity, ("dot", "cosine"))
        self.reduction = For("CosineSimilarity").text("reduction", reduction, ("none", "sum", "mean"))
        self.zero_diagonal = For("CosineSimilarity").boolean("zero_diagonal", zero_diagonal)
        self.clear()

    def clear(self) -> None:
        self._matrix: Any = None

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take one batch of rows ``[N, D]``; it replaces the one before.

        Raises:
            SporaxValueError: not one matrix.
        """
        (rows,) = self._inputs(inputs, "rows")
        For("CosineSimilarity.update").refuse(rows.ndim != 2, "the rows must be a matrix", f"shape {rows.shape}")
        if self.similarity == "cosine":
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        self._matrix = rows @ rows.T

    def eval(self) -> Any:
        """Matrix ``[N, N]``, or ``[N]`` with a reduction.

        Raises:
            SporaxRuntimeError: no batch was seen.
        """
        self._check_seen(self._matrix is not None)
        # A copy: the diagonal is changed, and `eval` may be called again.
        matrix = self._matrix.copy()
        if self.zero_diagonal:
            np.fill_diagonal(matrix, 0)
        if self.reduction == "none":
            return matrix
        return matrix.sum(axis=-1) if self.reduction == "sum" else matrix.mean(axis=-1)
