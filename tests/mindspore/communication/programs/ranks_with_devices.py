"""Two processes with four devices each, by rank: the numbers of eight ranks. Arguments: a folder for checkpoints."""

import json
import os
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "runtime/ranks"))
import local_rank_recipes as recipes

import mindspore as ms
from mindspore import Tensor, communication, dataset, nn, ops

FOLDER = sys.argv[1]
MODES = ("data_parallel", "hybrid_parallel")
communication.init()
RANK, SIZE = communication.get_rank(), communication.get_group_size()
PROCESS = int(os.environ["RANK_ID"])
assert (RANK, SIZE) == (4 * PROCESS, 8)
assert (communication.get_local_rank(), communication.get_local_rank_size()) == (RANK, 8)


def check_numbers(mode, way, case, parallel_mode):
    ms.set_context(mode=mode)
    ms.set_auto_parallel_context(parallel_mode=parallel_mode, **recipes.CASES[case])
    found = recipes.train(way, PROCESS, 2)
    for name, values in json.loads(recipes.RECORD.read_text())[case].items():
        # Statistics are those of the process's first rank; rank 0's were recorded.
        if PROCESS == 0 or "moving" not in name:
            np.testing.assert_allclose(found[name], values, rtol=2e-5, atol=2e-6, err_msg=f"{case}: {name}")


def check_broadcast(mode):
    ms.set_context(mode=mode)
    net = nn.Dense(4, 1, weight_init=Tensor(np.full((1, 4), 1.0 + 10 * RANK, np.float32)), bias_init="zeros")
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01))
    loss = step(Tensor(np.ones((8, 4), np.float32)), Tensor(np.zeros((8, 1), np.float32)))
    assert float(loss) == 16.0
    return net


def check_checkpoint(net):
    name = f"{FOLDER}/{PROCESS}.ckpt"
    ms.save_checkpoint(net, name)
    values = net.weight.asnumpy()
    net.weight.set_data(Tensor(np.zeros((1, 4), np.float32)))
    ms.load_checkpoint(name, net)
    np.testing.assert_array_equal(net.weight.asnumpy(), values)
    np.testing.assert_allclose(net(Tensor(np.ones((2, 4), np.float32))).asnumpy(), values.sum() + net.bias.asnumpy()[0])
    # Training goes on from it.
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01))
    x, y = np.ones((8, 4), np.float32), np.zeros((8, 1), np.float32)
    expected = float((x @ values.T + net.bias.asnumpy())[0, 0] ** 2)
    np.testing.assert_allclose(float(step(Tensor(x), Tensor(y))), expected, rtol=1e-6)


class Mine(dataset.Sampler):
    def __init__(self):
        super().__init__()
        self.rank, self.rank_size = RANK, SIZE

    def __iter__(self):
        return iter(range(self.rank, self.dataset_size, self.rank_size))


def check_shares():
    own = [[rank, rank + 8] for rank in range(RANK, RANK + 4)]
    for sampling in ({"num_shards": SIZE, "shard_id": RANK, "shuffle": False}, {"sampler": Mine()}):
        rows = dataset.NumpySlicesDataset({"x": np.arange(16)}, **sampling).batch(2)
        assert rows.get_dataset_size() == 1
        ((batch,),) = rows.create_tuple_iterator(num_epochs=1, output_numpy=True)
        assert batch.tolist() == sum(own, [])


def check_results():
    """Results with rows are those of the process, numbers the mean over all ranks."""
    weight = ms.Parameter(Tensor(np.ones(1, np.float32)), name="w")
    both = ms.jit(ms.value_and_grad(lambda x: ((x * weight).sum(), x * weight), None, weight, has_aux=True))
    x = Tensor(np.arange(4, dtype=np.float32).reshape(4, 1) + RANK)
    ((total, rows), gradient) = both(x)
    assert float(total) == 3.5
    assert rows.asnumpy().tolist() == x.asnumpy().tolist()
    assert ops.AllReduce()(gradient).asnumpy().tolist() == [28.0]
    assert ops.AllReduce()(Tensor(1.0)).asnumpy() == SIZE


def check_refusals():
    ms.set_context(mode=ms.GRAPH_MODE)
    net = nn.Dense(4, 1)
    net.weight.layerwise_parallel = True
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01))
    communication.create_group("own", list(range(RANK, RANK + 4)))
    for refused in (
        lambda: step(Tensor(np.ones((8, 4), np.float32)), Tensor(np.zeros((8, 1), np.float32))),
        lambda: ops.AllReduce(group="own")(Tensor(1.0)),
    ):
        with pytest.raises(RuntimeError, match="this process acts for 4 ranks.*`sporax run --worker_num 8`"):
            refused()
    communication.destroy_group("own")


for number, arguments in enumerate(
    [
        (ms.GRAPH_MODE, recipes.model, "mean"),
        (ms.GRAPH_MODE, recipes.scaled, "loss scale"),
        (ms.PYNATIVE_MODE, recipes.cell, "sum"),
        (ms.PYNATIVE_MODE, recipes.function, "mean"),
    ]
):
    check_numbers(*arguments, MODES[number % 2])
for parallel_mode in MODES:
    ms.set_auto_parallel_context(parallel_mode=parallel_mode, parameter_broadcast=True, gradients_mean=True)
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        check_checkpoint(check_broadcast(mode))
    check_shares()
    check_results()
    check_refusals()
# One rank for each process, as the script says; then all devices again.
ms.reset_auto_parallel_context()
ms.set_auto_parallel_context(parallel_mode="data_parallel", device_num=2, parameter_broadcast=True)
assert (communication.get_rank(), communication.get_group_size()) == (PROCESS, 2)
check_broadcast(ms.GRAPH_MODE)
ms.set_auto_parallel_context(device_num=8)
net = check_broadcast(ms.GRAPH_MODE)
assert net.weight.array.sharding.device_set == set(jax.local_devices())
print("all is well")
