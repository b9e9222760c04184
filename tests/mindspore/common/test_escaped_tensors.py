"""Tensors that eager code keeps from inside of a derivative have their values afterwards, as in MindSpore."""

import gc

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.common.escaped_tensors import MADE

X = Tensor(np.array([1.0, 2.0], np.float32))
total = Tensor([0.0])


@pytest.fixture(autouse=True)
def _eager():
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=mode)
    assert MADE == {}


def square(x):
    global total
    doubled = x * 2
    total = total + doubled.sum()
    return (doubled**2).sum()


@pytest.mark.parametrize(
    "derive",
    [
        lambda: ms.value_and_grad(square)(X)[1],
        lambda: ms.grad(square)(X),
        lambda: ms.vjp(square, X)[1](Tensor(1.0))[0],
        lambda: ops.GradOperation()(square)(X),
        lambda: ms.jacrev(square)(X),
        lambda: ms.jvp(square, X, Tensor([1.0, 1.0])) and Tensor([8.0, 16.0]),
    ],
    ids=["value_and_grad", "grad", "vjp", "GradOperation", "jacrev", "jvp"],
)
def test_a_global_that_a_derivative_assigns_grows(derive):
    global total
    total = Tensor([0.0])
    for expected in (6.0, 12.0):
        assert np.array_equal(derive().asnumpy().reshape(-1), [8.0, 16.0])
        assert total.asnumpy().tolist() == [expected]


def test_attributes_and_lists_of_a_cell_that_trains():
    kept = []

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2, 2)

        def construct(self, x):
            self.given, self.hidden = x, self.dense(x)
            kept.append((self.hidden * 2).sum())
            return (self.hidden**2).sum()

    net, x = Net(), Tensor(np.ones((1, 2), np.float32))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    step = ms.value_and_grad(net, 0, optimizer.parameters)
    for _ in range(2):
        hidden = net.dense(x).asnumpy()
        _, (_, gradients) = step(x)
        np.testing.assert_allclose(net.hidden.asnumpy(), hidden, rtol=1e-6)
        assert np.array_equal(net.given.asnumpy(), x.asnumpy())
        np.testing.assert_allclose(gradients[0].asnumpy(), (2 * hidden.T) @ x.asnumpy(), rtol=1e-6)
        optimizer(gradients)
    np.testing.assert_allclose(kept[1].asnumpy(), 2 * hidden.sum(), rtol=1e-6)


def test_what_an_inner_derivative_keeps_is_differentiated_by_the_outer_one():
    kept = []

    def inner(x):
        kept.append(x * 3)
        return (x**3).sum()

    def outer(x):
        slope = ms.grad(inner)(x)
        outside = x * 5
        kept.append(outside)
        return (slope * outside).sum()

    # 3 x² · 5 x, whose slope is 45 x².
    assert np.allclose(ms.grad(outer)(X).asnumpy(), 45 * X.asnumpy() ** 2)
    assert kept[-1].asnumpy().tolist() == [5.0, 10.0]


def test_dropped_tensors_are_not_kept_alive():
    seen = []

    def loss(x):
        for _ in range(20):
            x = ops.tanh(x)
        gc.collect()
        (made,) = MADE.values()
        seen.append(sum(reference() is not None for reference in made))
        return x.sum()

    ms.grad(loss)(X)
    assert seen[0] <= 3


@pytest.mark.parametrize("use", [lambda kept: kept + 1, lambda kept: kept.asnumpy(), lambda kept: str(kept)])
def test_what_has_no_value_outside_says_so(use):
    kept = []

    def double(x):
        kept.append(x * 2)
        return x * 2

    ops.vmap(double)(Tensor(np.ones((3, 2), np.float32)))
    with pytest.raises(TypeError, match="a tensor was kept, .*, and has no value outside of it. Return it"):
        use(kept[0])
