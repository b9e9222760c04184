"""Stages for a chain of blocks: the partition whose slowest stage is as quick as possible.

Problem: the step time of a pipeline is governed by its slowest stage, and the memory of a stage depends on its place: stage
s of S keeps the activations of S - s micro batches under 1F1B.

Method: the best partition of a chain is the one with the smallest maximum; among these, the one that sends the fewest bytes.
Dynamic programming over (stages, blocks) finds it exactly in O(stages * blocks^2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sporax.base.errors import SporaxRuntimeError


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the chain, on the devices of a stage.

    Attributes:
        name: for people.
        seconds: of its forward and backward pass for one micro batch.
        sent_bytes: of what the next block reads.
        state_bytes: weights, gradients and optimizer state per device.
        saved_bytes: what one micro batch keeps for the backward pass per device.
    """

    name: str
    seconds: float
    sent_bytes: float = 0.0
    state_bytes: float = 0.0
    saved_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Partition:
    """A chain in stages.

    Attributes:
        starts: the first block of every stage.
        seconds: per stage, for one micro batch.
        sent_bytes: between all stages, for one micro batch.
        peak_bytes: per stage.
    """

    starts: tuple[int, ...]
    seconds: tuple[float, ...]
    sent_bytes: float
    peak_bytes: tuple[float, ...]

    def stage_of(self, block: int) -> int:
        """The stage of a block."""
        return sum(start <= block for start in self.starts) - 1


_Beginning = tuple[float, float, tuple[int, ...]]
"""Of the best first stages up to some block: slowest stage, bytes sent, starts."""


def partition(blocks: Sequence[Block], num_stages: int, num_micro: int, memory_bytes: float | None = None) -> Partition:
    """The best partition of a chain into stages of at least one block each.

    Args:
        num_micro: micro batches; no stage keeps more of them.
        memory_bytes: of one device; None for any.

    Raises:
        SporaxRuntimeError: fewer blocks than stages, or no partition fits the memory.
    """
    count = len(blocks)
    if count < num_stages:
        raise SporaxRuntimeError(
            f"For 'auto_pipeline', there must be at least one block for each of the {num_stages} stages, but there are {count}."
        )
    # Prefix sums: the cost of any run of blocks is one subtraction.
    time, state, saved = (
        [0.0, *accumulate(values)]
        for values in zip(*((block.seconds, block.state_bytes, block.saved_bytes) for block in blocks), strict=True)
    )

    def peak(stage: int, first: int, end: int) -> float:
        # 1F1B: the first stage keeps most, and never more than there are micro batches.
        micros = min(num_micro, num_stages - stage)
        return float(state[end] - state[first] + micros * (saved[end] - saved[first]))

    def ends(stage: int, first: int) -> Iterator[int]:
        # Enough blocks must be left for one in each later stage.
        possible = [count] if stage == num_stages - 1 else range(first + 1, count - (num_stages - stage - 1) + 1)
        return (end for end in possible if memory_bytes is None or peak(stage, first, end) <= memory_bytes)

    best: dict[int, _Beginning] = {0: (0.0, 0.0, ())}
    for stage in range(num_stages):
        following: dict[int, _Beginning] = {}
        for first, (slowest, sent, starts) in best.items():
            for end in ends(stage, first):
                more = blocks[end - 1].sent_bytes if end < count else 0.0
                # Tuples compare in order: time first, then bytes, then the partition itself, so that the result is reproducible.
                candidate = (max(slowest, time[end] - time[first]), sent + more, (*starts, first))
                following[end] = min(candidate, following.get(end, candidate))
        best = following
    if count not in best:
        raise SporaxRuntimeError(
            f"For 'auto_pipeline', some division into {num_stages} stages must fit into the memory of a device, "
            f"{memory_bytes:.3g} bytes, but none does."
        )
    _, sent, starts = best[count]
    last = (*starts[1:], count)
    return Partition(
        starts,
        tuple(time[end] - time[first] for first, end in zip(starts, last, strict=True)),
        sent,
        tuple(peak(stage, first, end) for stage, (first, end) in enumerate(zip(starts, last, strict=True))),
    )
