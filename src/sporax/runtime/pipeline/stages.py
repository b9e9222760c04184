"""Stages chosen by the planner (``auto_pipeline``): the network is a chain of Cells, cut where the slowest stage is quickest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import IDENTITIES, LITERAL, Operator, OperatorGraph, Role
from sporax.ir.hardware import HardwareProfile
from sporax.ir.placement import prime_mesh
from sporax.ir.plan_settings import PlanSettings
from sporax.lowering.pipeline.assign import StageOf
from sporax.lowering.pipeline.micro_step import MicroStep, Phase
from sporax.planner.auto import price_list
from sporax.planner.pipeline.partition import Block, partition
from sporax.planner.rules import rule_for

_STATES_PER_WEIGHT = 4
"""Weight, gradient and two moments."""


def chosen_stages(micro: MicroStep, settings: PlanSettings, profile: HardwareProfile) -> tuple[StageOf, str]:
    """The stage of every operator, by the Cell that it stands in, and why.

    A Cell that the forward pass enters is one block of the chain. Its time is that of its operators, forward and backward,
    by the cost model, on the devices of one stage; stages that are sharded alike inside keep these proportions.

    Raises:
        SporaxRuntimeError: the network has too few Cells, or no cut fits the memory.
    """
    config = settings.parallel
    graph = micro.step.graph
    forward = [
        operator for operator, phase in zip(graph.operators, micro.phases, strict=True) if phase is Phase.FORWARD
    ]
    order = {path: number for number, path in enumerate(dict.fromkeys(operator.path for operator in forward))}
    blocks = _blocks(micro, order, settings, profile)
    capacity = float(settings.cost.device_memory_capacity) if settings.symbolic else float(profile.memory_bytes)
    found = partition(blocks, config.pipeline_stages, micro.num_micro, capacity * config.num_stage_devices)
    stages = {path: found.stage_of(number) for path, number in order.items()}

    def stage_of(operator: Operator) -> tuple[int, int] | None:
        stage = stages.get(operator.path)
        return None if stage is None else (stage, 0)

    times = ", ".join(f"{seconds * 1e3:.3f} ms" for seconds in found.seconds)
    starts = ", ".join(blocks[start].name for start in found.starts)
    reason = (
        f"Stages chosen by the planner: they start with {starts}. One micro batch takes {times} on one device; no other cut "
        f"of the {len(blocks)} Cells has a quicker slowest stage."
    )
    return stage_of, reason


def _blocks(
    micro: MicroStep, order: Mapping[str, int], settings: PlanSettings, profile: HardwareProfile
) -> list[Block]:
    graph = micro.step.graph
    mesh = prime_mesh(DeviceMatrix((1,)))
    model = price_list(settings, mesh, profile)
    seconds, state, kept = ([0.0] * len(order) for _ in range(3))
    weights = {each.tensor for each in graph.inputs if each.role is Role.PARAMETER}
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    for operator, phase in zip(graph.operators, micro.phases, strict=True):
        number = order.get(operator.path)
        if number is None or phase not in (Phase.FORWARD, Phase.BACKWARD):
            continue
        if operator.name not in IDENTITIES and not operator.bodies:
            rule = rule_for(operator.operation)
            seconds[number] += model.seconds(operator.operation, rule, ((),) * len(rule.factors), mesh)
        for tensor in operator.operands:
            if tensor in weights:
                weights.discard(tensor)
                state[number] += _STATES_PER_WEIGHT * graph.tensors[tensor].num_bytes
            if phase is Phase.FORWARD and tensor in made:
                last[tensor] = max(last.get(tensor, 0), number)
            elif tensor in made:
                kept[made[tensor]] += graph.tensors[tensor].num_bytes
        if phase is Phase.FORWARD:
            made.update(dict.fromkeys(operator.results, number))
    crossing = _crossing_bytes(graph, made, last, len(order))
    return [
        Block(path, seconds[number], crossing[number], state[number], kept[number]) for path, number in order.items()
    ]


def _crossing_bytes(
    graph: OperatorGraph, made: Mapping[int, int], last: Mapping[int, int], count: int
) -> Sequence[float]:
    """For every block the bytes that a cut behind it would send."""
    found = [0.0] * count
    for tensor, reader in last.items():
        if tensor != LITERAL:
            for number in range(made[tensor], reader):
                found[number] += graph.tensors[tensor].num_bytes
    return found
