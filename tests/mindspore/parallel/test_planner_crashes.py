"""Small networks on which planning or lowering once failed inside: what a fuzzer or a user found, one after another."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn, ops


def value(*shape):
    return Tensor(np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32))


class Given(nn.Cell):
    """A network of one function of its weights and inputs."""

    def __init__(self, function, *weights):
        super().__init__()
        self.function = function
        self.weights = [Parameter(weight, name=f"w{number}") for number, weight in enumerate(weights)]
        for weight in self.weights:
            setattr(self, weight.name, weight)

    def construct(self, *inputs):
        return self.function(*inputs, *self.weights)


@pytest.fixture(autouse=True)
def _graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


def compared(function, *inputs, weights=(), mode="auto_parallel", **settings):
    """The results are those of one device."""
    alone = Given(function, *weights)(*inputs).asnumpy()
    context.set_auto_parallel_context(parallel_mode=mode, device_num=8, **settings)
    net = Given(function, *weights)
    result = net(*inputs).asnumpy()
    np.testing.assert_allclose(result, alone, rtol=1e-4, atol=1e-5)
    return net


def test_attention_forward_only():
    """A mark that a scalar of the program passes."""
    heads = ops.FlashAttentionScore(2, input_layout="BSH")
    net = compared(lambda q, k, v: heads(q, k, v)[3], *[value(8, 16, 16)] * 3)
    assert net.program.memory(*[value(8, 16, 16)] * 3).predicted.peak_bytes > 0


def test_spread_values_that_are_handed_out():
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, recompute="auto")
    net = Given(
        lambda x, v, w: (ops.cat((x, v), 1) ** 2).mean() + (w.sum(-1) ** 2).mean(), value(64, 4), value(16, 64, 8)
    )
    train = ms.value_and_grad(net, None, net.trainable_params())
    step = ms.jit(lambda x: train(x))
    loss, gradients = step(value(64, 8))
    context.reset_auto_parallel_context()
    expected, alone = train(value(64, 8))
    np.testing.assert_allclose(loss.asnumpy(), expected.asnumpy(), rtol=1e-5)
    for here, there in zip(gradients, alone, strict=True):
        np.testing.assert_allclose(here.asnumpy(), there.asnumpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:With search_mode='recursive_programming'")  # which replaces strategies, and says so
@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_slices_without_elements(mode):
    """They are cut and gathered as others are."""
    context.set_auto_parallel_context(parallel_mode=mode, device_num=8)
    cut = ops.StridedSlice().shard(((1, 8),))
    step = ms.jit(ms.grad(lambda x: (cut(x, (4, 0), (4, 16), (1, 1)) ** 2).sum() + x.sum()))
    np.testing.assert_array_equal(step(value(8, 16)).asnumpy(), np.ones((8, 16)))
