"""Trainings in data parallelism, run by eight ranks in eight processes (to record) and by one process with eight devices.

sporax run --worker_num 8 tests/runtime/ranks/local_rank_recipes.py     writes local_ranks.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

RECORD = Path(__file__).parent / "local_ranks.json"
ROWS, STEPS = 32, 3
CASES = {"mean": {"gradients_mean": True}, "sum": {"gradients_mean": False}, "loss scale": {"gradients_mean": True}}


class Net(nn.Cell):
    """Statistics of batches, a mask, and a collective inside."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Dense(4, 8), nn.BatchNorm1d(8), nn.Dropout(p=0.25)
        self.last = nn.Dense(8, 3)
        self.everywhere = ops.AllReduce()

    def construct(self, x: Tensor) -> Tensor:
        hidden = self.drop(ops.relu(self.norm(self.first(x))))
        center = self.everywhere(ops.stop_gradient(hidden.mean(0))) / 8.0
        return self.last(hidden - center)


def cell(net: Any, optimizer: Any, loss_fn: Any) -> Callable[..., Any]:
    return nn.TrainOneStepCell(nn.WithLossCell(net, loss_fn), optimizer)


def scaled(net: Any, optimizer: Any, loss_fn: Any) -> Callable[..., Any]:
    scale = nn.DynamicLossScaleUpdateCell(1024.0, 2, 2)
    step = nn.TrainOneStepWithLossScaleCell(nn.WithLossCell(net, loss_fn), optimizer, scale)
    return lambda *batch: step(*batch)[0]


def function(net: Any, optimizer: Any, loss_fn: Any) -> Callable[..., Any]:
    grad_fn = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
    reducer = nn.DistributedGradReducer(optimizer.parameters)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss, grads = grad_fn(x, y)
        optimizer(reducer(grads))
        return loss

    return step


def jitted(net: Any, optimizer: Any, loss_fn: Any) -> Callable[..., Any]:
    return ms.jit(function(net, optimizer, loss_fn))


class OwnStep(nn.Cell):
    """A step as users write it."""

    def __init__(self, net: Any, optimizer: Any, loss_fn: Any) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.optimizer, self.weights = nn.WithLossCell(net, loss_fn), optimizer, optimizer.parameters
        self.reducer = nn.DistributedGradReducer(self.weights)

    def construct(self, *batch: Tensor) -> Tensor:
        loss, grads = ms.value_and_grad(self.network, None, self.weights)(*batch)
        self.optimizer(self.reducer(grads))
        return loss


def model(net: Any, optimizer: Any, loss_fn: Any) -> Callable[..., Any]:
    return ms.Model(net, loss_fn, optimizer).train_network


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [
        (rng.normal(size=(ROWS, 4)).astype(np.float32), rng.integers(0, 3, ROWS).astype(np.int32)) for _ in range(STEPS)
    ]


def train(way: Callable[..., Any], rank: int = 0, ranks: int = 1) -> dict[str, Any]:
    """Losses of all ranks together, and this rank's Parameters, after training on its rows of each batch."""
    ms.set_seed(3)
    net = Net().set_train()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    step = way(net, optimizer, nn.CrossEntropyLoss())
    rows = ROWS // ranks
    part = slice(rank * rows, (rank + 1) * rows)
    losses = [float(step(Tensor(x[part]), Tensor(y[part])).asnumpy()) for x, y in batches()]
    everyone = ops.AllReduce()(Tensor(np.array(losses, np.float32))).asnumpy() / 8
    return {"losses": everyone, **{parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}}


def record() -> None:
    from sporax.mindspore.communication import get_group_size, get_rank, init

    init()
    assert get_group_size() == 8
    found = {}
    for case, settings in CASES.items():
        ms.set_auto_parallel_context(parallel_mode="data_parallel", **settings)
        found[case] = train(scaled if case == "loss scale" else cell, get_rank(), 8)
    if get_rank() == 0:
        plain = {
            case: {name: np.asarray(values).tolist() for name, values in results.items()}
            for case, results in found.items()
        }
        RECORD.write_text(json.dumps(plain) + "\n")


if __name__ == "__main__":
    record()
