"""Data parallelism with a checkpoint file per rank, in sink mode or not: `recovered_job.py DIRECTORY KILL_AT [KILLED_RANK]`.

The rank kills itself after that step, the first time only. Rank 0 prints losses; all print their weights at the end.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import nn
from sporax.mindspore.communication import get_group_size, get_rank, init
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint, OnRequestExit

init()
rank, size = get_rank(), get_group_size()
folder = Path(sys.argv[1])
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
ms.set_seed(3)
rng = np.random.default_rng(0)
net = nn.SequentialCell(nn.Dense(8, 16), nn.Dropout(p=0.3), nn.Dense(16, 4))
data = (rng.normal(size=(48, 8)).astype(np.float32), rng.normal(size=(48, 4)).astype(np.float32))
dataset = NumpySlicesDataset(data, ["x", "y"], shuffle=True, num_shards=size, shard_id=rank).batch(8 // size)


class Kill(Callback):
    def on_train_step_end(self, run_context):
        facts = run_context.original_args()
        print("loss", facts.cur_step_num, float(facts.net_outputs).hex(), flush=True)
        report = folder / "killed"
        victim = int(sys.argv[3]) if len(sys.argv) > 3 else size - 1
        if rank == victim and facts.cur_step_num == int(sys.argv[2]) and not report.exists():
            report.touch()
            os.kill(os.getpid(), 9)


class Terminate(Callback):
    """Sends SIGTERM to the launcher, as a cluster that needs the machine does."""

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num >= 5 and not (folder / "signaled").exists():
            if rank == 0:
                (folder / "signaled").touch()
                os.kill(os.getppid(), 15)
            time.sleep(0.5)


further = [Kill()]
if os.environ.get("MS_ENABLE_GRACEFUL_EXIT") == "1":
    further = [OnRequestExit(save_mindir=False, directory=str(folder / "exit")), Terminate(), Kill()]
model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
saver = ModelCheckpoint(
    "net", str(folder / f"rank_{rank}"), CheckpointConfig(int(os.environ.get("SAVE_STEPS", "2")), keep_checkpoint_max=2)
)
# A job with an id goes on from its own files because the environment says so.
model.train(2, dataset, callbacks=[saver, *further], resume="SPORAX_JOB_ID" not in os.environ)
total = sum(float(np.abs(parameter.asnumpy()).sum()) for parameter in net.get_parameters())
print("weights", total.hex(), flush=True)
