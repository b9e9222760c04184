"""`ops.Custom`: Python functions of numpy arrays as operators."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops, set_context
from sporax.mindspore.ops import Custom, CustomRegOp, DataType

X, Y = Tensor([[0.0, 0.0], [1.0, 1.0]]), Tensor([[2.0, 2.0], [3.0, 3.0]])


def add(a, b):
    return a + b


def both(a, b):
    return a + b, a - b


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.both = Custom(both, lambda a, b: (a, b), lambda a, b: (a, b), "pyfunc")

    def construct(self, a, b):
        total, difference = self.both(a, b)
        return total * difference


@pytest.mark.parametrize("mode", [0, 1])
def test_results(mode):
    set_context(mode=mode)
    same_as_first = Custom(add, lambda a, _: a, lambda a, _: a)
    np.testing.assert_array_equal(same_as_first(X, Y).asnumpy(), [[2, 2], [4, 4]])
    np.testing.assert_array_equal(Custom(add, [2, 2], ms.float32)(X, Y).asnumpy(), [[2, 2], [4, 4]])
    np.testing.assert_array_equal(Net()(X, Y).asnumpy(), [[-4, -4], [-8, -8]])
    total = Custom(lambda a: a.sum(), (), ms.float32)(Y)
    assert total.shape == (1,) and float(total) == 10
    (old,) = ops.PyFunc(add, [ms.float32] * 2, [(2, 2)] * 2, [ms.float32], [(2, 2)])(X, Y)
    np.testing.assert_array_equal(old.asnumpy(), [[2, 2], [4, 4]])


def test_the_function_gets_arrays_that_it_may_write_to():
    def double(a):
        a *= 2
        return a

    np.testing.assert_array_equal(Custom(double, (2, 2), ms.float32)(Y).asnumpy(), [[4, 4], [6, 6]])
    np.testing.assert_array_equal(Y.asnumpy(), [[2, 2], [3, 3]])


@pytest.mark.parametrize("mode", [0, 1])
def test_gradients_are_those_of_bprop(mode):
    set_context(mode=mode)
    square = Custom(lambda a, n: a * a, lambda a, n: a, lambda a, n: a, bprop=lambda a, n, out, dout: (dout * n * a, n))

    class Loss(nn.Cell):
        def construct(self, a, n):
            return (square(a, n) * 3).sum()

    by_a = ms.grad(Loss())(Y, Tensor(2, ms.int32))
    np.testing.assert_array_equal(by_a.asnumpy(), [[12, 12], [18, 18]])


def test_numbers_stay_numbers_and_have_no_gradients():
    # As a tensor the number would make float64 of the product. `bprop` may answer for it in any shape.
    scaled = Custom(lambda a, n: a * n, lambda a, n: a, lambda a, n: a, bprop=lambda a, n, out, dout: (dout * n, dout))
    np.testing.assert_array_equal(ms.grad(lambda a: scaled(a, 3).sum())(Y).asnumpy(), [[3, 3], [3, 3]])


def test_bprop_of_several_results():
    def bprop(a, b, out, dout):
        return dout[0] + dout[1] + out[0] * 0, dout[0] - dout[1]

    pair = Custom(both, ((2, 2), (2, 2)), (ms.float32, ms.float32), bprop=bprop)
    by_a, by_b = ms.grad(lambda a, b: (pair(a, b)[0] * 2 + pair(a, b)[1]).sum(), (0, 1))(X, Y)
    np.testing.assert_array_equal(by_a.asnumpy(), [[3, 3], [3, 3]])
    np.testing.assert_array_equal(by_b.asnumpy(), [[1, 1], [1, 1]])


@pytest.mark.parametrize("kind", ["hybrid", "akg", "tbe", "aicpu", "aot"])
def test_other_kinds_say_what_is_offered(kind):
    with pytest.raises(NotImplementedError, match="For 'Custom', 'func_type' must be 'pyfunc'"):
        Custom(add, (2, 2), ms.float32, kind)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: Custom(add, (2, 2), ms.float32, "foo"), ValueError, "must be one of"),
        (lambda: Custom("a.so:f", (2, 2), ms.float32), TypeError, "must be callable"),
        (lambda: Custom(add)(X, Y), TypeError, "'out_shape' must be"),
        (lambda: Custom(add, (2, 2), 3)(X, Y), TypeError, "'out_dtype' must be"),
        (lambda: Custom(both, ((2, 2),), (ms.float32, ms.float32))(X, Y), ValueError, "a shape and a dtype for each"),
        (
            lambda: ms.grad(lambda a: Custom(np.sin, (2, 2), ms.float32)(a).sum())(X),
            RuntimeError,
            "'bprop' must be given",
        ),
        (lambda: ops.CustomOpBuilder("my_op", ["a.cc"]), NotImplementedError, "not offered"),
        (lambda: CustomRegOp(1), ValueError, "must be a string"),
        (lambda: CustomRegOp().input("0"), TypeError, "'index' of inputs must be int"),
        (lambda: CustomRegOp().input(0, "x").dtype_format(), ValueError, "each of 1 inputs"),
    ],
)
def test_what_does_not_fit_is_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_errors_of_the_function_reach_the_caller():
    with pytest.raises(ZeroDivisionError):
        Custom(lambda a: 1 / 0, (2, 2), ms.float32)(X)


def test_without_results_the_function_runs_for_its_effect():
    seen = []
    assert Custom(lambda a: seen.append(a.sum()), (), ())(Y) is None
    assert seen == [10]


@pytest.mark.parametrize("func", [lambda a: a[:1], lambda a: a.astype(np.float64), lambda a: (a, a)])
def test_results_of_another_form_are_refused(func):
    with pytest.raises(Exception, match="For 'Custom', the function must return"):
        Custom(func, (2, 2), ms.float32)(X).asnumpy()


def test_registration_is_carried_along():
    info = (
        CustomRegOp("k").input(0, "x").output(0, "y").dtype_format(DataType.F32_Default, DataType.F16_NCHW)
        .attr("a", "required", "int").target("CPU").get_op_info()
    )  # fmt: skip
    assert info == {
        "op_name": "k", "inputs": [{"index": 0, "name": "x", "paramType": "required"}],
        "outputs": [{"index": 0, "name": "y", "paramType": "required"}],
        "attr": [{"name": "a", "paramType": "required", "type": "int"}], "fusion_type": "",
        "dtype_format": [(("float32", "DefaultFormat"), ("float16", "NCHW"))], "target": "CPU",
    }  # fmt: skip
    assert ops.custom_info_register(info)(add)(1, 2) == 3
    assert ops.custom_info_register(info)(add).reg_info == [info]
    assert DataType.None_None == ("", "")
