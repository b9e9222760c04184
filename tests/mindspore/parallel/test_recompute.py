"""Recomputation in compiled steps: which operators run twice, which collectives, what is kept, and that nothing else changes."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

WIDTH, BATCH, LAYERS = 64, 1024, 2
DEEP = 4
"""Layers where what all of them keep is compared with the rest of a step."""


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(0)
        self.w1 = ms.Parameter(Tensor(draw.normal(size=(WIDTH, 4 * WIDTH)).astype(np.float32) / 8), name="w1")
        self.w2 = ms.Parameter(Tensor(draw.normal(size=(4 * WIDTH, WIDTH)).astype(np.float32) / 8), name="w2")
        self.mm1, self.mm2, self.gelu, self.tanh, self.add = (
            ops.MatMul(),
            ops.MatMul(),
            ops.GeLU(),
            ops.Tanh(),
            ops.Add(),
        )
        self.dropout = nn.Dropout(p=0.2)

    def construct(self, x):
        hidden = self.gelu(self.mm1(x, self.w1))
        return self.add(self.dropout(self.tanh(self.mm2(hidden, self.w2))), x)


class Net(nn.Cell):
    def __init__(self, layers=LAYERS):
        super().__init__()
        self.blocks = nn.CellList([Block() for _ in range(layers)])

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x).mean()


def sharded(block):
    block.mm1.shard(((2, 1), (1, 4)))
    block.gelu.shard(((2, 4),))
    block.mm2.shard(((2, 4), (4, 1)))
    block.tanh.shard(((2, 1),))
    block.add.shard(((2, 1), (2, 1)))


MARKS = {
    "none": lambda block: None,
    "recompute": lambda block: block.recompute(),
    "output": lambda block: block.recompute(output_recompute=True),
    "no comm": lambda block: block.recompute(mp_comm_recompute=False),
    "slices": lambda block: block.recompute(recompute_slice_activation=True),
    "weights": lambda block: block.recompute(parallel_optimizer_comm_recompute=True),
    "gelu": lambda block: block.gelu.recompute(),
    "all but gelu": lambda block: (block.gelu.recompute(False), block.recompute()),
}


@cache
def trained(mark, parallel=False, optimizer_parallel=False, dropout=True, layers=LAYERS):
    """Losses, Parameters, the compiled program's text and its temporary bytes after three steps."""
    ms.set_context(mode=ms.GRAPH_MODE)
    if parallel:
        config = {"parallel_optimizer_threshold": 0} if optimizer_parallel else {}
        ms.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel",
            device_num=8,
            full_batch=True,
            enable_parallel_optimizer=optimizer_parallel,
            parallel_optimizer_config=config,
        )
    ms.set_seed(3)
    net = Net(layers)
    for block in net.blocks:
        if parallel:
            sharded(block)
        MARKS[mark](block)
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train(dropout)
    x = Tensor(np.random.default_rng(1).normal(size=(BATCH, WIDTH)).astype(np.float32))
    losses = [step(x).asnumpy().item() for _ in range(3)]
    parameters = [parameter.asnumpy() for parameter in net.get_parameters()]
    step.program.plan(x)
    compiled = step.program.executable
    return losses, parameters, compiled.as_text(), compiled.memory_analysis().temp_size_in_bytes


def count(text, kind):
    return len(re.findall(rf" {kind}(?:-start)?\(", text))


@pytest.mark.parametrize("parallel", [False, True], ids=["one device", "semi-auto"])
@pytest.mark.parametrize("mark", ["recompute", "no comm", "slices", "gelu"])
@pytest.mark.sampled(4)
def test_parameters_are_equal_to_the_last_digits(mark, parallel):
    """Tests compile with few optimizations, so products and sums are contracted in one kernel and not in another."""
    losses, parameters, *_ = trained(mark, parallel, dropout=False)
    plain_losses, plain, *_ = trained("none", parallel, dropout=False)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-6)
    for after, before in zip(parameters, plain, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mark", ["recompute", "output", "all but gelu"])
@pytest.mark.sampled(1)
def test_masks_of_dropout_are_replayed(mark):
    """Other masks would differ in the first digits."""
    losses, parameters, *_ = trained(mark)
    plain_losses, plain, *_ = trained("none")
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-6)
    for after, before in zip(parameters, plain, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-6)


@pytest.mark.soak
@pytest.mark.parametrize("mark", ["recompute", "gelu"])
def test_results_are_the_same_bits_as_without(mark):
    """As steps are compiled outside of tests, with all optimizations; masks of dropout included."""
    code = (
        "import numpy as np, test_recompute as t\n"
        f"one, other = t.trained('none'), t.trained('{mark}')\n"
        "assert one[0] == other[0]\n"
        "assert all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS" and "JAX" not in name}
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment, check=True, timeout=300)


def test_the_inside_of_a_cell_runs_twice_and_takes_no_memory():
    """Both products of a block appear once more, and less than half the memory is left."""
    _, _, text, num_bytes = trained("recompute", layers=DEEP)
    _, _, plain, plain_bytes = trained("none", layers=DEEP)
    assert count(text, "dot") - count(plain, "dot") == 2 * DEEP
    assert num_bytes < 0.5 * plain_bytes


def test_random_words_are_drawn_with_their_block():
    """The words of all layers at once would be more than half of what the step needs."""
    assert trained("recompute", layers=DEEP)[3] < 1.2 * trained("recompute", dropout=False, layers=DEEP)[3]


def test_one_operator_alone_runs_twice():
    """An operator's own mark releases its result; products run once."""
    _, _, text, num_bytes = trained("gelu")
    _, _, plain, plain_bytes = trained("none")
    assert count(text, "dot") == count(plain, "dot")
    assert num_bytes < plain_bytes


def test_a_kept_operator_in_a_recomputed_cell_runs_once():
    """``recompute(False)`` of an operator outlives the mark of its Cell: what leads to it is not needed again either."""
    _, _, text, num_bytes = trained("all but gelu")
    assert count(text, "dot") <= count(trained("recompute")[2], "dot")
    assert num_bytes > trained("recompute")[3]


def test_collectives_inside_run_twice_unless_the_mark_says_no():
    """``mp_comm_recompute=False`` keeps what a plan's all-reduces gave."""
    plain = count(trained("none", True)[2], "all-reduce")
    assert count(trained("recompute", True)[2], "all-reduce") == plain + LAYERS
    assert count(trained("no comm", True)[2], "all-reduce") == plain
    assert trained("no comm", True)[3] < trained("none", True)[3]


def test_a_child_decides_about_its_collectives_inside_a_recomputed_parent():
    """The parent's mark, which would repeat them, comes second."""
    MARKS["child decides"] = lambda block: (block.mm2.recompute(False), block.recompute())
    plain = count(trained("none", True)[2], "all-reduce")
    assert count(trained("child decides", True)[2], "all-reduce") == plain


def test_inputs_kept_in_slices_take_less_memory():
    """``recompute_slice_activation`` keeps a quarter of each input and gathers it again."""
    text, num_bytes = trained("slices", True)[2:]
    plain, plain_bytes = trained("recompute", True)[2:]
    assert num_bytes < plain_bytes
    assert count(text, "all-gather") > count(plain, "all-gather")


def test_weights_are_gathered_again_only_on_request():
    """``parallel_optimizer_comm_recompute`` repeats the gathers of optimizer parallelism."""
    plain = count(trained("none", True, True)[2], "all-gather")
    assert count(trained("recompute", True, True)[2], "all-gather") == plain
    assert count(trained("weights", True, True)[2], "all-gather") == plain + 2 * LAYERS
    assert trained("weights", True, True)[3] < trained("recompute", True, True)[3]


def test_a_child_keeps_its_own_configuration():
    """Configured first, the child decides for itself; a second configuration is ignored."""
    block = Block()
    block.recompute(mp_comm_recompute=False)
    block.recompute(output_recompute=True)
    assert block.marks["recompute"]["mp_comm_recompute"] is False
    assert block.marks["recompute"]["output_recompute"] is False


def test_the_functional_form_works_in_pynative_mode():
    """`recompute` gives the same values and gradients."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    block = nn.SequentialCell(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
    x = Tensor(np.ones((2, 3), np.float32))
    weights = block.trainable_params()
    plain = ms.value_and_grad(lambda x: block(x).sum(), None, weights)(x)
    again = ms.value_and_grad(lambda x: ms.recompute(block, x).sum(), None, weights)(x)
    for one, other in zip((plain[0], *plain[1]), (again[0], *again[1]), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


def test_the_functional_form_keeps_what_enters_alone():
    """In PYNATIVE_MODE: the backward pass runs the inside again, in place of reading what it gave."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    block = nn.SequentialCell(nn.Tanh(), nn.Tanh(), nn.Tanh())

    def num_tanh(function):
        gradient = ms.grad(lambda x: function(x).sum())
        program = jax.make_jaxpr(lambda array: gradient(Tensor(array)).raw)(np.ones((2, 3), np.float32))
        return str(program).count(" tanh ")

    assert num_tanh(lambda x: ms.recompute(block, x)) > num_tanh(block)


def test_the_functional_form_takes_cells_only():
    with pytest.raises(TypeError, match="For 'recompute', 'block' must be a Cell, but got function"):
        ms.recompute(lambda x: x, Tensor([1.0]))


def test_the_plan_says_what_recomputation_saves_and_costs():
    """One row per marked Cell; a block's two products run twice."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    net = Net()
    for block in net.blocks:
        block.recompute()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
    x = Tensor(np.ones((BATCH, WIDTH), np.float32))
    notes = [note for note in step.program.plan(x).plan.notes if note.startswith("recompute")]
    assert len(notes) == LAYERS and "blocks.0" in notes[0]
    assert float(notes[0].split(", ")[-1].split()[0]) >= 2 * 2 * BATCH * WIDTH * 4 * WIDTH
