"""The models in PyTorch with DistributedDataParallel over gloo, one thread a rank.

sporax run --worker_num 2 <python with torch> by_torch.py MODEL STEPS
"""

import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

MODELS = {
    "mlp": (12, 128, 64),
    "mlp-deep": (48, 128, 64),
    "mlp-wide": (4, 1024, 64),
    "lenet": None,
    "transformer": None,
}
WIDTH, HEADS, LENGTH, BLOCKS, VOCABULARY = 128, 4, 64, 4, 256
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


def build(name):
    """Network, loss and one batch."""
    if name == "lenet":
        convolutions = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
        layers = [nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
        net = nn.Sequential(*convolutions, *layers)
        return net, F.cross_entropy, torch.randn(32, 1, 32, 32), torch.randint(0, 10, (32,))
    if name == "transformer":
        x = torch.randint(0, VOCABULARY, (8, LENGTH))
        blocks = [Block() for _ in range(BLOCKS)]
        net = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *blocks, nn.Linear(WIDTH, VOCABULARY), nn.Flatten(0, 1))
        return net, F.cross_entropy, x, x.view(-1)
    layers, width, batch = MODELS[name]
    x = torch.randn(batch, width)
    net = nn.Sequential(*[each for _ in range(layers) for each in (nn.Linear(width, width), nn.ReLU())])
    return net, F.mse_loss, x, 0 * x


torch.set_num_threads(1)
torch.distributed.init_process_group(
    "gloo",
    init_method=f"tcp://{os.environ.get('BENCHMARK_HOST', '127.0.0.1')}:{os.environ['BENCHMARK_PORT']}",
    rank=RANK,
    world_size=SIZE,
)
torch.manual_seed(1)
network, loss_fn, inputs, targets = build(sys.argv[1])
network = nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, foreach=True)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = loss_fn(network(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


for _ in range(20):
    step().item()
started, computed = time.perf_counter(), time.process_time()
for _ in range(int(sys.argv[2])):
    loss = step()
loss.item()
wall, processor = (
    1e3 * (now - before) / int(sys.argv[2])
    for now, before in ((time.perf_counter(), started), (time.process_time(), computed))
)
print(f"rank {RANK} milliseconds {wall} processor {processor}", flush=True)
torch.distributed.destroy_process_group()
