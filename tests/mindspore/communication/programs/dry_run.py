"""Trains and says what its compiled step is like; the same in a dry run of a rank as in the job.

Arguments: a file for the answer, and ``whole`` where the ranks are cut by a plan.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import get_group_size, get_local_rank, get_rank, init

init()
whole = "whole" in sys.argv
ms.set_context(mode=ms.GRAPH_MODE)
mode = (
    {"parallel_mode": "semi_auto_parallel"}
    if whole
    else {"parallel_mode": "data_parallel", "all_reduce_fusion_config": [1]}
)
ms.set_auto_parallel_context(gradients_mean=True, **mode)
ms.set_seed(1)
net = nn.SequentialCell([nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 4)])
if whole:
    net[0].matmul.shard(((1, 1), (get_group_size(), 1)))
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9))
batch, labels = (Tensor(np.full((8, width), 0.5, np.float32)) for width in (16, 4))
compiled = step.program.lower(batch, labels).compile()
memory = compiled.memory_analysis()
kinds = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
collectives = Counter(re.findall(rf" ({kinds})\(", compiled.as_text()))
before = net[0].weight.asnumpy()
losses = [float(step(batch, labels)) for _ in range(3)]
ones = ops.AllGather()(ops.AllReduce()(Tensor(np.ones((1, 2), np.float32))))
answer = {
    "place": [get_rank(), get_group_size(), get_local_rank()],
    "collectives": collectives,
    "memory": [memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.temp_size_in_bytes],
    "losses": losses,
    "learned": bool(np.any(net[0].weight.asnumpy() != before)),
    "ones": ones.asnumpy().tolist(),
}
if get_rank() == 1:
    Path(sys.argv[1]).write_text(json.dumps(answer))
print("all is well")
