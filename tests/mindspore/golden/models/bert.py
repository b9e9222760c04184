"""A BERT in small, with both its tasks: what the hidden words are, and whether the second sentence follows the first.

The encoder is MindSpore's own `nn.TransformerEncoder`. The network contains its losses, as pre-training scripts do.

Shapes: B batch, T tokens, D width, V vocabulary, M hidden words of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

VOCAB, LENGTH, WIDTH, HEADS, LAYERS, HIDDEN = 31, 16, 32, 4, 2, 3


def net(ms: Any) -> Any:
    """The network: (tokens, segments, padding, places and words that are hidden, follows) to the loss."""
    nn, ops = ms.nn, ms.ops

    class Embeddings(nn.Cell):
        """Word, place and segment, added and normalised."""

        def __init__(self):
            super().__init__()
            self.word = nn.Embedding(VOCAB, WIDTH, padding_idx=0)
            self.position = nn.Embedding(LENGTH, WIDTH, embedding_table="truncatedNormal")
            self.segment = nn.Embedding(2, WIDTH, use_one_hot=True)
            self.norm = nn.LayerNorm((WIDTH,), epsilon=1e-12)
            self.dropout = nn.Dropout(p=0.0)
            self.places = ms.Tensor(np.arange(LENGTH), ms.int32)

        def construct(self, tokens_BT, segments_BT):
            x_BTD = self.word(tokens_BT) + self.position(self.places) + self.segment(segments_BT)
            return self.dropout(self.norm(x_BTD))

    class Bert(nn.Cell):
        """The encoder: (states (B, T, D), state of the first word (B, D))."""

        def __init__(self):
            super().__init__()
            self.embeddings = Embeddings()
            layer = nn.TransformerEncoderLayer(
                WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, LAYERS)
            self.pooler = nn.Dense(WIDTH, WIDTH, activation="tanh")

        def construct(self, tokens_BT, segments_BT, padding_BT):
            states_BTD = self.encoder(self.embeddings(tokens_BT, segments_BT), src_key_padding_mask=padding_BT)
            return states_BTD, self.pooler(states_BTD[:, 0])

    class BertPreTraining(nn.Cell):
        """The encoder with both tasks."""

        def __init__(self):
            super().__init__()
            self.bert = Bert()
            self.transform = nn.SequentialCell(
                nn.Dense(WIDTH, WIDTH), nn.GELU(approximate=False), nn.LayerNorm((WIDTH,))
            )
            self.bias = ms.Parameter(ms.Tensor(np.zeros(VOCAB), ms.float32), name="word_bias")
            self.relation = nn.Dense(WIDTH, 2)
            self.gather = ops.GatherD()
            self.log_softmax = nn.LogSoftmax(axis=-1)
            self.one_hot = ops.OneHot()
            self.on, self.off = ms.Tensor(1.0, ms.float32), ms.Tensor(0.0, ms.float32)

        def construct(self, tokens_BT, segments_BT, padding_BT, places_BM, words_BM, follows_B):
            states_BTD, first_BD = self.bert(tokens_BT, segments_BT, padding_BT)
            index_BMD = ops.tile(ops.expand_dims(places_BM, -1), (1, 1, WIDTH))
            hidden_BMD = self.transform(self.gather(states_BTD, 1, index_BMD))
            table_VD = self.bert.embeddings.word.embedding_table
            logits_BMV = ops.matmul(hidden_BMD, table_VD.T) + self.bias
            log_probabilities = self.log_softmax(logits_BMV.view(-1, VOCAB))
            targets = self.one_hot(words_BM.view(-1), VOCAB, self.on, self.off)
            word_loss = -(log_probabilities * targets).sum(-1).mean()
            relation_loss = ops.cross_entropy(self.relation(first_BD), follows_B)
            return word_loss + relation_loss

    return BertPreTraining()


def batches() -> Iterator[tuple[np.ndarray, ...]]:
    """Ten batches of 8 pairs of counting sentences of 4 to 8 words; the last words are padding."""
    rng = np.random.default_rng(33)
    for _ in range(10):
        half = LENGTH // 2
        start, follows = rng.integers(0, 26, 8), rng.integers(0, 2, 8)
        second = np.where(follows, start + half, rng.integers(0, 26, 8))
        counted = np.concatenate([start[:, None] + np.arange(half), second[:, None] + np.arange(half)], 1)
        tokens = (counted % 26 + 5).astype(np.int32)
        padding = np.arange(LENGTH) >= rng.integers(half + 4, LENGTH + 1, (8, 1))
        places = np.stack([rng.choice(half + 4, HIDDEN, replace=False) for _ in range(8)])
        words = np.take_along_axis(tokens, places, 1)
        np.put_along_axis(tokens, places, 3, 1)
        segments = np.tile(np.arange(LENGTH) >= half, (8, 1)).astype(np.int32)
        yield (
            np.where(padding, 0, tokens).astype(np.int32), segments, padding,
            places.astype(np.int32), words, follows.astype(np.int32),
        )  # fmt: skip
