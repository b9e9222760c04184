"""Attention of several heads, sharded over batch and heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.basic import Dropout
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.parallel._transformer._configs import OpParallelConfig, check_division, default_dpmp_config
from sporax.mindspore.parallel._transformer._layers import _Linear

_MASKED = -10000.0
"""Added to the score of a position that is not looked at, as in MindSpore."""

Present = tuple[Tensor, Tensor]


class AttentionMask(Cell):
    """Which positions each token looks at: itself and those before it that the input mask keeps.

    Args:
        seq_length: length of a sequence.
        parallel_config: the batch is sharded `data_parallel` ways.
    """

    def __init__(self, seq_length: int, parallel_config: OpParallelConfig = default_dpmp_config) -> None:
        super().__init__()
        data = parallel_config.data_parallel
        self.seq_length = seq_length
        self.multiply = ops.BatchMatMul().shard(((data, 1, 1), (data, 1, 1)))
        # The lower triangle is the same for all sequences, so it stays whole on every device.
        self.mul = ops.Mul().shard(((data, 1, 1), (1, 1, 1)))

    def construct(self, input_mask: Tensor) -> Tensor:
        """(batch, length, length) of `input_mask` (batch, length)."""
        batch, length = input_mask.shape
        if length != self.seq_length:
            raise SporaxValueError(
                f"For 'AttentionMask', the mask must be (batch, {self.seq_length}), but got {tuple(input_mask.shape)}."
            )
        mask = (input_mask != 0).astype(dtypes.float32)
        both = self.multiply(mask.reshape(batch, length, 1), mask.reshape(batch, 1, length))
        lower = Tensor(np.tril(np.ones((1, length, length), np.float32)))
        return self.mul(both, lower)


class MultiHeadAttention(Cell):
    """Attention with projections of queries, keys, values and result.

    Args:
        batch_size: sequences per batch; with None any number.
        src_seq_length, tgt_seq_length: lengths of the sequences of queries, and of keys and values.
        hidden_size: length of a token's vector.
        num_heads: number of heads.
        hidden_dropout_rate, attention_dropout_rate: probabilities of outputs and of attention weights to be zeroed.
        compute_dtype: dtype of the products.
        softmax_compute_type: dtype of the softmax.
        param_init_type: dtype of the Parameters.
        use_past: must be False: incremental inference is not offered.
        parallel_config: the batch is sharded `data_parallel` ways, the heads `model_parallel` ways.

    Raises:
        SporaxValueError: a dimension cannot be divided.
        SporaxNotImplementedError: `use_past`.
    """

    def __init__(
        self, batch_size: int | None, src_seq_length: int, tgt_seq_length: int, hidden_size: int, num_heads: int,
        hidden_dropout_rate: float = 0.1, attention_dropout_rate: float = 0.1, compute_dtype: DType = dtypes.float16,
        softmax_compute_type: DType = dtypes.float32, param_init_type: DType = dtypes.float32,
        use_past: bool = False, parallel_config: OpParallelConfig = default_dpmp_config,
    ) -> None:  # fmt: skip
        super().__init__()
        where = "MultiHeadAttention"
        refuse_past(where, use_past)
        data, model = parallel_config.data_parallel, parallel_config.model_parallel
        check_division(where, "hidden_size", hidden_size, "num_heads", num_heads)
        check_division(where, "num_heads", num_heads, "model_parallel", model)
        self.src_seq_length, self.tgt_seq_length = src_seq_length, tgt_seq_length
        self.hidden_size, self.n_head = hidden_size, num_heads
        self.size_per_head = hidden_size // num_heads
        self.dtype, self.softmax_dtype = compute_dtype, softmax_compute_type
        common: dict[str, Any] = {"param_init_type": param_init_type, "compute_dtype": compute_dtype}
        self.projection = _Linear(hidden_size, hidden_size, transpose_b=False, **common)
        # Row parallel: inputs are sharded as the heads are, which costs the one all-reduce of the layer (Megatron-LM).
        self.projection.shard(((data, model), (model, 1)), ((data, 1), (1,)))
        self.dense1, self.dense2, self.dense3 = (_Linear(hidden_size, hidden_size, **common) for _ in range(3))
        for dense in self.dense1, self.dense2, self.dense3:
            # Column parallel: each device computes its own heads, without communication (Megatron-LM).
            dense.shard(((data, 1), (model, 1)), ((data, model), (model,)))
        heads = (data, model, 1, 1)
        # Heads are still dimension 2 here, behind the length.
        self.transpose = ops.Transpose().shard((heads[:1] + (1, model, 1),))
        self.merge = ops.Transpose().shard((heads,))
        self.scores = ops.BatchMatMul().shard((heads, heads))
        self.add = ops.Add().shard(((data, 1, 1, 1), heads))
        self.softmax = ops.Softmax().shard((heads,))
        self.prob_dropout = Dropout(p=attention_dropout_rate)
        self.prob_dropout.dropout.shard((heads,))
        self.weighted = ops.BatchMatMul().shard((heads, heads))
        self.dropout = Dropout(p=hidden_dropout_rate)
        self.dropout.dropout.shard(((data, 1),))

    def construct(
        self, query_tensor: Tensor, key_tensor: Tensor, value_tensor: Tensor, attention_mask: Tensor | None,
        key_past: None = None, value_past: None = None, batch_valid_length: None = None,
    ) -> tuple[Tensor, Present]:  # fmt: skip
        """The output, of the shape of `query_tensor`; and keys (batch, heads, size, length) and values (…, length, size).

        Args:
            query_tensor: (batch, length, hidden) or (batch * length, hidden).
            key_tensor, value_tensor: the same, with their length.
            attention_mask: (batch, queries, keys), 1 where to look; None for all.
            key_past, value_past, batch_valid_length: must be None.
        """
        refuse_past("MultiHeadAttention", not (key_past is value_past is batch_valid_length is None))
        query = self._heads(self.dense1(query_tensor), self.src_seq_length, (0, 2, 1, 3))
        key = self._heads(self.dense2(key_tensor), self.tgt_seq_length, (0, 2, 3, 1))
        value = self._heads(self.dense3(value_tensor), self.tgt_seq_length, (0, 2, 1, 3))
        # The root on both factors, as in MindSpore: in float16 the product of unscaled values could overflow.
        scale = Tensor(1 / math.sqrt(math.sqrt(self.size_per_head)), self.dtype)
        scores = self.scores(query.astype(self.dtype) * scale, key.astype(self.dtype) * scale)
        # A softmax in float16 loses too much for long sequences.
        scores = scores.astype(self.softmax_dtype)
        if attention_mask is not None:
            mask = attention_mask.astype(self.softmax_dtype)
            # The mask has no head dimension; 1 broadcasts over the heads.
            mask = mask.reshape(mask.shape[0], 1, *mask.shape[-2:])
            scores = self.add((1.0 - mask) * _MASKED, scores)
        weights = self.prob_dropout(self.softmax(scores).astype(self.dtype))
        merged = self.merge(self.weighted(weights, value.astype(self.dtype)), (0, 2, 1, 3))
        output = self.projection(merged.reshape(-1, self.hidden_size).astype(query_tensor.dtype))
        result: Tensor = self.dropout(output).reshape(query_tensor.shape)
        return result, (key, value)

    def _heads(self, x: Tensor, length: int, order: tuple[int, ...]) -> Tensor:
        return self.transpose(x.reshape(-1, length, self.n_head, self.size_per_head), order)


def refuse_past(where: str, use_past: bool) -> None:
    """Refuse incremental inference.

    Raises:
        SporaxNotImplementedError: it is asked for.
    """
    if use_past:
        raise SporaxNotImplementedError(f"For '{where}', incremental inference ('use_past') is not offered.")
