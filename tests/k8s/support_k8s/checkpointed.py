"""Data-parallel training with a checkpoint file per rank: `checkpointed.py FOLDER PAUSE [FAIL_AT]`, as a user writes it.

Nothing in it is about going on: no `resume`, no variable. Rank 0 prints the loss of each step. With FAIL_AT the last rank fails
after that step, the first time only.
"""

import sys
import time
from pathlib import Path

import numpy as np

import mindspore as ms
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

init()
rank, size, folder = get_rank(), get_group_size(), Path(sys.argv[1])
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
ms.set_seed(3)
rng = np.random.default_rng(0)
net = nn.SequentialCell(nn.Dense(8, 16), nn.Dropout(p=0.3), nn.Dense(16, 4))
data = (rng.normal(size=(96, 8)).astype(np.float32), rng.normal(size=(96, 4)).astype(np.float32))
dataset = NumpySlicesDataset(data, ["x", "y"], shuffle=True, num_shards=size, shard_id=rank).batch(8 // size)


class Report(Callback):
    def on_train_step_end(self, run_context):
        facts, report = run_context.original_args(), folder / "failed"
        print(f"step {facts.cur_step_num} loss {float(facts.net_outputs):.9g}", flush=True)
        if len(sys.argv) > 3 and facts.cur_step_num == int(sys.argv[3]) and rank == size - 1 and not report.exists():
            report.touch()
            raise RuntimeError("as requested")
        time.sleep(float(sys.argv[2]))


saver = ModelCheckpoint("net", str(folder / f"rank_{rank}"), CheckpointConfig(2, keep_checkpoint_max=3))
Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9)).train(2, dataset, callbacks=[saver, Report()])
