"""How many stages, micro batches and devices for each kind of parallelism inside a stage: searched together.

Problem: more stages mean less communication inside a stage and more waiting; micro batches and memory depend on both.

Method: every combination is tried: stages S that divide the devices, data x model of the devices of a stage, and micro
batches. The chain of blocks is divided by the exact dynamic program (`partition`), and one 1F1B step is simulated. Inside a
stage work is divided evenly; data parallelism adds one all-reduce of the gradients per step, model parallelism four
all-reduces of a block's result per micro batch, both as rings.

Reference: D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021,
section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.hardware import Link
from sporax.ir.pipeline_schedule import TaskKind
from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.partition import Block, partition
from sporax.planner.pipeline.simulate import ChunkCosts, PipelineCosts, simulate

_COLLECTIVES = 4
"""All-reduces per block and micro batch: two in the forward pass, two in the backward pass."""

_WEIGHTS_OF_STATE = 1 / 4
"""Share of a block's state that is reduced: of weight, gradient and two moments, the gradient."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """One combination.

    Attributes:
        stages, micro: how many.
        data, model: devices of a stage, along the batch and along the weights.
        seconds: of a step.
        peak_bytes: per device, of the stage that needs most.
    """

    stages: int
    micro: int
    data: int
    model: int
    seconds: float
    peak_bytes: float

    def __str__(self) -> str:
        return (
            f"{self.stages} stages of {self.data} x {self.model} devices (data x model), {self.micro} micro batches, "
            f"{self.seconds * 1e3:.3f} ms per step"
        )


def search_numbers(
    blocks: Sequence[Block], devices: int, micro: int, rows: int, link: Link, memory_bytes: float
) -> list[Numbers]:
    """All combinations that fit, the quickest first; of equally quick ones that with fewer stages.

    Args:
        blocks: the chain, as one device runs it for one micro batch.
        devices: how many there are.
        micro: micro batches that the blocks are given for.
        rows: of such a micro batch.
        link: between devices.
        memory_bytes: of one device.
    """
    combinations = []
    for stages, data, model in _meshes(devices):
        if stages > len(blocks):
            continue
        # Powers of two around the number that the blocks were measured for, so that their costs can be scaled.
        for factor in (1 / 4, 1 / 2, 1, 2, 4):
            count = int(micro * factor)
            # Whole micro batches, one per stage at least, and the rows must divide evenly over them and over the data
            # axis.
            if count != micro * factor or count < max(stages, 1) or rows * micro % (count * data):
                continue
            numbers = _numbers(blocks, stages, data, model, count, micro / count, link, memory_bytes)
            if numbers is not None:
                combinations.append(numbers)
    return sorted(combinations, key=lambda numbers: (numbers.seconds, numbers.stages, numbers.micro))


def _meshes(devices: int) -> Iterator[tuple[int, int, int]]:
    for stages in range(1, devices + 1):
        if devices % stages:
            continue
        inner = devices // stages
        yield from ((stages, data, inner // data) for data in range(1, inner + 1) if inner % data == 0)


def _numbers(
    blocks: Sequence[Block], stages: int, data: int, model: int, micro: int, scale: float, link: Link, memory: float
) -> Numbers | None:
    inside = [
        replace(
            block,
            seconds=block.seconds * scale / (data * model)
            # Activations are divided by the batch, not by the model: each member sends its whole result.
            + _COLLECTIVES * _ring_seconds(block.sent_bytes * scale / data, model, link),
            sent_bytes=block.sent_bytes * scale / data,
            state_bytes=block.state_bytes / model,
            saved_bytes=block.saved_bytes * scale / (data * model),
        )
        for block in blocks
    ]
    try:
        division = partition(inside, stages, micro, memory)
    except SporaxRuntimeError:  # no partition fits the memory
        return None
    ends = (*division.starts[1:], len(inside))
    chunks = {
        (stage, 0): ChunkCosts(
            # A backward pass does about twice the arithmetic of a forward pass: gradients of inputs and of weights.
            {TaskKind.FORWARD: seconds / 3, TaskKind.BACKWARD: seconds * 2 / 3},
            sent_bytes=inside[end - 1].sent_bytes,
        )
        for stage, (seconds, end) in enumerate(zip(division.seconds, ends, strict=True))
    }
    costs = PipelineCosts(chunks, {}, link.alpha_seconds, link.bandwidth)
    weights = max(
        sum(block.state_bytes for block in inside[start:end]) * _WEIGHTS_OF_STATE
        for start, end in zip(division.starts, ends, strict=True)
    )
    # Gradients are reduced once per step, after the pipeline has drained; the slowest stage counts.
    seconds = simulate(generate("1f1b", stages, micro), costs).seconds + _ring_seconds(weights, data, link)
    return Numbers(stages, micro, data, model, seconds, max(division.peak_bytes))


def _ring_seconds(num_bytes: float, members: int, link: Link) -> float:
    """Of an all-reduce."""
    if members == 1:
        return 0.0
    # A ring all-reduce: members - 1 steps to reduce and as many to gather.
    return 2 * (members - 1) * (link.alpha_seconds + num_bytes / members / link.bandwidth)
