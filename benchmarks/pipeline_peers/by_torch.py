"""The transformer in `torch.distributed.pipelining`: 1F1B (or GPipe) over gloo, one thread a rank.

sporax run --worker_num 2 <python with torch> by_torch.py SCHEDULE STEPS WIDTH MICRO
"""

import json
import os
import sys
import time

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional as F

SCHEDULE, STEPS, WIDTH, MICRO = sys.argv[1], *map(int, sys.argv[2:5])
STAGES, BLOCKS, HEADS, LENGTH, VOCABULARY, ROWS = 2, 8, 4, 64, 256, 4
RANK, SIZE = int(os.environ["RANK_ID"]), int(os.environ["RANK_SIZE"])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.project = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def heads(self, x):
        return x.view(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x):
        y = self.norm1(x)
        scores = self.heads(self.query(y)) @ self.heads(self.key(y)).transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        mixed = torch.softmax(scores, -1) @ self.heads(self.value(y))
        x = x + self.project(mixed.transpose(1, 2).reshape(-1, LENGTH, WIDTH))
        return x + self.down(F.relu(self.up(self.norm2(x))))


torch.set_num_threads(1)
torch.distributed.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{os.environ['BENCHMARK_PORT']}", rank=RANK, world_size=SIZE
)
torch.manual_seed(1)
own = [Block() for _ in range(BLOCKS // STAGES)]
module = (
    nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *own)
    if RANK == 0
    else nn.Sequential(*own, nn.Linear(WIDTH, VOCABULARY))
)
stage = PipelineStage(module, RANK, STAGES, torch.device("cpu"))


def loss_of(logits, labels):
    return F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1))


schedule = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[SCHEDULE](stage, MICRO, loss_fn=loss_of)
optimizer = torch.optim.SGD(module.parameters(), 0.01, momentum=0.9, foreach=True)
inputs = torch.randint(0, VOCABULARY, (MICRO * ROWS, LENGTH))


def step():
    optimizer.zero_grad(set_to_none=True)
    if RANK == 0:
        schedule.step(inputs)
    else:
        schedule.step(target=inputs)
    optimizer.step()


for _ in range(10):
    step()
torch.distributed.barrier()
walls, computed = [], time.process_time()
for _ in range(STEPS):
    started = time.perf_counter()
    step()
    walls.append(1e3 * (time.perf_counter() - started))
processor = 1e3 * (time.process_time() - computed) / STEPS
print(f"rank {RANK} milliseconds {json.dumps(walls)} processor {processor}", flush=True)
torch.distributed.destroy_process_group()
