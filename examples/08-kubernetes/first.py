"""The first job on a cluster: data parallel training on any number of workers, with nothing but this file.

sporax k8s submit examples/08-kubernetes/first.py --workers 2 --image REGISTRY/sporax-cpu --follow
sporax run --worker_num 2 examples/08-kubernetes/first.py                      without a cluster
"""

import numpy as np

import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init

init()
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
ms.set_seed(1)

random = np.random.default_rng(0)
inputs = random.normal(size=(4096, 16)).astype(np.float32)
labels = (inputs[:, 0] * inputs[:, 1] > 0).astype(np.int32)
data = ds.NumpySlicesDataset((inputs, labels), num_shards=get_group_size(), shard_id=get_rank()).batch(64)

net = nn.SequentialCell(nn.Dense(16, 64), nn.ReLU(), nn.Dense(64, 2))
model = ms.Model(net, nn.CrossEntropyLoss(reduction="mean"), nn.Adam(net.trainable_params(), 0.01))
model.train(5, data, callbacks=[ms.LossMonitor(8)])
print(f"rank {get_rank()} of {get_group_size()} is done", flush=True)
