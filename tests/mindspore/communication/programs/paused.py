"""Rank 1 is behind for longer than an idle rank was once given: it stands in a debugger, waiting for a line that comes late."""

import os
import threading
import time

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.communication import get_rank, init

SECONDS = 12.0

init()
ms.set_context(mode=ms.GRAPH_MODE, device_id=int(os.environ["DEVICE_ID"]))
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
net = nn.Dense(4, 4)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
batch = Tensor(np.ones((2, 4), np.float32))
for number in range(5):
    if number == 3 and get_rank() == 1:
        prompt, keyboard = os.pipe()
        threading.Timer(SECONDS, os.write, (keyboard, b"continue\n")).start()
        began = time.monotonic()
        os.read(prompt, 100)
        assert time.monotonic() - began >= SECONDS - 1
    step(batch, batch).asnumpy()
print("all is well")
