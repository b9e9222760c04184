"""All-reduce of 200 small gradients: as one buffer, and one by one.

sporax run --worker_num 2 fusion.py {fused,unfused} STEPS
"""

import sys
import time

import numpy as np

import mindspore as ms
from mindspore import nn, ops
from mindspore.communication import get_rank, init

init()
parameters = [ms.Parameter(ms.Tensor(np.ones(64, np.float32)), name=f"p{index}") for index in range(200)]
reducer = nn.DistributedGradReducer(parameters, mean=True, fusion_type=1 if sys.argv[1] == "fused" else 0)


@ms.jit
def step(rows):
    """As in a training step, gradients are made and used inside of it: what is measured is their exchange."""
    return ops.stack(reducer(tuple(rows[index] for index in range(len(parameters)))))


values = ms.Tensor(np.ones((len(parameters), 64), np.float32))
for _ in range(3):
    values = step(values)
values.asnumpy()
started, computed = time.perf_counter(), time.process_time()
for _ in range(int(sys.argv[2])):
    values = step(values)
values.asnumpy()
wall, processor = (
    1e3 * (now - before) / int(sys.argv[2])
    for now, before in ((time.perf_counter(), started), (time.process_time(), computed))
)
print(f"rank {get_rank()} milliseconds {wall} processor {processor}", flush=True)
