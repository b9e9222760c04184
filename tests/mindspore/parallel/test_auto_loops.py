"""Automatic parallelism looks inside loops: layers in an `ops.scan` are cut, and the user's strategies in them hold."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops
from sporax.planner.plan_check import check_plan

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(64, 32)).astype(np.float32), RNG.integers(0, 8, 64).astype(np.int32)


class Net(nn.Cell):
    """Four layers in a loop, and a head."""

    def __init__(self, strategy=None):
        super().__init__()
        rng = np.random.default_rng(1)
        shapes = {"up": (4, 32, 64), "down": (4, 64, 32), "head": (32, 8)}
        for name, shape in shapes.items():
            value = (rng.normal(size=shape) / shape[-2] ** 0.5).astype(np.float32)
            setattr(self, name, ms.Parameter(Tensor(value), name=name))
        self.product = ops.MatMul()
        if strategy is not None:
            self.product.shard(strategy)

    def construct(self, x):
        def layer(h, weights):
            up, down = weights
            return h + ops.matmul(ops.gelu(self.product(h, up)), down), h.sum()

        h, _ = ops.scan(layer, x, (self.up, self.down))
        return ops.matmul(h, self.head)


@pytest.fixture(autouse=True)
def _graph_mode():
    context.set_context(mode=context.GRAPH_MODE)
    yield
    context.reset_algo_parameters()


def train(strategy=None, **settings):
    context.reset_auto_parallel_context()
    if settings:
        context.set_auto_parallel_context(parallel_mode="auto_parallel", device_num=8, **settings)
        context.set_algo_parameters(fully_use_devices=True)
    net = Net(strategy)
    net.set_train()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Adam(net.trainable_params(), 1e-2))
    return [float(step(Tensor(X), Tensor(Y))) for _ in range(3)], step


@pytest.mark.parametrize("strategy", [None, ((2, 1), (1, 4))])
def test_layers_in_a_loop_are_sharded(strategy):
    alone, _ = train()
    losses, step = train(strategy, search_mode="dynamic_programming")
    np.testing.assert_allclose(losses, alone, rtol=2e-5)
    actual = step.program.plan(Tensor(X), Tensor(Y))
    check_plan(actual.graph, actual.plan)
    loops = [
        plan for operator, plan in zip(actual.graph.operators, actual.plan.operators, strict=True) if operator.bodies
    ]
    assert len(loops) == 2
    assert all(any(any(operator.assignment) for operator in loop.bodies[0].operators) for loop in loops)
    up = next(
        place for operator, place in zip(actual.graph.inputs, actual.plan.inputs, strict=True) if operator.name == "up"
    )
    assert up.parts(actual.plan.mesh) == ((1, 1, 4) if strategy else (1, 1, 1))
