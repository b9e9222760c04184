"""Trains in data parallelism and prints each loss to its last bit; arguments: steps, seconds between them, rank that raises."""

import sys
import time

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.communication import get_group_size, get_rank, init

steps, pause, failing = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
ms.set_seed(1)
net = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 4))
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
draws = np.random.RandomState(0)
x, y = draws.randn(16, 8).astype(np.float32), draws.randn(16, 4).astype(np.float32)
rank, size = get_rank(), get_group_size()
for number in range(steps):
    loss = float(step(Tensor(x[rank::size]), Tensor(y[rank::size])).asnumpy())
    print(f"step {number} of rank {rank}: {loss.hex()}", flush=True)
    if number == 3 and rank == failing:
        raise ValueError("the data is spoiled")
    time.sleep(pause)
