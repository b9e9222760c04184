"""Record strategy files that MindSpore's compiler writes, as protobuf and JSON, in `tests/mindspore/golden/strategies`.

Each file needs a process of its own, since the compiler writes one once. Run with MindSpore 2.10 (CPU):
python tools/golden/make_strategies.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OUT = Path(__file__).parents[2] / "tests" / "mindspore" / "golden" / "strategies"

CASES = {
    "a": (((2, 1), (1, 4)), ((2, 4), (4, 1)), None),
    "b": (((2, 2), (2, 2)), ((8, 1), (1, 1)), -1),
    "c": (((2, 2), (2, 2)), ((8, 1), (1, 1)), 2),
}
"""Strategies of the two products, and over how many ranks the optimizer is parallel (-1: all; None: not)."""


def record(name: str, ending: str) -> None:
    """Compile the network of one case; the compiler writes the file."""
    import _oracle
    import numpy as np

    import mindspore as ms
    from mindspore import nn, ops

    first, second, shards = CASES[name]
    settings = {} if shards is None else {
        "enable_parallel_optimizer": True,
        "parallel_optimizer_config": {"parallel_optimizer_threshold": 0, "optimizer_weight_shard_size": shards},
    }  # fmt: skip
    # The ending decides the format; `save_file` alone would be protobuf.
    path = OUT / f"{name}.{ending}"
    _oracle.start(
        device_num=8, global_rank=0, parallel_mode="semi_auto_parallel", full_batch=True,
        strategy_ckpt_config={"save_file": str(path), "only_trainable_params": False}, **settings,
    )  # fmt: skip

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w1 = ms.Parameter(ms.Tensor(np.ones((16, 32), np.float32)), "w1")
            self.w2 = ms.Parameter(ms.Tensor(np.ones((32, 8), np.float32)), "w2")
            self.first, self.second = ops.MatMul().shard(first), ops.MatMul().shard(second)
            self.sum = ops.ReduceSum()

        def construct(self, x):
            return self.sum(self.second(self.first(x, self.w1), self.w2))

    net = Net()
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    step = nn.TrainOneStepCell(net, optimizer)
    print(_oracle.compile_net(step, (ms.Tensor(np.ones((16, 16), np.float32)),), train=True).get("error"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record(*sys.argv[1:])
    else:
        for name in CASES:
            for ending in ("ckpt", "json"):
                subprocess.run([sys.executable, __file__, name, ending], check=True)
