"""THOR in data-parallel mode: every rank uses the mean of the inverses of all."""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import get_group_size, get_rank, init

init()
RANK, SIZE = get_rank(), get_group_size()


def train(parallel_mode, split_indices=None):
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode=parallel_mode, gradients_mean=True)
    ms.set_seed(3)
    net = nn.SequentialCell(nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 3))
    rates = Tensor([0.1, 0.1])
    optimizer = nn.thor(net, rates, rates, 0.9, batch_size=4, split_indices=split_indices)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    rng = np.random.default_rng(5 + RANK)
    step(Tensor(rng.normal(size=(4, 6)), ms.float32), Tensor(rng.normal(size=(4, 3)), ms.float32))
    return [p.asnumpy() for p in net.trainable_params()], [*optimizer.matrix_a, *optimizer.matrix_g]


ms.set_context(mode=ms.GRAPH_MODE)
_, own = train("stand_alone")
for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
    ms.set_context(mode=mode)
    for split_indices in (None, [0]):
        weights, shared = train("data_parallel", split_indices)
        for matrix, alone in zip(shared, own, strict=True):
            mean = ops.AllReduce()(Tensor(alone.asnumpy())).asnumpy() / SIZE
            assert not np.allclose(mean, alone.asnumpy())
            np.testing.assert_allclose(matrix.asnumpy(), mean, rtol=1e-5, atol=1e-6)
        for weight in weights:
            both = ops.AllGather()(Tensor(weight[None])).asnumpy()
            np.testing.assert_array_equal(both[0], both[1])
print("all is well")
