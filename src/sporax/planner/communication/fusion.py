"""Which parameters share the buffers of collectives, as `comm_fusion` and `all_reduce_fusion_config` ask for.

There are three kinds of collectives of parameters: gradients that are all-reduced, gradients that are reduce-scattered and
weights that are gathered (the last two with optimizer parallelism). Each kind has a rule of its own. A rule counts over all
parameters; those of another kind leave gaps, and what cannot travel together (another dtype, other ranks) does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sporax.ir.fusion import BYTES_PER_MEGABYTE, ids_by_position, ids_by_size, ids_by_sizes
from sporax.ir.graph import OperatorGraph
from sporax.ir.marks import GradientMark
from sporax.ir.parallel_config import ParallelConfig

Ids = Mapping[str, int]
"""By name of the parameter: those with one number above 0 travel in one buffer, with 0 each travels alone.

Empty where nothing was said, neither by the context nor by a parameter: then the compiler may combine what it likes."""

_SPREAD = 1 << 16
"""Parameters with different `comm_fusion` never share a buffer."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """With which others each parameter travels.

    Attributes:
        reduced, scattered: of gradients that are all-reduced and reduce-scattered, in the order of the backward pass.
        gathered: of weights, in the order of the forward pass.
    """

    reduced: Ids = field(default_factory=dict)
    scattered: Ids = field(default_factory=dict)
    gathered: Ids = field(default_factory=dict)


def buffers_for(graph: OperatorGraph, config: ParallelConfig) -> Buffers:
    """The buffers of a step's parameters."""
    found: tuple[dict[str, int], ...] = ({}, {}, {})
    for operator in graph.walk():
        mark = operator.mark
        if isinstance(mark, GradientMark):
            specs = operator.operation.operands
            members = [
                (name, own, spec.num_bytes) for name, own, spec in zip(mark.parameters, mark.fusion, specs, strict=True)
            ]
            found[0].update(_ids(members[::-1], "allreduce", config))
            found[1].update(_ids(members[::-1], "reducescatter", config))
            found[2].update(_ids(members, "allgather", config))
    return Buffers(*found)


def _ids(members: Sequence[tuple[str, int, int]], kind: str, config: ParallelConfig) -> dict[str, int]:
    """Numbers for parameters given as (name, `comm_fusion`, bytes), in the order of their collectives."""
    together = [member for member in members if member[1]]
    numbers = _numbers([size for _, _, size in together], kind, config)
    if numbers is None and config.comm_fusion.openstate and all(own == 1 for _, own, _ in members):
        return {}
    found = {name: 0 for name, _, _ in members}
    for (name, own, _), number in zip(together, numbers or (), strict=False):
        found[name] = number * _SPREAD + own if number else 0
    return found


def _numbers(sizes: Sequence[int], kind: str, config: ParallelConfig) -> Sequence[int] | None:
    """Numbers for collectives of these sizes in bytes; None where no rule was given."""
    rule = config.comm_fusion.in_force(kind)
    positions = config.all_reduce_fusion_config if kind == "allreduce" else ()
    if rule is not None and rule.mode != "index":
        return ids_by_size(sizes, (rule.threshold_megabytes or 0) * BYTES_PER_MEGABYTE)
    if rule is not None and isinstance(rule.config, tuple):
        return ids_by_position(len(sizes), rule.config)
    if positions:
        return ids_by_position(len(sizes), positions)
    if kind == "allreduce" and config.all_reduce_fusion_sizes:
        return ids_by_sizes(sizes, config.all_reduce_fusion_sizes)
    return None
