"""Recomputation chosen by the planner, next to nothing, Megatron's selective recomputation, and everything.

For each memory limit the planner's choice is trained in turns with the three that people make by hand; its least step time is
compared with that of each by hand that is predicted to fit.

    python benchmarks/recompute_auto.py --layers 4
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

import memory_features as features
import numpy as np

import sporax.mindspore as ms
from sporax.lowering.passes.recompute import recompute_choice
from sporax.mindspore import Tensor, nn
from sporax.planner.memory.recomputation import Level, RecomputeDecision

BY_HAND = {Level.NOTHING: features.nothing, Level.ATTENTION: features.selective, Level.EVERYTHING: features.recomputed}


def made(options: argparse.Namespace, prepare: Any, recompute: str, data: list[Tensor]) -> tuple[Any, float]:
    """A step and the bytes that XLA says it needs."""
    ms.set_auto_parallel_context(recompute=recompute)
    ms.set_seed(0)
    net = features.Gpt(options.layers, options.width, options.length)
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    prepare(net, optimizer)
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    memory = step.program.lower(*data).compile().memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return step, memory.temp_size_in_bytes + held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"layers": 4, "width": 64, "length": 128, "batch": 16, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--limits", type=float, nargs="+", default=[0.9, 0.7, 0.5], help="shares of what nothing needs")
    options = parser.parse_args()
    logging.getLogger("sporax").setLevel(logging.ERROR)
    ms.set_context(mode=ms.GRAPH_MODE)
    draw = np.random.default_rng(0)
    shape = (options.batch, options.length)
    data = [Tensor(draw.integers(0, features.VOCABULARY, shape).astype(np.int32)) for _ in range(2)]
    decisions: list[RecomputeDecision] = []
    choose = recompute_choice.choose

    def noted(*args: Any) -> RecomputeDecision:
        decisions.append(choose(*args))
        return decisions[-1]

    recompute_choice.choose = noted
    made(options, features.nothing, "auto", data)
    whole = next(iter(decisions[-1].trials.values())).peak_bytes
    runs: dict[str, tuple[Any, float, str]] = {}
    for level, prepare in BY_HAND.items():
        step, num_bytes = made(options, prepare, "", data)
        runs[level.value] = step, num_bytes, ""
    for share in options.limits:
        ms.set_context(max_device_memory=f"{share * whole / 2**30:.9f}GB")
        step, num_bytes = made(options, features.nothing, "auto", data)
        runs[f"auto {share}"] = step, num_bytes, "auto"
    # Steps are not compiled again: each setting is back when its step runs.
    limits = {f"auto {share}": f"{share * whole / 2**30:.9f}GB" for share in options.limits}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds + 1):
        for name, (step, _, recompute) in runs.items():
            ms.set_auto_parallel_context(recompute=recompute)
            ms.set_context(max_device_memory=limits.get(name, "1024GB"))
            started = time.process_time()
            step(*data).asnumpy()
            if number:
                times[name].append(time.process_time() - started)
    least = {name: min(each) for name, each in times.items()}
    for name, (_, num_bytes, _) in runs.items():
        print(f"{name:12} XLA {num_bytes / 2**20:8.1f} MiB   CPU time of a step {least[name] * 1e3:8.1f} ms")
    for share, decision in zip(options.limits, decisions[-len(options.limits) :], strict=True):
        own = decision.trials[decision.levels]
        levels = {level.value: decision.levels.count(level) for level in Level if level in decision.levels}
        print(
            f"limit {decision.limit_bytes / 2**20:8.1f} MiB: {levels}, predicted {own.peak_bytes / 2**20:.1f} MiB, "
            f"{own.seconds:.4f} s"
        )
        for level in BY_HAND:
            outcome = decision.trials.get((level,) * len(decision.levels))
            if outcome is not None and outcome.peak_bytes <= decision.limit_bytes:
                ratio = least[f"auto {share}"] / least[level.value]
                print(
                    f"    next to {level.value}: predicted {own.seconds / outcome.seconds:.3f}x, measured {ratio:.3f}x"
                )


if __name__ == "__main__":
    main()
