"""Does the time to compile a pipeline grow with a process's own stages only?

24 equal transformer layers in 4 stages, next to a program of 6 such layers in a single stage, both with 4 micro batches. A
process compiles the programs of its own stage; all of them are compiled here, one stage after another, and the slowest
counts. Every process traces and plans the whole step, so that time, printed apart, grows with the network.

    python benchmarks/pipeline_compile.py [--layers N] [--width W] [--rounds N]

Goal: the slowest stage <= 1.2x of the single-stage program. Times are processor time: other work on the machine hardly
changes it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"

import jax
import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell
from sporax.runtime.pipeline.stage_program import jitted_program

HEADS, LENGTH, VOCABULARY, MICRO, STAGES = 4, 32, 64, 4, 4


class Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.qkv, self.project = nn.Dense(width, 3 * width), nn.Dense(width, width)
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)

    def construct(self, x):
        parts = ops.split(self.qkv(self.norm1(x)), self.width, 2)
        q, k, v = (each.reshape(-1, LENGTH, HEADS, self.width // HEADS).transpose(0, 2, 1, 3) for each in parts)
        mixed = ops.matmul(ops.softmax(ops.matmul(q, k.transpose(0, 1, 3, 2)), -1), v)
        x = x + self.project(mixed.transpose(0, 2, 1, 3).reshape(-1, LENGTH, self.width))
        return x + self.down(ops.relu(self.up(self.norm2(x))))


class Loss(nn.Cell):
    def __init__(self, layers, stages, width):
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, width), nn.Dense(width, VOCABULARY)
        self.blocks = nn.CellList([Block(width) for _ in range(layers)])
        self.criterion = nn.CrossEntropyLoss()
        if stages > 1:
            self.tokens.pipeline_stage, self.head.pipeline_stage = 0, stages - 1
            for number, block in enumerate(self.blocks):
                block.pipeline_stage = stages * number // layers

    def construct(self, x):
        y = self.tokens(x)
        for block in self.blocks:
            y = block(y)
        return self.criterion(self.head(y).reshape(-1, VOCABULARY), x.reshape(-1))


def training(layers, stages, width):
    """A training step that has not been traced, and its batch."""
    ms.reset_auto_parallel_context()
    if stages > 1:
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=stages, pipeline_stages=stages)
    net = Loss(layers, stages, width)
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
    step = nn.TrainOneStepCell(PipelineCell(net, MICRO), optimizer, sens=1 / MICRO).set_train()
    return step, Tensor(np.zeros((4 * MICRO, LENGTH), np.int32))


def seconds(work):
    """Processor time, and the result."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def single(layers, width):
    """Seconds to trace, lower and compile, and to trace alone."""
    step, batch = training(layers, 1, width)
    traced, lowered = seconds(lambda: step.program.lower(batch))
    jax.clear_caches()
    again, lowered = seconds(lambda: step.program.lower(batch))
    compiled, _ = seconds(lowered.compile)
    return again + compiled, traced


def stages(layers, width):
    """Seconds to lower and compile the programs of every stage, and to trace and plan the whole step."""
    step, batch = training(layers, STAGES, width)
    planning, planned = seconds(lambda: step.program.plan(batch))
    found = []
    for chunk in planned.pipeline.chunks:
        programs = chunk.programs
        own = [programs.prepare, programs.forward, programs.backward, *programs.updates]

        def compile_all(own=own):
            for program in own:
                if not program.is_empty:
                    jitted, shapes = jitted_program(program, planned.pipeline.options)
                    jitted.lower(*shapes).compile()

        found.append(seconds(compile_all)[0])
    return found, planning


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile time of pipeline stages.")
    parser.add_argument("--layers", type=int, default=6, help="layers of one stage")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    alone, own, ratios = [], [], []
    for _ in range(options.rounds):
        alone.append(single(options.layers, options.width))
        own.append(stages(STAGES * options.layers, options.width))
        ratios.append(max(own[-1][0]) / alone[-1][0])
    print(f"single stage, {options.layers} layers: {statistics.median(each[0] for each in alone):.2f} s")
    for stage in range(STAGES):
        print(f"stage {stage} of {STAGES}: {statistics.median(each[0][stage] for each in own):.2f} s")
    print(f"slowest stage / single stage: {statistics.median(ratios):.2f}")
    whole = [(max(many[0]) + many[1]) / one[0] for one, many in zip(alone, own, strict=True)]
    print(f"the same with the tracing and planning of the whole step: {statistics.median(whole):.2f}")
    print(
        f"tracing and planning: {statistics.median(each[1] for each in own):.2f} s for {STAGES * options.layers} layers, "
        f"{statistics.median(each[1] for each in alone):.2f} s for {options.layers}"
    )


if __name__ == "__main__":
    main()
