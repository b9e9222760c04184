"""Parameters of repeated blocks are rows of one array between steps; nobody who reads or writes them notices."""

import re

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.runtime.state.frames import slot

WIDTH, LAYERS = 8, 5


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.norm, self.dropout = nn.Dense(WIDTH, WIDTH), nn.LayerNorm((WIDTH,)), nn.Dropout(p=0.2)

    def construct(self, x):
        return self.dropout(ops.tanh(self.dense(self.norm(x)))) + x


class Net(nn.Cell):
    def __init__(self, layers=LAYERS):
        super().__init__()
        self.blocks = nn.CellList([Block() for _ in range(layers)])
        self.tied = nn.Dense(WIDTH, WIDTH)

    def construct(self, x):
        for block in self.blocks:
            x = block(self.tied(x))
        return (x * x).mean()


X = Tensor(np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32))


def adam(net):
    return nn.Adam(net.trainable_params(), 0.01, weight_decay=0.1)


def adam_by_group(net):
    """Parameters of one place in different groups: the updates of the blocks are not alike."""
    biases = [
        parameter
        for parameter in net.trainable_params()
        if "bias" in parameter.name and "blocks.1" not in parameter.name
    ]
    rest = [parameter for parameter in net.trainable_params() if all(parameter is not bias for bias in biases)]
    return nn.Adam([{"params": biases, "lr": 0.1}, {"params": rest, "weight_decay": 0.01}], 0.01)


def momentum(net):
    return nn.Momentum(net.trainable_params(), 0.01, 0.9)


def lamb(net):
    return nn.Lamb(net.trainable_params(), 0.01)


def without_one_block(net):
    """One block does not learn."""
    for item in net.blocks[2].get_parameters():
        item.requires_grad = False
    return nn.SGD(net.trainable_params(), 0.01)


def run(optimizer=adam, between=lambda step, net: None, layers=LAYERS, steps=3):
    """Losses, Parameters and optimizer state after some steps, and the step."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(3)
    net = Net(layers)
    step = nn.TrainOneStepCell(net, optimizer(net)).set_train()
    losses = []
    for _ in range(steps):
        losses.append(step(X).asnumpy().item())
        between(step, net)
    held = [entry for entry in step.get_parameters() if slot(entry, "row") is not None]
    return losses, {entry.name: entry.asnumpy() for entry in step.get_parameters()}, held, step


def check_alike(after, before):
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)
    assert list(after[1]) == list(before[1])
    for name, value in before[1].items():
        np.testing.assert_allclose(after[1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.fixture
def both(monkeypatch):
    """A function that trains without loops and with them."""

    def train(*args, **options):
        monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "0")
        plain = run(*args, **options)
        monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "1")
        return run(*args, **options), plain

    return train


def test_parameters_and_moments_of_all_blocks_are_rows(both):
    """Four Parameters a block, each with two moments; a block at an end may stay outside, as the layer that all share does."""
    stacked, plain = both()
    assert len(stacked[2]) >= (LAYERS - 1) * 4 * 3
    assert not [item for item in stacked[2] if "tied" in item.name]
    assert not plain[2]
    check_alike(stacked, plain)


@pytest.mark.parametrize("optimizer", [adam_by_group, momentum, lamb])
@pytest.mark.sampled(1)
def test_every_optimizer_gives_the_same(both, optimizer):
    stacked, plain = both(optimizer)
    assert stacked[2]
    check_alike(stacked, plain)


def test_places_where_one_block_does_not_learn_stand_alone(both):
    """Some of the Parameters of a place are updated and one is not, so they are no stack between steps."""
    stacked, plain = both(without_one_block)
    assert not stacked[2]
    check_alike(stacked, plain)


def test_the_program_hardly_grows_with_the_number_of_blocks(monkeypatch):
    """Of a further block only the gradient of the layer that all share is left: two rows and two additions."""
    monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "1")

    def num_operations(layers):
        step = run(layers=layers, steps=1)[3]
        return len(re.findall(r"stablehlo\.\w+", step.program.lower(X).as_text()))

    assert num_operations(11) - num_operations(6) <= 5 * 8


def test_what_is_read_and_assigned_between_steps_counts(both):
    def between(step, net):
        weight = net.blocks[1].dense.weight
        assert weight.asnumpy().shape == (WIDTH, WIDTH)
        net.blocks[3].dense.weight.set_data(weight * 0.5)
        net.blocks[0].norm.gamma.set_data(Tensor(np.full(WIDTH, 0.7, np.float32)))

    check_alike(*both(between=between))


def test_other_programs_read_what_steps_have_written(both):
    """The network alone, evaluated between steps, with loops of its own."""
    seen = []

    def between(step, net):
        net.set_train(False)
        seen.append(net(X).asnumpy().item())
        net.set_train()

    stacked, plain = both(between=between)
    check_alike(stacked, plain)
    np.testing.assert_allclose(seen[3:], seen[:3], rtol=1e-5)


def test_values_that_were_taken_stay(monkeypatch):
    """A copy of a Parameter does not change at the next step, whose stack is given away."""
    monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "1")
    taken = []
    run(
        between=lambda step, net: taken.append(
            (net.blocks[2].dense.weight.value(), net.blocks[2].dense.weight.asnumpy())
        )
    )
    for value, before in taken:
        np.testing.assert_array_equal(value.asnumpy(), before)


def test_checkpoints_hold_parameters_by_name(both, tmp_path):
    """Saved in the middle, loaded into another network that goes on."""

    def resumed(step, net):
        path = str(tmp_path / "step.ckpt")
        ms.save_checkpoint(step, path)
        ms.load_param_into_net(step, ms.load_checkpoint(path))

    check_alike(*both(between=resumed))
