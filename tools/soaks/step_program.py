"""What a rank of the scenario `steps` runs: the same small training again and again from the same start; all runs must be equal.

Run by the launcher: step_program.py KIND --runs N --seed S
"""

from __future__ import annotations

import argparse
import hashlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.communication import get_rank, init

_ROWS, _WIDTH, _STEPS = 48, 64, 4
_LONGEST_SLEEP_SECONDS = 0.004
_SHARE_OF_SLEEPS = 0.3


class Block(nn.Cell):
    """tanh(x @ w + b), with a strategy for the product.

    Args:
        values: draws the weights.
        strategy: of the product; None where there is none.
        out_strategy: of its result, which a reduce-scatter brings about where the product's rows are sharded.
    """

    def __init__(self, values: np.random.Generator, strategy: Any = None, out_strategy: Any = None) -> None:
        super().__init__()
        self.weight = Parameter(Tensor((values.normal(size=(_WIDTH, _WIDTH)) / 8).astype(np.float32)), name="weight")
        self.bias = Parameter(Tensor((values.normal(size=_WIDTH) / 8).astype(np.float32)), name="bias")
        self.matmul = ops.MatMul()
        if strategy:
            self.matmul.shard(strategy, **({"out_strategy": out_strategy} if out_strategy else {}))

    def construct(self, x: Tensor) -> Tensor:
        """(rows, width) in and out."""
        return ops.tanh(self.matmul(x, self.weight) + self.bias)


class Exchanging(nn.Cell):
    """A block whose input went through the collectives that a program may write by hand."""

    def __init__(self, values: np.random.Generator) -> None:
        super().__init__()
        self.block = Block(values)
        self.scatter, self.gather, self.reduce = ops.ReduceScatter(), ops.AllGather(), ops.AllReduce()

    def construct(self, x: Tensor) -> Tensor:
        """(rows, width) in and out."""
        x = self.gather(self.scatter(x))
        return self.block(x + self.reduce(x) * 0.1)


class Loss(nn.Cell):
    """The mean of the squares of what the blocks give."""

    def __init__(self, blocks: list[nn.Cell]) -> None:
        super().__init__()
        self.blocks = nn.SequentialCell(*blocks)

    def construct(self, x: Tensor) -> Tensor:
        """(rows, width) in, a number out."""
        return ops.reduce_mean(ops.square(self.blocks(x)))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job.

    Attributes:
        settings: of the parallel context.
        blocks: makes the network.
        prepare: what is done with the network before it is trained.
    """

    settings: dict[str, Any]
    blocks: Callable[[np.random.Generator], list[nn.Cell]]
    prepare: Callable[[Loss], nn.Cell] = lambda network: network


def _in_stages(network: Loss) -> nn.Cell:
    for number, block in enumerate(network.blocks):
        block.pipeline_stage = number // 2
    return nn.PipelineCell(network, 4)


def _recomputed(network: Loss) -> nn.Cell:
    for block in network.blocks:
        block.recompute()
    return network


_OPTIMIZER = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
KINDS = {
    "operator": Kind(
        {"parallel_mode": "semi_auto_parallel", "dataset_strategy": "full_batch"},
        lambda values: [Block(values, ((1, 2), (2, 1)), ((2, 1),)) for _ in range(3)],
    ),
    "optimizer": Kind(
        {"parallel_mode": "semi_auto_parallel", "comm_fusion": {"reducescatter": {"mode": "size", "config": 64}}}
        | _OPTIMIZER,
        lambda values: [Block(values) for _ in range(3)],
    ),
    "pipeline": Kind(
        {"parallel_mode": "semi_auto_parallel", "pipeline_stages": 2, "dataset_strategy": "full_batch"},
        lambda values: [Block(values, ((1, 2), (2, 1)), ((2, 1),)) for _ in range(4)],
        _in_stages,
    ),
    "data": Kind(
        {"parallel_mode": "data_parallel", "gradients_mean": True},
        lambda values: [Exchanging(values), Block(values), Block(values)],
    ),
    "automatic": Kind(
        {"parallel_mode": "auto_parallel", "search_mode": "recursive_programming", "dataset_strategy": "full_batch"}
        | _OPTIMIZER,
        lambda values: [Block(values) for _ in range(3)],
        _recomputed,
    ),
}


def delay_programs(seed: int) -> None:
    """Let this rank sleep now and then before it starts a compiled program, so that ranks arrive in all orders."""
    draw = random.Random(seed)
    call = jax.stages.Compiled.__call__

    def late(self: Any, *args: Any, **kwargs: Any) -> Any:
        if draw.random() < _SHARE_OF_SLEEPS:
            time.sleep(draw.random() * _LONGEST_SLEEP_SECONDS)
        return call(self, *args, **kwargs)

    jax.stages.Compiled.__call__ = late  # type: ignore[method-assign]


def trained(step: nn.Cell, states: list[Parameter], start: list[np.ndarray], batches: list[Tensor]) -> str:
    """Train from the start; gives a digest of all losses and of what this rank holds in the end."""
    for state, value in zip(states, start, strict=True):
        state.set_data(Tensor(value))
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(np.asarray(step(batch).asnumpy(), np.float32).tobytes())
    for state in states:
        for shard in state.raw.addressable_shards:
            digest.update(np.asarray(shard.data).tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Run one kind of training many times; any difference to the first run ends the rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kind = KINDS[arguments.kind]
    context.set_context(mode=context.GRAPH_MODE)
    init()
    context.set_auto_parallel_context(**kind.settings)
    delay_programs(1000 * arguments.seed + get_rank())
    values = np.random.default_rng(7)
    network = kind.prepare(Loss(kind.blocks(values)))
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    step = nn.TrainOneStepCell(network, optimizer)
    states = [*optimizer.parameters, *optimizer.moments]
    start = [state.asnumpy().copy() for state in states]
    batches = [Tensor(values.normal(size=(_ROWS, _WIDTH)).astype(np.float32)) for _ in range(_STEPS)]
    first = trained(step, states, start, batches)
    for number in range(1, arguments.runs):
        again = trained(step, states, start, batches)
        if again != first:
            raise AssertionError(f"run {number} of '{arguments.kind}' gave {again}, the first one {first}")
    print(f"{arguments.kind}: {arguments.runs} runs gave {first}", flush=True)


if __name__ == "__main__":
    main()
