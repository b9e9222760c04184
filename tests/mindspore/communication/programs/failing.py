"""Trains for ever; in the third step rank 1 is killed, is requested to end (SIGTERM), raises, stands still, sleeps, waits for
a lock that nobody gives back (and does not heed SIGTERM), leaves too early, ends by `sys.exit` or `os._exit`, or counts for
ever.
"""

import os
import signal
import sys
import threading
import time

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.communication import get_rank, init

init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
net = nn.Dense(4, 4)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
batch = Tensor(np.ones((2, 4), np.float32))
for number in range(10**9):
    if number == 3 and get_rank() == 1:
        print("the end begins at", time.time(), flush=True)
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif sys.argv[1] == "ended":
            os.kill(os.getpid(), signal.SIGTERM)
        elif sys.argv[1] == "raises":
            raise ValueError("the data is spoiled")
        elif sys.argv[1] == "sleeps":
            time.sleep(3600)
        elif sys.argv[1] == "waits":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        elif sys.argv[1] == "leaves":
            sys.exit()
        elif sys.argv[1] == "exits":
            sys.exit(3)
        elif sys.argv[1] == "ends":
            os._exit(3)
        elif sys.argv[1] == "counts":
            while True:
                number += 1
        elif sys.argv[1] == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
    step(batch, batch).asnumpy()
