"""Steps with repeated blocks as loops: the same training, with one body for all layers."""

import re

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

WIDTH, LAYERS = 16, 5


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = ms.Parameter(
            Tensor(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4), name="w"
        )
        self.norm = nn.LayerNorm((WIDTH,))
        self.matmul, self.tanh, self.add = ops.MatMul(), ops.Tanh(), ops.Add()
        self.dropout = nn.Dropout(p=0.2)

    def construct(self, x):
        return self.add(self.dropout(self.tanh(self.matmul(self.norm(x), self.w))), x)


class Net(nn.Cell):
    def __init__(self, block=Block):
        super().__init__()
        self.blocks = nn.CellList([block() for _ in range(LAYERS)])

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x).mean()


def trained(parallel=False, prepare=lambda net: None, block=Block):
    """Losses, Parameters and the compiled program after three steps."""
    ms.set_context(mode=ms.GRAPH_MODE)
    if parallel:
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    ms.set_seed(3)
    net = Net(block)
    for parameter in net.blocks if parallel else ():
        parameter.matmul.shard(((2, 4), (4, 1)))
    prepare(net)
    step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 0.01)).set_train()
    x = Tensor(np.random.default_rng(1).normal(size=(8, WIDTH)).astype(np.float32))
    losses = [step(x).asnumpy().item() for _ in range(3)]
    names = {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}
    return losses, names, step.program.lower(x).as_text()


def count(text, kind):
    return len(re.findall(rf"stablehlo\.{kind}\b", text))


def num_loops(run):
    """Loops beside those that draw random bits."""
    return count(run[2], "while") - 2


def check_alike(after, before):
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)
    assert list(after[1]) == list(before[1])
    for name, value in before[1].items():
        np.testing.assert_allclose(after[1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_the_environment_requests_loops(monkeypatch):
    """Forward pass and backward pass are a loop each, the update is none; masks, names and values are the same."""
    plain = trained()
    monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "1")
    looped = trained()
    assert num_loops(looped) == 2 and num_loops(plain) == 0
    check_alike(looped, plain)


def test_lazy_inline_requests_loops():
    class Lazy(Block):
        @ms.lazy_inline
        def __init__(self):
            super().__init__()

    looped = trained(block=Lazy)
    assert num_loops(looped) == 2
    check_alike(looped, trained())


def test_recomputed_blocks_are_loops_too(monkeypatch):
    def prepare(net):
        for block in net.blocks:
            block.recompute()

    plain = trained(prepare=prepare)
    monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "1")
    looped = trained(prepare=prepare)
    assert num_loops(looped) == 2
    check_alike(looped, plain)


def test_planned_steps_have_the_collectives_of_one_layer(monkeypatch):
    """In semi-automatic parallelism loops are planned from inside."""
    plain = trained(parallel=True)
    monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "1")
    looped = trained(parallel=True)
    assert count(looped[2], "all_reduce") <= count(plain[2], "all_reduce") - 2 * (LAYERS - 2)
    check_alike(looped, plain)


@pytest.mark.parametrize("value", ["0", "-2"])
def test_values_that_switch_it_off_warn(monkeypatch, value):
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", value)
    with pytest.warns(UserWarning, match=f"For 'MS_COMM_COMPILER_OPT', {value} is neither -1 nor positive"):
        assert num_loops(trained()) == 0


def test_text_is_refused(monkeypatch):
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "many")
    with pytest.raises(ValueError, match="For 'MS_COMM_COMPILER_OPT', the value must be -1 or a positive number"):
        trained()
