"""Recomputing changes memory, not numbers."""

import functools

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(6, 6, has_bias=False)  # before a norm its gradient would be rounding alone
        self.norm = nn.BatchNorm1d(6)
        self.dropout = nn.Dropout(p=0.3)
        self.activation = nn.GELU()

    def construct(self, x):
        return self.activation(self.dropout(self.norm(self.fc(x))))


def train(recompute, steps=3):
    ms.set_seed(11)
    blocks = [Block() for _ in range(2)]
    net = nn.SequentialCell(*blocks, nn.Dense(6, 1))
    recompute(net, blocks)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.01)).set_train()
    draw = np.random.default_rng(0)
    x, y = (Tensor(draw.normal(size=shape).astype(np.float32)) for shape in ((8, 6), (8, 1)))
    losses = [step(x, y).asnumpy().item() for _ in range(steps)]
    return losses, {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}


def none(net, blocks):
    pass


def one_block(net, blocks):
    blocks[1].recompute()


def every_block(net, blocks):
    for block in blocks:
        block.recompute()


def whole_net(net, blocks):
    blocks[0].recompute()
    net.recompute()


@functools.cache
def plain_run(mode):
    """What `train` gives without recomputing, once per mode."""
    return train(none)


@pytest.mark.parametrize("where", [one_block, every_block, whole_net])
@pytest.mark.sampled(3)
def test_losses_masks_and_statistics_are_the_same(mode, where):
    """Dropout draws the same masks, and moving statistics are updated once a step."""
    plain_losses, plain = plain_run(mode)
    losses, parameters = train(where)
    assert losses == pytest.approx(plain_losses, rel=1e-5)
    for name, value in plain.items():
        np.testing.assert_allclose(parameters[name], value, rtol=2e-4, atol=1e-5, err_msg=name)


def test_the_inside_is_computed_again():
    """A recomputed block's activations are rebuilt for the gradient: its matmul appears once more in the program."""
    ms.set_context(mode=ms.GRAPH_MODE)

    def products(recompute):
        net = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 4), nn.Tanh())
        if recompute:
            net.recompute()
        forward = nn.WithLossCell(net, nn.MSELoss())
        step = nn.TrainOneStepCell(forward, nn.SGD(net.trainable_params(), 0.1))
        x = Tensor(np.ones((2, 4), np.float32))
        return step.program.lower(x, x).as_text().count("dot_general")

    assert products(True) > products(False)
