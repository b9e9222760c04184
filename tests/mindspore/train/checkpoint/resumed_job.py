"""A job of several ranks that trains in ways, one after another: `resumed_job.py STEP_OF_THE_KILL WAY=DIRECTORY...`.

A way is ``files``, ``orbax`` or ``files+orbax`` (optimizer parallelism, dropout and shuffling, saved so, each in a folder of
that name), or ``data``: data parallelism, in which the ranks share a batch of 4. The ranks kill themselves after a step.
"""

import os
import sys
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import nn
from sporax.mindspore.communication import get_group_size, get_rank, init
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.train import Callback, Model, ResumableCheckpoint
from sporax.runtime.storage import slice_directory

opened, open_checkpoint = [], slice_directory.open_safetensors


def noted(*arguments, **options):
    opened.append(open_checkpoint(*arguments, **options))
    return opened[-1]


slice_directory.open_safetensors = noted


class Kill(Callback):
    def __init__(self, way):
        self.way = way

    def on_train_step_end(self, run_context):
        facts = run_context.original_args()
        print(self.way, "loss", facts.cur_step_num, float(facts.net_outputs).hex(), flush=True)
        if facts.cur_step_num == int(sys.argv[1]):
            os.kill(os.getpid(), 9)


def train(way, folder):
    shared, size = way == "data", get_group_size()
    ms.reset_auto_parallel_context()
    if shared:
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    else:
        ms.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel",
            full_batch=True,
            enable_parallel_optimizer=True,
            parallel_optimizer_config={"parallel_optimizer_threshold": 0},
        )
    ms.set_seed(3)
    opened.clear()
    rng = np.random.default_rng(0)
    layers = [nn.Dense(8, 16), nn.Dropout(p=0.3), nn.Dense(16, 4)]
    if shared:
        del layers[1]  # each rank draws its own mask
    net = nn.SequentialCell(*layers)
    data = (rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(16, 4)).astype(np.float32))
    shards = {"num_shards": size, "shard_id": get_rank()} if shared else {}
    dataset = NumpySlicesDataset(data, ["x", "y"], shuffle=True, **shards).batch(4 // size if shared else 4)
    savers = [
        ResumableCheckpoint(str(folder / store), 3, async_save=False, backend="orbax" if store == "orbax" else "files")
        for store in way.split("+")
    ]
    model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    model.train(2, dataset, callbacks=[*savers, Kill(way)])
    total = sum(float(np.abs(parameter.asnumpy()).sum()) for parameter in net.get_parameters())
    print(way, "weights", total.hex(), flush=True)
    print(way, "read", get_rank(), sum(file.bytes_read for file in opened), flush=True)


init()
ms.set_context(mode=ms.GRAPH_MODE)
for word in sys.argv[2:]:
    name, _, place = word.partition("=")
    train(name, Path(place))
