"""Networks that were made, trained and dropped leave nothing."""

import gc
import weakref

import jax
import numpy as np

from sporax.mindspore import Tensor, nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 2)

    def construct(self, x):
        return self.dense(x)


def train_one():
    net = Net()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    step(Tensor(np.ones((2, 4), np.float32)), Tensor(np.ones((2, 2), np.float32)))
    return weakref.ref(net), weakref.ref(step)


def held():
    gc.collect()
    client = jax.local_devices()[0].client
    return jax.live_arrays(), client.live_executables(), len(gc.get_objects())


def test_a_dropped_net_is_freed_with_its_arrays_and_programs():
    for _ in range(3):  # what is made once: tables, programs that all networks share
        train_one()
    before = held()  # what tests before left stays as long as this names it
    nets = [train_one() for _ in range(6)]
    arrays, programs, objects = held()
    assert all(net() is None and step() is None for net, step in nets)
    assert (len(arrays), len(programs)) == (len(before[0]), len(before[1]))
    assert objects - before[2] < 6 * 20  # a network with its step and program is some thousands
