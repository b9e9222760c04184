"""Confusion matrices, and the rates derived from true and false positives and negatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxValueError, check_type
from sporax.mindspore.train._checks import check_bool, check_count, check_text
from sporax.mindspore.train.metrics._metric import Array, Metric, rearrange_inputs

_DECREASES = ("none", "mean", "sum", "mean_batch", "sum_batch", "mean_channel", "sum_channel")


class ConfusionMatrix(Metric):
    """How often class i (row) was predicted as class j (column).

    Args:
        num_classes: number of classes.
        normalize: ``"no_norm"`` counts; ``"target"``, ``"prediction"`` or ``"all"`` make rows, columns or everything
            sum to 1.
        threshold: scores from here on are class 1, where predictions are single scores.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, num_classes: int, normalize: str = "no_norm", threshold: float = 0.5) -> None:
        self.num_classes = check_count("ConfusionMatrix", "num_classes", num_classes, minimum=1)
        choices = ("no_norm", "target", "prediction", "all")
        SporaxValueError.raise_unless_in("ConfusionMatrix", "normalize", normalize, choices)
        self.normalize = normalize
        self.threshold = check_type("ConfusionMatrix", "threshold", threshold, "a float", float)
        self.clear()

    def clear(self) -> None:
        self.confusion_matrix = np.zeros((self.num_classes, self.num_classes))
        self._seen = False

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take predictions (classes ``[N]``, scores of class 1 ``[N]``, or scores ``[N, C]``) and classes ``[N]``.

        Raises:
            SporaxValueError: shapes do not fit, or a class is out of range.
        """
        y_pred, y = self._inputs(inputs, "predicted value", "true value")
        # One dimension more: scores per class.
        if y_pred.ndim == y.ndim + 1:
            y_pred = y_pred.argmax(axis=1)
        elif np.issubdtype(y_pred.dtype, np.floating):
            # Floats of the same shape are scores of class 1.
            y_pred = (y_pred >= self.threshold).astype(np.int64)
        if y_pred.shape != y.shape:
            raise SporaxValueError(
                "For 'ConfusionMatrix.update', the inputs must have the same shape, or the predicted value one dimension "
                f"of classes more, but got {inputs[0].shape} and {y.shape}."
            )
        rows, columns = y.reshape(-1).astype(np.int64), y_pred.reshape(-1).astype(np.int64)
        for what, values in (("true", rows), ("predicted", columns)):
            # Negative classes would count from the end.
            if values.size and not 0 <= values.min() <= values.max() < self.num_classes:
                raise SporaxValueError(
                    f"For 'ConfusionMatrix.update', {what} classes must be in [0, {self.num_classes}), but they are in "
                    f"[{values.min()}, {values.max()}]."
                )
        # `np.add.at` counts pairs that occur several times; `matrix[...] += 1` would not.
        np.add.at(self.confusion_matrix, (rows, columns), 1)
        self._seen = True

    def eval(self) -> Array:
        """The matrix ``[num_classes, num_classes]``; shares of nothing are 0.

        Raises:
            SporaxRuntimeError: no batch was seen.
        """
        self._check_seen(self._seen)
        # A copy, since users may change the result.
        matrix = self.confusion_matrix.copy()
        if self.normalize == "no_norm":
            return matrix
        dim = {"target": 1, "prediction": 0, "all": None}[self.normalize]
        totals = matrix.sum(axis=dim, keepdims=True)
        return np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals != 0)


def _share(part: Array, total: Array) -> Array:
    """part / whole, nan where there is no whole."""
    # Division by zero gives nan without a warning.
    part, total = np.broadcast_arrays(np.asarray(part, float), np.asarray(total, float))
    return np.divide(part, total, out=np.full(part.shape, np.nan), where=total != 0)


def _threshold(tp: Array, fp: Array, tn: Array, fn: Array) -> Array:
    hit, rejected = _share(tp, tp + fn), _share(tn, tn + fp)
    # (sqrt(TPR (1 - TNR)) + TNR - 1) / (TPR + TNR - 1), as in MindSpore.
    return _share(np.sqrt(hit * (1 - rejected)) + rejected - 1, hit + rejected - 1)


def _matthews(tp: Array, fp: Array, tn: Array, fn: Array) -> Array:
    return _share(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


# Short name -> (other names, formula over true and false positives, true and false negatives).
_RATES: dict[str, tuple[tuple[str, ...], Callable[..., Array]]] = {
    "tpr": (("sensitivity", "recall", "hit_rate", "true_positive_rate"), lambda tp, fp, tn, fn: _share(tp, tp + fn)),
    "tnr": (("specificity", "selectivity", "true_negative_rate"), lambda tp, fp, tn, fn: _share(tn, tn + fp)),
    "ppv": (("precision", "positive_predictive_value"), lambda tp, fp, tn, fn: _share(tp, tp + fp)),
    "npv": (("negative_predictive_value",), lambda tp, fp, tn, fn: _share(tn, tn + fn)),
    "fnr": (("miss_rate", "false_negative_rate"), lambda tp, fp, tn, fn: _share(fn, tp + fn)),
    "fpr": (("fall_out", "false_positive_rate"), lambda tp, fp, tn, fn: _share(fp, tn + fp)),
    "fdr": (("false_discovery_rate",), lambda tp, fp, tn, fn: _share(fp, tp + fp)),
    "for": (("false_omission_rate",), lambda tp, fp, tn, fn: _share(fn, tn + fn)),
    "pt": (("prevalence_threshold",), _threshold),
    "ts": (("threat_score", "critical_success_index", "csi"), lambda tp, fp, tn, fn: _share(tp, tp + fn + fp)),
    "acc": (("accuracy",), lambda tp, fp, tn, fn: _share(tp + tn, tp + fp + tn + fn)),
    "ba": (("balanced_accuracy",), lambda tp, fp, tn, fn: (_share(tp, tp + fn) + _share(tn, tn + fp)) / 2),
    "f1": (("f1_score",), lambda tp, fp, tn, fn: _share(2 * tp, 2 * tp + fp + fn)),
    "mcc": (("matthews_correlation_coefficient",), _matthews),
    "fm": (("fowlkes_mallows_index",), lambda tp, fp, tn, fn: np.sqrt(_share(tp, tp + fp) * _share(tp, tp + fn))),
    "bm": (
        ("informedness", "bookmaker_informedness"),
        lambda tp, fp, tn, fn: _share(tp, tp + fn) + _share(tn, tn + fp) - 1,
    ),
    "mk": (("markedness", "deltap"), lambda tp, fp, tn, fn: _share(tp, tp + fp) + _share(tn, tn + fn) - 1),
}
_FORMULAS = {name: formula for short, (others, formula) in _RATES.items() for name in (short, *others)}


def _formula(metric_name: str) -> Callable[..., Array]:
    name = metric_name.lower().replace(" ", "_")
    # "Hit rate" and "hit_rate" are the same name.
    if name not in _FORMULAS:
        raise SporaxNotImplementedError(
            f"For 'ConfusionMatrixMetric', 'metric_name' must be one of {sorted(_FORMULAS)}, but got '{metric_name}'."
        )
    return _FORMULAS[name]


class ConfusionMatrixMetric(Metric):
    """A rate such as sensitivity, from predictions and truth in zeros and ones ``[N, C, ...]``.

    Args:
        skip_channel: count class 0 (the background) too. (MindSpore's name says the opposite of what it does.)
        metric_name: which rate; see the table in this module for all names.
        calculation_method: average the rates of samples and classes, instead of one rate from all counts.
        decrease: how rates of samples and classes become one number: ``"mean"`` or ``"sum"``. MindSpore also takes
            ``"none"`` and ``"mean_batch"``, ``"mean_channel"`` and the like, which give several numbers; they are
            accepted where rates are not averaged at all.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxNotImplementedError: the rate is unknown.
    """

    def __init__(
        self,
        skip_channel: bool = True,
        metric_name: str = "sensitivity",
        calculation_method: bool = False,
        decrease: str = "mean",
    ) -> None:
        name = "ConfusionMatrixMetric"
        self.skip_channel = check_bool(name, "skip_channel", skip_channel)
        self.metric_name = check_text(name, "metric_name", metric_name)
        self._formula = _formula(metric_name)
        self.calculation_method = check_bool(name, "calculation_method", calculation_method)
        self.decrease = check_text(name, "decrease", decrease, _DECREASES)
        if calculation_method and decrease not in ("mean", "sum"):
            raise SporaxValueError(
                f"For '{name}', 'decrease' must be 'mean' or 'sum' when 'calculation_method' is True, but got '{decrease}'."
            )
        self.clear()

    def clear(self) -> None:
        self._counts = np.zeros(4)
        self._sum = 0.0
        self._weight = 0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take predictions and truth of one batch.

        Raises:
            SporaxValueError: shapes differ, have less than 2 dimensions, or values are not 0 or 1.
        """
        y_pred, y = self._inputs(inputs, "predicted value", "true value")
        if y_pred.shape != y.shape or y.ndim < 2:
            raise SporaxValueError(
                "For 'ConfusionMatrixMetric.update', the inputs must have one shape [N, C, ...], "
                f"but got {y_pred.shape} and {y.shape}."
            )
        if not np.isin(y, (0, 1)).all():
            raise SporaxValueError("For 'ConfusionMatrixMetric.update', the true value must hold zeros and ones only.")
        counts = self._counted(y_pred.astype(float), y.astype(float))
        # One number per class and sample has no rate of its own, so counts are added up (as MindSpore does).
        per_sample = self.calculation_method and not (y.ndim == 2 or (y.ndim == 3 and y.shape[-1] == 1))
        if per_sample:
            value, weight = (_mean if self.decrease == "mean" else _total)(self._formula(*np.moveaxis(counts, -1, 0)))
            self._sum += value * weight
            self._weight += weight
        else:
            self._counts += counts.sum(axis=(0, 1))

    def _counted(self, y_pred: Array, y: Array) -> Array:
        """True and false positives, true and false negatives ``[N, C, 4]``."""
        # MindSpore leaves the background out if the flag is False, in spite of the name.
        if not self.skip_channel and y.shape[1] > 1:
            y_pred, y = y_pred[:, 1:], y[:, 1:]
        y_pred, y = (value.reshape(*value.shape[:2], -1) for value in (y_pred, y))
        # Both are zeros and ones, so a sum of 2 is a hit and of 0 a right rejection.
        true_positives = (y_pred + y == 2).sum(axis=2, dtype=float)
        true_negatives = (y_pred + y == 0).sum(axis=2, dtype=float)
        positives = y.sum(axis=2)
        negatives = y.shape[-1] - positives
        return np.stack(
            [true_positives, negatives - true_negatives, true_negatives, positives - true_positives], axis=-1
        )

    def eval(self) -> Any:
        """The rate: a number, or ``[1]`` from counts.

        Raises:
            SporaxRuntimeError: no batch was seen.
        """
        if self._weight:
            # Rates of samples were averaged.
            return self._sum / self._weight
        self._check_seen(self._counts.any())
        return self._formula(*self._counts[:, None])


def _total(rates: Array) -> tuple[float, int]:
    """Sum of all rates ``[N, C]`` that are numbers, and how many they are."""
    valid = ~np.isnan(rates)
    return float(rates[valid].sum()), int(valid.sum())


def _mean(rates: Array) -> tuple[float, int]:
    """Mean over samples of each sample's mean over classes, and how many samples have a class that is a number."""
    valid = ~np.isnan(rates)
    counted = valid.any(axis=1)
    if not counted.any():
        return 0.0, 0
    means = np.where(valid, rates, 0.0).sum(axis=1)[counted] / valid.sum(axis=1)[counted]
    return float(means.mean()), int(counted.sum())
