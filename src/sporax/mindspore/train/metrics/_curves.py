"""ROC curves and the area under a curve.

BLEU: how much a translation has in common with references (Papineni et al., 2002).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.train._checks import check_bool, check_integer
from sporax.mindspore.train.metrics._metric import Array, Metric, rearrange_inputs

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
                check_integer("ROC", name, value)
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
            if self.class_num not in (None, 1):
                raise SporaxValueError(
                    f"For 'ROC.update', 'class_num' must be 1 for inputs of equal dimensions, but got {self.class_num}."
                )
            self._batch = y_pred.reshape(-1), y.reshape(-1)
            return
        if y_pred.ndim != y.ndim + 1:
            raise SporaxValueError(
                "For 'ROC.update', the predicted value must have as many dimensions as the true value, or one more, "
                f"but got shapes {y_pred.shape} and {y.shape}."
            )
        if self.pos_label is not None:
            raise SporaxValueError(f"For 'ROC.update', 'pos_label' must be None for classes, but got {self.pos_label}.")
        if self.class_num != y_pred.shape[1]:
            raise SporaxValueError.must(
                "ROC.update", "class_num", f"be the number of predicted classes, {y_pred.shape[1]}", self.class_num
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
        if counts[-1] == 0:
            raise SporaxValueError(f"For 'ROC.eval', there must be {what} samples, but the true value has none.")
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
    check_bool("auc", "reorder", reorder)
    for name, value in (("x", x), ("y", y)):
        check_type("auc", name, value, "a numpy array", np.ndarray)
        if value.ndim != 1 and not (value.ndim == 2 and value.shape[1] == 1):
            raise SporaxValueError(f"For 'auc', '{name}' must be one column, but got shape {value.shape}.")
    x, y = x.ravel(), y.ravel()
    if x.size != y.size or x.size < 2:
        raise SporaxValueError(f"For 'auc', 'x' and 'y' must have the same length >= 2, but got {x.size} and {y.size}.")
    if reorder:
        # Equal x are ordered by y, so that the curve is defined.
        order = np.lexsort((y, x))
        x, y = x[order], y[order]
    steps = np.diff(x)
    if (steps < 0).any() and (steps > 0).any():
        raise SporaxValueError("For 'auc', 'x' must rise or fall throughout, unless reorder=True.")
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
        if not 1 <= check_integer("BleuScore", "n_gram", n_gram) <= 4:
            raise SporaxValueError(f"For 'BleuScore', 'n_gram' must be between 1 and 4, but got {n_gram}.")
        self.n_gram = n_gram
        self.smooth = check_bool("BleuScore", "smooth", smooth)
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
