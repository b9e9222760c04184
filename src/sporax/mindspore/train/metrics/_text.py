"""BLEU: how much a translation has in common with references (Papineni et al., 2002)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.train._checks import check_bool, check_integer
from sporax.mindspore.train.metrics._metric import Metric, rearrange_inputs


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
        """Forget everything."""
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
