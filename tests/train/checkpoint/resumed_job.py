"""A job of several ranks with optimizer parallelism, dropout and shuffling: `resumed_job.py DIRECTORY STEP_OF_THE_KILL`."""

import os
import sys

import numpy as np

import sporax as ms
from sporax import nn
from sporax.communication import init
from sporax.dataset import NumpySlicesDataset
from sporax.train import Callback, Model, ResumableCheckpoint

init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(
    parallel_mode="semi_auto_parallel",
    full_batch=True,
    enable_parallel_optimizer=True,
    parallel_optimizer_config={"parallel_optimizer_threshold": 0},
)
ms.set_seed(3)
rng = np.random.default_rng(0)
net = nn.SequentialCell(nn.Dense(8, 16), nn.Dropout(p=0.3), nn.Dense(16, 4))
data = (rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(16, 4)).astype(np.float32))
dataset = NumpySlicesDataset(data, ["x", "y"], shuffle=True).batch(4)


class Kill(Callback):
    def on_train_step_end(self, run_context):
        facts = run_context.original_args()
        print("loss", facts.cur_step_num, float(facts.net_outputs).hex(), flush=True)
        if facts.cur_step_num == int(sys.argv[2]):
            os.kill(os.getpid(), 9)


model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
model.train(2, dataset, callbacks=[ResumableCheckpoint(sys.argv[1], 3, async_save=False), Kill()])
