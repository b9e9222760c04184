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


class Weighted(nn.Cell):
    """Reads a Parameter in both directions and writes another one."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(X), name="weight")
        self.calls = Parameter(Tensor(0, ms.int32), name="calls", requires_grad=False)
        self.bias = Parameter(Tensor(X), name="bias")

    def construct(self, x):
        self.calls += 1
        return self.weight * x

    def bprop(self, x, out, dout):
        return dout * self.weight * 10 + 0 * out


class Biased(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inner = Weighted()
        self.bias = Parameter(Tensor(X), name="outer")

    def construct(self, x):
        return (self.inner(x) + self.bias).sum()


@pytest.mark.usefixtures("mode")
def test_parameters_inside_are_read_and_written_and_their_gradients_are_0():
    net = Biased()
    gradient, weights = ops.GradOperation(get_all=True, get_by_list=True)(net, net.trainable_params())(Tensor(X))
    np.testing.assert_array_equal(gradient[0].asnumpy(), 10 * X)
    found = {
        parameter.name: value.asnumpy().tolist()
        for parameter, value in zip(net.trainable_params(), weights, strict=True)
    }
    assert found == {"inner.weight": [0, 0], "inner.bias": [0, 0], "outer": [1, 1]}
    assert net.inner.calls.asnumpy() == 1
    np.testing.assert_array_equal(net.inner(Tensor(X)).asnumpy(), X * X)
    assert net.inner.calls.asnumpy() == 2


class Nested(nn.Cell):
    def construct(self, pair, nothing=None):
        return pair[0] * pair[1], {"sum": pair[0] + pair[1], "name": "a constant"}

    def bprop(self, pair, nothing, out, dout):
        assert out[1]["name"] == "a constant"
        return (dout[0] * 7, dout[1]["sum"] * 5), None


@pytest.mark.usefixtures("mode")
def test_inputs_and_results_may_be_containers():
    def loss(x, y):
        product, rest = Nested()((x, y))
        return (product + 10 * rest["sum"]).sum()

    np.testing.assert_array_equal(
        np.stack([g.asnumpy() for g in ops.grad(loss, (0, 1))(Tensor(X), Tensor(X))]), [[7, 7], [50, 50]]
    )


@pytest.mark.usefixtures("mode")
def test_second_derivatives_go_through_it():
    class Cubes(nn.Cell):
        def construct(self, x):
            return x * x * x

        def bprop(self, x, out, dout):
            return (dout * 7 * x,)

    np.testing.assert_array_equal(ops.grad(ops.grad(Cubes()))(Tensor(X)).asnumpy(), [7, 7])


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("setting", ["recompute", "to_float"])
def test_marks_of_the_cell_hold(setting):
    net = AfterDense()
    net.squares.recompute() if setting == "recompute" else net.squares.to_float(ms.float16)
    gradient = ms.grad(net, None, net.trainable_params())(Tensor(X))
    np.testing.assert_array_equal(gradient[0].asnumpy(), 7 * np.stack([X, X]))


@pytest.fixture(
    params=[
        {"parallel_mode": "semi_auto_parallel"},
        {"parallel_mode": "auto_parallel", "search_mode": "dynamic_programming"},
    ]
)
def parallel_mode(request):
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(device_num=8, **request.param)
    yield
    ms.reset_auto_parallel_context()


@pytest.mark.usefixtures("parallel_mode")
def test_eight_devices_pass_the_gradients_of_one():
    class Strategy(AfterDense):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(8, 8, weight_init="ones", has_bias=False)
            self.dense.matmul.shard(((4, 1), (2, 1)))
            self.squares = Squares()

    x, net = np.arange(64.0, dtype=np.float32).reshape(8, 8), Strategy()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), learning_rate=0.5))
    loss = step(Tensor(x))
    assert loss.asnumpy() == pytest.approx(float((6 * (x.sum(1, keepdims=True) ** 2).repeat(8, 1) / 2).sum()))
    np.testing.assert_allclose(net.dense.weight.asnumpy(), 1 - 0.5 * 7 * np.tile(x.sum(0), (8, 1)))


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        (lambda dout: dout, "must return 2 gradients, one per input, but returned 1"),
        (
            lambda dout: (dout, dout[:1]),
            r"must return gradients of the shapes \[\(2,\)\] for input 1, but got \[\(1,\)\]",
        ),
        (
            lambda dout: (dout, (dout, dout)),
            r"must return gradients of the shapes \[\(2,\)\] for input 1, but got \[\(2,\), \(2,\)\]",
        ),
    ],
)
def test_gradients_that_do_not_fit_the_inputs_are_refused(gradients, message):
    class Wrong(Pair):
        def bprop(self, x, y, out, dout):
            return gradients(dout[0])

    with pytest.raises(RuntimeError, match=f"For 'Wrong', 'bprop' {message}"):
        ops.grad(lambda x: Wrong()(x, x)[0].sum())(Tensor(X))
