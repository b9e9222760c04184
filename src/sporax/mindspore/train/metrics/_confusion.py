"""Confusion matrices, and the rates derived from true and false positives and negatives; ROC curves and the area under a curve.

BLEU: how much a translation has in common with references (Papineni et al., 2002).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxValueError
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
        self.num_classes = For("ConfusionMatrix").integer("num_classes", num_classes, 1)
        choices = ("no_norm", "target", "prediction", "all")
        For("ConfusionMatrix").one_of("normalize", normalize, choices)
        self.normalize = normalize
        self.threshold = For("ConfusionMatrix").typed("threshold", threshold, "a float", float)
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
                raise For("ConfusionMatrix.update").error(
                    f"{what} classes must be in [0, {self.num_classes}), but they are in [{values.min()}, {values.max()}]"
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
        self.skip_channel = For(name).boolean("skip_channel", skip_channel)
        self.metric_name = For(name).text("metric_name", metric_name)
        self._formula = _formula(metric_name)
        self.calculation_method = For(name).boolean("calculation_method", calculation_method)
        self.decrease = For(name).text("decrease", decrease, _DECREASES)
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
        For("ConfusionMatrixMetric.update").refuse(
            y_pred.shape != y.shape or y.ndim < 2, "the inputs must have one shape [N, C, ...]", y_pred.shape, y.shape
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


_Curve = tuple[Any, Any, Any]  # false positive rates, true positive rates, thresholds


class ROC(Metric):
    """Rates of false and true positives at every threshold.

    Args:
        class_num: number of classes; None (or 1) for single scores.
        pos_label: which class is positive; 1 by default for single scores, None for several classes.

    Raises:
        SporaxTypeError: an argument is no whole number.
    """

    def __init__(self, class_num: int | None = None, pos_label: int | None = None) -> None:
        for name, value in (("class_num", class_num), ("pos_label", pos_label)):
            if value is not None:
                For("ROC").integer(name, value)
        self.class_num = class_num
        self.pos_label = pos_label
        self.clear()

    def clear(self) -> None:
        self._batch: tuple[Array, Array] | None = None

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take scores ``[N]`` or ``[N, C]`` and classes ``[N]``; they replace the batch before, as in MindSpore.

        Raises:
            SporaxValueError: shapes do not fit each other or the arguments of the metric.
        """
        y_pred, y = self._inputs(inputs, "predicted value", "true value")
        if y_pred.ndim == y.ndim:
            For("ROC.update").refuse(
                self.class_num not in (None, 1), "'class_num' must be 1 for inputs of equal dimensions", self.class_num
            )
            self._batch = y_pred.reshape(-1), y.reshape(-1)
            return
        if y_pred.ndim != y.ndim + 1:
            raise SporaxValueError(
                "For 'ROC.update', the predicted value must have as many dimensions as the true value, or one more, "
                f"but got shapes {y_pred.shape} and {y.shape}."
            )
        For("ROC.update").refuse(self.pos_label is not None, "'pos_label' must be None for classes", self.pos_label)
        if self.class_num != y_pred.shape[1]:
            raise For("ROC.update").error(
                f"'class_num' must be the number of predicted classes, {y_pred.shape[1]}", self.class_num
            )
        # Samples with further dimensions, such as pixels, count one by one.
        self._batch = np.moveaxis(y_pred, 1, -1).reshape(-1, y_pred.shape[1]), y.reshape(-1)

    def eval(self) -> _Curve:
        """(false positive rates, true positive rates, thresholds); lists with one array per class for several classes.

        Raises:
            SporaxRuntimeError: no batch was seen.
            SporaxValueError: a class has no positive or no negative samples.
        """
        self._check_seen(self._batch is not None)
        assert self._batch is not None
        scores, y = self._batch
        if scores.ndim == 1:
            return _curve(scores, y == (1 if self.pos_label is None else self.pos_label))
        curves = [_curve(scores[:, label], y == label) for label in range(scores.shape[1])]
        return [curve[0] for curve in curves], [curve[1] for curve in curves], [curve[2] for curve in curves]


def _curve(scores: Array, positive: Array) -> _Curve:
    order = np.argsort(-scores)
    scores, positive = scores[order], positive[order]
    ends = np.append(np.flatnonzero(np.diff(scores)), scores.size - 1)  # last place of each run of equal scores
    # The curve begins at (0, 0), where no sample is above the threshold.
    true_positives = np.concatenate(([0], np.cumsum(positive)[ends]))
    false_positives = np.concatenate(([0], 1 + ends - true_positives[1:]))
    for what, counts in (("negative", false_positives), ("positive", true_positives)):
        For("ROC.eval").refuse(counts[-1] == 0, f"there must be {what} samples, but the true value has none")
    # Above the highest score nothing is positive.
    thresholds = np.concatenate((scores[:1] + 1, scores[ends]))
    return false_positives / false_positives[-1], true_positives / true_positives[-1], thresholds


def auc(x: Any, y: Any, reorder: bool = False) -> Any:
    """Area under the curve through the points (x, y), by the trapezoid rule.

    Args:
        x, y: numpy arrays ``[N]`` with N >= 2.
        reorder: sort the points by x first; else x must rise or fall throughout.

    Raises:
        SporaxTypeError: not numpy arrays.
        SporaxValueError: lengths differ, there are too few points, or x goes up and down.
    """
    For("auc").boolean("reorder", reorder)
    for name, value in (("x", x), ("y", y)):
        For("auc").typed(name, value, "a numpy array", np.ndarray)
        if value.ndim != 1 and not (value.ndim == 2 and value.shape[1] == 1):
            raise SporaxValueError(f"For 'auc', '{name}' must be one column, but got shape {value.shape}.")
    x, y = x.ravel(), y.ravel()
    For("auc").refuse(x.size != y.size or x.size < 2, "'x' and 'y' must have the same length >= 2", x.size, y.size)
    if reorder:
        # Equal x are ordered by y, so that the curve is defined.
        order = np.lexsort((y, x))
        x, y = x[order], y[order]
    steps = np.diff(x)
    For("auc").refuse((steps < 0).any() and (steps > 0).any(), "'x' must rise or fall throughout, unless reorder=True")
    area = np.trapezoid(y, x)
    # A falling x gives the area with the wrong sign.
    return -area if (steps < 0).any() else area


class BleuScore(Metric):
    """Geometric mean of the precisions of n-grams, times a penalty for being short.

    Args:
        n_gram: longest n-gram, 1 to 4.
        smooth: count one more of everything.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.

    Example:
        >>> BleuScore()([["the", "cat", "is", "here"]], [[["the", "cat", "is", "here"]]])
        1.0
    """

    def __init__(self, n_gram: int = 4, smooth: bool = False) -> None:
        if not 1 <= For("BleuScore").integer("n_gram", n_gram) <= 4:
            raise SporaxValueError(f"For 'BleuScore', 'n_gram' must be between 1 and 4, but got {n_gram}.")
        self.n_gram = n_gram
        self.smooth = For("BleuScore").boolean("smooth", smooth)
        self.clear()

    def clear(self) -> None:
        self._shared = np.zeros(self.n_gram)
        self._total = np.zeros(self.n_gram)
        self._candidate_length = 0
        self._reference_length = 0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take sentences (lists of words), and for each a list of reference sentences.

        Raises:
            SporaxValueError: not as many of one as of the other.
        """
        self._check_count(inputs, "candidate_corpus", "reference_corpus")
        candidates, references = inputs
        if len(candidates) != len(references):
            raise SporaxValueError(
                "For 'BleuScore.update', there must be references for every sentence, but got "
                f"{len(candidates)} sentences and {len(references)} lists of references."
            )
        for candidate, alternatives in zip(candidates, references, strict=True):
            self._add(candidate, alternatives)

    def _add(self, candidate: Sequence[str], alternatives: Sequence[Sequence[str]]) -> None:
        lengths = [len(alternative) for alternative in alternatives]
        self._candidate_length += len(candidate)
        # The reference that is closest in length, as in the paper.
        self._reference_length += min(lengths, key=lambda length: abs(length - len(candidate)))
        ngrams = _ngrams(candidate, self.n_gram)
        allowed: Counter[tuple[str, ...]] = Counter()
        for alternative in alternatives:
            # The union takes the largest count in any reference, by which hits are clipped.
            allowed |= _ngrams(alternative, self.n_gram)
        # An n-gram counts as a hit no more often than a reference has it.
        for counts, totals in ((ngrams & allowed, self._shared), (ngrams, self._total)):
            for ngram, count in counts.items():
                totals[len(ngram) - 1] += count

    def eval(self) -> float:
        """The score, between 0 and 1.

        Raises:
            SporaxRuntimeError: no sentence was seen.
        """
        self._check_seen(self._candidate_length)
        # One precision of 0 makes the geometric mean 0; its logarithm would fail.
        if self._shared.min() == 0:
            return 0.0
        more = 1.0 if self.smooth else 0.0
        precisions = (self._shared + more) / (self._total + more)
        ratio = self._reference_length / self._candidate_length
        # Only translations that are too short are penalized.
        penalty = 1.0 if ratio < 1 else math.exp(1 - ratio)
        return penalty * math.exp(float(np.log(precisions).mean()))


def _ngrams(words: Sequence[str], longest: int) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + length])
        for length in range(1, longest + 1)
        for start in range(len(words) - length + 1)
    )
