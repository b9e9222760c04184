"""Two ranks save one net in four ways, and load the slices into a net of another strategy: `sliced_job.py DIRECTORY`."""

import sys
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.communication import get_rank, init
from sporax.mindspore.train import load_checkpoint, load_param_into_net, save_checkpoint
from sporax.mindspore.train._stored import stored_values

init()
rank, folder = get_rank(), Path(sys.argv[1])
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)


class Net(nn.Cell):
    def __init__(self, strategy, seed):
        super().__init__()
        self.matmul = ops.MatMul().shard(strategy)
        self.w = Parameter(Tensor(np.random.default_rng(seed).normal(size=(64, 32)).astype(np.float32)), name="w")
        self.b = Parameter(Tensor(np.full((1, 32), seed, np.float32)), name="b")

    def construct(self, x):
        return self.matmul(x, self.w) + self.b


x = Tensor(np.ones((8, 64), np.float32))
net = Net(((1, 2), (2, 1)), 1)
net(x)
ways = {
    "slices.ckpt": {"integrated_save": False, "append_dict": {"epoch_num": 2, "note": "yes"}},
    "slices.safetensors": {"integrated_save": False, "async_save": True},
    "once.ckpt": {"remove_redundancy": True},
    "whole.ckpt": {},
}
for name, options in ways.items():
    path = folder / name.split(".")[0] / f"rank_{rank}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(net, str(path), **options)
print("sizes", rank, (folder / "once" / f"rank_{rank}" / "once.ckpt").stat().st_size, flush=True)
ops.AllReduce()(Tensor(np.ones(1, np.float32))).asnumpy()  # no rank reads before all have written
while ms.async_ckpt_thread_status():
    pass
ops.AllReduce()(Tensor(np.ones(1, np.float32))).asnumpy()  # no rank reads before all have written

again = folder / "again" / f"rank_{rank}" / "net.ckpt"
again.parent.mkdir(parents=True)
contents = []
for _ in range(2):
    save_checkpoint(net, str(again), integrated_save=False)
    contents.append(again.read_bytes())
ops.AllReduce()(Tensor(np.ones(1, np.float32))).asnumpy()
if rank == 0:
    assert load_checkpoint(str(again))["w"].shape == (32, 32)
    again.write_bytes(contents[0])  # as a rank leaves it that is killed before it saves again
    try:
        load_checkpoint(str(again))
    except ValueError as error:
        print("mixed", "must belong to the same save as" in str(error), flush=True)

for name in ("slices.ckpt", "slices.safetensors", "once.ckpt", "whole.ckpt"):
    read = load_checkpoint(str(folder / name.split(".")[0] / f"rank_{rank}" / name))
    source = stored_values(read["w"]).source
    for compiled in (False, True):
        other = Net(((1, 1), (1, 2)), 5)
        if compiled:
            other(x)
        before = source.bytes_read
        load_param_into_net(other, read)
        out = other(x)
        print("read", rank, name, compiled, source.bytes_read - before, flush=True)
        np.testing.assert_allclose(out.asnumpy(), net(x).asnumpy(), rtol=1e-5)
print("done", rank, flush=True)
