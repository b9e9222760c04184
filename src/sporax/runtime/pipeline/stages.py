"""Stages chosen by the planner (``auto_pipeline``).

Problem: a pipeline is as quick as its slowest stage, and where a network is best divided depends on the times of its Cells.
Method: the forward pass is read as a chain of Cells. The cost model gives the time of each, forward and backward, and the bytes
that a division behind it would send; dynamic programming over the chain (`sporax.planner.pipeline.partition`) finds the division
whose slowest stage is quickest and fits the memory.
Reference: Narayanan et al., PipeDream, 2019, where stages are chosen in the same way.
"""

from __future__ import annotations

from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import IDENTITIES, LITERAL, Operator, OperatorGraph, Role
from sporax.ir.hardware import HardwareProfile
from sporax.ir.marks import DerivativeMark, LayoutMark, OperatorMark
from sporax.ir.placement import prime_mesh
from sporax.lowering.pipeline.assign import StageOf
from sporax.lowering.pipeline.flat import MicroStep, Phase
from sporax.planner import cost_model
from sporax.planner.pipeline.partition import Block, partition
from sporax.planner.rules import rule_for

_STATES_PER_WEIGHT = 4
"""Weight, gradient and two moments."""


def chosen_stages(micro: MicroStep, settings: PlanSettings, profile: HardwareProfile) -> tuple[StageOf, str]:
    """The stage of every operator, by the Cell that it stands in, and why.

    A Cell that the forward pass enters is one block of the chain. Its time is that of its operators, forward and backward,
    by the cost model, on the devices of one stage; stages with equal sharding inside keep these proportions.

    Raises:
        SporaxRuntimeError: the network has too few Cells, or no division into stages fits the memory.
    """
    config = settings.parallel
    chain = _Chain(micro)
    blocks = _blocks(micro, chain, settings, profile)
    # Symbolic costs have no hardware, so their limit is the one that the user set.
    capacity = float(settings.cost.device_memory_capacity) if settings.symbolic else float(profile.memory_bytes)
    # The division is computed as if each stage was one large device.
    division = partition(blocks, config.pipeline_stages, micro.num_micro, capacity * config.num_stage_devices)

    def stage_of(operator: Operator) -> tuple[int, int] | None:
        block = chain.block_of(operator)
        return None if block is None else (division.stage_of(block), 0)

    times = ", ".join(f"{seconds * 1e3:.3f} ms" for seconds in division.seconds)
    starts = ", ".join(blocks[start].name for start in division.starts)
    reason = (
        f"Stages chosen by the planner: they start with {starts}. One micro batch takes {times} on one device; no other division "
        f"of the chain of {len(blocks)} blocks has a quicker slowest stage."
    )
    return stage_of, reason


class _Chain:
    """The forward pass as runs of operators of one Cell. A backward operator belongs to the run whose mark it passes."""

    def __init__(self, micro: MicroStep) -> None:
        self.names: list[str] = []
        self.by_result: dict[int, int] = {}
        self.by_call: dict[int, int] = {}
        path = None
        for operator, phase in zip(micro.step.graph.operators, micro.phases, strict=True):
            if phase is not Phase.FORWARD:
                continue
            # A Cell that is called again later starts another block: the chain is in the order of execution.
            if operator.path != path:
                path = operator.path
                self.names.append(path)
            block = len(self.names) - 1
            self.by_result[operator.results[0]] = block
            if isinstance(operator.mark, OperatorMark | LayoutMark):
                self.by_call[operator.mark.number] = block

    def block_of(self, operator: Operator) -> int | None:
        """The run of a forward operator, or of a mark that a cotangent passes; None of others, which follow these."""
        mark = operator.mark
        if isinstance(mark, DerivativeMark):
            return self.by_call.get(mark.of.number)
        return self.by_result.get(operator.results[0])


def _blocks(micro: MicroStep, chain: _Chain, settings: PlanSettings, profile: HardwareProfile) -> list[Block]:
    graph = micro.step.graph
    # On one device: stages with equal sharding inside keep the proportions between Cells.
    mesh = prime_mesh(DeviceMatrix((1,)))
    model = cost_model(settings, mesh, profile)
    count = len(chain.names)
    seconds = [0.0] * count
    memory = _BlockMemory(graph, count)
    # Backward operators before the first mark belong to the loss, which is in the last block.
    number = count - 1
    for operator, phase in zip(graph.operators, micro.phases, strict=True):
        if phase not in (Phase.FORWARD, Phase.BACKWARD):
            continue
        block = chain.block_of(operator)
        number = number if block is None else block
        if operator.name not in IDENTITIES and not operator.bodies:
            # Every factor is whole, since there is one device.
            rule = rule_for(operator.operation)
            seconds[number] += model.seconds(operator.operation, rule, ((),) * len(rule.factors), mesh)
        memory.visit(operator, number, phase is Phase.FORWARD)
    columns = (seconds, memory.crossing(), memory.state, memory.saved)
    return [Block(name, *values) for name, *values in zip(chain.names, *columns, strict=True)]


class _BlockMemory:
    """Bytes of the blocks' state and of what they save for the backward pass, and who reads which block's results."""

    def __init__(self, graph: OperatorGraph, count: int) -> None:
        self.graph = graph
        self.state, self.saved = [0.0] * count, [0.0] * count
        self.weights = {entry.tensor for entry in graph.inputs if entry.role is Role.PARAMETER}
        self.makers: dict[int, int] = {}
        self.last: dict[int, int] = {}

    def visit(self, operator: Operator, block: int, is_forward: bool) -> None:
        """Count what an operator of a block reads and makes."""
        for tensor in operator.operands:
            if tensor in self.weights:
                # A weight that several blocks read is stored with the first of them.
                self.weights.discard(tensor)
                self.state[block] += _STATES_PER_WEIGHT * self.graph.tensors[tensor].num_bytes
            if is_forward and tensor in self.makers:
                self.last[tensor] = max(self.last.get(tensor, 0), block)
            elif tensor in self.makers:
                self.saved[self.makers[tensor]] += self.graph.tensors[tensor].num_bytes
        if is_forward:
            self.makers.update(dict.fromkeys(operator.results, block))

    def crossing(self) -> list[float]:
        """For every block the bytes that a stage ending with it would send."""
        sent = [0.0] * len(self.state)
        for tensor, reader in self.last.items():
            if tensor != LITERAL:
                # A tensor that is read several blocks later passes every division in between.
                for block in range(self.makers[tensor], reader):
                    sent[block] += self.graph.tensors[tensor].num_bytes
        return sent
