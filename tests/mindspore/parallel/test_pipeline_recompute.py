"""Recomputation in pipelines: what the settings of a mark change inside of the loop over micro batches."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell
from sporax.planner.communication.transfers import schedule

WIDTH, LAYERS, ROWS, MICRO = 32, 2, 16, 4

MARKS = {
    "none": lambda block: None,
    "recompute": lambda block: block.recompute(),
    "no comm": lambda block: block.recompute(mp_comm_recompute=False),
    "slices": lambda block: block.recompute(recompute_slice_activation=True),
    "weights": lambda block: block.recompute(parallel_optimizer_comm_recompute=True),
}


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(0)
        self.w1, self.w2 = (
            ms.Parameter(Tensor((draw.normal(size=shape) / 8).astype(np.float32)), name=name)
            for name, shape in (("w1", (WIDTH, 4 * WIDTH)), ("w2", (4 * WIDTH, WIDTH)))
        )
        self.mm1, self.mm2 = ops.MatMul().shard(((2, 1), (1, 2))), ops.MatMul().shard(((2, 2), (2, 1)))
        self.gelu, self.tanh = ops.GeLU().shard(((2, 2),)), ops.Tanh().shard(((2, 1),))
        self.add = ops.Add().shard(((2, 1), (2, 1)))

    def construct(self, x):
        return self.add(x, self.tanh(self.mm2(self.gelu(self.mm1(x, self.w1)), self.w2)))


class Net(nn.Cell):
    """Half of the blocks in each of two stages."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList([Block() for _ in range(LAYERS)])
        for number, block in enumerate(self.blocks):
            block.pipeline_stage = number * 2 // LAYERS

    def construct(self, x, y):
        for block in self.blocks:
            x = block(x)
        return ((x - y) ** 2).mean()

    def rows(self, count):
        return np.random.default_rng(1).normal(size=(count, WIDTH)).astype(np.float32)


class Lookup(nn.Cell):
    """Table and indices sharded, which is allowed where both use every device of a stage."""

    def __init__(self):
        super().__init__()
        self.table = ms.Parameter(
            Tensor(np.random.default_rng(2).normal(size=(8, WIDTH)).astype(np.float32)), name="table"
        )
        self.gather = ops.Gather().shard(((2, 1), (2, 1)))

    def construct(self, ids):
        return self.gather(self.table, ids, 0).reshape(-1, WIDTH)


class CastingBlock(Block):
    """Casts a weight, which every micro batch does alike."""

    def construct(self, x):
        return super().construct(x) + self.mm2(self.mm1(x, self.w1), ops.Cast()(self.w2, ms.float32))


class CastBlock(Block):
    """Casts all weights before use, which leaves nothing but weights for the first barrier of recomputation."""

    def construct(self, x):
        one, other = ops.Cast()(self.w1, ms.float32), ops.Cast()(self.w2, ms.float32)
        return self.add(x, self.mm2(self.mm1(x, one), other))


class NetOfIds(Net):
    def __init__(self):
        super().__init__()
        self.blocks[0] = CastingBlock()
        self.blocks[0].pipeline_stage = 0
        self.lookup = Lookup()
        self.lookup.pipeline_stage = 0

    def construct(self, x, y):
        return super().construct(self.lookup(x), y)

    def rows(self, count):
        return np.random.default_rng(1).integers(0, 8, (count, 1)).astype(np.int32)


def test_weights_that_are_cast_stay_in_the_slices_of_their_strategies():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, pipeline_stages=2, full_batch=True)
    net = Net()
    net.blocks = nn.CellList([CastBlock() for _ in range(LAYERS)])
    for stage, block in enumerate(net.blocks):
        block.pipeline_stage = stage
        block.recompute()
    step = nn.TrainOneStepCell(PipelineCell(net, MICRO), nn.SGD(net.trainable_params(), 0.1)).set_train()
    x = Tensor(net.rows(MICRO * ROWS))
    slices = {
        entry.name.split(".")[-1]: placement.parts(chunk.plan.mesh)
        for chunk in step.program.plan(x, x).pipeline.chunks
        for entry, placement in zip(chunk.chunk.step.graph.inputs, chunk.plan.inputs, strict=True)
    }
    assert (slices["w1"], slices["w2"]) == ((1, 2), (2, 1))


@cache
def trained(mark, optimizer_parallel=False, kind=Net):
    """Losses and Parameters after two steps, and collectives by kind in the plans of both stages."""
    ms.set_context(mode=ms.GRAPH_MODE)
    sharded = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=8,
        pipeline_stages=2,
        full_batch=True,
        pipeline_config={"pipeline_interleave": True, "pipeline_scheduler": "gpipe"},
        **(sharded if optimizer_parallel else {}),
    )
    net = kind()
    for block in net.blocks:
        MARKS[mark](block)
    step = nn.TrainOneStepCell(PipelineCell(net, MICRO), nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
    x = Tensor(net.rows(MICRO * ROWS))
    y = Tensor(np.ones((MICRO * ROWS, WIDTH), np.float32))
    losses = [step(x, y).asnumpy().item() for _ in range(2)]
    planned = step.program.plan(x, y)
    collectives = Counter(
        move.collective
        for chunk in planned.pipeline.chunks
        for together in schedule(chunk.chunk.step.graph, chunk.plan)
        for transfer in together
        for move in transfer.redistribution.moves
        if move.collective
    )
    peaks = [stage.peak_bytes for stage in planned.simulate().stages]
    return losses, [parameter.asnumpy() for parameter in net.get_parameters()], collectives, peaks


def check_same_training(mark, optimizer_parallel=False, kind=Net):
    actual, plain = trained(mark, optimizer_parallel, kind), trained("none", optimizer_parallel, kind)
    np.testing.assert_allclose(actual[0], plain[0], rtol=1e-6)
    for one, other in zip(actual[1], plain[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mark", ["recompute", "no comm", "slices"])
@pytest.mark.sampled(1)
def test_training_is_the_same(mark):
    check_same_training(mark)


def test_strategies_are_for_the_devices_of_a_stage():
    check_same_training("slices", kind=NetOfIds)


def test_collectives_of_a_micro_batch_are_not_repeated_where_the_mark_says_so():
    """``mp_comm_recompute=False`` keeps what the all-reduce of each block gave, at the price of its memory."""
    plain, repeated, kept = (trained(mark)[2]["all_reduce"] for mark in ("none", "recompute", "no comm"))
    assert kept == plain < repeated
    assert max(trained("recompute")[3]) < max(trained("no comm")[3]) < max(trained("none")[3])


def test_what_enters_a_block_is_kept_in_slices():
    """``recompute_slice_activation``: a gather brings each slice back; the second stage is the fuller one."""
    repeated, slices = trained("recompute"), trained("slices")
    assert slices[2]["all_gather"] > repeated[2]["all_gather"]
    assert slices[3][1] < repeated[3][1]


def test_weights_are_gathered_again_by_every_task():
    """``parallel_optimizer_comm_recompute``: whole weights do not stay from the first micro batch to the last."""
    check_same_training("weights", True)
    repeated, again = trained("recompute", True), trained("weights", True)
    assert again[2]["all_gather"] == repeated[2]["all_gather"] + 2 * LAYERS
    assert again[3][0] < repeated[3][0]
