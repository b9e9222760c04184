"""Semi-automatic training over processes equals that of one process with as many devices.

The same program runs in every process, in one or in several. Process 0 writes losses and a checkpoint of each network to the
directory in the first argument, under the name in the second; the others say how to train.
"""

import json
import sys
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
import sporax.mindspore.dataset as ds
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.communication import get_rank, init, release
from sporax.mindspore.train.callback import Callback
from sporax.runtime import world

init()
OUT, NAME = Path(sys.argv[1]), sys.argv[2]
WORLD = world.world()
NUM, RANK = (1, 0) if WORLD is None else (len(WORLD.devices), WORLD.rank)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(32, 16)).astype(np.float32), RNG.integers(0, 8, 32).astype(np.int32)
SHARDED = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
FUSED = {
    "comm_fusion": {kind: {"mode": "auto", "config": None} for kind in ("allgather", "reducescatter", "allreduce")}
}


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up = ms.Parameter(initializer("normal", [16, 32], ms.float32), name="up")
        self.down = ms.Parameter(initializer("normal", [32, 8], ms.float32), name="down")
        self.product1 = ops.MatMul().shard(((2, 1), (1, 2)))
        self.product2 = ops.MatMul().shard(((2, 2), (2, 1)))
        self.dropout = nn.Dropout(p=0.1)

    def construct(self, x):
        return self.product2(self.dropout(ops.relu(self.product1(x, self.up))), self.down)


class Losses(Callback):
    def __init__(self):
        self.losses = []

    def on_train_step_end(self, run_context):
        self.losses.append(float(run_context.original_args().net_outputs))


def start(**settings):
    """A network and its optimizer."""
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(**{"parallel_mode": "semi_auto_parallel"} | settings)
    ms.set_seed(1)
    net = Net()
    net.set_train()
    return net, nn.Adam(net.trainable_params(), 0.01)


def share(array, settings):
    """What this process feeds of a batch."""
    if settings["dataset_strategy"] == "full_batch":
        return array
    rows = len(array) // NUM
    return array[RANK * rows : (RANK + 1) * rows]


def by_step(**settings):
    net, optimizer = start(**settings)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    return [float(step(Tensor(share(X[:8], settings)), Tensor(share(Y[:8], settings)))) for _ in range(4)], net


def by_search():
    """The first process keeps the user's strategies, the others do not; its plan is everybody's."""
    mode = "recursive_programming" if RANK else "dynamic_programming"
    return by_step(parallel_mode="auto_parallel", search_mode=mode, dataset_strategy="full_batch")


def by_functions(**settings):
    net, optimizer = start(**settings)
    loss_fn = nn.CrossEntropyLoss()
    value_and_grad = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, net.trainable_params())
    losses = []
    for _ in range(4):
        loss, grads = value_and_grad(Tensor(share(X[:8], settings)), Tensor(share(Y[:8], settings)))
        optimizer(grads)
        losses.append(float(loss))
    return losses, net


def by_model(sink, **settings):
    """Every process reads its rows of each batch."""
    net, optimizer = start(**settings)
    whole = settings["dataset_strategy"] == "full_batch"
    rows = np.arange(32).reshape(4, 8)
    own = rows if whole else rows[:, RANK * 8 // NUM : (RANK + 1) * 8 // NUM]
    data = ds.NumpySlicesDataset({"x": X[own.ravel()], "y": Y[own.ravel()]}, shuffle=False).batch(own.shape[1])
    seen = Losses()
    ms.Model(net, nn.CrossEntropyLoss(), optimizer).train(2, data, callbacks=[seen], dataset_sink_mode=sink)
    return seen.losses, net


def by_patches():
    """Every rank reads its own columns of pixels of all images; one process reads them all."""
    net, optimizer = start(dataset_strategy=((1, 1, 1, 4), (1,)))
    step = nn.TrainOneStepCell(nn.WithLossCell(nn.SequentialCell(nn.Flatten(), net), nn.CrossEntropyLoss()), optimizer)
    data = ds.NumpySlicesDataset({"image": X.reshape(32, 4, 4, 1), "label": Y})
    names = [f"patch{number}" for number in range(4)]
    data = data.map(ds.vision.SlicePatches(1, 4), "image", names).project([names[get_rank() % 4], "label"])
    data = data.map(ds.vision.HWC2CHW(), names[get_rank() % 4]).batch(8)
    return [float(step(image, label)) for image, label in data], net


WAYS = {
    "data_parallel": lambda: by_step(dataset_strategy="data_parallel", **SHARDED, **FUSED),
    "full_batch": lambda: by_step(dataset_strategy="full_batch", **SHARDED),
    "cuts": lambda: by_step(dataset_strategy=((4, 1), (4,))),
    "functions": lambda: by_functions(dataset_strategy="data_parallel", **SHARDED),
    "model": lambda: by_model(False, dataset_strategy="data_parallel", **SHARDED),
    "patches": by_patches,
    "searched": by_search,
    "sink": lambda: by_model(True, dataset_strategy="data_parallel", **SHARDED),
}
ms.set_context(mode=ms.GRAPH_MODE)
results = {}
releases = sys.argv[-1] == "released"
for way in sys.argv[3 : -1 if releases else None]:
    results[way], net = WAYS[way]()
    ms.save_checkpoint(net, str(OUT / f"{NAME}-{way}{f'-of-{RANK}' if RANK else ''}.ckpt"))
if RANK == 0:
    (OUT / f"{NAME}.json").write_text(json.dumps(results))
if releases:
    # Replicated Tensors keep their values, and sharded Parameters, which no rank has whole, do not hold it up.
    loss = Tensor(X) + 1
    release()
    np.testing.assert_array_equal(loss.asnumpy(), X + 1)
print("all is well")
