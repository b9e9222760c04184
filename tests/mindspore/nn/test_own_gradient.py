"""Cells whose class says in `bprop` how gradients pass."""

import numpy as np
import pytest

from sporax import mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops

X = np.array([2.0, 3.0], np.float32)


class Squares(nn.Cell):
    def construct(self, x, factor=2):
        return x * x * factor

    def bprop(self, x, factor, out, dout):
        return dout * 7 + 0 * out, 0


class Pair(nn.Cell):
    def construct(self, x, y):
        return x * y, x + y

    def bprop(self, x, y, out, dout):
        return dout[0] * 10, dout[1] * 100


class AfterDense(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, 2, weight_init="ones", has_bias=False)
        self.squares = Squares()

    def construct(self, x):
        return self.squares(self.dense(x), factor=3).sum()


@pytest.mark.usefixtures("mode")
def test_its_gradients_take_the_place_of_the_derivative():
    np.testing.assert_array_equal(ops.grad(Squares())(Tensor(X)).asnumpy(), [7, 7])
    first, second = ops.GradOperation(get_all=True)(Pair())(Tensor(X), Tensor(X))
    np.testing.assert_array_equal(np.stack([first.asnumpy(), second.asnumpy()]), [[10, 10], [100, 100]])


@pytest.mark.usefixtures("mode")
def test_it_passes_gradients_on_to_cells_before_it():
    net = AfterDense()
    loss, (gradient,) = ms.value_and_grad(net, None, net.trainable_params())(Tensor(X))
    assert loss.asnumpy() == 150
    np.testing.assert_array_equal(gradient.asnumpy(), 7 * np.stack([X, X]))


@pytest.mark.usefixtures("mode")
def test_parameters_inside_would_get_no_gradient():
    class Scaled(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(Tensor(X), name="weight")

        def construct(self, x):
            return self.weight * x

        def bprop(self, x, out, dout):
            return (dout,)

    with pytest.raises(
        TypeError, match="For 'Scaled', a Cell with a 'bprop' .* but has 'weight': give its values as inputs"
    ):
        Scaled()(Tensor(X))


@pytest.mark.usefixtures("mode")
def test_another_number_of_gradients_is_refused():
    class One(Pair):
        def bprop(self, x, y, out, dout):
            return dout[0]

    with pytest.raises(TypeError, match="'bprop' must return 2 gradients, one per input, but returned 1"):
        ops.grad(lambda x: One()(x, x)[0].sum())(Tensor(X))
