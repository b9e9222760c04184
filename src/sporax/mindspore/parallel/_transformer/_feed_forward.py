"""The two linear layers of a Transformer block, for all tokens or per expert."""

from __future__ import annotations

from typing import Any

from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.basic import Dropout
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.parallel._transformer._configs import (
    MoEParallelConfig,
    OpParallelConfig,
    check_division,
    default_dpmp_config,
)
from sporax.mindspore.parallel._transformer._layers import _Linear


class FeedForward(Cell):
    """Linear layer, activation, linear layer, dropout.

    Args:
        hidden_size: length of a token's vector.
        ffn_hidden_size: length between the layers.
        dropout_rate: probability of an output to be zeroed while training.
        hidden_act: name of the activation.
        expert_num: number of experts; more than one needs a `MoEParallelConfig`.
        expert_group_size: must be None; `MoE` says it by `outer_batch`.
        param_init_type: dtype of the Parameters.
        parallel_config: the first layer's outputs and the second one's inputs are sharded `model_parallel` ways.
        outer_batch: groups of tokens that come with experts.
        compute_dtype: dtype of the products; beyond MindSpore, which has float16 here.

    Raises:
        SporaxValueError: a dimension cannot be sharded evenly.
    """

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        dropout_rate: float,
        hidden_act: Any = "gelu",
        expert_num: int = 1,
        expert_group_size: int | None = None,
        param_init_type: DType = dtypes.float32,
        parallel_config: OpParallelConfig = default_dpmp_config,
        *,
        outer_batch: int = 1,
        compute_dtype: DType = dtypes.float16,
    ) -> None:
        super().__init__()
        data, model = parallel_config.data_parallel, parallel_config.model_parallel
        check_division("FeedForward", "hidden_size", hidden_size, "model_parallel", model)
        check_division("FeedForward", "ffn_hidden_size", ffn_hidden_size, "model_parallel", model)
        common: dict[str, Any] = {
            "transpose_b": False,
            "expert_num": expert_num,
            "outer_batch": outer_batch,
            "expert_group_size": expert_group_size,
            "param_init_type": param_init_type,
            "compute_dtype": compute_dtype,
        }
        self.mapping = _Linear(hidden_size, ffn_hidden_size, activation=hidden_act, **common)
        self.projection = _Linear(ffn_hidden_size, hidden_size, **common)
        # As in MindSpore, this bias stays whole in optimizer parallelism.
        self.projection.bias.parallel_optimizer = False
        self.dropout = Dropout(p=dropout_rate)
        if expert_num > 1:
            experts = parallel_config.expert_parallel if isinstance(parallel_config, MoEParallelConfig) else 1
            # Experts use the devices of the batch, so only the rest of these divides the groups.
            rest = data // experts
            self.mapping.shard(
                ((rest, experts, 1, 1), (experts, 1, model)),
                ((rest, experts, 1, model), (1, experts, 1, model)),
                ((rest, experts, 1, model),),
            )
            self.projection.shard(
                ((rest, experts, 1, model), (experts, model, 1)), ((rest, experts, 1, 1), (1, experts, 1, 1))
            )
            self.dropout.dropout.shard(((rest, experts, 1, 1),))
        else:
            # Column parallel, then row parallel: one all-reduce for both layers (Megatron-LM).
            self.mapping.shard(((data, 1), (1, model)), ((data, model), (model,)), ((data, model),))
            self.projection.shard(((data, model), (model, 1)), ((data, 1), (1,)))
            self.dropout.dropout.shard(((data, 1),))
        self._has_experts = expert_num > 1

    def construct(self, x: Tensor) -> Tensor:
        """The result, of the shape of `x`: (…, hidden), or with experts (groups, experts, tokens, hidden)."""
        result = self.projection(self.mapping(x))
        if self._has_experts:
            return self.dropout(result)
        flat = self.dropout(result.reshape(-1, result.shape[-1]))
        return flat.reshape(x.shape)
