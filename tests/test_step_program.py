"""A training step is one compiled program in which operators can still be seen."""

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import nn, ops


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.matmul = ops.MatMul()
        self.weight = ms.Parameter(ms.Tensor(np.eye(4, dtype=np.float32)), name="weight")

    def construct(self, x):
        return ops.relu(self.matmul(x, self.weight))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def construct(self, x):
        return ops.reduce_sum(self.second(self.first(x)))


@pytest.fixture
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


def calls(jaxpr):
    """(operator, name stack) of every inner `jit` of a jaxpr, at any depth."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("jit", "pjit"):
            yield eqn.params["name"], str(eqn.source_info.name_stack)
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", None)
            if inner is not None:
                yield from calls(inner)


def test_operators_keep_their_name_and_cell_path_through_differentiation(graph_mode):
    net = Net()

    def gradient(x):
        return ms.grad(net, None, net.trainable_params())(ms.Tensor(x))[0].array

    jaxpr = jax.make_jaxpr(gradient)
    x = np.ones((2, 4), np.float32)
    actual = list(calls(jaxpr(x).jaxpr))
    paths = [path for name, path in actual if name == "MatMul"]
    assert any("jvp" in path and "first/matmul" in path for path in paths), actual
    assert any("transpose" in path and "second/matmul" in path for path in paths), actual


def test_a_step_is_one_program_with_donated_state(graph_mode):
    net = Net()
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    step = nn.TrainOneStepCell(net, optimizer)
    x = ms.Tensor(np.ones((2, 4), np.float32))
    held = net.first.weight.raw
    step(x)
    assert held.is_deleted()
    assert len(ms.recompilations(step)) == 1
    text = step.program.lower(x).as_text()
    updated = len(net.trainable_params()) * 2 + 1  # weights, their momenta, the step number
    assert text.count("tf.aliasing_output") + text.count("jax.buffer_donor") == updated


class Scaled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.scale = 1.0
        self.weight = ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name="weight")

    def construct(self, x, y=None):
        return x * self.weight * self.scale if y is None else x + y


def test_the_short_way_to_a_program_sees_every_change_of_its_inputs_and_settings(graph_mode):
    net = Scaled()
    ones = ms.Tensor(np.ones((2, 3), np.float32))
    for _ in range(3):
        np.testing.assert_array_equal(net(ones).asnumpy(), np.ones((2, 3)))
    assert net(ms.Tensor(np.ones((4, 3), np.float32))).shape == (4, 3)
    assert net(ms.Tensor(np.ones((2, 3), np.float16))).dtype == ms.float32
    assert net(ms.Tensor(np.ones((2, 3), np.int32))).asnumpy().sum() == 6
    np.testing.assert_array_equal(net(ones, ones).asnumpy(), np.full((2, 3), 2.0))
    np.testing.assert_array_equal(net(ones, 3).asnumpy(), np.full((2, 3), 4.0))
    np.testing.assert_array_equal(net(ones, y=ones).asnumpy(), np.full((2, 3), 2.0))
    net.scale = 5.0
    np.testing.assert_array_equal(net(ones).asnumpy(), np.full((2, 3), 5.0))
    net.scale = 1.0
    np.testing.assert_array_equal(net(ones).asnumpy(), np.ones((2, 3)))
    net.weight.set_data(ms.Tensor(np.full(3, 7.0, np.float32)))
    np.testing.assert_array_equal(net(ones).asnumpy(), np.full((2, 3), 7.0))
    assert len(ms.recompilations(net)) == 8


def test_parameters_given_as_inputs_are_read_anew_at_each_call(graph_mode):
    @ms.jit
    def double(x):
        return x * 2

    weight = ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name="weight")
    assert double(weight).asnumpy().sum() == 6
    weight.set_data(ms.Tensor(np.full(3, 2.0, np.float32)))
    assert double(weight).asnumpy().sum() == 12
    assert double(ms.Tensor(np.ones(3, np.float32))).asnumpy().sum() == 6
