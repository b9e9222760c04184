"""Compiled functions that ask for values as numpy arrays run operator by operator, and say so."""

import warnings

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn

X = Tensor([1.0, 2.0])
MESSAGE = r"runs operator by operator .* asks for the values of a tensor \(.*test_jit_values.py, line \d+\)"


def asks(x):
    return x * float(x.asnumpy().max()), len(x.tolist())


def test_results_are_those_of_python_and_the_warning_comes_once():
    compiled = ms.jit(asks)
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


def test_it_is_refused_where_the_syntax_is_strict_or_the_step_is_cut():
    ms.set_context(jit_syntax_level=ms.STRICT)
    try:
        with pytest.raises(TypeError, match="the value of this tensor is not known"):
            ms.jit(asks)(X)
    finally:
        ms.set_context(jit_syntax_level=ms.LAX)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    try:
        with pytest.raises(TypeError, match="the value of this tensor is not known"):
            ms.jit(asks)(X)
    finally:
        ms.reset_auto_parallel_context()
