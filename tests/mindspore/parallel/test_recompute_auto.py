"""``recompute="auto"``: what is computed again is chosen under a memory limit, with and without a plan."""

import warnings

import numpy as np
import pytest
from program_text import compiled

import sporax.mindspore as ms
from sporax.lowering.passes.recompute import recompute_choice
from sporax.mindspore import Tensor, nn, ops
from sporax.planner.memory import recomputation
from sporax.planner.memory.recomputation import Level, RecomputeDecision

WIDTH, LENGTH, HEADS, LAYERS, BATCH = 16, 64, 2, 2, 8


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.joint, self.out = nn.Dense(WIDTH, 3 * WIDTH), nn.Dense(WIDTH, WIDTH)
        self.dropout, self.gelu, self.narrow = nn.Dropout(p=0.1), nn.GELU(), nn.Dense(WIDTH, WIDTH)

    def construct(self, x):
        parts = ops.split(self.joint(x), WIDTH, axis=-1)
        q, k, v = (part.reshape((BATCH, LENGTH, HEADS, -1)).transpose((0, 2, 1, 3)) for part in parts)
        scores = self.dropout(ops.softmax(ops.matmul(q, k.transpose((0, 1, 3, 2))), -1))
        mixed = ops.matmul(scores, v).transpose((0, 2, 1, 3)).reshape(x.shape)
        return x + self.narrow(self.gelu(self.out(mixed)))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList([Block() for _ in range(LAYERS)])

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x).mean()


@pytest.fixture(autouse=True)
def _untouched():
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of max_device_memory, once a process
        yield
        ms.set_context(mode=mode, max_device_memory="1024GB")
    ms.reset_auto_parallel_context()


@pytest.fixture
def decisions(monkeypatch):
    """What was chosen, in order."""
    result = []
    original = recompute_choice.choose

    def choose(*args):
        result.append(original(*args))
        return result[-1]

    monkeypatch.setattr(recompute_choice, "choose", choose)
    return result


def trained(recompute="", megabytes=None, mode=None):
    """Losses, Parameters, the step and its data after two steps."""
    settings = {} if mode is None else {"parallel_mode": mode, "device_num": 2}
    ms.set_auto_parallel_context(recompute=recompute, **settings)
    if megabytes is not None:
        ms.set_context(max_device_memory=f"{megabytes * 1e6 / 2**30:.9f}GB")
    ms.set_seed(5)
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
    x = Tensor(np.random.default_rng(1).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32))
    losses = [step(x).asnumpy().item() for _ in range(2)]
    return losses, [parameter.asnumpy() for parameter in net.get_parameters()], step, x


def temporary_bytes(step, x):
    return compiled(step.program, x).memory_analysis().temp_size_in_bytes


def test_nothing_is_computed_again_without_need(decisions):
    trained("auto")
    assert decisions[0].levels == (Level.NOTHING,) * LAYERS


def test_a_step_of_one_device_is_made_to_fit(decisions):
    """Less memory is needed than without, losses and Parameters are equal, and the blocks of the network are what is chosen."""
    losses, parameters, step, x = trained()
    plain_bytes = temporary_bytes(step, x)
    trained("auto")
    whole = decisions[-1].trials[(Level.NOTHING,) * LAYERS].peak_bytes
    chosen_losses, chosen, step, x = trained("auto", 0.6 * whole / 1e6)
    decision = decisions[-1]
    assert set(decision.levels) != {Level.NOTHING}
    assert decision.trials[decision.levels].peak_bytes <= decision.limit_bytes
    assert temporary_bytes(step, x) < 0.8 * plain_bytes
    np.testing.assert_allclose(chosen_losses, losses, rtol=1e-6)
    for after, before in zip(chosen, parameters, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_plans_are_made_with_what_is_computed_again(mode, decisions, monkeypatch):
    """The plan says why; it is never predicted to be slower than a uniform choice that fits."""
    monkeypatch.setattr(recomputation, "_MIXTURES", 2)  # a search for a mixture that does not fit takes seconds
    plain_losses, *_ = trained("auto", mode=mode)
    assert decisions[-1].levels == (Level.NOTHING,) * LAYERS
    trials = decisions[-1].trials
    needs = [outcome.peak_bytes for outcome in trials.values()] if len(trials) > 1 else []
    limit = (min(needs) + max(needs)) / 2 if needs else 0.75 * next(iter(trials.values())).peak_bytes
    losses, _, step, _ = trained("auto", limit / 1e6, mode)
    decision = decisions[-1]
    assert decision.levels != (Level.NOTHING,) * LAYERS
    outcome = decision.trials[decision.levels]
    assert outcome.peak_bytes <= decision.limit_bytes
    fitting = [other.seconds for other in decision.trials.values() if other.peak_bytes <= decision.limit_bytes]
    assert outcome.seconds <= min(fitting)
    notes = step.program.planned.plan.notes
    assert any(note.startswith("recompute='auto'") and "predicted" in note for note in notes)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)


def test_what_fits_nowhere_is_an_error():
    with pytest.raises(RuntimeError, match="For 'recompute', what is kept must fit"):
        trained("auto", 0.001)


def test_pipelines_refuse_the_choice():
    ms.set_auto_parallel_context(pipeline_stages=2)
    with pytest.raises(NotImplementedError, match="recompute='auto' is not offered with 'pipeline_stages' above 1"):
        trained("auto", mode="semi_auto_parallel")


def test_the_setting_is_checked():
    with pytest.raises(ValueError, match="'recompute'"):
        ms.set_auto_parallel_context(recompute="always")


@pytest.mark.parametrize("level", [Level.NOTHING, Level.ATTENTION, Level.EVERYTHING])
@pytest.mark.sampled(1)
def test_every_level_needs_what_was_predicted(level, monkeypatch):
    """Within a tenth of what XLA says of the whole step."""
    outcomes = []

    def of_every_block(savings, evaluate, limit_bytes, layout_is_free=False):
        levels = (level,) * len(savings)
        outcomes.append(evaluate(levels, False))
        return RecomputeDecision(levels, limit_bytes, {levels: outcomes[-1]})

    monkeypatch.setattr(recompute_choice, "choose", of_every_block)
    _, _, step, x = trained("auto")
    memory = compiled(step.program, x).memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    assert outcomes[-1].peak_bytes == pytest.approx(memory.temp_size_in_bytes + held, rel=0.1)
