"""A job one of whose ranks kills itself at a drawn moment: `killed_job.py KIND DIRECTORY VICTIM MOMENT`.

KIND is ``zero`` (optimizer parallelism), ``pipeline`` (a stage per rank) or ``data`` (data parallelism). A moment is
the so-many-th step, flush of a file or renaming of one, whichever comes; 0 is never. It comes in the first start only.
"""

import os
import sys
import threading
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import nn
from sporax.mindspore.communication import get_group_size, get_rank, init
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.parallel.nn import PipelineCell
from sporax.mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint, ResumableCheckpoint

kind, folder, victim, moment = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
init()
rank, size = get_rank(), get_group_size()
dies = rank == victim and moment > 0 and os.environ.get("SPORAX_RESTART", "0") == "0"
lock, events = threading.Lock(), 0


def note_event():
    global events
    with lock:
        events += 1
        if dies and events == moment:
            os.kill(os.getpid(), 9)


def counted(function):
    def call(*arguments, **options):
        note_event()
        return function(*arguments, **options)

    return call


class Report(Callback):
    def on_train_step_end(self, run_context):
        facts = run_context.original_args()
        print("loss", facts.cur_step_num, float(facts.net_outputs).hex(), flush=True)
        note_event()


ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(3)
settings = {
    "zero": {
        "parallel_mode": "semi_auto_parallel",
        "full_batch": True,
        "enable_parallel_optimizer": True,
        "parallel_optimizer_config": {"parallel_optimizer_threshold": 0},
    },
    "pipeline": {"parallel_mode": "semi_auto_parallel", "full_batch": True, "pipeline_stages": size},
    "data": {"parallel_mode": "data_parallel", "gradients_mean": True},
}
ms.set_auto_parallel_context(**settings[kind])
rng = np.random.default_rng(0)
data = (rng.normal(size=(32, 8)).astype(np.float32), rng.normal(size=(32, 8)).astype(np.float32))
layers = [nn.Dense(8, 16), nn.Dropout(p=0.3), nn.Dense(16, 16), nn.Dense(16, 16), nn.Dense(16, 8)]
net = nn.SequentialCell(*layers)
shards = {"num_shards": size, "shard_id": rank} if kind == "data" else {}
dataset = NumpySlicesDataset(data, ["x", "y"], shuffle=True, **shards).batch(8 // (size if kind == "data" else 1))
if kind == "pipeline":
    for layer, place in zip(layers, (0, 0, 1, 2, 3), strict=True):
        layer.pipeline_stage = place * size // 4
    net = PipelineCell(nn.WithLossCell(net, nn.MSELoss()), 4)
    model = Model(net, optimizer=nn.Adam(net.trainable_params(), 0.01))
else:
    model = Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 0.01))
if kind == "data":
    saver = ModelCheckpoint("net", str(folder / f"rank_{rank}"), CheckpointConfig(1, keep_checkpoint_max=2))
else:
    saver = ResumableCheckpoint(str(folder), 1, keep=2)
os.fsync, os.replace = counted(os.fsync), counted(os.replace)
model.train(3, dataset, callbacks=[Report(), saver], resume=True)  # a step is reported before it may be resumed from
