"""Cut one transformer in three ways, by hand, by a search and not at all, and compare: plans, predictions, losses, times.

    sporax run --local_devices 8 examples/04-search-a-plan/train.py [--steps 10] [--search dynamic_programming] [--out DIR]

The network reads handwritten digits row by row. By hand its matrices are cut as in Megatron-LM: the first of each pair by
columns, the second by rows, the batch over what devices are left. In `auto_parallel` mode a search decides. The three give the
same losses. plan.html, the searched plan as a page for a browser, is written to DIR.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from mindspore.common.initializer import Normal, initializer

import mindspore as ms
import mindspore.dataset as ds
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import init
from mindspore.parallel import plan_of

DATA = Path(__file__).parents[1] / "data" / "digits"
BATCH, ROWS, HIDDEN, HEADS, CLASSES = 64, 8, 128, 8, 10


class Linear(nn.Cell):
    """A matrix product and a bias, with the operators in reach of `shard`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = Parameter(initializer(Normal(0.05), (inputs, outputs)))
        self.bias = Parameter(initializer("zeros", (outputs,)))
        self.matmul, self.add = ops.MatMul(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        return self.add(self.matmul(x, self.weight), self.bias)

    def cut(self, batch: int, inputs: int, outputs: int) -> None:
        """Cut the batch, and the matrix by rows or columns."""
        self.matmul.shard(((batch, inputs), (inputs, outputs)))
        self.add.shard(((batch, outputs), (outputs,)))


class Block(nn.Cell):
    """Attention and a feed-forward net, each with a residual connection, on rows of (batch * ROWS, HIDDEN)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((HIDDEN,)), nn.LayerNorm((HIDDEN,))
        self.query, self.key, self.value, self.out = (Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.up, self.down = Linear(HIDDEN, 4 * HIDDEN), Linear(4 * HIDDEN, HIDDEN)

    def construct(self, x: Tensor) -> Tensor:
        x = x + self.out(self.attention(self.norm1(x)))
        return x + self.down(ops.gelu(self.up(self.norm2(x))))

    def attention(self, x: Tensor) -> Tensor:
        query, key, value = (self.heads(project(x)) for project in (self.query, self.key, self.value))
        scores = ops.softmax(ops.matmul(query, key.swapaxes(2, 3)) / (HIDDEN // HEADS) ** 0.5)
        return ops.matmul(scores, value).transpose(0, 2, 1, 3).reshape(x.shape)

    def heads(self, x: Tensor) -> Tensor:
        """(batch, heads, rows, size of a head)."""
        return x.reshape(-1, ROWS, HEADS, HIDDEN // HEADS).transpose(0, 2, 1, 3)

    def cut(self, batch: int, model: int) -> None:
        """Megatron-LM's cut: no communication between the two matrices of a pair."""
        for first in (self.query, self.key, self.value, self.up):
            first.cut(batch, 1, model)
        for second in (self.out, self.down):
            second.cut(batch, model, 1)


class Reader(nn.Cell):
    """The rows of an image, as a sequence, to the scores of ten digits."""

    def __init__(self, num_blocks: int = 2) -> None:
        super().__init__()
        self.embed = Linear(ROWS, HIDDEN)
        self.blocks = nn.CellList([Block() for _ in range(num_blocks)])
        self.score = Linear(HIDDEN, CLASSES)

    def construct(self, images: Tensor) -> Tensor:
        x = self.embed(images.reshape(-1, ROWS))
        for block in self.blocks:
            x = block(x)
        return self.score(x.reshape(-1, ROWS, HIDDEN).mean(1))


def train_step(megatron: bool) -> nn.TrainOneStepCell:
    ms.set_seed(1)
    net = Reader()
    if megatron:
        for block in net.blocks:
            block.cut(2, ms.get_auto_parallel_context("device_num") // 2)
    loss = nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    return nn.TrainOneStepCell(loss, nn.Adam(net.trainable_params(), 1e-3))


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    data = ds.MnistDataset(str(DATA), usage="train", shuffle=False).batch(BATCH, drop_remainder=True).repeat()
    rows = data.create_tuple_iterator(num_epochs=1)
    return [(Tensor(image / 16.0, ms.float32).reshape(BATCH, ROWS, ROWS), label.astype(ms.int32)) for image, label in
            (next(rows) for _ in range(count))]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut one transformer in three ways.")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--search", default="dynamic_programming")
    parser.add_argument("--out", type=Path, default=Path("outputs/04-search-a-plan"))
    options = parser.parse_args()

    ms.set_context(mode=ms.GRAPH_MODE)
    init()
    data = batches(options.steps)
    modes = {
        "one device": {"parallel_mode": "stand_alone"},
        "by hand": {"parallel_mode": "semi_auto_parallel"},
        "by search": {"parallel_mode": "auto_parallel", "search_mode": options.search},
    }
    print(f"{'':12}{'predicted':>12}{'a step':>12}{'first loss':>13}{'last loss':>12}")
    for name, mode in modes.items():
        ms.reset_auto_parallel_context()
        ms.set_auto_parallel_context(full_batch=True, **mode)
        step = train_step(name == "by hand")
        predicted = ""
        if name == "by search":
            ms.set_algo_parameters(fully_use_devices=True)
            planned = plan_of(step, *data[0])
            options.out.mkdir(parents=True, exist_ok=True)
            planned.report(options.out / "plan.html")
            predicted = f"{planned.search.cost_seconds * 1e3:.2f} ms"
        losses, seconds = [], []
        for batch in data:
            started = time.perf_counter()
            losses.append(float(step(*batch)))
            seconds.append(time.perf_counter() - started)
        print(f"{name:12}{predicted:>12}{np.median(seconds) * 1e3:>9.1f} ms{losses[0]:13.5f}{losses[-1]:12.5f}")
    print(f"the searched plan as a page: {options.out / 'plan.html'}")


if __name__ == "__main__":
    main()
