"""Gradients of micro batches that are kept in slices: numbers of one device, collectives of the plan, and less memory."""

import re
from collections import Counter

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell

WIDTH, LAYERS, MICRO, ROWS = 128, 3, 4, 64
WEIGHT_BYTES = WIDTH * WIDTH * 4
X = np.random.default_rng(0).normal(size=(MICRO * ROWS, WIDTH)).astype(np.float32)


class Net(nn.Cell):
    """Layers without bias, so that every gradient is a matrix."""

    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(WIDTH, WIDTH, has_bias=False) for _ in range(LAYERS)])

    def construct(self, x):
        for layer in self.layers:
            x = ops.tanh(layer(x))
        return (x * x).mean()


@pytest.fixture(autouse=True)
def _graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


def trained(wrap=nn.GradAccumulationCell, mode="semi_auto_parallel", **optimizer_config):
    """The step after two runs, with its losses and weights."""
    context.reset_auto_parallel_context()
    if mode:
        config = {"parallel_optimizer_threshold": 0, **optimizer_config}
        context.set_auto_parallel_context(
            parallel_mode=mode, device_num=8, enable_parallel_optimizer=True, parallel_optimizer_config=config
        )
    ms.set_seed(1)
    net = Net()
    step = nn.TrainOneStepCell(wrap(net, MICRO), nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
    losses = [float(step(Tensor(X))) for _ in range(2)]
    return step, losses, [weight.asnumpy() for weight in net.trainable_params()]


def collectives(step):
    return Counter(re.findall(r" (all-reduce|reduce-scatter|all-to-all)\(", step.program.executable.as_text()))


def temporary_bytes(step):
    return step.program.executable.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("wrap", [nn.GradAccumulationCell, PipelineCell])
@pytest.mark.sampled(1)
def test_sums_in_slices_take_less_memory(wrap):
    _, expected, alone = trained(wrap, mode="")
    whole, *of_whole = trained(wrap)
    sliced, *of_sliced = trained(wrap, gradient_accumulation_shard=True, optimizer_level="level2")
    for losses, weights in (of_whole, of_sliced):
        np.testing.assert_allclose(losses, expected, rtol=1e-4)
        for here, there in zip(weights, alone, strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-5)
    assert collectives(whole)["reduce-scatter"] == LAYERS
    assert collectives(sliced)["reduce-scatter"] == LAYERS * MICRO
    # Without slices the parts of a layer's four micro batches are there at the same time, with them only one.
    assert temporary_bytes(sliced) < temporary_bytes(whole) - WEIGHT_BYTES


def test_the_prediction_knows_it():
    peaks = []
    for level in ("level1", "level2"):
        step, *_ = trained(optimizer_level=level)
        measured = step.program.executable.memory_analysis()
        actual = measured.temp_size_in_bytes + measured.argument_size_in_bytes
        peaks.append(step.program.memory(Tensor(X)).predicted.peak_bytes)
        assert abs(peaks[-1] - actual) < 0.1 * actual
    assert peaks[1] < peaks[0] - WEIGHT_BYTES


def test_searched_plans_keep_slices_too():
    _, expected, _ = trained(mode="")
    _, losses, _ = trained(mode="auto_parallel", optimizer_level="level2")
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
