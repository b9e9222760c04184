"""THOR on eight devices in one process trains as on one."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(16, 2, 4, 4)).astype(np.float32), RNG.integers(0, 8, 16).astype(np.int32)


def weights(semi_auto):
    context.reset_auto_parallel_context()
    if semi_auto:
        context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    ms.set_seed(3)
    net = nn.SequentialCell(nn.Conv2d(2, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Dense(32, 8))
    if semi_auto:
        net[3].matmul.shard(((2, 4), (1, 4)))
    rates = Tensor([0.05, 0.05, 0.05])
    optimizer = nn.thor(net, rates, rates, 0.9, batch_size=16)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    losses = [float(step(Tensor(X), Tensor(Y))) for _ in range(3)]
    return losses, [parameter.asnumpy() for parameter in net.trainable_params()]


@pytest.mark.filterwarnings("ignore")
def test_a_sharded_step_equals_that_of_one_device():
    context.set_context(mode=context.GRAPH_MODE)
    expected, actual = weights(False), weights(True)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-4)
    for one, other in zip(actual[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)
