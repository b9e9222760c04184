"""A mixture of experts: a router sends each token to its experts.

Method: tokens are shared out in groups, one per part of the batch. In a group each expert has room for
``ceil(num_experts_chosen * tokens * capacity_factor / experts)`` tokens; later ones pass it by. Sending tokens to experts and
adding up what comes back are products with 0/1 and weighted matrices, so both can be sharded; between them the layout changes
from batch to experts, which costs one all-to-all each way.

Reference: Lepikhin et al. 2020 (GShard); Fedus et al. 2021 (Switch Transformer).

The two linear layers of a Transformer block, for all tokens or per expert.
"""

from __future__ import annotations

import math
from typing import Any

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.nn.basic import Dropout
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.parallel._transformer import _configs as configs
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
        self, hidden_size: int, ffn_hidden_size: int, dropout_rate: float, hidden_act: Any = "gelu",
        expert_num: int = 1, expert_group_size: int | None = None, param_init_type: DType = dtypes.float32,
        parallel_config: configs.OpParallelConfig = configs.default_dpmp_config, *, outer_batch: int = 1,
        compute_dtype: DType = dtypes.float16,
    ) -> None:  # fmt: skip
        super().__init__()
        data, model = parallel_config.data_parallel, parallel_config.model_parallel
        configs.check_division("FeedForward", "hidden_size", hidden_size, "model_parallel", model)
        configs.check_division("FeedForward", "ffn_hidden_size", ffn_hidden_size, "model_parallel", model)
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
            experts = parallel_config.expert_parallel if isinstance(parallel_config, configs.MoEParallelConfig) else 1
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


class Router(Cell):
    """Chooses the experts of each token.

    Args:
        d_model: length of a token's vector.
        moe_config: experts, their room and the weight of the auxiliary loss.
        routing_policy: must be None.
        training: not used: routing is the same in training and inference.
        parallel_config: groups of tokens are sharded `data_parallel` ways.
    """

    def __init__(
        self, d_model: int, moe_config: configs.MoEConfig, routing_policy: None = None, training: bool = True,
        parallel_config: configs.MoEParallelConfig = configs.default_moeparallel_config,
    ) -> None:  # fmt: skip
        super().__init__()
        For("Router").refuse(routing_policy is not None, "'routing_policy' must be None", routing_policy, show=repr)
        data = parallel_config.data_parallel
        self.moe_config = moe_config
        # Routing in float32: rounding would send near ties to other experts.
        self.dense = _Linear(d_model, moe_config.expert_num, has_bias=False, compute_dtype=dtypes.float32)
        self.dense.shard(((data, 1), (1, 1)))
        self.softmax = ops.Softmax().shard(((data, 1, 1),))
        self.one_hot = ops.OneHot().shard(((data, 1, 1), (), ()))
        self.room_one_hot = ops.OneHot().shard(((data, 1, 1, 1), (), ()))
        self.cumsum = ops.CumSum().shard(((data, 1, 1),))

    def construct(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where each token goes, how much its results count, and the auxiliary loss.

        Args:
            tokens: (groups, tokens, d_model).

        Returns:
            Two Tensors (groups, tokens, experts, room), and a scalar.
        """
        experts, chosen = self.moe_config.expert_num, self.moe_config.num_experts_chosen
        # Tokens beyond this room are dropped by the expert (GShard).
        room = math.ceil(chosen * tokens.shape[1] * self.moe_config.capacity_factor / experts)
        probabilities = self.softmax(self.dense(tokens.astype(dtypes.float32)))
        on, off = Tensor(1.0, dtypes.float32), Tensor(0.0, dtypes.float32)
        left, taken = probabilities, None
        combine, total_gate, auxiliary = None, None, None
        for _ in range(chosen):
            # The choice itself has no gradient; the gate's probability has one.
            mask = self.one_hot(ops.stop_gradient(left).argmax(-1).astype(dtypes.int32), experts, on, off)
            if auxiliary is None:
                density = (mask.mean(1) * probabilities.mean(1)).mean()
                # The loss of Switch Transformer, equation 4: it is smallest when all experts get equally many tokens.
                auxiliary = density * (experts**2 * self.moe_config.aux_loss_factor)
            # Places count from 1; those of the next choice begin behind the ones that are taken.
            place = self.cumsum(mask, 1) * mask
            if taken is not None:
                place = place + taken * mask
            fits = (place <= room).astype(dtypes.float32) * mask
            count = mask.sum(1, keepdims=True)
            taken = count if taken is None else taken + count
            gate = (probabilities * fits).sum(-1)
            total_gate = gate if total_gate is None else total_gate + gate
            slot = self.room_one_hot((place * fits - 1).astype(dtypes.int32), room, on, off)
            part = gate.reshape(*gate.shape, 1, 1) * fits.reshape(*fits.shape, 1) * slot
            combine = part if combine is None else combine + part
            # The next round chooses among the other experts.
            left = left * (1 - mask)
        assert combine is not None
        assert total_gate is not None
        assert auxiliary is not None
        if chosen > 1:
            # Weights of the chosen experts add up to 1; the small number avoids 0/0 for dropped tokens.
            combine = combine / (total_gate.reshape(*total_gate.shape, 1, 1) + 1e-9)
        dispatch = ops.stop_gradient((combine != 0).astype(dtypes.float32))
        return dispatch, combine, auxiliary


class MoE(Cell):
    """Feed-forward layers of which each token passes a few.

    Args:
        hidden_size, dropout_rate, ffn_hidden_size, param_init_type, hidden_act: see `FeedForward`.
        moe_config: experts, their room and the weight of the auxiliary loss.
        parallel_config: tokens are sharded `data_parallel` ways, and between router and result experts `expert_parallel` ways
            over the same devices; each expert is sharded `model_parallel` ways.
        compute_dtype: dtype of the products; beyond MindSpore, which has float16 here.

    Raises:
        SporaxValueError: experts cannot be sharded evenly.
    """

    def __init__(
        self, hidden_size: int, dropout_rate: float, ffn_hidden_size: int, param_init_type: DType = dtypes.float32,
        hidden_act: Any = "gelu", moe_config: configs.MoEConfig = configs.default_moe_config,
        parallel_config: configs.MoEParallelConfig = configs.default_moeparallel_config, *, compute_dtype: DType = dtypes.float16,
    ) -> None:  # fmt: skip
        super().__init__()
        data, experts = parallel_config.data_parallel, parallel_config.expert_parallel
        configs.check_division("MoE", "expert_num", moe_config.expert_num, "expert_parallel", experts)
        configs.check_division("MoE", "data_parallel", data, "expert_parallel", experts)
        For("MoE").refuse(moe_config.expert_num < 2, "'expert_num' must be at least 2", moe_config.expert_num)
        # Experts take the place of a part of the batch on the same devices.
        rest = data // experts
        self.hidden_size, self.expert_dim = hidden_size, moe_config.expert_num
        self.expert_group_size, self.dp_group = moe_config.expert_group_size, data
        self.dtype = compute_dtype
        self.outer_batch = rest
        self.ffn = FeedForward(
            hidden_size,
            ffn_hidden_size,
            dropout_rate,
            hidden_act,
            moe_config.expert_num,
            param_init_type=param_init_type,
            parallel_config=parallel_config,
            outer_batch=rest,
            compute_dtype=compute_dtype,
        )
        self.router = Router(hidden_size, moe_config, parallel_config=parallel_config)
        self.send = ops.BatchMatMul(transpose_a=True).shard(((data, 1, 1), (data, 1, 1)))
        self.exchange = ops.Transpose().shard(((rest, experts, 1, 1, 1),))
        self.exchange_back = ops.Transpose().shard(((rest, experts, 1, 1, 1),))
        self.collect = ops.BatchMatMul().shard(((data, 1, 1), (data, 1, 1)))

    def construct(self, input_tensor: Tensor) -> tuple[Tensor, Tensor]:
        """The result, of the shape of `input_tensor` (…, hidden), and the auxiliary loss.

        Raises:
            SporaxValueError: the tokens cannot be shared out evenly.
        """
        tokens = input_tensor.reshape(-1, self.hidden_size)
        size = self.expert_group_size or max(tokens.shape[0] // self.dp_group, 1)
        groups, over = divmod(tokens.shape[0], size)
        if over or groups % self.dp_group:
            raise SporaxValueError(
                f"For 'MoE', {tokens.shape[0]} tokens must be shared out in groups of {size} to {self.dp_group} parts of the "
                "batch, but do not divide."
            )
        tokens = tokens.reshape(groups, size, self.hidden_size)
        dispatch, combine, auxiliary = self.router(tokens)
        room = dispatch.shape[-1]
        flat = (groups, size, self.expert_dim * room)
        sent = self.send(dispatch.reshape(flat).astype(self.dtype), tokens.astype(self.dtype))
        # (rest, groups of a rest, experts, room, hidden) and experts before groups.
        outer = self.outer_batch
        sent = sent.reshape(outer, groups // outer, self.expert_dim, room, self.hidden_size)
        # From sharded by batch to sharded by experts: this transpose is the all-to-all.
        arrived = self.exchange(sent, (0, 2, 1, 3, 4))
        results = self.ffn(arrived.reshape(outer, self.expert_dim, (groups // outer) * room, self.hidden_size))
        results = results.reshape(outer, self.expert_dim, groups // outer, room, self.hidden_size)
        back = self.exchange_back(results, (0, 2, 1, 3, 4))
        back = back.reshape(groups, self.expert_dim * room, self.hidden_size)
        output = self.collect(combine.reshape(flat).astype(self.dtype), back)
        return output.reshape(input_tensor.shape).astype(input_tensor.dtype), auxiliary
