"""Trains or uses a network on 8 devices, whatever processes they belong to: `world_job.py train|use DIRECTORY SAVED`.

`train` saves a checkpoint with ModelCheckpoint, whole where SAVED is ``whole``, and the strategy. `use` loads, converts and
merges it as scripts do that were written for eight processes.
"""

import sys
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
import sporax.mindspore.dataset as ds
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.communication import get_rank, init
from sporax.mindspore.train import CheckpointConfig, Model, ModelCheckpoint

what, folder, saved = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
kind = "ckpt" if saved == "whole" else "safetensors"
ms.set_context(mode=ms.GRAPH_MODE)
init()
source, target = str(folder / "source.ckpt"), str(folder / "target.json")
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)


def set_strategy_file(name):
    ms.set_auto_parallel_context(strategy_ckpt_config={"save_file": name, "only_trainable_params": False})


class Net(nn.Cell):
    def __init__(self, first, second):
        super().__init__()
        self.up, self.down = ops.MatMul().shard(first), ops.MatMul().shard(second)
        values = np.random.default_rng(0)
        self.w1 = Parameter(Tensor(values.normal(size=(16, 32)).astype(np.float32)), name="w1")
        self.w2 = Parameter(Tensor(values.normal(size=(32, 8)).astype(np.float32)), name="w2")

    def construct(self, x):
        return self.down(self.up(x, self.w1), self.w2)


def train():
    set_strategy_file(source)
    ms.set_auto_parallel_context(
        enable_parallel_optimizer=True, parallel_optimizer_config={"parallel_optimizer_threshold": 0}
    )
    net = Net(((2, 1), (1, 4)), ((2, 4), (4, 1)))
    data = ds.NumpySlicesDataset((np.ones((8, 16), np.float32), np.zeros((8, 8), np.float32)), ["x", "y"]).batch(8)
    model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.01, 0.9))
    config = CheckpointConfig(save_checkpoint_steps=2, integrated_save=saved == "whole", format=kind)
    model.train(2, data, [ModelCheckpoint("net", str(folder / f"rank_{get_rank()}"), config)])
    values = {name: getattr(net, name).asnumpy() for name in ("w1", "w2")}
    if get_rank() == 0:
        np.savez(folder / "values.npz", **values)


def use():
    values = dict(np.load(folder / "values.npz"))
    x = Tensor(np.ones((8, 16), np.float32))

    def check(parameters):
        for name, value in values.items():
            np.testing.assert_array_equal(parameters[name].asnumpy(), value)

    def net():
        return Net(((4, 1), (1, 2)), ((1, 8), (8, 1)))

    files = {rank: str(folder / f"rank_{rank}" / f"net-2_1.{kind}") for rank in range(8)}
    there = [name for name in files.values() if Path(name).is_file()]
    for names in (list(files.values()), there):
        loaded = net()
        layout = Model(loaded).infer_predict_layout(x)
        ms.load_distributed_checkpoint(loaded, names, layout, source, format=kind)
        check(loaded.parameters_dict())
    set_strategy_file(target)
    net()(x)
    set_strategy_file("")
    rank, made = get_rank(), folder / "made"
    if rank == 0:
        ms.transform_checkpoints(str(folder), str(made), "new", source, target, output_format=kind)
        for wanted, strategy in ((3, target), (0, None)):
            needed = ms.rank_list_for_transform(wanted, source, strategy)
            path = str(folder / f"made{wanted}.ckpt")
            ms.transform_checkpoint_by_rank(wanted, {r: files[r] for r in needed}, path, source, strategy)
        check(ms.load_checkpoint(str(folder / "made0.ckpt")))
        third, same = (ms.load_checkpoint(str(p)) for p in (made / "rank_3" / f"new3.{kind}", folder / "made3.ckpt"))
        for name, parameter in third.items():
            np.testing.assert_array_equal(same[name].asnumpy(), parameter.asnumpy())
        if kind == "safetensors":
            ms.unified_safetensors(str(folder), source, str(folder / "unified"), merge_with_redundancy=False)
            ms.load_distributed_checkpoint(whole := net(), format=kind, unified_safetensors_dir=str(folder / "unified"))
            check(whole.parameters_dict())
    ops.AllReduce()(Tensor(np.ones(1, np.float32))).asnumpy()  # no rank reads before rank 0 has written
    loaded = net()
    loaded(x)
    ms.load_param_into_net(loaded, ms.load_checkpoint(str(made / f"rank_{rank}" / f"new{rank}.{kind}")))
    check(loaded.parameters_dict())
    parts = [ms.load_checkpoint(name) for name in there]
    strategies = ms.build_searched_strategy(source)
    check({name: ms.merge_sliced_parameter([part[name] for part in parts], strategies) for name in values})


{"train": train, "use": use}[what]()
print("done", what, get_rank(), flush=True)
