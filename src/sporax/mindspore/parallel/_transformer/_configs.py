"""How a Transformer is sharded: small records whose fields are checked when they are set, by the constructor or later."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import context


class _Settings:
    """Base of the configurations: a field has the kind that the class's table says."""

    _kinds: dict[str, type]

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._kinds.get(name)
        where = type(self).__name__
        # `isinstance` would take True for the int 1.
        if kind is bool and not isinstance(value, bool):
            raise SporaxTypeError(f"For '{where}', '{name}' must be a bool, but got {value!r}.")
        if kind is int:
            if isinstance(value, bool) or not isinstance(value, int):
                raise SporaxTypeError(f"For '{where}', '{name}' must be an int, but got {value!r}.")
            SporaxValueError.raise_if(value < 1, where, name, "be at least 1", value)
        if kind is float:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise SporaxTypeError(f"For '{where}', '{name}' must be a number, but got {value!r}.")
            SporaxValueError.raise_if(value <= 0, where, name, "be greater than 0", value)
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    # Records are changed after construction, so a hash by value could change as well.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        fields = ", ".join(f"{name.lstrip('_')}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class OpParallelConfig(_Settings):
    """How operators are sharded.

    Args:
        data_parallel: parts of the batch.
        model_parallel: parts of the hidden dimension, of heads and of the vocabulary.

    Raises:
        SporaxTypeError, SporaxValueError: not an int of at least 1.
    """

    _kinds = {"data_parallel": int, "model_parallel": int}

    def __init__(self, data_parallel: int = 1, model_parallel: int = 1) -> None:
        self.data_parallel = data_parallel
        self.model_parallel = model_parallel


class EmbeddingOpParallelConfig(OpParallelConfig):
    """How an embedding is sharded.

    Args:
        data_parallel, model_parallel: see `OpParallelConfig`.
        vocab_emb_dp: every device has the whole table; otherwise its rows are sharded `model_parallel` ways.
    """

    _kinds = {**OpParallelConfig._kinds, "vocab_emb_dp": bool}

    def __init__(self, data_parallel: int = 1, model_parallel: int = 1, vocab_emb_dp: bool = True) -> None:
        super().__init__(data_parallel, model_parallel)
        self.vocab_emb_dp = vocab_emb_dp

    @property
    def dp_mp_config(self) -> OpParallelConfig:
        """The same without the table."""
        return OpParallelConfig(self.data_parallel, self.model_parallel)


class MoEParallelConfig(OpParallelConfig):
    """How a layer of experts is sharded.

    Args:
        data_parallel, model_parallel: see `OpParallelConfig`.
        expert_parallel: parts of the experts; they use the devices of the batch, so it must divide `data_parallel`.
    """

    _kinds = {**OpParallelConfig._kinds, "expert_parallel": int}

    def __init__(self, data_parallel: int = 1, model_parallel: int = 1, expert_parallel: int = 1) -> None:
        super().__init__(data_parallel, model_parallel)
        self.expert_parallel = expert_parallel

    @property
    def dpmp(self) -> OpParallelConfig:
        """The same without the experts."""
        return OpParallelConfig(self.data_parallel, self.model_parallel)


class MoEConfig(_Settings):
    """Experts instead of one feed-forward layer.

    Args:
        expert_num: number of experts; 1 for none.
        capacity_factor: room of an expert over its even share of the tokens; tokens beyond are not processed by it.
        aux_loss_factor: weight of the loss that keeps experts evenly used.
        num_experts_chosen: experts per token.
        expert_group_size: tokens that are shared out together; by default those of one part of the batch.
        group_wise_a2a, comp_comm_parallel, comp_comm_parallel_degree: ways to overlap communication; only the defaults.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    _kinds = {"expert_num": int, "capacity_factor": float, "aux_loss_factor": float, "num_experts_chosen": int}

    def __init__(
        self, expert_num: int = 1, capacity_factor: float = 1.1, aux_loss_factor: float = 0.05,
        num_experts_chosen: int = 1, expert_group_size: int | None = None, group_wise_a2a: bool = False,
        comp_comm_parallel: bool = False, comp_comm_parallel_degree: int = 2,
    ) -> None:  # fmt: skip
        self.expert_num = expert_num
        self.capacity_factor = capacity_factor
        self.aux_loss_factor = aux_loss_factor
        self.num_experts_chosen = num_experts_chosen
        self.expert_group_size = expert_group_size
        # MindSpore's own ways to overlap communication; XLA schedules programs by itself.
        if group_wise_a2a or comp_comm_parallel or comp_comm_parallel_degree != 2:
            raise SporaxValueError(
                "For 'MoEConfig', 'group_wise_a2a', 'comp_comm_parallel' and 'comp_comm_parallel_degree' must have their "
                f"defaults, but got {group_wise_a2a}, {comp_comm_parallel} and {comp_comm_parallel_degree}."
            )
        if num_experts_chosen > expert_num:
            raise SporaxValueError.must(
                "MoEConfig", "num_experts_chosen", "not exceed 'expert_num'", f"{num_experts_chosen} and {expert_num}"
            )


class TransformerRecomputeConfig(_Settings):
    """What is computed again in the backward pass; see `Cell.recompute`.

    Args:
        recompute: compute blocks again.
        parallel_optimizer_comm_recompute, mp_comm_recompute, recompute_slice_activation: settings of `Cell.recompute`.
    """

    _kinds = {
        "recompute": bool,
        "parallel_optimizer_comm_recompute": bool,
        "mp_comm_recompute": bool,
        "recompute_slice_activation": bool,
    }

    def __init__(
        self,
        recompute: bool = False,
        parallel_optimizer_comm_recompute: bool = False,
        mp_comm_recompute: bool = True,
        recompute_slice_activation: bool = False,
    ) -> None:
        self.recompute = recompute
        self.parallel_optimizer_comm_recompute = parallel_optimizer_comm_recompute
        self.mp_comm_recompute = mp_comm_recompute
        self.recompute_slice_activation = recompute_slice_activation


class TransformerOpParallelConfig(_Settings):
    """How a whole Transformer is sharded.

    Args:
        data_parallel, model_parallel: see `OpParallelConfig`.
        expert_parallel: parts of the experts; see `MoEParallelConfig`.
        pipeline_stage: number of pipeline stages.
        micro_batch_num: micro batches of a pipeline.
        recompute: a `TransformerRecomputeConfig`, or a bool.
        optimizer_shard: shard optimizer state over the batch's devices; sets ``enable_parallel_optimizer``.
        gradient_aggregation_group: into how many groups gradients are fused.
        vocab_emb_dp: see `EmbeddingOpParallelConfig`.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    _kinds = {
        **dict.fromkeys(("data_parallel", "model_parallel", "expert_parallel", "pipeline_stage"), int),
        **dict.fromkeys(("micro_batch_num", "gradient_aggregation_group"), int),
        "vocab_emb_dp": bool,
    }

    def __init__(
        self, data_parallel: int = 1, model_parallel: int = 1, expert_parallel: int = 1, pipeline_stage: int = 1,
        micro_batch_num: int = 1, recompute: TransformerRecomputeConfig | bool | None = None,
        optimizer_shard: bool | None = None, gradient_aggregation_group: int = 4, vocab_emb_dp: bool = True,
    ) -> None:  # fmt: skip
        self.data_parallel = data_parallel
        self.model_parallel = model_parallel
        self.expert_parallel = expert_parallel
        self.pipeline_stage = pipeline_stage
        self.micro_batch_num = micro_batch_num
        self.recompute = TransformerRecomputeConfig() if recompute is None else recompute
        if not isinstance(self.recompute, (bool, TransformerRecomputeConfig)):
            raise SporaxTypeError.must(
                "TransformerOpParallelConfig", "recompute", "be a TransformerRecomputeConfig or a bool", repr(recompute)
            )
        self.gradient_aggregation_group = gradient_aggregation_group
        self.vocab_emb_dp = vocab_emb_dp
        self._optimizer_shard: bool | None = None
        if optimizer_shard is not None:
            self.optimizer_shard = optimizer_shard

    @property
    def optimizer_shard(self) -> bool | None:
        """Whether optimizer state is sharded; None where it was not set."""
        return self._optimizer_shard

    @optimizer_shard.setter
    def optimizer_shard(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise SporaxTypeError.must("TransformerOpParallelConfig", "optimizer_shard", "be a bool", repr(value))
        self._optimizer_shard = value
        # As in MindSpore: this field sets the global context.
        context.set_auto_parallel_context(enable_parallel_optimizer=value)

    @property
    def dp_mp_config(self) -> OpParallelConfig:
        """For layers."""
        return OpParallelConfig(self.data_parallel, self.model_parallel)

    @property
    def embedding_dp_mp_config(self) -> EmbeddingOpParallelConfig:
        """For the embedding."""
        return EmbeddingOpParallelConfig(self.data_parallel, self.model_parallel, self.vocab_emb_dp)

    @property
    def moe_parallel_config(self) -> MoEParallelConfig:
        """For layers of experts."""
        return MoEParallelConfig(self.data_parallel, self.model_parallel, self.expert_parallel)


# Shared defaults, as in MindSpore; a caller that wants others makes a record of its own.
default_dpmp_config = OpParallelConfig()
default_embedding_parallel_config = EmbeddingOpParallelConfig()
default_moeparallel_config = MoEParallelConfig()
default_moe_config = MoEConfig()
default_transformer_recompute_config = TransformerRecomputeConfig()
default_transformer_config = TransformerOpParallelConfig()


def check_division(where: str, name: str, value: int, parts_name: str, parts: int) -> None:
    """Refuse a dimension that cannot be sharded evenly.

    Raises:
        SporaxValueError: `parts` does not divide `value`.
    """
    SporaxValueError.raise_if(value % parts, where, name, f"be a multiple of '{parts_name}'", f"{value} and {parts}")
