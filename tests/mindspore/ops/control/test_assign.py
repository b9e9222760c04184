"""Operators that write Parameters, and printing."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import ops


@pytest.fixture
def weight():
    return ms.Parameter(ms.Tensor([1.0, 2.0]), name="weight")


def test_assignments_change_the_parameter(weight):
    assert ops.assign(weight, ms.Tensor([5.0, 6.0])) is weight
    ops.assign_add(weight, 1)
    ops.AssignSub()(weight, ms.Tensor([1.0, 2.0]))
    np.testing.assert_array_equal(weight.asnumpy(), [5, 5])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("assign", "expected"), [(ops.assign, [4, 5]), (ops.assign_add, [5, 7]), (ops.AssignSub(), [-3, -3])]
)
def test_tensors_are_assigned_to_as_in_mindspore(assign, expected, compiled):
    def step(x, value):
        local = x * 1
        return assign(local, value), local

    x, value = ms.Tensor([1.0, 2.0]), ms.Tensor([4, 5])
    results = (ms.jit(step) if compiled else step)(x, value)
    assert [result.asnumpy().tolist() for result in results] == [expected] * 2
    assert x.asnumpy().tolist() == [1, 2]
    assign(x, value)
    assert x.asnumpy().tolist() == expected
    assert x.dtype == ms.float32


def test_the_dtype_stays(weight):
    ops.assign(weight, ms.Tensor([7, 8]))
    assert weight.dtype == ms.float32


def test_assignments_in_compiled_functions_change_the_parameter(weight):
    step = ms.jit(lambda x: ops.assign_add(weight, x) * 2)
    np.testing.assert_array_equal(step(ms.Tensor([1.0, 1.0])).asnumpy(), [4, 6])
    np.testing.assert_array_equal(weight.asnumpy(), [2, 3])


def test_a_value_assigned_stays_usable(weight):
    value = ms.Tensor([3.0, 4.0])
    ops.assign(weight, value)
    ms.jit(lambda: ops.assign_add(weight, 1))()  # gives the Parameter's buffer away
    np.testing.assert_array_equal(value.asnumpy(), [3, 4])


def test_arguments_that_do_not_fit_are_refused(weight):
    with pytest.raises(TypeError, match="For 'AssignAdd', 'variable' must be a Parameter or a Tensor, but got list"):
        ops.assign_add([1.0], 1)
    with pytest.raises(ValueError, match=r"one shape, but got \(2,\) and \(3,\)"):
        ops.assign(weight, ms.Tensor([1.0, 2.0, 3.0]))


def test_print_shows_values_also_from_compiled_functions(capfd):
    ops.Print()("value {}:", ms.Tensor([1, 2]))
    ms.jit(lambda x: ops.print_(x, "done"))(ms.Tensor([3]))
    assert capfd.readouterr().out.split("\n")[:4] == ["value {}:", "[1 2]", "[3]", "done"]
