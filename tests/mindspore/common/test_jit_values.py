"""Compiled functions that need values, as numpy arrays, shapes or settings, run operator by operator, and say so."""

import warnings

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

X = Tensor([1.0, 2.0])
MESSAGE = r"runs operator by operator .* needs the values of a tensor \(.*test_jit_values.py, line \d+\)"


def reads_values(x):
    return x * float(x.asnumpy().max()), len(x.tolist())


def test_results_are_those_of_python_and_the_warning_comes_once():
    compiled = ms.jit(reads_values)
    with pytest.warns(UserWarning, match=MESSAGE):
        product, length = compiled(X)
    assert (product.asnumpy().tolist(), length) == ([2.0, 4.0], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(X * 2)[0].asnumpy().tolist() == [8.0, 16.0]


def test_a_training_step_that_looks_at_values_trains():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")

        def construct(self, x):
            y = self.dense(x)
            return y * 2 if y.asnumpy().sum() > 2.5 else y

    ms.set_context(mode=ms.GRAPH_MODE)
    net = Net()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    with pytest.warns(UserWarning, match=MESSAGE):
        losses = [step(Tensor([[1.0, 2.0]]), Tensor([[0.0]])).item() for _ in range(2)]
    np.testing.assert_allclose(losses, [36.0, (-11.4) ** 2], rtol=1e-5)


def test_it_is_refused_where_the_syntax_is_strict_or_the_step_is_sharded():
    ms.set_context(jit_syntax_level=ms.STRICT)
    try:
        with pytest.raises(TypeError, match="the value of this tensor is not known"):
            ms.jit(reads_values)(X)
    finally:
        ms.set_context(jit_syntax_level=ms.LAX)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    try:
        with pytest.raises(TypeError, match="the value of this tensor is not known"):
            ms.jit(reads_values)(X)
    finally:
        ms.reset_auto_parallel_context()


UNSHAPED = MESSAGE.replace("needs", "a shape or a setting depends on")
SQUARES = Tensor(np.square(np.arange(6, dtype=np.float32)).reshape(2, 3))

NEEDED = {
    "positions": lambda x, n: ops.nonzero(x > n),
    "chosen": lambda x, n: ops.masked_select(x, x > n),
    "mask": lambda x, n: x[x > n],
    "bounds": lambda x, n: x[:n, n:],
    "numbers": lambda x, n: ops.Range()(n, Tensor(5), Tensor(2)),
    "axis": lambda x, n: ops.ReduceSum()(x, n),
    "axis of a method": lambda x, n: x.sum(axis=n),
    "setting by name": lambda x, n: ops.Concat(axis=n)((x, x)),
    "switch": lambda x, n: ops.mean(x, 0, n == 1),
    "permutation": lambda x, n: ops.randperm(n) * 0,
    "shape": lambda x, n: ops.zeros((n, 2)),
    "part of a shape": lambda x, n: ops.reshape(x, (2, n, 3)),
    "gradient": lambda x, n: ms.grad(lambda y: (ops.masked_select(y, y > n) ** 2).sum())(x),
    "branch": lambda x, n: ops.cond(x.sum() > n, lambda y: y.sum(axis=n), lambda y: y[0, :2], x),
}


@pytest.mark.parametrize("name", NEEDED)
def test_what_needs_a_value_is_as_outside_of_a_step_at_any_level(name):
    function = NEEDED[name]
    ms.set_context(jit_syntax_level=ms.STRICT)
    try:
        with pytest.warns(UserWarning, match=UNSHAPED):
            inside = ms.jit(function)(SQUARES, ms.mutable(1))
    finally:
        ms.set_context(jit_syntax_level=ms.LAX)
    outside = function(SQUARES, 1)
    assert (inside.shape, inside.dtype) == (outside.shape, outside.dtype)
    np.testing.assert_array_equal(inside.asnumpy(), outside.asnumpy())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chosen", "For 'MaskedSelect', the shape of the result depends on the values of 'mask'"),
        ("mask", "a mask computed inside a compiled step .* use ops.where or ops.masked_fill"),
        ("bounds", "the bounds of a slice must be known"),
        ("axis", "For 'ReduceSum', the type of 'axis' must be int .*, but got a Tensor"),
        ("shape", "For 'zeros', '.*' must be a tuple of ints"),
        ("branch", "the type of 'dim' must be int"),
    ],
)
def test_what_needs_a_value_is_refused_in_a_step_that_a_plan_shards(name, message):
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    try:
        with pytest.raises(TypeError, match=message):
            ms.jit(NEEDED[name])(SQUARES, ms.mutable(1))
    finally:
        ms.reset_auto_parallel_context()


def test_what_cannot_be_a_setting_is_refused_at_once():
    with pytest.raises(TypeError, match="the type of 'axis' must be int"):
        ms.jit(lambda x, n: ops.ReduceSum()(x, n))(SQUARES, Tensor(1.5))
