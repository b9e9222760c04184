"""A linear layer, of one matrix or of one per expert, and layer normalization; both take strategies."""

from __future__ import annotations

from typing import Any, Self

from sporax.base.errors import SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.activation import get_activation
from sporax.mindspore.nn.cell import Cell

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
        normalized: Tensor = self.layer_norm(x, self.gamma, self.beta)[0]
        return normalized

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
        self,
        in_channels: int,
        out_channels: int,
        weight_init: Any = "normal",
        bias_init: Any = "zeros",
        has_bias: bool = True,
        activation: Any = None,
        transpose_b: bool = True,
        expert_num: int = 1,
        outer_batch: int = 1,
        expert_group_size: int | None = None,
        param_init_type: DType = dtypes.float32,
        compute_dtype: DType = dtypes.float16,
    ) -> None:
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
        changed: Tensor = result.reshape(shape).astype(dtype)
        return changed

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
