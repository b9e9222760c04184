"""A job of several ranks that kills itself after a step: `resumed_job.py DIRECTORY STEP_OF_THE_KILL [KIND]`.

KIND is ``files`` or ``orbax`` (optimizer parallelism, dropout and shuffling, written so), or ``data``: data parallelism, in which
the ranks share a batch of 4.
"""

import os
import sys

import numpy as np

import sporax as ms
from sporax import nn
from sporax.communication import get_group_size, get_rank, init
from sporax.dataset import NumpySlicesDataset
from sporax.train import Callback, Model, ResumableCheckpoint
from sporax.train.checkpoint import directory

opened, open_checkpoint = [], directory.open_checkpoint


def noted(*arguments, **options):
    opened.append(open_checkpoint(*arguments, **options))
    return opened[-1]


directory.open_checkpoint = noted

init()
kind, size = (*sys.argv, "files")[3], get_group_size()
ms.set_context(mode=ms.GRAPH_MODE)
if kind == "data":
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
else:
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        full_batch=True,
        enable_parallel_optimizer=True,
        parallel_optimizer_config={"parallel_optimizer_threshold": 0},
    )
ms.set_seed(3)
rng = np.random.default_rng(0)
layers = [nn.Dense(8, 16), nn.Dropout(p=0.3), nn.Dense(16, 4)]
if kind == "data":
    del layers[1]  # each rank draws its own mask
net = nn.SequentialCell(*layers)
data = (rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(16, 4)).astype(np.float32))
shards = {"num_shards": size, "shard_id": get_rank()} if kind == "data" else {}
dataset = NumpySlicesDataset(data, ["x", "y"], shuffle=True, **shards).batch(4 // size if kind == "data" else 4)


class Kill(Callback):
    def on_train_step_end(self, run_context):
        facts = run_context.original_args()
        print("loss", facts.cur_step_num, float(facts.net_outputs).hex(), flush=True)
        if facts.cur_step_num == int(sys.argv[2]):
            os.kill(os.getpid(), 9)


model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
saver = ResumableCheckpoint(sys.argv[1], 3, async_save=False, backend="orbax" if kind == "orbax" else "files")
model.train(2, dataset, callbacks=[saver, Kill()])
total = sum(float(np.abs(parameter.asnumpy()).sum()) for parameter in net.get_parameters())
print("weights", total.hex(), flush=True)
print("read", get_rank(), sum(file.bytes_read for file in opened), flush=True)
