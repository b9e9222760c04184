"""What code may read of constants while a step is being compiled."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.runtime.state import trace_constants

X = Tensor([1.0, 2.0, 3.0])


def values(function, *inputs):
    """The result of a compiled function as lists."""
    return ms.jit(function)(*inputs).asnumpy().tolist()


CONSTANTS = [
    lambda x: Tensor([1, 2, 3]),
    lambda x: Tensor([1, 2, 3]) * 2 - Tensor(np.array([1, 2, 3])),
    lambda x: Tensor([1.5, 2.5, 3.5]).astype(ms.int64),
    lambda x: ops.stack([Tensor(1), Tensor(2), Tensor(3)]),
    lambda x: Tensor([Tensor(1), Tensor(2), Tensor(3)]),
    lambda x: Tensor([0, 1, 2, 3])[1:],
    lambda x: Tensor([3, 2, 1])[Tensor([2, 1, 0])],
    lambda x: ops.arange(1, 4),
    lambda x: ops.split(Tensor([1, 2, 3, 9]), [3, 1])[0],
    lambda x: ops.Add()(Tensor([0, 1, 2]), 1),
    lambda x: Tensor(Tensor([1, 2, 3]), ms.int64),
]


@pytest.mark.parametrize("make", CONSTANTS)
def test_constants_show_their_values(make):
    def function(x):
        constant = make(x)
        assert constant.asnumpy().tolist() == constant.tolist() == [1, 2, 3]
        assert [int(entry) for entry in constant] == [1, 2, 3]
        assert constant[1].item() == 2
        assert str(constant) == "[1 2 3]"
        return x + constant

    assert values(function, X) == [2.0, 4.0, 6.0]


def test_decisions_on_constants_are_pythons():
    def function(x):
        mask = Tensor([3, 1, 2]) > 1
        assert mask.any()
        return x[mask]  # the number of hits is a shape

    code = function.__code__
    assert values(function, X) == [1.0, 3.0]
    assert function.__code__ is code


@pytest.mark.parametrize(
    "make", [lambda x, p: x + 1, lambda x, p: x * Tensor(0.0), lambda x, p: p * 1, lambda x, p: ops.rand(3)]
)
def test_what_depends_on_inputs_parameters_or_chance_is_no_constant(make):
    parameter = Parameter(Tensor([1.0, 1.0, 1.0]), name="p")
    seen = []

    def function(x):
        result = make(x, parameter)
        seen.append(trace_constants.known(result.array))
        return result

    ms.jit(function)(X)
    assert seen
    assert all(item is None for item in seen)


def test_constants_inside_gradients_branches_and_planned_steps():
    class Net(nn.Cell):
        def construct(self, x):
            count = Tensor([2, 1]).max()
            if x.sum() > 0:
                x = x * int(count + 1)
            return x[: int(count)]

    ms.set_context(mode=ms.GRAPH_MODE)
    assert Net()(X).asnumpy().tolist() == [3.0, 6.0]
    assert ms.grad(Net())(X).asnumpy().tolist() == [3.0, 3.0, 0.0]
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    try:
        assert Net()(X).asnumpy().tolist() == [3.0, 6.0]
    finally:
        ms.reset_auto_parallel_context()


def test_values_are_known_inside_eager_gradients(capsys):
    ms.set_context(mode=ms.PYNATIVE_MODE)

    def function(x):
        y = x * 2
        print(y)
        assert y.asnumpy().tolist() == [2.0, 4.0, 6.0]
        assert "4.00000000e+00" in repr(y)
        return y.sum()

    assert ms.grad(function)(X).asnumpy().tolist() == [2.0, 2.0, 2.0]
    assert capsys.readouterr().out == "[2. 4. 6.]\n"
