"""What a compiled step is predicted to need, and what it sends to hosts."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

WIDTH, LAYERS = 16, 5
X = Tensor(np.random.default_rng(1).normal(size=(32, WIDTH)).astype(np.float32))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList([nn.Dense(WIDTH, WIDTH) for _ in range(LAYERS)])

    def construct(self, x):
        for block in self.blocks:
            x = ops.tanh(block(x)) + x
        return (x * x).mean()


def trained(target=None):
    """A step after two runs, with its losses."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(3)
    net = Net()
    optimizer = nn.Adam(net.trainable_params(), 0.01)
    if target is not None:
        optimizer.target = target
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    return step, [step(X).asnumpy().item() for _ in range(2)]


@pytest.mark.parametrize("target", [None, "CPU"])
def test_a_step_with_stacks_says_what_it_needs(monkeypatch, target):
    """With repeated blocks as loops; with the update on the host their Parameters are no stacks."""
    plain, losses = trained(target)
    monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "1")
    looped, same = trained(target)
    np.testing.assert_allclose(same, losses, rtol=1e-5)
    report, before = looped.program.memory(X), plain.program.memory(X)
    arrays = sum(parameter.asnumpy().nbytes for parameter in looped.get_parameters())
    assert report.host_bytes == before.host_bytes
    assert report.host_bytes >= (0 if target is None else 0.9 * arrays)
    assert report.predicted.peak_bytes >= (arrays if target is None else 0.1 * arrays)
    assert str(report).startswith("device: ")


def test_device_and_host_together_hold_what_was_moved_to_the_host():
    plain, moved = (trained(target)[0].program.memory(X) for target in (None, "CPU"))
    assert plain.with_host == plain.predicted
    assert moved.with_host.peak_bytes >= moved.predicted.peak_bytes + 0.9 * moved.host_bytes
