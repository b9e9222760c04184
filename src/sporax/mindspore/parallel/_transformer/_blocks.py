"""Blocks of a Transformer, and attention of several heads, sharded over batch and heads.

With experts (``moe_config.expert_num > 1``) every output of a block has the auxiliary loss as one more part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError
from sporax.mindspore import ops
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.nn.basic import Dropout
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.parallel._transformer._configs import (
    MoEConfig,
    MoEParallelConfig,
    OpParallelConfig,
    check_division,
    default_dpmp_config,
    default_moe_config,
)
from sporax.mindspore.parallel._transformer._layers import _LayerNorm, _Linear
from sporax.mindspore.parallel._transformer._moe import FeedForward, MoE

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
        For("AttentionMask").refuse(
            length != self.seq_length, f"the mask must be (batch, {self.seq_length})", tuple(input_mask.shape)
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
        SporaxNotImplementedError: it is requested.
    """
    if use_past:
        raise SporaxNotImplementedError(f"For '{where}', incremental inference ('use_past') is not offered.")


class Block(Cell):
    """A block of an encoder, or with a source of a decoder: attention, to the source too, and the layer behind them.

    Each is behind a normalization and added to its input.

    Args:
        seq_length: length of the block's own sequences.
        source_length: length of the encoder's sequences; None for a block of an encoder.
        others: see `TransformerEncoderLayer`.
    """

    def __init__(
        self, *, batch_size: int | None, seq_length: int, source_length: int | None, hidden_size: int,
        ffn_hidden_size: int, num_heads: int, attention_dropout_rate: float, hidden_dropout_rate: float,
        post_layernorm_residual: bool, layernorm_compute_type: DType, softmax_compute_type: DType,
        param_init_type: DType, hidden_act: Any, use_past: bool, moe_config: MoEConfig,
        parallel_config: OpParallelConfig | MoEParallelConfig, compute_dtype: DType,
    ) -> None:  # fmt: skip
        super().__init__()
        data = parallel_config.data_parallel
        self.hidden_size, self.post_layernorm_residual, self.dtype = hidden_size, post_layernorm_residual, compute_dtype
        self._strategy = ((data, 1),)
        self._norm_type, self._norm_init = layernorm_compute_type, param_init_type
        self.layernorm1, self.layernorm2 = self._norm(), self._norm()
        self.use_moe = moe_config.expert_num > 1
        attention_config = parallel_config
        common: dict[str, Any] = {"param_init_type": param_init_type, "compute_dtype": compute_dtype}
        if self.use_moe and not isinstance(parallel_config, MoEParallelConfig):
            # A plain configuration is enough for MindSpore: experts are then not sharded.
            parallel_config = MoEParallelConfig(data, parallel_config.model_parallel)
        layer: dict[str, Any] = {"hidden_act": hidden_act, "parallel_config": parallel_config, **common}
        self.output: Cell
        if self.use_moe:
            self.output = MoE(hidden_size, hidden_dropout_rate, ffn_hidden_size, moe_config=moe_config, **layer)
        else:
            self.output = FeedForward(hidden_size, ffn_hidden_size, hidden_dropout_rate, **layer)
        self.add = ops.Add().shard(((data, 1), (data, 1)))

        def attention(length: int) -> MultiHeadAttention:
            shape = (batch_size, seq_length, length, hidden_size, num_heads)
            options: dict[str, Any] = {"use_past": use_past, "parallel_config": attention_config, **common}
            rates = (hidden_dropout_rate, attention_dropout_rate)
            return MultiHeadAttention(*shape, *rates, softmax_compute_type=softmax_compute_type, **options)

        self.attention = attention(seq_length)
        if source_length is not None:
            self.cross_attention = attention(source_length)
            self.cross_attention_layernorm = self._norm()

    def _norm(self) -> _LayerNorm:
        norm = _LayerNorm((self.hidden_size,), param_init_type=self._norm_init)
        # Normalization in its own dtype, usually float32, since variances in float16 are not precise enough.
        return norm.shard(self._strategy).to_float(self._norm_type)

    def _flat(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self.hidden_size)

    def _residual(self, x: Tensor, normalized: Tensor, result: Tensor) -> Tensor:
        # MindSpore's `post_layernorm_residual` adds to the normalized input.
        base = normalized if self.post_layernorm_residual else x
        return self.add(base, self._flat(result).astype(base.dtype))

    def _behind_norms(
        self, hidden: Tensor, mask: Tensor | None, batch_valid_length: None, source: Tensor | None = None,
        source_mask: Tensor | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        x = self._flat(hidden)
        normalized = self.layernorm1(x)
        query = normalized.astype(self.dtype)
        attention, present = self.attention(query, query, query, mask, None, None, batch_valid_length)
        x = self._residual(x, normalized, attention)
        if source is not None:
            normalized = self.cross_attention_layernorm(x)
            memory = self._flat(source).astype(self.dtype)
            crossed, seen = self.cross_attention(normalized.astype(self.dtype), memory, memory, source_mask)
            x, present = self._residual(x, normalized, crossed), present + seen
        normalized = self.layernorm2(x)
        result = self.output(normalized.astype(self.dtype))
        output, auxiliary = result if self.use_moe else (result, None)
        final = self._residual(x, normalized, output).reshape(hidden.shape)
        return (final, present, auxiliary) if self.use_moe else (final, present)


_SHARED = (
    *("batch_size", "hidden_size", "ffn_hidden_size", "num_heads", "attention_dropout_rate", "hidden_dropout_rate"),
    *("post_layernorm_residual", "layernorm_compute_type", "softmax_compute_type", "param_init_type", "hidden_act"),
    *("use_past", "moe_config", "parallel_config", "compute_dtype"),
)


def shared(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a constructor's arguments that every block, stack and Transformer takes."""
    return {name: arguments[name] for name in _SHARED}


class TransformerEncoderLayer(Block):
    """Self-attention and a feed-forward layer, each behind a normalization and added to its input.

    Args:
        batch_size: sequences per batch; with None any number.
        hidden_size, ffn_hidden_size: lengths of a token's vector, outside and inside the feed-forward layer.
        num_heads: number of heads.
        seq_length: length of a sequence.
        attention_dropout_rate, hidden_dropout_rate: probabilities of weights and of outputs to be zeroed.
        post_layernorm_residual: add to the normalized input instead of the input.
        layernorm_compute_type, softmax_compute_type, param_init_type: dtypes.
        hidden_act: name of the activation.
        use_past: must be False.
        moe_config: with experts, `MoE` instead of `FeedForward`.
        parallel_config: an `OpParallelConfig`, with experts a `MoEParallelConfig`.
        compute_dtype: dtype of the products; beyond MindSpore, which has float16 here.
    """

    def __init__(
        self, batch_size: int | None, hidden_size: int, ffn_hidden_size: int, num_heads: int, seq_length: int,
        attention_dropout_rate: float = 0.1, hidden_dropout_rate: float = 0.1, post_layernorm_residual: bool = False,
        layernorm_compute_type: DType = dtypes.float32, softmax_compute_type: DType = dtypes.float32,
        param_init_type: DType = dtypes.float32, hidden_act: Any = "gelu", use_past: bool = False,
        moe_config: MoEConfig = default_moe_config, parallel_config: OpParallelConfig = default_dpmp_config, *,
        compute_dtype: DType = dtypes.float16,
    ) -> None:  # fmt: skip
        super().__init__(seq_length=seq_length, source_length=None, **shared(locals()))

    def construct(
        self, x: Tensor, input_mask: Tensor | None = None, init_reset: bool = True, batch_valid_length: None = None
    ) -> tuple[Any, ...]:
        """The output, of the shape of `x`; keys and values of the attention; and with experts the auxiliary loss.

        Args:
            x: (batch, length, hidden) or (batch * length, hidden).
            input_mask: (batch, length, length), 1 where to look.
            init_reset: has no effect without `use_past`.
            batch_valid_length: must be None.
        """
        return self._behind_norms(x, input_mask, batch_valid_length)


class TransformerDecoderLayer(Block):
    """As `TransformerEncoderLayer`, with attention to an encoder's output in between.

    Args:
        hidden_size … parallel_config, compute_dtype: see `TransformerEncoderLayer`.
        src_seq_length, tgt_seq_length: lengths of the encoder's and the decoder's sequences.
    """

    def __init__(
        self, hidden_size: int, ffn_hidden_size: int, num_heads: int, batch_size: int | None, src_seq_length: int,
        tgt_seq_length: int, attention_dropout_rate: float = 0.1, hidden_dropout_rate: float = 0.1,
        post_layernorm_residual: bool = False, use_past: bool = False,
        layernorm_compute_type: DType = dtypes.float32, softmax_compute_type: DType = dtypes.float32,
        param_init_type: DType = dtypes.float32, hidden_act: Any = "gelu",
        moe_config: MoEConfig = default_moe_config, parallel_config: OpParallelConfig = default_dpmp_config, *,
        compute_dtype: DType = dtypes.float16,
    ) -> None:  # fmt: skip
        super().__init__(seq_length=tgt_seq_length, source_length=src_seq_length, **shared(locals()))

    def construct(
        self, hidden_stats: Tensor, decoder_mask: Tensor | None, encoder_output: Tensor | None = None,
        memory_mask: Tensor | None = None, init_reset: bool = True, batch_valid_length: None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The output, of the shape of `hidden_stats`; keys and values of both attentions; with experts the auxiliary loss.

        Args:
            hidden_stats: (batch, length, hidden) or (batch * length, hidden).
            decoder_mask: (batch, length, length), 1 where to look.
            encoder_output: (batch, source length, hidden); without it there is no attention to it.
            memory_mask: (batch, length, source length).
            init_reset: has no effect without `use_past`.
            batch_valid_length: must be None.
        """
        return self._behind_norms(hidden_stats, decoder_mask, batch_valid_length, encoder_output, memory_mask)
