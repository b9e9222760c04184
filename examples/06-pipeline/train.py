"""Train a small GPT on 2 x 2 x 2 devices: two pipeline stages, each with two data-parallel halves of two model-parallel devices.

    sporax run --local_devices 8 examples/06-pipeline/train.py [--out outputs/06-pipeline]

Prints the table per stage, compares losses with those of one device, and draws the step's timeline as simulated from
the plan and as simulated from measured tasks: timeline.svg, and trace.json for https://ui.perfetto.dev.
"""

import argparse
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.parallel import plan_of
from sporax.mindspore.parallel.nn import PipelineCell
from sporax.report.render.pipeline_timeline import chrome_trace, svg, times_of

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 64, 16, 64, 4, 4
BATCH, MICRO, STEPS = 32, 8, 5
DATA, MODEL = 2, 2


class Block(nn.Cell):
    """Attention and a two-layer network, their products cut over data and model parallel devices."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((WIDTH,)), nn.LayerNorm((WIDTH,))
        self.qkv, self.out = nn.Dense(WIDTH, 3 * WIDTH), nn.Dense(WIDTH, WIDTH)
        self.up, self.down = nn.Dense(WIDTH, 4 * WIDTH), nn.Dense(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(p=0.1)
        self.mask = Tensor(np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1))
        self.up.matmul.shard(((DATA, 1), (MODEL, 1)))
        self.down.matmul.shard(((DATA, MODEL), (1, MODEL)))

    def construct(self, x):
        batch = x.shape[0]
        q, k, v = ops.split(self.qkv(self.norm1(x)), WIDTH, 2)
        q, k, v = (each.reshape(batch, LENGTH, HEADS, -1).transpose(0, 2, 1, 3) for each in (q, k, v))
        scores = ops.matmul(q, k.transpose(0, 1, 3, 2)) / (WIDTH // HEADS) ** 0.5 + self.mask
        heads = ops.matmul(ops.softmax(scores, -1), v).transpose(0, 2, 1, 3).reshape(batch, LENGTH, WIDTH)
        x = x + self.drop(self.out(heads))
        return x + self.drop(self.down(ops.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Cell):
    """Embedding, blocks, and the embedding's table again as the head: both stages use it."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.CellList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm((WIDTH,))
        self.embed.pipeline_stage = 0
        for number, block in enumerate(self.blocks):
            block.pipeline_stage = 2 * number // LAYERS
        self.norm.pipeline_stage = 1

    def construct(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return ops.matmul(self.norm(x), self.embed.embedding_table.T)


class Loss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net, self.criterion = net, nn.CrossEntropyLoss()

    def construct(self, ids, labels):
        return self.criterion(self.net(ids).reshape(-1, VOCABULARY), labels.reshape(-1))


def train(ids, labels):
    """Losses of a few steps, and the step."""
    ms.set_seed(1)
    net = Gpt().set_train()
    step = nn.TrainOneStepCell(
        PipelineCell(Loss(net), MICRO), nn.Adam(net.trainable_params(), 1e-3), sens=1 / MICRO
    ).set_train()
    return [float(step(ids, labels)) / MICRO for _ in range(STEPS)], step


def main():
    parser = argparse.ArgumentParser(description="Train a GPT in two pipeline stages.")
    parser.add_argument("--out", type=Path, default=Path("outputs/06-pipeline"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    ids = random.integers(0, VOCABULARY, (BATCH, LENGTH)).astype(np.int32)
    ids, labels = Tensor(ids), Tensor(np.roll(ids, -1, 1))

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, pipeline_stages=2)
    piped, step = train(ids, labels)
    planned = plan_of(step, ids, labels)
    print(planned.summary())
    measured = planned.measure(step, ids, labels)
    ms.reset_auto_parallel_context()
    alone, _ = train(ids, labels)
    for number, (one, many) in enumerate(zip(alone, piped, strict=True), 1):
        print(f"step {number}: loss {one:.6f} on 1 device, {many:.6f} on 2 x 2 x 2")
    assert np.allclose(alone, piped, rtol=1e-4), "the losses differ"

    timelines = [("simulated from the plan", times_of(planned.simulate()))]
    timelines.append(("simulated from measured tasks", times_of(planned.replayed(measured))))
    (options.out / "timeline.svg").write_text(svg(timelines))
    (options.out / "trace.json").write_text(chrome_trace(timelines))
    print(f"wrote timeline.svg and trace.json to {options.out}")


if __name__ == "__main__":
    main()
