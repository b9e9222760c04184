"""How a Transformer is sharded: small records whose fields are checked when they are set, by the constructor or later."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from typing import Any, ClassVar

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore import _checkparam, context

Check = Callable[[Any, str], Any]


def _args_type_validator_check(**checks: Check) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function: each check gets the value of the argument of its name, where the caller gives one, and the name."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            values = signature.bind(*args, **kwargs).arguments
            for name, value in (values | values.get("kwargs", {})).items():
                if name in checks:
                    checks[name](value, name)
            return function(*args, **kwargs)

        return checked

    return decorated


def _valid_type_checks(types: Sequence[Any], class_name: str) -> Check:
    """A check whether the type of a value is one of `types`."""
    return lambda value, name: _checkparam.check_type_name(name, type(value), types, class_name)


def _valid_value_checks(types: Sequence[Any], class_name: str) -> Check:
    """A check whether a dtype is one of `types`."""
    return lambda value, name: _checkparam.check_type_name(name, value, types, class_name)


class _Settings:
    """Base of the configurations: a field has the kind that its annotation says."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __setattr__(self, name: str, value: Any) -> None:
        field = type(self).__dataclass_fields__.get(name)
        kind = field and field.type
        where = type(self).__name__
        # `isinstance` would take True for the int 1.
        if kind == "bool" and not isinstance(value, bool):
            raise SporaxTypeError(f"For '{where}', '{name}' must be a bool, but got {value!r}.")
        if kind == "int":
            if isinstance(value, bool) or not isinstance(value, int):
                raise SporaxTypeError(f"For '{where}', '{name}' must be an int, but got {value!r}.")
            For(where).refuse(value < 1, f"'{name}' must be at least 1", value)
        if kind == "float":
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise SporaxTypeError(f"For '{where}', '{name}' must be a number, but got {value!r}.")
            For(where).refuse(value <= 0, f"'{name}' must be greater than 0", value)
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    # Records are changed after construction, so a hash by value could change as well.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        fields = ", ".join(f"{name.lstrip('_')}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


@dataclass(eq=False, repr=False)
class OpParallelConfig(_Settings):
    """How operators are sharded.

    Args:
        data_parallel: parts of the batch.
        model_parallel: parts of the hidden dimension, of heads and of the vocabulary.

    Raises:
        SporaxTypeError, SporaxValueError: not an int of at least 1.
    """

    data_parallel: int = 1
    model_parallel: int = 1


@dataclass(eq=False, repr=False)
class EmbeddingOpParallelConfig(OpParallelConfig):
    """How an embedding is sharded.

    Args:
        data_parallel, model_parallel: see `OpParallelConfig`.
        vocab_emb_dp: every device has the whole table; otherwise its rows are sharded `model_parallel` ways.
    """

    vocab_emb_dp: bool = True

    @property
    def dp_mp_config(self) -> OpParallelConfig:
        """The same without the table."""
        return OpParallelConfig(self.data_parallel, self.model_parallel)


@dataclass(eq=False, repr=False)
class MoEParallelConfig(OpParallelConfig):
    """How a layer of experts is sharded.

    Args:
        data_parallel, model_parallel: see `OpParallelConfig`.
        expert_parallel: parts of the experts; they use the devices of the batch, so it must divide `data_parallel`.
    """

    expert_parallel: int = 1

    @property
    def dpmp(self) -> OpParallelConfig:
        """The same without the experts."""
        return OpParallelConfig(self.data_parallel, self.model_parallel)


@dataclass(eq=False, repr=False)
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

    expert_num: int = 1
    capacity_factor: float = 1.1
    aux_loss_factor: float = 0.05
    num_experts_chosen: int = 1
    expert_group_size: int | None = None
    group_wise_a2a: InitVar[bool] = False
    comp_comm_parallel: InitVar[bool] = False
    comp_comm_parallel_degree: InitVar[int] = 2

    def __post_init__(self, group_wise_a2a: bool, comp_comm_parallel: bool, comp_comm_parallel_degree: int) -> None:
        # MindSpore's own ways to overlap communication; XLA schedules programs by itself.
        if group_wise_a2a or comp_comm_parallel or comp_comm_parallel_degree != 2:
            raise SporaxValueError(
                "For 'MoEConfig', 'group_wise_a2a', 'comp_comm_parallel' and 'comp_comm_parallel_degree' must have their "
                f"defaults, but got {group_wise_a2a}, {comp_comm_parallel} and {comp_comm_parallel_degree}."
            )
        chosen, num_experts = self.num_experts_chosen, self.expert_num
        For("MoEConfig").refuse(
            chosen > num_experts, "'num_experts_chosen' must not exceed 'expert_num'", f"{chosen} and {num_experts}"
        )


@dataclass(eq=False, repr=False)
class TransformerRecomputeConfig(_Settings):
    """What is computed again in the backward pass; see `Cell.recompute`.

    Args:
        recompute: compute blocks again.
        parallel_optimizer_comm_recompute, mp_comm_recompute, recompute_slice_activation: settings of `Cell.recompute`.
    """

    recompute: bool = False
    parallel_optimizer_comm_recompute: bool = False
    mp_comm_recompute: bool = True
    recompute_slice_activation: bool = False


@dataclass(eq=False, repr=False)
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

    data_parallel: int = 1
    model_parallel: int = 1
    expert_parallel: int = 1
    pipeline_stage: int = 1
    micro_batch_num: int = 1
    recompute: TransformerRecomputeConfig | bool | None = None
    optimizer_shard: bool | None = None
    gradient_aggregation_group: int = 4
    vocab_emb_dp: bool = True

    def __post_init__(self) -> None:
        if self.recompute is None:
            self.recompute = TransformerRecomputeConfig()
        kinds = bool | TransformerRecomputeConfig
        if not isinstance(self.recompute, kinds):
            raise For("TransformerOpParallelConfig").type_error(
                "'recompute' must be a TransformerRecomputeConfig or a bool", self.recompute, show=repr
            )

    def __setattr__(self, name: str, value: Any) -> None:
        # None is the default alone: nothing was set.
        is_shard = name == "optimizer_shard" and (value is not None or name in vars(self))
        if is_shard and not isinstance(value, bool):
            raise For("TransformerOpParallelConfig").type_error("'optimizer_shard' must be a bool", repr(value))
        super().__setattr__(name, value)
        # As in MindSpore: this field sets the global context.
        if is_shard:
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
    For(where).refuse(value % parts, f"'{name}' must be a multiple of '{parts_name}'", f"{value} and {parts}")
