"""A GPT of four layers, written with functions and Tensor methods; the head shares the table of the tokens.

Shapes: B batch, T tokens, D width, H heads, K width of a head, V vocabulary. Tokens (B, T), targets (B, T).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

VOCAB, LENGTH, WIDTH, HEADS, LAYERS = 29, 16, 32, 4, 4


def net(ms: Any) -> Any:
    """The network: tokens to logits (B*T, V)."""
    nn, ops = ms.nn, ms.ops

    class Attention(nn.Cell):
        """Causal self-attention with one projection for query, key and value."""

        def __init__(self):
            super().__init__()
            self.qkv = nn.Dense(WIDTH, 3 * WIDTH)
            self.project = nn.Dense(WIDTH, WIDTH)
            self.dropout = nn.Dropout(p=0.0)

        def construct(self, x_BTD, mask_TT):
            batch, length, _ = x_BTD.shape
            query, key, value = self.qkv(x_BTD).chunk(3, -1)
            query = query.reshape(batch, length, HEADS, -1).swapaxes(1, 2)
            key = key.reshape(batch, length, HEADS, -1).transpose(0, 2, 3, 1)
            value = value.view(batch, length, HEADS, -1).permute(0, 2, 1, 3)
            scores = ops.matmul(query, key) / ops.sqrt(ms.Tensor(WIDTH / HEADS, ms.float32))
            scores = scores.masked_fill(mask_TT, -1e9)
            mixed = ops.matmul(self.dropout(ops.softmax(scores, axis=-1)), value)
            return self.project(mixed.swapaxes(1, 2).reshape(batch, length, WIDTH))

    class Block(nn.Cell):
        """Attention and a feed-forward layer, each behind a norm."""

        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm([WIDTH], epsilon=1e-5)
            self.attention = Attention()
            self.ln_2 = nn.LayerNorm([WIDTH], epsilon=1e-5)
            self.mlp = nn.SequentialCell(
                nn.Dense(WIDTH, 4 * WIDTH, activation="gelu"), nn.Dense(4 * WIDTH, WIDTH), nn.Dropout(p=0.0)
            )

        def construct(self, x_BTD, mask_TT):
            x_BTD = x_BTD + self.attention(self.ln_1(x_BTD), mask_TT)
            return x_BTD + self.mlp(self.ln_2(x_BTD))

    class Gpt(nn.Cell):
        """Embeddings, blocks, norm, and logits by the table of the tokens."""

        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCAB, WIDTH)
            self.positions = nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.CellList([Block() for _ in range(LAYERS)])
            self.norm = nn.LayerNorm([WIDTH], epsilon=1e-5)
            self.head = ops.MatMul(transpose_b=True)

        def construct(self, tokens_BT):
            length = tokens_BT.shape[1]
            x_BTD = self.tokens(tokens_BT) + self.positions(ops.arange(length))
            mask_TT = ops.triu(ops.ones((length, length), ms.float32), 1).astype(ms.bool_)
            for block in self.blocks:
                x_BTD = block(x_BTD, mask_TT)
            return self.head(self.norm(x_BTD).reshape(-1, WIDTH), self.tokens.embedding_table)

    return Gpt()


def batches() -> Iterator[tuple[np.ndarray, ...]]:
    """Ten batches of 8 sequences t → 5t + 2 mod 29; a tenth of the targets is to be ignored."""
    rng = np.random.default_rng(32)
    for _ in range(10):
        tokens = np.empty((8, LENGTH + 1), np.int32)
        tokens[:, 0] = rng.integers(0, VOCAB, 8)
        for t in range(LENGTH):
            tokens[:, t + 1] = (5 * tokens[:, t] + 2) % VOCAB
        targets = np.where(rng.random((8, LENGTH)) < 0.1, -100, tokens[:, 1:])
        yield tokens[:, :-1].copy(), targets.reshape(-1).astype(np.int32)
