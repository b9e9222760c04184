"""Random networks on eight devices against one."""

from __future__ import annotations

import os
import random
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import numpy as np

import sporax.mindspore as ms
from soaks.scenario import SURVIVED, Scenario, Trial
from sporax.mindspore import Parameter, Tensor, context, nn, ops

_WIDTH = 16
Layer = tuple[str, Any]


class Network(nn.Cell):
    """A chain of operators, each with the strategy that was drawn for it."""

    def __init__(self, layers: list[Layer], values: np.random.Generator) -> None:
        super().__init__()
        self.layers = tuple(layers)
        self.operators = []
        for number, (name, strategy) in enumerate(layers):
            operator = {
                "MatMul": ops.MatMul,
                "Add": ops.Add,
                "Mul": ops.Mul,
                "ReLU": ops.ReLU,
                "Tanh": ops.Tanh,
                "Softmax": ops.Softmax,
                "ReduceMax": lambda: ops.ReduceMax(keep_dims=True),
            }[name]()
            self.operators.append(operator.shard(strategy) if strategy else operator)
            shape = {"MatMul": (_WIDTH, _WIDTH), "Add": (_WIDTH,), "Mul": (_WIDTH,)}.get(name)
            if shape:
                weight = (values.normal(size=shape) / 4).astype(np.float32)
                setattr(self, f"weight{number}", Parameter(Tensor(weight), name=f"weight{number}"))

    def construct(self, x: Tensor) -> Tensor:
        """The mean of the last result's squares."""
        for number, ((name, _), operator) in enumerate(zip(self.layers, self.operators, strict=True)):
            if name in ("MatMul", "Add", "Mul"):
                x = operator(x, getattr(self, f"weight{number}"))
            elif name == "ReduceMax":
                x = x - operator(x, 1)
            else:
                x = operator(x)
        return ops.ReduceMean()(x * x)


def _layer(draw: random.Random) -> Layer:
    name = draw.choice(["MatMul", "MatMul", "Add", "Mul", "ReLU", "Tanh", "Softmax", "ReduceMax"])
    if draw.random() < 0.3:
        return name, None
    parts = draw.choice([(a, b, c) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) for c in (1, 2, 4, 8) if a * b * c <= 8])
    rows, columns, more = parts
    if name == "MatMul":
        return name, ((rows, columns), (columns, more))
    if name in ("Add", "Mul"):
        return name, ((rows, columns), (columns,))
    return name, ((rows, 1 if name == "Softmax" else columns),)


def eight_against_one(trial: Trial, case: Any) -> str:
    """A random network, sharded at random over eight devices, has the loss and the gradients of one device."""
    draw = trial.draw
    layers = [("MatMul", None), *(_layer(draw) for _ in range(draw.randint(1, 4)))]
    seed = draw.randrange(2**31)
    settings = draw.choice([{}, {"dataset_strategy": "full_batch"}, {"gradient_fp32_sync": False}])
    context.set_context(mode=context.GRAPH_MODE)
    results = []
    for parallel in (False, True):
        context.reset_auto_parallel_context()
        if parallel:
            context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)
        values = np.random.default_rng(seed)
        network = Network(layers if parallel else [(name, None) for name, _ in layers], values)
        x = Tensor(values.normal(size=(16, _WIDTH)).astype(np.float32))
        loss, gradients = ms.value_and_grad(network, None, network.trainable_params())(x)
        results.append([loss.asnumpy(), *(gradient.asnumpy() for gradient in gradients)])
    context.reset_auto_parallel_context()
    for alone, sharded in zip(*results, strict=True):
        np.testing.assert_allclose(sharded, alone, rtol=2e-4, atol=1e-6, err_msg=f"{layers} {settings}")
    return SURVIVED


FUZZ_SCENARIO = Scenario("fuzz", eight_against_one, cases=192)
