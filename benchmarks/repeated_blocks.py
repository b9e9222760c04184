"""Seconds to trace, plan, lower and compile a GPT whose layers are written out in a Python loop, by number of layers.

Every number of layers runs in a process of its own, with repeated blocks as loops (`SPORAX_REPEATED_BLOCKS`). CPU seconds are
shown, which other work on the machine disturbs least. Then steps in loops and steps written out are timed in turns, and the least
of each is compared.

    python benchmarks/repeated_blocks.py --layers 4 48 96
    python benchmarks/repeated_blocks.py --devices 8     in semi-automatic parallelism, with the collectives of the program
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from typing import Any

PHASES = ("build", "trace and plan", "lower", "compile")


def setup(layers: int, options: argparse.Namespace) -> tuple[Any, list[Any]]:
    """A training step and its data."""
    import numpy as np
    from memory_features import VOCABULARY, Gpt

    import sporax.mindspore as ms
    from sporax.mindspore import Tensor, nn

    ms.set_context(mode=ms.GRAPH_MODE)
    if options.devices > 1:
        ms.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel",
            device_num=options.devices,
            full_batch=True,
            dataset_strategy="data_parallel",
        )
    ms.set_seed(0)
    net = Gpt(layers, options.width, options.length)
    step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 1e-3)).set_train()
    draw = np.random.default_rng(0)
    shape = options.batch, options.length
    return step, [Tensor(draw.integers(0, VOCABULARY, shape).astype(np.int32)) for _ in range(2)]


def phases(layers: int, options: argparse.Namespace) -> str:
    """CPU seconds of each phase, as a line."""
    times = [time.process_time()]
    step, data = setup(layers, options)
    times.append(time.process_time())
    step.program.plan(*data)
    times.append(time.process_time())
    lowered = step.program.lower(*data)
    times.append(time.process_time())
    text = lowered.compile().as_text()
    times.append(time.process_time())
    seconds = [after - before for before, after in zip(times, times[1:], strict=False)]
    collectives = len(
        re.findall(r"= \S+ (?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(", text)
    )
    parts = "  ".join(f"{name} {part:6.2f}" for name, part in zip(PHASES, seconds, strict=True))
    return f"{layers:4} layers   {parts}   trace to compile {sum(seconds[1:]):6.2f} s   collectives {collectives}"


def step_times(options: argparse.Namespace) -> str:
    """Steps in loops and written out, in turns."""
    steps = {}
    least = {}
    for loops in ("0", "1"):
        os.environ["SPORAX_REPEATED_BLOCKS"] = loops
        step, data = setup(options.step_layers, options)
        step(*data).asnumpy()
        steps[loops], least[loops] = (step, data), (float("inf"), float("inf"))
    for _ in range(options.rounds):
        for loops, (step, data) in steps.items():
            os.environ["SPORAX_REPEATED_BLOCKS"] = loops
            wall, used = time.perf_counter(), time.process_time()
            step(*data).asnumpy()
            wall, used = time.perf_counter() - wall, time.process_time() - used
            least[loops] = min(least[loops][0], wall), min(least[loops][1], used)
    wall, used = (loop / plain for loop, plain in zip(least["1"], least["0"], strict=True))
    return f"step of {options.step_layers} layers in loops, of the one written out: {wall:.3f}x wall time, {used:.3f}x CPU time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="*", default=[4, 48, 96])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--step-layers", type=int, default=6, help="of the steps that are timed; 0 for none")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--phases-of", type=int, help="only print the line of so many layers")
    options = parser.parse_args()
    if options.devices > 1:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.devices}"
    os.environ["SPORAX_REPEATED_BLOCKS"] = "1"
    if options.phases_of:
        print(phases(options.phases_of, options), flush=True)
        return
    for layers in options.layers:
        subprocess.run([sys.executable, *sys.argv, "--phases-of", str(layers)], check=True)
    if options.step_layers:
        print(step_times(options), flush=True)


if __name__ == "__main__":
    main()
