"""A rank whose part of a program gives other values at each run: with verified steps all ranks end, and say where it is.

The first argument says in which view the step is compiled: ``ranks`` or ``plan``.
"""

import sys

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import get_rank, init

init()
RANK, VIEW = get_rank(), sys.argv[1]
UNEQUAL = 1 if VIEW == "ranks" else 0  # in a plan all devices have what the host of the first one gives
ms.set_context(mode=ms.GRAPH_MODE)
modes = {"ranks": "data_parallel", "plan": "semi_auto_parallel"}
ms.set_auto_parallel_context(parallel_mode=modes[VIEW])
calls = []


def noise(x):
    calls.append(1)
    return (x + (len(calls) if RANK == UNEQUAL else 0)).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(8, 8), nn.Dense(8, 8)
        self.noise = ops.Custom(noise, out_shape=lambda x: x, out_dtype=lambda x: x, func_type="pyfunc")

    def construct(self, x):
        x = self.first(x)
        return ops.reduce_mean(self.last(x + ops.stop_gradient(self.noise(ops.stop_gradient(x)))) ** 2)


net = Net()
step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
for _ in range(3):
    try:
        step(Tensor(np.ones((8, 8), np.float32)))
    except RuntimeError as error:
        message = str(error)
        assert "For 'TrainOneStepCell', one compiled program gave different results" in message, message
        assert "at step 2 (seen on processes [" in message, message
        if RANK == UNEQUAL:
            assert "in 'TrainOneStepCell.network.noise'" in message, message
        print("all is well", flush=True)
        break
