"""The collectives in a compiled step, by number, size and order, are those the fusion settings request."""

import re

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.communication import init

init()
ms.set_context(mode=ms.GRAPH_MODE)
LAYERS, WIDTH = 4, 8
LAYER = WIDTH * WIDTH + WIDTH  # numbers in one layer's gradients


def reductions(change=lambda net: None, width=WIDTH, **settings):
    """Sizes of the exchanges of one compiled training step, in the order they happen: two ranks sum by one for each buffer."""
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, **settings)
    net = nn.SequentialCell([nn.Dense(width, width) for _ in range(LAYERS)])
    change(net)
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, lambda x, y: ((x - y) ** 2).mean()), nn.SGD(net.trainable_params(), 0.1)
    )
    batch = Tensor(np.ones((2, width), np.float32))
    text = step.program.lower(batch, batch).compile().as_text()
    assert "all-reduce" not in text.replace("all-reduce-combiner", "")
    actual = re.findall(r"= (\S+) collective-permute(?:-start)?\(", re.sub(r"/\*index=\d+\*/", "", text))
    return [int(np.prod([int(size) for size in re.search(r"\[([\d,]*)\]", shape)[1].split(",")])) for shape in actual]


def fusion_numbers(*numbers):
    def change(net):
        for layer, number in zip(net, numbers, strict=True):
            layer.set_comm_fusion(number)

    return change


whole = LAYERS * LAYER
assert reductions() == [whole], reductions()
assert reductions(fusion_numbers(1, 1, 2, 2)) == [2 * LAYER, 2 * LAYER]
assert reductions(fusion_numbers(1, 2, 2, 3)) == [LAYER, 2 * LAYER, LAYER]
alone = reductions(fusion_numbers(0, 0, 1, 1))
assert sorted(alone) == sorted([2 * LAYER, *[WIDTH, WIDTH * WIDTH] * 2]), alone
# Positions are inclusive: 0..2 first, then the rest; the last buffer is complete first.
assert reductions(all_reduce_fusion_config=[2]) == [whole - LAYER - WIDTH * WIDTH, LAYER + WIDTH * WIDTH]
index = {"allreduce": {"mode": "index", "config": [1, 5]}}
assert reductions(comm_fusion=index) == [LAYER, 2 * LAYER, LAYER]
assert len(reductions(comm_fusion={"allreduce": {"mode": "size", "config": 0}})) == 2 * LAYERS
assert reductions(comm_fusion={"allreduce": {"mode": "size", "config": 1}}) == [whole]
assert reductions(comm_fusion={"allreduce": {"mode": "auto", "config": None}}) == [whole]
assert len(reductions(comm_fusion={"openstate": False})) == 2 * LAYERS
big = 512 * 512  # a megabyte each, so that every gradient of a weight fills a buffer of one
sizes = reductions(comm_fusion={"allreduce": {"mode": "size", "config": 1}}, width=512)
assert sizes == [512, *[big + 512] * (LAYERS - 1), big], sizes
# Parameters that belong to a rank alone do not travel.
layerwise = reductions(lambda net: [setattr(p, "layerwise_parallel", True) for p in net[0].trainable_params()])
assert layerwise == [whole - LAYER], layerwise
print("all is well")
