"""Fusion of collectives: which parameters share a buffer, as `comm_fusion` and `all_reduce_fusion_config` ask for.

There are three kinds of collectives of parameters: gradients that are all-reduced, gradients that are reduce-scattered
and weights that are gathered (the last two with optimizer parallelism). Each kind has its own rule. A rule counts over
all parameters; parameters of another kind leave gaps. Tensors with another dtype or other ranks are never fused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sporax.ir.config.fusion_ids import BYTES_PER_MEGABYTE, ids_by_position, ids_by_size, ids_by_sizes
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.graph import OperatorGraph
from sporax.ir.marks import GradientMark

Ids = Mapping[str, int]
"""By name of the parameter: those with one number above 0 are sent in one buffer; with 0 each is sent alone.

Empty where neither the context nor a parameter says anything: the compiler may then combine what it likes."""

_SPREAD = 1 << 16
"""Factor on the number of a buffer, above every `comm_fusion`: parameters of different `comm_fusion` never share one."""


@dataclass(frozen=True, slots=True)
class FusionIds:
    """With which others each parameter is sent.

    Attributes:
        reduced, scattered: of gradients that are all-reduced and reduce-scattered, in the order of the backward pass.
        gathered: of weights, in the order of the forward pass.
    """

    reduced: Ids = field(default_factory=dict)
    scattered: Ids = field(default_factory=dict)
    gathered: Ids = field(default_factory=dict)


def fusion_ids(graph: OperatorGraph, config: ParallelConfig) -> FusionIds:
    """The buffers of a step's parameters."""
    ids: tuple[dict[str, int], ...] = ({}, {}, {})
    for operator in graph.walk():
        mark = operator.mark
        if isinstance(mark, GradientMark):
            specs = operator.operation.operands
            members = [
                (name, own, spec.num_bytes) for name, own, spec in zip(mark.parameters, mark.fusion, specs, strict=True)
            ]
            # Gradients become ready from the last layer to the first, weights are needed the other way round.
            ids[0].update(_ids(members[::-1], "allreduce", config))
            ids[1].update(_ids(members[::-1], "reducescatter", config))
            ids[2].update(_ids(members, "allgather", config))
    return FusionIds(*ids)


def _ids(members: Sequence[tuple[str, int, int]], kind: str, config: ParallelConfig) -> dict[str, int]:
    """Numbers for parameters given as (name, `comm_fusion`, bytes), in the order of their collectives."""
    # A `comm_fusion` of 0 means alone, so these parameters are not counted by any rule.
    fused = [member for member in members if member[1]]
    numbers = _numbers([size for _, _, size in fused], kind, config)
    # Neither the context nor a parameter asks for anything: the compiler combines as it likes.
    if numbers is None and config.comm_fusion.openstate and all(own == 1 for _, own, _ in members):
        return {}
    ids = {name: 0 for name, _, _ in members}
    for (name, own, _), number in zip(fused, numbers or (), strict=False):
        ids[name] = number * _SPREAD + own if number else 0
    return ids


def _numbers(sizes: Sequence[int], kind: str, config: ParallelConfig) -> Sequence[int] | None:
    """Numbers for collectives of these sizes in bytes; None where no rule was given."""
    rule = config.comm_fusion.in_force(kind)
    positions = config.all_reduce_fusion_config if kind == "allreduce" else ()
    # The rule of `comm_fusion` goes before the older settings of all-reduces.
    if rule is not None and rule.mode != "index":
        return ids_by_size(sizes, (rule.threshold_megabytes or 0) * BYTES_PER_MEGABYTE)
    if rule is not None and isinstance(rule.config, tuple):
        return ids_by_position(len(sizes), rule.config)
    if positions:
        return ids_by_position(len(sizes), positions)
    if kind == "allreduce" and config.all_reduce_fusion_sizes:
        return ids_by_sizes(sizes, config.all_reduce_fusion_sizes)
    return None
