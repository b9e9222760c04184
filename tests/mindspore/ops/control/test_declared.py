"""`ops.PrimitiveWithInfer`: operators that a class of the user declares."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops, set_context
from sporax.mindspore.common.api import _cell_graph_executor
from sporax.mindspore.ops import PrimitiveWithInfer, prim_attr_register
from sporax.mindspore.ops.control.custom import bprop_getters

X = Tensor([[1.0, 2.0], [3.0, 4.0]])


class Spread(PrimitiveWithInfer):
    """Declared alone: its `__call__` is not written."""

    @prim_attr_register
    def __init__(self, count=3):
        self.twice = 2 * count

    def __call__(self, x, y):
        raise NotImplementedError

    def infer_shape(self, x, y):
        return [self.count, *x]

    def infer_dtype(self, x, y):
        return ms.float16 if y is int else x

    def get_bprop(self):
        return lambda x, y, out, dout: (x * 5, y)


class Halves(PrimitiveWithInfer):
    """Two results, of operators; the gradient is registered."""

    @prim_attr_register
    def __init__(self):
        pass

    def __call__(self, x):
        return x / 2, x / 2


@bprop_getters.register(Halves)
def halves_bprop(self):
    return lambda x, out, dout: (dout[0] * 10 + out[1],)


class Net(nn.Cell):
    def __init__(self, operator, *constants):
        super().__init__()
        self.dense = nn.Dense(2, 2, weight_init="ones", has_bias=False)
        self.operator, self.constants = operator, constants

    def construct(self, x):
        return self.operator(self.dense(x), *self.constants)


def test_arguments_are_attributes():
    spread = Spread(4)
    assert (spread.count, spread.twice, spread.name, spread.get_attr_dict()) == (4, 8, "Spread", {"count": 4})
    assert Spread().count == 3 and spread.init_attrs == {"count": 4}


@pytest.mark.parametrize("gradient", [False, True])
def test_a_declared_operator_compiles_and_does_not_run(gradient):
    net = Net(Spread(), 1)
    if gradient:
        net = nn.ForwardValueAndGrad(net, ms.ParameterTuple(net.trainable_params()), get_by_list=True)
    assert _cell_graph_executor.compile(net, X)[1]
    with pytest.raises(Exception, match="For 'Spread', its class must say in '__call__' what it computes"):
        np.asarray(net.compile_and_run(X)[0])


def test_eager_calls_need_an_implementation():
    with pytest.raises(NotImplementedError, match="For 'Spread', its class must say in '__call__'"):
        Spread()(X, 1)


@pytest.mark.parametrize("mode", [0, 1])
def test_what_is_written_runs_with_the_registered_gradient(mode):
    set_context(mode=mode)
    halves = Halves()
    for result in halves(X):
        np.testing.assert_array_equal(result.asnumpy(), X.asnumpy() / 2)
    slope = ms.grad(lambda x: (halves(x)[0] * 3).sum())(X)
    np.testing.assert_array_equal(slope.asnumpy(), 30 + X.asnumpy() / 2)


def test_what_does_not_fit_is_reported():
    class NoShape(PrimitiveWithInfer):
        @prim_attr_register
        def __init__(self):
            pass

        def infer_dtype(self, x):
            return x

    class TooMany(Halves):
        def get_bprop(self):
            return lambda x, out, dout: (x, x)

    with pytest.raises(
        TypeError, match="For 'NoShape', 'infer_shape' must give a shape for each of 1 results, but gave"
    ):
        Net(NoShape()).compile(X)
    with pytest.raises(
        TypeError, match="For 'TooMany', 'bprop' must return 1 gradients, one per input, but returned 2"
    ):
        ms.grad(lambda x: TooMany()(x)[0].sum())(X)
    with pytest.raises(NotImplementedError, match="must be a PrimitiveWithInfer of your own, but got 'ReLU'"):
        bprop_getters.register(ops.ReLU)
