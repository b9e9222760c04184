"""Predicted memory of planned training scripts beside what XLA says of the compiled programs.

As `plan_memory.py`, for steps that are written with MindSpore's names: three networks with Momentum or Adam on eight simulated
devices, semi-automatic, with optimizer parallelism, with fused gradients, and by the three searches. The table has
predicted / compiled, where compiled is arguments + results + temporaries - what is donated. Nothing is run.

    python benchmarks/facade_memory.py [--only NAME …] [--json FILE]

Goal: within 10 %.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import numpy as np
from _memory_table import arguments, show

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU

RNG = np.random.default_rng(0)


def dense() -> tuple[Any, ...]:
    layers = [each for _ in range(3) for each in (nn.Dense(256, 256), nn.ReLU())]
    net = nn.SequentialCell(*layers, nn.Dense(256, 16))
    return net, nn.Momentum(net.trainable_params(), 0.1, 0.9), (128, 256), 16


def lenet() -> tuple[Any, ...]:
    convolutions = [nn.Conv2d(1, 6, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2)]
    convolutions += [nn.Conv2d(6, 16, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()]
    heads = [nn.Dense(256, 120), nn.ReLU(), nn.Dense(120, 80), nn.ReLU(), nn.Dense(80, 16)]
    net = nn.SequentialCell(*convolutions, *heads)
    return net, nn.Momentum(net.trainable_params(), 0.1, 0.9), (64, 1, 28, 28), 16


def normalised() -> tuple[Any, ...]:
    layers = [
        each for _ in range(2) for each in (nn.Dense(256, 256), nn.LayerNorm((256,)), nn.Dropout(p=0.1), nn.GELU())
    ]
    net = nn.SequentialCell(*layers, nn.Dense(256, 16))
    return net, nn.Adam(net.trainable_params(), 1e-3), (128, 256), 16


NETWORKS = {"dense": dense, "LeNet": lenet, "layer norm, dropout": normalised}
FUSED = {"comm_fusion": {"allreduce": {"mode": "auto", "config": None}}}
SHARDED = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
SETTINGS: dict[str, dict[str, Any]] = {
    "semi-automatic": {"parallel_mode": "semi_auto_parallel"},
    "optimizer parallel": {"parallel_mode": "semi_auto_parallel", **SHARDED},
    "fused gradients": {"parallel_mode": "semi_auto_parallel", **FUSED},
    "dynamic": {"parallel_mode": "auto_parallel", "search_mode": "dynamic_programming"},
    "recursive, sharded": {"parallel_mode": "auto_parallel", "search_mode": "recursive_programming", **SHARDED},
    "propagation, fused": {"parallel_mode": "auto_parallel", "search_mode": "sharding_propagation", **FUSED},
}


def ratio(name: str, settings: dict[str, Any]) -> float:
    """Predicted / compiled memory of one device."""
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(device_num=8, **settings)
    context.set_algo_parameters(fully_use_devices=True)
    ms.set_seed(1)
    net, optimizer, shape, classes = NETWORKS[name]()
    step = nn.TrainOneStepCell(nn.WithLossCell(net.set_train(), nn.CrossEntropyLoss()), optimizer)
    batch = (
        Tensor(RNG.normal(size=shape).astype(np.float32)),
        Tensor(RNG.integers(0, classes, shape[0]).astype(np.int32)),
    )
    planned = step.program.plan(*batch)
    used = step.program.lower(*batch).compile().memory_analysis()
    total = used.argument_size_in_bytes + used.temp_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    return memory_of(planned.graph, planned.plan, XLA_CPU).peak_bytes / float(total)


def main() -> None:
    options = arguments(__doc__, NETWORKS)
    context.set_context(mode=context.GRAPH_MODE)
    figures: dict[str, dict[str, float]] = {}
    for name in options.only:
        figures[name] = {}
        for setting, values in SETTINGS.items():
            figures[name][setting] = ratio(name, values)
            print(f"{name}, {setting}: {figures[name][setting]:.3f}", file=sys.stderr, flush=True)
    show(figures, options.json)


if __name__ == "__main__":
    main()
