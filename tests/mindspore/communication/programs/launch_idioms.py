"""How scripts begin: the order of `init`, context, ranks and environment variables, one idiom after another in one process.

Run by `sporax run` in one process or several, with one device or several, and by `sporax plan`. Arguments: the number of ranks that
each idiom must count, the number of processes, and "plan" where nothing is computed.
"""

import os
import sys

import numpy as np

import mindspore as ms
from mindspore import context, dataset, nn, ops
from mindspore.communication import get_group_size, release

RANKS, PROCESSES, PLANS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["plan"]
NAMES = """
import os
import mindspore as ms
from mindspore import context
from mindspore.communication import get_group_size, get_rank, init, management as D
from mindspore.parallel._utils import _get_device_num, _get_global_rank
"""
SET = "context.set_auto_parallel_context(parallel_mode=MODE, "
COUNT = "n, rank = get_group_size(), get_rank()"
IDIOMS = {
    "size before the mode": f"init(); {COUNT}; {SET} device_num=n)",
    "size in the call": f"init(); {SET} device_num=get_group_size()); {COUNT}",
    "mode before the size": f"init(); {SET} gradients_mean=True); {COUNT}",
    "mode before init": f"{SET} gradients_mean=True); init(); {COUNT}",
    "management": f"D.init(); n, rank = D.get_group_size(), D.get_rank(); {SET} device_num=n, global_rank=rank)",
    "reset first": f"init(); context.reset_auto_parallel_context(); {COUNT}; {SET} device_num=n)",
    "reset between": f"init(); n = get_group_size(); context.reset_auto_parallel_context(); {COUNT}; {SET} device_num=n)",
    "reset after a mode": f"init(); {SET} device_num=get_group_size()); context.reset_auto_parallel_context(); {COUNT}; {SET} "
    "device_num=n)",
    "size twice": f"init(); print(get_group_size()); {SET} gradients_mean=True); {COUNT}",
    "name of a backend": f"init('mccl'); {COUNT}; {SET} device_num=n)",
    "name of the group": f"init(); n, rank = get_group_size('nccl_world_group'), get_rank('hccl_world_group'); {SET} device_num=n)",
    "number of the device": f"context.set_context(device_id=int(os.getenv('DEVICE_ID', '0'))); init(); {COUNT}; {SET} device_num=n)",
    "environment": f"size = int(os.getenv('RANK_SIZE', '1')); init(); {COUNT}; {SET} device_num=max(n, size))",
    "rank of the environment": f"rank = int(os.getenv('RANK_ID', '0')); init(); n, rank = get_group_size(), get_rank(); {SET} "
    "device_num=n)",
    "number of the start script": f"n = int(os.getenv('DEVICE_NUM', '1')); init(); rank = get_rank(); {SET} device_num=n)",
    "settings of Ascend": f"{SET} gradients_mean=True, all_reduce_fusion_config=[1]); init('hccl'); {COUNT}",
    "settings of GPUs": f"context.set_context(device_target='GPU', device_id=1); init('nccl'); {COUNT}; {SET} device_num=n)",
    "size before init": f"n = get_group_size(); init(); n = max(n, get_group_size()); rank = get_rank(); {SET} device_num=n)",
    "only where distributed": f"init(); n, rank = 1, 0\nif get_group_size() > 1: {COUNT}\n{SET} device_num=n)",
    "ranks of the group": f"init(); n, rank = len(D.get_process_group_ranks()), get_rank(); {SET} device_num=n)",
    "size of the machine": f"init(); n, rank = D.get_local_rank_size(), D.get_local_rank(); {SET} device_num=n)",
    "tools of parallel": f"init(); {SET} gradients_mean=True); n, rank = _get_device_num(), get_rank(); _get_global_rank()",
    "table of ranks": f"has_table = os.getenv('RANK_TABLE_FILE', '')\ninit(); {COUNT}; {SET} device_num=n)",
    "data before the mode": f"init(); {COUNT}; rows = shares(n, rank); {SET} device_num=n)",
    "tensors first": f"ms.Tensor(1.0) + 1; init(); {COUNT}; {SET} device_num=n)",
}
MODES = ("data_parallel", "semi_auto_parallel", "hybrid_parallel")
X = np.arange(128, dtype=np.float32).reshape(16, 8) / 64
LOSS = float(((X @ np.ones((8, 8), np.float32)) ** 2).mean())


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = ms.Parameter(ms.Tensor(np.ones((8, 8), np.float32)), name="w")
        self.product = ops.MatMul().shard(((4, 1), (1, 2))) if RANKS > 1 else ops.MatMul()

    def construct(self, x):
        return (self.product(x, self.w) ** 2).mean()


def shares(n, rank):
    return dataset.NumpySlicesDataset({"x": X}, shuffle=False, num_shards=n, shard_id=rank)


def check(name, mode):
    names = {"MODE": mode, "shares": shares}
    exec(NAMES + IDIOMS[name], names)
    n, rank = names["n"], names["rank"]
    process = int(os.environ["RANK_ID"]) if PROCESSES > 1 else 0
    assert (n, rank) == (RANKS, process * RANKS // PROCESSES), (n, rank)
    assert get_group_size() == n
    assert context.get_auto_parallel_context("device_num") == n or PLANS
    # The process reads the rows of all its ranks; by rank `batch` counts those of one.
    rows = names.get("rows") or shares(n, rank)
    size = 16 // PROCESSES if mode == "semi_auto_parallel" else 16 // n
    assert rows.get_dataset_size() == size
    ((batch,),) = rows.batch(size).create_tuple_iterator(num_epochs=1)
    assert batch.shape == (16 // PROCESSES, 8)
    net = Net()
    loss = float(nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.0))(batch))
    if not PLANS:
        assert abs(loss - LOSS) < 1e-5 * LOSS
        # By rank the process has the copies of the ranks that it acts for.
        assert len(net.w.array.sharding.device_set) == (RANKS if mode == "semi_auto_parallel" else RANKS // PROCESSES)


def main():
    ms.set_context(mode=ms.GRAPH_MODE)
    for name in IDIOMS:
        for mode in MODES:
            try:
                check(name, mode)
            except Exception as error:
                error.add_note(f"{name}, {mode}")
                raise
            context.reset_auto_parallel_context()
            if PROCESSES == 1:  # others have joined for good
                release()
    print("all is well")


main()
