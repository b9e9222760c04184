"""Training in pipeline stages over processes equals that of one process with as many devices.

Process 0 writes the losses and a checkpoint to the directory in the first argument, under the name in the second; the others
are ways to train. ``killed`` and ``stopped`` end rank 1 in the middle.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import init
from sporax.mindspore.parallel.nn import PipelineCell
from sporax.runtime import world

init()
OUT, NAME = Path(sys.argv[1]), sys.argv[2]
WORLD = world.world()
NUM, RANK = (1, 0) if WORLD is None else (len(WORLD.devices), WORLD.rank)
RNG = np.random.default_rng(0)
IDS, LABELS = (RNG.integers(0, 32, (16, 4)).astype(np.int32) for _ in range(2))


class Block(nn.Cell):
    def __init__(self, sharded):
        super().__init__()
        self.fc = nn.Dense(16, 16)
        self.drop = nn.Dropout(p=0.1)
        if sharded:
            self.fc.matmul.shard(((2, 1), (1, 1)))

    def construct(self, x):
        return x + self.drop(ops.relu(self.fc(x)))


class Net(nn.Cell):
    """Embedding, a block per stage, and a head that uses the embedding's table again."""

    def __init__(self, stages, sharded, on_host=False):
        super().__init__()
        self.embed = nn.EmbeddingLookup(32, 16, target="CPU") if on_host else nn.Embedding(32, 16)
        self.blocks = nn.CellList([Block(sharded and stage % 2 == 0) for stage in range(stages)])
        self.embed.pipeline_stage = 0
        for stage, block in enumerate(self.blocks):
            block.pipeline_stage = stage
        self.head = nn.Dense(16, 32)
        self.head.pipeline_stage = stages - 1

    def construct(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x) + ops.matmul(x, self.embed.embedding_table.T)


class Loss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.criterion = nn.CrossEntropyLoss()

    def construct(self, ids, labels):
        return self.criterion(self.net(ids).reshape(-1, 32), labels.reshape(-1))


class ClippedStep(nn.TrainOneStepCell):
    """Clips by the global norm of all gradients before the update."""

    def construct(self, *inputs):
        loss, grads = ms.value_and_grad(self.network, None, self.weights)(*inputs)
        self.optimizer(ops.clip_by_global_norm(tuple(grad * self.sens for grad in grads), 0.5))
        return loss


def own_rows(stages):
    """The rows of every micro batch that this process feeds, where a stage is driven by several processes."""
    sharers = max(NUM // stages, 1)
    parts = [rows.reshape(4, sharers, -1, 4)[:, RANK % sharers].reshape(-1, 4) for rows in (IDS, LABELS)]
    return map(Tensor, parts)


def train(
    stages,
    schedule="1f1b",
    sharded=False,
    scaled=False,
    parts=False,
    frozen=False,
    after_step=lambda number: None,
    lookup=False,
    target=None,
    offload=False,
    **more,
):
    ms.reset_auto_parallel_context()
    config = {"pipeline_interleave": schedule != "1f1b", "pipeline_scheduler": schedule}
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        pipeline_stages=stages,
        pipeline_config=config,
        dataset_strategy="data_parallel" if parts else "full_batch",
        **more,
    )
    ids, labels = own_rows(stages) if parts else map(Tensor, (IDS, LABELS))
    ms.set_seed(1)
    ms.set_context(memory_offload="ON" if offload else "OFF")
    if offload:
        ms.set_offload_context({"offload_param": "cpu", "auto_offload": False})
    net = Net(stages, sharded, lookup)
    net.set_train()
    net.embed.embedding_table.requires_grad = not frozen
    cell = PipelineCell(Loss(net), 4)
    if scaled:
        manager = nn.DynamicLossScaleUpdateCell(2.0**10, 2, 2)
        step = nn.TrainOneStepWithLossScaleCell(cell, nn.SGD(net.trainable_params(), 0.1), manager)
    else:
        optimizer = (nn.LazyAdam if lookup else nn.Adam)(net.trainable_params(), 0.01)
        if target is not None:
            optimizer.target = target
        step = ClippedStep(cell, optimizer, sens=0.25)
    losses = []
    for number in range(3):
        loss = step(ids, labels)
        losses.append(float(loss[0] if isinstance(loss, tuple) else loss))
        after_step(number)
        if frozen:  # what no step updates is sent again to the stages that read it when a script sets it
            net.embed.embedding_table.set_data(net.embed.embedding_table * 1.5)
    if lookup or target or offload:
        on_hosts = {p.name for p in step.get_parameters() if p.raw.sharding.memory_kind == "pinned_host"}
        names = {"embed"} if lookup and not target else {"embed", "head", "moment1"}
        assert all(any(name in other for other in on_hosts) for name in names), on_hosts
        elsewhere = [p for p in net.get_parameters() if not p.raw.sharding.addressable_devices]
        assert bool(elsewhere) == (NUM > 1), [p.name for p in elsewhere]
        for parameter in elsewhere:
            with pytest.raises(RuntimeError, match="belongs to a pipeline stage of rank"):
                parameter.asnumpy()
    if os.environ.get("SHOW_PROGRAMS"):
        print(RANK, sorted(step.program.executable.executables))
    return losses, net, Tensor(IDS[:8])


def dies(how):
    def after_step(number):
        if number == 1:
            print("the end begins at", time.time(), flush=True)
            if RANK == 1:
                os.kill(os.getpid(), how)

    return after_step


WAYS = {
    "plain": lambda: train(2),
    "gpipe": lambda: train(2, "gpipe"),
    "four": lambda: train(4),
    "scaled": lambda: train(2, scaled=True),
    "parts": lambda: train(2, parts=True),
    "sharded": lambda: train(2, sharded=True),
    "broadcast": lambda: train(2, pipeline_result_broadcast=True),
    "frozen": lambda: train(2, frozen=True),
    "offload": lambda: train(2, offload=True),
    "target": lambda: train(2, target="CPU"),
    "lookup": lambda: train(2, lookup=True, sharded=True),
    "host": lambda: train(2, lookup=True, target="CPU"),
    "killed": lambda: train(2, after_step=dies(signal.SIGKILL)),
    "stopped": lambda: train(2, after_step=dies(signal.SIGSTOP)),
}
ms.set_context(mode=ms.GRAPH_MODE)
results = {}
for way in sys.argv[3:]:
    losses, net, batch = WAYS[way]()
    ms.save_checkpoint(net, str(OUT / f"{NAME}-{way}{f'-of-{RANK}' if RANK else ''}.ckpt"))
    results[way] = losses
    if way == "broadcast":
        net.set_train(False)
        ms.sync_pipeline_shared_parameters(net)
        results["predicted"] = net(batch).asnumpy().ravel().tolist()
        other = OUT / f"{NAME}-rank{RANK}.json"
        other.write_text(json.dumps(results["predicted"]))
    (OUT / f"{NAME}-losses-rank{RANK}.json").write_text(json.dumps(results))
print("all is well")
