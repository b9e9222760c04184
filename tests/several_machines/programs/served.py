"""Trains a table that parameter servers keep, and prints each loss to its last bit; arguments: steps, seconds between them, rank
that raises, and, where the job has to last, a file: after its fourth step a rank waits until the file is there.
"""

import sys
import time
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.communication import get_rank, init

steps, pause, failing = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_ps_context(enable_ps=True)
init()
ms.set_seed(1)
net = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 4))
net.set_param_ps()
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9))
draws = np.random.RandomState(get_rank())
for number in range(steps):
    x, y = draws.randn(16, 8).astype(np.float32), draws.randn(16, 4).astype(np.float32)
    loss = float(step(Tensor(x), Tensor(y)).asnumpy())
    print(f"step {number} of rank {get_rank()}: {loss.hex()}", flush=True)
    if number == 3 and get_rank() == failing:
        raise ValueError("the data is spoiled")
    while number == 3 and len(sys.argv) > 4 and not Path(sys.argv[4]).exists():
        time.sleep(0.05)
    time.sleep(pause)
