"""A linear layer, of one matrix or of one per expert, and layer normalization; both take strategies.

The table of a language model's vocabulary.

The loss of a language model whose vocabulary may be sharded.
"""

from __future__ import annotations

from typing import Any, Self

from sporax.base.errors import SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn.activation import get_activation
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.parallel._transformer._configs import (
    EmbeddingOpParallelConfig,
    OpParallelConfig,
    check_division,
    default_dpmp_config,
    default_embedding_parallel_config,
)

Strategy = tuple[tuple[int, ...], ...]


class _LayerNorm(Cell):
    """Normalization over the last dimension.

    Args:
        normalized_shape: (n,), the last dimension.
        eps: added to the variance.
        param_init_type: dtype of the Parameters.
        is_self_defined: has no effect on values; MindSpore chooses between two forms of the same formula.
    """

    def __init__(
        self,
        normalized_shape: tuple[int, ...] | list[int],
        eps: float = 1e-5,
        param_init_type: DType = dtypes.float32,
        is_self_defined: bool = False,
    ) -> None:
        super().__init__()
        self.layer_norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=eps)
        self.gamma = Parameter(initializer("ones", tuple(normalized_shape), param_init_type), name="gamma")
        self.beta = Parameter(initializer("zeros", tuple(normalized_shape), param_init_type), name="beta")

    def construct(self, x: Tensor) -> Tensor:
        """`x` (…, n), normalized."""
        return self.layer_norm(x, self.gamma, self.beta)[0]

    def shard(self, strategy: Strategy) -> Self:  # type: ignore[override]  # as in MindSpore
        # Gamma and beta are sharded like the dimension they belong to.
        """Shard the operator; `strategy` names `x` only, or the Parameters too."""
        strategies = (strategy[0], (strategy[0][-1],), (strategy[0][-1],))
        self.layer_norm.shard(strategy if len(strategy) == 3 else strategies)
        return self


class _Linear(Cell):
    """A matrix product, a bias and an activation; with experts, one of each per expert.

    Args:
        in_channels, out_channels: lengths of input and output vectors.
        weight_init, bias_init: initial values.
        has_bias: whether to add a bias.
        activation: name of an activation, or None.
        transpose_b: the weight is (out, in) instead of (in, out).
        expert_num: number of experts; more than one needs `outer_batch`.
        outer_batch: groups of tokens that come with experts.
        param_init_type: dtype of the Parameters.
        compute_dtype: dtype of the product.

    Inputs:
        (…, in), or with experts (groups, experts, tokens, in).
    """

    def __init__(
        self, in_channels: int, out_channels: int, weight_init: Any = "normal", bias_init: Any = "zeros",
        has_bias: bool = True, activation: Any = None, transpose_b: bool = True, expert_num: int = 1,
        outer_batch: int = 1, expert_group_size: int | None = None, param_init_type: DType = dtypes.float32,
        compute_dtype: DType = dtypes.float16,
    ) -> None:  # fmt: skip
        super().__init__()
        if expert_group_size is not None:
            raise SporaxValueError(
                f"For '_Linear', 'expert_group_size' must be None, but got {expert_group_size}: 'outer_batch' says it."
            )
        shape = (out_channels, in_channels) if transpose_b else (in_channels, out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.expert_num, self.outer_batch, self.dtype = expert_num, outer_batch, compute_dtype
        has_experts = expert_num > 1
        self.weight = Parameter(
            initializer(weight_init, (expert_num, *shape) if has_experts else shape, param_init_type), name="weight"
        )
        product = ops.BatchMatMul if has_experts else ops.MatMul
        self.matmul = product(transpose_b=transpose_b)
        self.has_bias = has_bias
        if has_bias:
            # The dimensions of 1 broadcast over groups and tokens.
            form = (1, expert_num, 1, out_channels) if has_experts else (out_channels,)
            self.bias = Parameter(initializer(bias_init, form, param_init_type), name="bias")
            # As in MindSpore, which keeps biases whole in optimizer parallelism.
            self.bias.parallel_optimizer = False
            self.bias_add = ops.Add()
        self.activation = get_activation(activation) if isinstance(activation, str) else activation

    def construct(self, x: Tensor) -> Tensor:
        """The result, of the dtype and leading dimensions of `x`."""
        dtype, shape = x.dtype, (*x.shape[:-1], self.out_channels)
        if self.expert_num > 1:
            # One batched product for all experts.
            x = x.reshape(self.outer_batch, self.expert_num, -1, self.in_channels)
        else:
            x = x.reshape(-1, self.in_channels)
        result = self.matmul(x.astype(self.dtype), self.weight.astype(self.dtype))
        if self.has_bias:
            result = self.bias_add(result, self.bias.astype(self.dtype))
        if self.activation is not None:
            result = self.activation(result)
        return result.reshape(shape).astype(dtype)

    def shard(  # type: ignore[override]  # as in MindSpore
        self,
        strategy_matmul: Strategy,
        strategy_bias: Strategy | None = None,
        strategy_activation: Strategy | None = None,
    ) -> Self:
        """Shard the product, the addition of the bias, and the activation."""
        self.matmul.shard(strategy_matmul)
        if self.has_bias and strategy_bias is not None:
            self.bias_add.shard(strategy_bias)
        if strategy_activation is not None and self.activation is not None:
            # Activation Cells keep their operator under its own name.
            for name in type(self.activation).__name__.lower(), "gelu", "relu", "sigmoid", "tanh", "fast_gelu":
                operator: Any = getattr(self.activation, name, None)
                if hasattr(operator, "shard"):
                    operator.shard(strategy_activation)
                    break
        return self


class VocabEmbedding(Cell):
    """Rows of a table, and the table, which the head of a language model uses again.

    Args:
        vocab_size: rows.
        embedding_size: length of a row.
        parallel_config: with `vocab_emb_dp` every device has the whole table, else its rows are sharded `model_parallel` ways.
        param_init: initial values.

    Raises:
        SporaxValueError: the rows cannot be sharded evenly.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        parallel_config: EmbeddingOpParallelConfig = default_embedding_parallel_config,
        param_init: Any = "normal",
    ) -> None:
        super().__init__()
        self.vocab_size, self.embedding_size = vocab_size, embedding_size
        table = initializer(param_init, (vocab_size, embedding_size), dtypes.float32)
        self.embedding_table = Parameter(table, name="embedding_table")
        data, model = parallel_config.data_parallel, parallel_config.model_parallel
        if parallel_config.vocab_emb_dp:
            self.gather = ops.Gather().shard(((1, 1), (data, 1)))
        else:
            check_division("VocabEmbedding", "vocab_size", vocab_size, "model_parallel", model)
            # Each device looks up the ids of its rows; the results are partial sums.
            self.gather = ops.Gather().shard(((model, 1), (data, 1)))

    def construct(self, input_ids: Tensor) -> tuple[Tensor, Parameter]:
        """Rows (batch, length, size) of `input_ids` (batch, length), and the table."""
        return self.gather(self.embedding_table, input_ids, 0), self.embedding_table


_EPSILON = 1e-5
"""Keeps a batch whose mask is all zero from a division by zero, as in MindSpore."""


class CrossEntropyLoss(Cell):
    """Mean cross entropy of the tokens that a mask keeps.

    Args:
        parallel_config: tokens are sharded `data_parallel` ways, the vocabulary `model_parallel` ways.
    """

    def __init__(self, parallel_config: OpParallelConfig = default_dpmp_config) -> None:
        super().__init__()
        data, model = parallel_config.data_parallel, parallel_config.model_parallel
        self.maximum = ops.ReduceMax(keep_dims=True).shard(((data, model),))
        self.difference = ops.Sub().shard(((data, model), (data, 1)))
        self.exponential = ops.Exp().shard(((data, model),))
        self.total = ops.ReduceSum(keep_dims=False).shard(((data, model),))
        self.logarithm = ops.Log().shard(((data,),))
        self.one_hot = ops.OneHot().shard(((data, model), (), ()))
        self.product = ops.Mul().shard(((data, model), (data, model)))
        self.chosen = ops.ReduceSum(keep_dims=False).shard(((data, model),))

    def construct(self, logits: Tensor, label: Tensor, input_mask: Tensor) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: (tokens, vocabulary).
            label: (tokens,) ids.
            input_mask: (tokens,), 1 for tokens that count.
        """
        logits = logits.astype(dtypes.float32)
        # The maximum only prevents overflow; its gradient cancels out.
        shifted = self.difference(logits, ops.stop_gradient(self.maximum(logits, -1)))
        normalizer = self.logarithm(self.total(self.exponential(shifted), -1))
        on, off = Tensor(1.0, dtypes.float32), Tensor(0.0, dtypes.float32)
        # A product with a one-hot matrix, since a sharded vocabulary cannot be indexed without communication.
        one_hot = self.one_hot(label.reshape(-1).astype(dtypes.int32), logits.shape[-1], on, off)
        losses = normalizer - self.chosen(self.product(shifted, one_hot), -1)
        mask = input_mask.reshape(-1).astype(dtypes.float32)
        return (losses * mask).sum() / (mask.sum() + _EPSILON)
