"""How much Python does a pipeline step cost per task, apart from starting the task's program?

A network of small products in stages on the devices of one process. The list of instructions of its compiled step runs twice
in turns: as it is, and with every program and transfer replaced by a function that hands back results made before. The
second time is what our own code takes: looking values up, keeping results, dropping values after their last use.

    python benchmarks/pipeline_overhead.py [--stages S] [--micro M] [--rounds N]

Goal: a few microseconds per instruction.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import replace

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"

import jax
import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell

WIDTH = 16


class Net(nn.Cell):
    def __init__(self, stages):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(WIDTH, WIDTH, activation="relu") for _ in range(stages)])
        for stage, layer in enumerate(self.layers):
            layer.pipeline_stage = stage

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return ops.reduce_mean(x * x)


def compiled_step(stages, micro):
    """A step that has run once, its executable and its batch."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=stages, pipeline_stages=stages)
    net = Net(stages)
    step = nn.TrainOneStepCell(PipelineCell(net, micro), nn.Momentum(net.trainable_params(), 0.01, 0.9), sens=1 / micro)
    batch = Tensor(np.ones((2 * micro, WIDTH), np.float32))
    step(batch)
    return step, step.program.executable, batch


def without_programs(executable, run_once):
    """The instructions, with functions in the place of programs that hand back what the programs gave in one step."""
    originals, quick = executable.instructions, []

    def recorded(instruction):
        def run(*arrays):
            results = tuple(instruction.run(*arrays))
            quick.append(replace(instruction, run=lambda *_: results))
            return results

        return replace(instruction, run=run)

    executable.instructions = [recorded(instruction) for instruction in originals]
    run_once()
    executable.instructions = originals
    return quick


def microseconds(instructions, num_values):
    """Time to go through a list of instructions once, per instruction."""
    values = [None] * num_values
    started = time.perf_counter()
    for instruction in instructions:
        instruction.execute(values)
    return (time.perf_counter() - started) * 1e6 / len(instructions)


def main() -> None:
    parser = argparse.ArgumentParser(description="Python per task of a pipeline step.")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--micro", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    step, executable, batch = compiled_step(options.stages, options.micro)
    quick = without_programs(executable, lambda: step(batch))
    own, whole = [], []
    for _ in range(options.rounds):
        own.append(microseconds(quick, executable.num_values))
        started = time.perf_counter()
        jax.block_until_ready(step(batch).array)
        whole.append((time.perf_counter() - started) * 1e6 / len(quick))
    print(f"{len(quick)} instructions: {options.stages} stages, {options.micro} micro batches")
    print(f"own Python per instruction: {statistics.median(own):.2f} us")
    print(f"a step of the smallest programs per instruction: {statistics.median(whole):.1f} us")


if __name__ == "__main__":
    main()
