import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError
from sporax.mindspore import Tensor, ops


def test_mutable_numbers_do_not_compile_again():
    scaled = ms.jit(lambda x, factor: x * factor["by"][0])
    x = Tensor(np.ones(2, np.float32))
    for factor in (2.0, 3.0, 4.0):
        np.testing.assert_array_equal(scaled(x, ms.mutable({"by": [factor]})).asnumpy(), [factor, factor])
    assert len(ms.recompilations(scaled)) == 1


def test_mutable_bools_are_settings():
    x = Tensor(np.ones((2, 3), np.float32))
    assert ops.mean(x, 0, ms.mutable(True)).shape == (1, 3)
    assert ops.sort(x, descending=ms.mutable(False))[0].shape == (2, 3)
    with pytest.raises(TypeError, match="the type of 'keep_dims' must be bool"):
        ops.mean(x, 0, ms.mutable(1))


def test_mutable_keeps_tensors_and_containers():
    x = Tensor([1.0])
    actual = ms.mutable((x, [True]))
    assert actual[0] is x
    assert isinstance(actual, tuple)
    assert actual[1][0].dtype == ms.bool_


def test_what_cannot_be_mutable():
    with pytest.raises(SporaxTypeError, match="but got str"):
        ms.mutable((1, "a"))
    with pytest.raises(SporaxTypeError, match="'dynamic_len' must be a bool"):
        ms.mutable((1,), 1)
    with pytest.raises(SporaxTypeError, match="must be a tuple or list if 'dynamic_len' is True, but got int"):
        ms.mutable(1, True)


def test_a_list_whose_length_may_change():
    last = ms.jit(lambda items: items[0] + items[-1])
    assert [float(last(ms.mutable([Tensor(1.0), *rest], True))) for rest in ([], [Tensor(2.0)])] == [2, 3]
    assert ms.jit(len)(ms.mutable((1, 2, 3), dynamic_len=True)) == 3


def test_the_old_name_of_jit():
    @ms.ms_function
    def double(x):
        return x * 2

    assert int(double(Tensor(3))) == 6
    assert ms.recompilations(double)


@pytest.mark.parametrize("value", [2, 2.5, True])
def test_mutable_numbers_have_no_gradient(value):
    # The wheel's: eager code leaves them out as it does constants, compiled code gives a zero of Python.
    x, number = Tensor([1.0, 2.0]), ms.mutable(value)
    by_all = ops.GradOperation(get_all=True)(lambda x, factor: x * factor)
    by_both = ms.grad(lambda x, factor: x * factor, (0, 1))
    (eager,) = by_all(x, number)
    assert eager.asnumpy().tolist() == by_both(x, number).asnumpy().tolist() == [value, value]
    for compiled in (by_all, by_both):
        gradient, zero = ms.jit(compiled)(x, number)
        assert gradient.asnumpy().tolist() == [value, value]
        assert (type(zero), zero) == (type(value), 0)
    assert ms.jit(ms.grad(lambda x, factor: x * factor, (0, 1), return_ids=True))(x, number)[1] == (1, 0)
