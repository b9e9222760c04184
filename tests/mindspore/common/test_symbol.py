"""Inputs of open sizes: programs are compiled for Tensors that stand for their shapes, and run with others."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Symbol, Tensor, context, nn, ops


@pytest.fixture(autouse=True)
def _eight_devices():
    mode = context.get_context("mode")
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    yield
    context.reset_auto_parallel_context()
    context.set_context(mode=mode)


def open_sizes(*shape):
    return Tensor(shape=list(shape), dtype=ms.float32)


class Net(nn.Cell):
    def __init__(self, operator, run):
        super().__init__()
        self.operator, self.run = operator, run
        self.weight = ms.Parameter(Tensor(np.ones((16, 16), np.float32)), name="weight")
        self.bias = ms.Parameter(Tensor(np.ones(16, np.float32)), name="bias")

    def construct(self, *inputs):
        return self.run(self, *inputs)


NETS = {
    "element by element": (ops.ReLU().shard(((2, 4),)), lambda net, x: net.operator(x), (None, None)),
    "broadcast": (ops.Add().shard(((8, 1), (1,))), lambda net, x: net.operator(x, net.bias), (None, 16)),
    "reshape": (
        ops.ReLU().shard(((8, 1, 1),)),
        lambda net, x: net.operator(ops.reshape(x, (8, -1, 16))),
        (None, 16),
    ),
    "bias": (ops.BiasAdd().shard(((2, 4), (4,))), lambda net, x: net.operator(ops.matmul(x, net.weight), net.bias), (None, 16)),
    "symbol": (ops.Softmax().shard(((8, 1),)), lambda net, x: net.operator(x), (Symbol(divisor=8), 16)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_a_step_is_compiled_for_open_sizes_and_run_with_others(name):
    operator, run, shape = NETS[name]
    net = Net(operator, run)
    net.set_inputs(open_sizes(*shape))
    net.compile(open_sizes(*shape))
    values = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)
    actual = net(Tensor(values))
    context.reset_auto_parallel_context()
    np.testing.assert_allclose(actual.asnumpy(), net(Tensor(values)).asnumpy(), rtol=1e-5)


def test_an_open_size_stands_for_as_many_as_there_are_devices_where_that_is_not_huge():
    assert open_sizes(None, 3).shape == (8, 3)
    assert open_sizes(Symbol(divisor=16), Symbol(divisor=16, remainder=1)).shape == (16, 17)
    assert open_sizes(Symbol(max=12, divisor=16, remainder=1), Symbol(min=20, divisor=16)).shape == (1, 32)
    assert open_sizes(None, 1 << 22).shape == (1, 1 << 22)
    context.reset_auto_parallel_context()
    assert open_sizes(None, Symbol(min=3, divisor=4)).shape == (1, 4)


class Sum(nn.Cell):
    def construct(self, x, y):
        return x + y


@pytest.mark.parametrize("size", [None, Symbol(divisor=8), Symbol(max=64, divisor=16)])
def test_an_open_size_may_be_that_of_another_input(size):
    given, opened = Tensor(np.ones((64, 4), np.float32)), open_sizes(size, 4)
    if opened.shape[0] not in (1, 64):
        with pytest.raises(ValueError, match="64"):
            Sum()(given, opened)  # its smallest size does not fit
    sum_of_both = Sum()
    assert sum_of_both.compile(given, opened) is None
    assert opened.shape != given.shape  # what describes the input is as before


@pytest.mark.parametrize("size", [Symbol(max=32, divisor=8), Symbol(divisor=24)])
def test_sizes_of_which_none_fits_raise_the_error_of_the_smallest(size):
    with pytest.raises(ValueError, match=f"{size.divisor}, 4"):
        Sum().compile(Tensor(np.ones((64, 4), np.float32)), open_sizes(size, 4))


@pytest.mark.parametrize("arguments", [{"shape": None}, {}, {"input_data": None}])
def test_an_input_may_have_any_number_of_dimensions(arguments):
    net = nn.ReLU()
    net.set_inputs(Tensor(**arguments, dtype=ms.float32))
    for shape in ((2,), (3, 2)):
        np.testing.assert_array_equal(net(Tensor(-np.ones(shape, np.float32))).asnumpy(), np.zeros(shape))
    with pytest.raises(TypeError, match="NoneType"):
        Tensor(shape=None)


X = np.ones((16, 2), np.float32)
PAIR = Symbol(unique=True)
#: Shapes that inputs are described by, inputs that are refused, and what the message says.
REFUSED = {
    "divisor": ([[Symbol(divisor=8), 2]], [X[:9]], r"input 0 must be Float32\[Symbol\(.*divisor=8.*\), 2\].*got Float32\[9, 2\]"),
    "remainder": ([[Symbol(divisor=8, remainder=1), 2]], [X], "remainder=1"),
    "max": ([[Symbol(max=4), 2]], [X], "max=4"),
    "min": ([[Symbol(min=20), 2]], [X], "min=20"),
    "unique": ([[PAIR, 2], [PAIR, 2]], [X, X[:3]], "input 1 must be .*unique=True"),
    "dimension": ([[None, 3]], [X], r"must be Float32\[None, 3\] by 'set_inputs', but got Float32\[16, 2\]"),
    "rank": ([[None, 2]], [X[0]], "but got Float32"),
    "size": ([[8, 2]], [X], "but got Float32"),
    "number": ([[None, 2], None], [X], "names 2 tensors, but the call has 1"),
}  # fmt: skip


def summed(*shapes, inputs):
    net = Net(None, lambda net, *inputs: sum(value.sum() for value in inputs))
    described = [Tensor(shape=shape, dtype=ms.float32) for shape in shapes]
    net.set_inputs(*described)
    return float(net(*map(Tensor, inputs)))


@pytest.mark.parametrize("name", REFUSED)
def test_inputs_of_other_shapes_than_set_are_refused(name):
    shapes, inputs, message = REFUSED[name]
    context.reset_auto_parallel_context()
    with pytest.raises(ValueError, match=message):
        summed(*shapes, inputs=inputs)


def test_inputs_of_the_shapes_that_are_set():
    context.reset_auto_parallel_context()
    assert summed([Symbol(divisor=8), 2], None, inputs=[X, X[0]]) == 34
    assert summed([PAIR, 2], [PAIR, None], inputs=[X, X]) == 64
    assert summed([Symbol(), 2], [Symbol(), 2], inputs=[X, X[:3]]) == 38
    with pytest.raises(TypeError, match=r"input 0 must be Float32\[None, 2\] by 'set_inputs', but got Int32\[16, 2\]"):
        summed([None, 2], inputs=[X.astype(np.int32)])
    signature = Tensor(shape=[Symbol(divisor=8), 2], dtype=ms.float32)
    double = ms.jit(lambda x: x * 2, input_signature=signature)
    assert double(Tensor(X)).shape == (16, 2)
    with pytest.raises(ValueError, match=r"divisor=8.* by 'input_signature', but got Float32\[9, 2\]"):
        double(Tensor(X[:9]))
