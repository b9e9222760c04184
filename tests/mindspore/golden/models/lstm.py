"""Sentiment of a sentence: embedding, a bidirectional LSTM of two layers, the states at both ends, two classes.

Shapes: B batch, T words, E width of a word, S width of a state. Words (T, B), labels (B,).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

VOCAB, LENGTH, WIDTH, STATE = 23, 10, 12, 16


def net(ms: Any) -> Any:
    """The network: words to two logits."""
    nn, ops = ms.nn, ms.ops

    class SentimentNet(nn.Cell):
        """The classifier."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCAB, WIDTH)
            self.encoder = nn.LSTM(WIDTH, STATE, num_layers=2, has_bias=True, bidirectional=True, dropout=0.0)
            self.concat = ops.Concat(1)
            self.decoder = nn.Dense(4 * STATE, 2)

        def construct(self, words_TB):
            states, (last, memory) = self.encoder(self.embedding(words_TB))
            ends = self.concat((states[0], states[-1]))
            return self.decoder(ends) + ops.reduce_mean(last * memory)

    return SentimentNet()


def batches() -> Iterator[tuple[np.ndarray, ...]]:
    """Ten batches of 12 sentences; the label is whether more good words (even) than bad ones (odd) are in it."""
    rng = np.random.default_rng(34)
    for _ in range(10):
        words = rng.integers(0, VOCAB, (LENGTH, 12)).astype(np.int32)
        yield words, (2 * (words % 2 == 0).sum(0) > LENGTH).astype(np.int32)
