"""Optimizer parallel in data-parallel mode: Parameters are dealt to the ranks like cards, each updated by one of them.

Gradients are the same on all ranks there, so all would compute the same update. With ``enable_parallel_optimizer`` Parameter
number i is moved by rank i mod n alone, and the others take it over. MindSpore offers this on Ascend only; here it works
on every device. The state of a Parameter moves on its rank alone: elsewhere it keeps its first values.
"""

from __future__ import annotations

from collections.abc import Sequence

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelMode
from sporax.mindspore import context
from sporax.mindspore.common.parameter import Parameter
from sporax.runtime.ranks import flat_buffers, groups, local_ranks
from sporax.runtime.state import frames

Owners = tuple[int | None, ...]
"""For each Parameter the rank that updates it; None: every rank updates its own (``layerwise_parallel``)."""

_WITHOUT = (ParallelMode.STAND_ALONE, ParallelMode.HYBRID_PARALLEL)


def owners(name: str, offered: bool, parameters: Sequence[Parameter]) -> Owners | None:
    """Who updates what, by the present parallel settings; None: everybody everything.

    Args:
        name: of the optimizer's class.
        offered: whether that class can be dealt.
        parameters: those it updates.

    Raises:
        SporaxRuntimeError: ``enable_parallel_optimizer`` in a mode that has no such thing; or, in data-parallel mode, with
            another class of optimizer or with fewer Parameters than devices.
    """
    config = context.snapshot()
    # In the global view the plan shards the state; on the one device of `AutoParallel` there is nothing to shard.
    if not config.enable_parallel_optimizer or config.in_global_view or config.auto_parallel_new_interface:
        return None
    if config.parallel_mode in _WITHOUT:
        raise SporaxRuntimeError(
            f"For '{name}', 'enable_parallel_optimizer' must come with the parallel mode 'data_parallel', "
            f"'semi_auto_parallel' or 'auto_parallel', but got '{config.parallel_mode}'."
        )
    if not offered:
        raise SporaxRuntimeError(
            "For 'Optimizer', 'enable_parallel_optimizer' in data-parallel mode must be used with Lamb, AdamWeightDecay or "
            f"AdaFactor, but got {name}."
        )
    if config.device_num > len(parameters):
        raise SporaxRuntimeError(
            f"For '{name}', 'enable_parallel_optimizer' needs at least one parameter for each device, but got "
            f"{len(parameters)} parameters for {config.device_num} devices."
        )
    # One device has everything.
    if config.device_num == 1:
        return None
    local_ranks.refuse(f"{name}: enable_parallel_optimizer")
    # Dealt by number, so every rank knows all owners without a message.
    return tuple(
        None if parameter.layerwise_parallel else i % config.device_num for i, parameter in enumerate(parameters)
    )


def is_mine(dealt: Owners | None, index: int) -> bool:
    """Whether this rank updates Parameter number `index`."""
    return dealt is None or dealt[index] in (None, groups.this_rank())


def take_over(dealt: Owners, parameters: Sequence[Parameter]) -> None:
    """Give every rank all Parameters as their owners have them. All ranks must call it."""
    everyone = groups.find(None)
    # One broadcast for each owner: fused into few messages.
    for rank in everyone.ranks:
        owned = [parameter for parameter, owner in zip(parameters, dealt, strict=True) if owner == rank]
        arrays = flat_buffers.broadcast_buckets(everyone, rank, [parameter.array for parameter in owned])
        for parameter, array in zip(owned, arrays, strict=True):
            frames.write(parameter, array)
