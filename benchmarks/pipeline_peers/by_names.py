"""The transformer in MindSpore's names, in pipeline stages, run by Sporax.

sporax run --worker_num 2 by_names.py SCHEDULE STEPS WIDTH MICRO

Also prints what the ideal and the simulator need: how long each task takes alone, measured by the runner itself.
"""

import json
import sys
import time

import numpy as np

import mindspore as ms
from mindspore import nn, ops
from mindspore.communication import get_rank, init
from sporax.mindspore.parallel import plan_of

SCHEDULE, STEPS, WIDTH, MICRO = sys.argv[1], *map(int, sys.argv[2:5])
STAGES, BLOCKS, HEADS, LENGTH, VOCABULARY, ROWS = 2, 8, 4, 64, 256, 4


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((WIDTH,)), nn.LayerNorm((WIDTH,))
        self.query, self.key, self.value = (nn.Dense(WIDTH, WIDTH) for _ in range(3))
        self.project = nn.Dense(WIDTH, WIDTH)
        self.up, self.down = nn.Dense(WIDTH, 4 * WIDTH), nn.Dense(4 * WIDTH, WIDTH)
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()

    def heads(self, x):
        return ops.transpose(ops.reshape(x, (-1, LENGTH, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))

    def construct(self, x):
        y = self.norm1(x)
        scores = self.scores(self.heads(self.query(y)), self.heads(self.key(y))) * (WIDTH // HEADS) ** -0.5
        mixed = self.mix(ops.softmax(scores, -1), self.heads(self.value(y)))
        x = x + self.project(ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, LENGTH, WIDTH)))
        return x + self.down(ops.relu(self.up(self.norm2(x))))


class Transformer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Dense(WIDTH, VOCABULARY)
        self.blocks = nn.CellList([Block() for _ in range(BLOCKS)])
        self.tokens.pipeline_stage, self.head.pipeline_stage = 0, STAGES - 1
        for number, block in enumerate(self.blocks):
            block.pipeline_stage = STAGES * number // BLOCKS

    def construct(self, x):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Loss(nn.Cell):
    def __init__(self, network):
        super().__init__()
        self.network, self.criterion = network, nn.CrossEntropyLoss()

    def construct(self, x, labels):
        return self.criterion(ops.reshape(self.network(x), (-1, VOCABULARY)), ops.reshape(labels, (-1,)))


init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(
    parallel_mode="semi_auto_parallel",
    pipeline_stages=STAGES,
    dataset_strategy="full_batch",
    pipeline_config={"pipeline_interleave": SCHEDULE != "1f1b", "pipeline_scheduler": SCHEDULE},
)
ms.set_seed(1)
network = Transformer()
inputs = ms.Tensor(np.random.default_rng(0).integers(0, VOCABULARY, (MICRO * ROWS, LENGTH)).astype(np.int32))
optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
step = nn.TrainOneStepCell(nn.PipelineCell(Loss(network), MICRO), optimizer, sens=1 / MICRO)
step.set_train()
for _ in range(10):
    step(inputs, inputs).asnumpy()
walls, computed = [], time.process_time()
for _ in range(STEPS):
    started = time.perf_counter()
    step(inputs, inputs).asnumpy()
    walls.append(1e3 * (time.perf_counter() - started))
processor = 1e3 * (time.process_time() - computed) / STEPS
print(f"rank {get_rank()} milliseconds {json.dumps(walls)} processor {processor}", flush=True)

planned = plan_of(step, inputs, inputs)
runs = [planned.measure(step, inputs, inputs) for _ in range(5)]
seconds = {}
for task in runs[0]:
    length = sorted(end - start for start, end in (times[task] for times in runs))[len(runs) // 2]
    seconds.setdefault(f"{task.stage} {task.kind.value}", []).append(length)
print(f"rank {get_rank()} tasks {json.dumps(seconds)}", flush=True)
