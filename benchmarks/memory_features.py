"""Temporary bytes and step time of a small GPT with each memory feature, side by side in one process.

The step times of all variants are taken in turns, and the least of each is compared with that of the plain step.

    python benchmarks/memory_features.py --layers 6

Bytes on the host are arguments that the program takes from pinned host memory, where the backend has it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sporax as ms
from sporax import Tensor, nn, ops

VOCABULARY, HEADS = 512, 4


class Core(nn.Cell):
    """Scores, softmax, dropout and the mixture: what Megatron's selective recomputation computes again."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.dropout = scale, nn.Dropout(p=0.1)

    def construct(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = ops.softmax(ops.matmul(q, k.transpose((0, 1, 3, 2))) * self.scale + mask, -1)
        return ops.matmul(self.dropout(scores), v)


class Attention(nn.Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.core = width, Core((width // HEADS) ** -0.5)
        self.joint, self.out = nn.Dense(width, 3 * width), nn.Dense(width, width)

    def construct(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = ops.split(self.joint(x), self.width, axis=-1)
        q, k, v = (part.reshape((batch, length, HEADS, -1)).transpose((0, 2, 1, 3)) for part in parts)
        return self.out(self.core(q, k, v, mask).transpose((0, 2, 1, 3)).reshape(x.shape))


class Block(nn.Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm((width,)), nn.LayerNorm((width,)), Attention(width)
        self.wide, self.narrow, self.gelu = nn.Dense(width, 4 * width), nn.Dense(4 * width, width), nn.GELU()

    def construct(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.narrow(self.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Cell):
    def __init__(self, layers: int, width: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.CellList([Block(width) for _ in range(layers)])
        self.mask = Tensor(np.triu(np.full((length, length), -1e9, np.float32), 1))
        self.loss = nn.CrossEntropyLoss()

    def construct(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x, self.mask)
        logits = ops.matmul(x, self.table.embedding_table.transpose((1, 0)))
        return self.loss(logits.reshape((-1, VOCABULARY)), labels.reshape((-1,)))


def recomputed(net: Gpt, optimizer: Any) -> None:
    for block in net.blocks:
        block.recompute()


def selective(net: Gpt, optimizer: Any) -> None:
    for block in net.blocks:
        block.attention.core.recompute()


def offloaded(net: Gpt, optimizer: Any) -> None:
    for block in net.blocks:
        block.offload()


def state_on_host(net: Gpt, optimizer: Any) -> None:
    optimizer.target = "CPU"


def together(net: Gpt, optimizer: Any) -> None:
    recomputed(net, optimizer)
    state_on_host(net, optimizer)


def nothing(net: Gpt, optimizer: Any) -> None:
    pass


VARIANTS: dict[str, tuple[Callable[[Gpt, Any], None], str]] = {
    "none": (nothing, "0"),
    "recompute": (recomputed, "0"),
    "attention recomputed": (selective, "0"),
    "repeated blocks": (nothing, "1"),
    "recompute, repeated blocks": (recomputed, "1"),
    "state on the host": (state_on_host, "0"),
    "activations on the host": (offloaded, "0"),
    "recompute, state on the host, repeated": (together, "1"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    draw = np.random.default_rng(0)
    ids, labels = (
        Tensor(draw.integers(0, VOCABULARY, (options.batch, options.length)).astype(np.int32)) for _ in range(2)
    )
    runs: dict[str, Any] = {}
    for name, (prepare, loops) in VARIANTS.items():
        os.environ["SPORAX_REPEATED_BLOCKS"] = loops
        ms.set_seed(0)
        net = Gpt(options.layers, options.width, options.length)
        optimizer = nn.Adam(net.trainable_params(), 1e-3)
        prepare(net, optimizer)
        step = nn.TrainOneStepCell(net, optimizer).set_train()
        started = time.perf_counter()
        compiled = step.program.lower(ids, labels).compile()
        seconds = time.perf_counter() - started
        memory = compiled.memory_analysis()
        runs[name] = step, loops, memory, seconds
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds + 1):
        for name, (step, loops, *_) in runs.items():
            os.environ["SPORAX_REPEATED_BLOCKS"] = loops
            started = time.perf_counter()
            step(ids, labels).asnumpy()
            if number:
                times[name].append(time.perf_counter() - started)
    least = min(times["none"])
    for name, (_, _, memory, seconds) in runs.items():
        sizes = memory.argument_size_in_bytes, memory.host_argument_size_in_bytes, memory.temp_size_in_bytes
        here, host, temporary = (num_bytes / 2**20 for num_bytes in sizes)
        print(
            f"{name:40} arguments {here:6.1f} MiB, on the host {host:6.1f} MiB   temporary {temporary:8.1f} MiB   "
            f"step {min(times[name]) / least:5.2f}x   trace and compile {seconds:5.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
