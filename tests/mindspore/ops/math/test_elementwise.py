"""Elementwise operators against numpy: values, gradients, broadcasting, conversions, errors."""

import numpy as np
import pytest
import scipy.special
from against_numpy import check, numbers
from hypothesis import given, settings, strategies as st

import sporax.mindspore as ms
from sporax.mindspore import ops

# name of the function, reference, range of the inputs
UNARY = [
    ("abs", np.abs, (-2, 2)),
    ("neg", np.negative, (-2, 2)),
    ("square", np.square, (-2, 2)),
    ("exp", np.exp, (-2, 2)),
    ("expm1", np.expm1, (-2, 2)),
    ("log", np.log, (0.1, 3)),
    ("log1p", np.log1p, (-0.9, 3)),
    ("sqrt", np.sqrt, (0.1, 3)),
    ("rsqrt", lambda x: 1 / np.sqrt(x), (0.1, 3)),
    ("reciprocal", np.reciprocal, (0.2, 3)),
    ("sin", np.sin, (-2, 2)),
    ("cos", np.cos, (-2, 2)),
    ("tan", np.tan, (-1, 1)),
    ("asin", np.arcsin, (-0.9, 0.9)),
    ("acos", np.arccos, (-0.9, 0.9)),
    ("atan", np.arctan, (-2, 2)),
    ("sinh", np.sinh, (-2, 2)),
    ("cosh", np.cosh, (-2, 2)),
    ("tanh", np.tanh, (-2, 2)),
    ("asinh", np.arcsinh, (-2, 2)),
    ("acosh", np.arccosh, (1.2, 3)),
    ("atanh", np.arctanh, (-0.9, 0.9)),
    ("erf", scipy.special.erf, (-2, 2)),
    ("erfc", scipy.special.erfc, (-2, 2)),
    ("erfinv", scipy.special.erfinv, (-0.9, 0.9)),
]
STEPS = [
    ("sign", np.sign),
    ("floor", np.floor),
    ("ceil", np.ceil),
    ("trunc", np.trunc),
    ("round", np.round),
    ("rint", np.rint),
    ("logical_not", np.logical_not),
    ("isfinite", np.isfinite),
    ("isnan", np.isnan),
    ("isinf", np.isinf),
]
BINARY = [
    ("add", np.add),
    ("sub", np.subtract),
    ("mul", np.multiply),
    ("div", np.divide),
    ("true_divide", np.divide),
    ("maximum", np.maximum),
    ("minimum", np.minimum),
    ("atan2", np.arctan2),
    ("squared_difference", lambda x, y: (x - y) ** 2),
    ("floor_mod", np.mod),
    ("remainder", np.remainder),
    ("fmod", np.fmod),
]
COMPARISONS = [
    ("equal", np.equal),
    ("not_equal", np.not_equal),
    ("less", np.less),
    ("less_equal", np.less_equal),
    ("greater", np.greater),
    ("greater_equal", np.greater_equal),
    ("logical_and", np.logical_and),
    ("logical_or", np.logical_or),
    ("logical_xor", np.logical_xor),
    ("floor_div", np.floor_divide),
]


def function(name):
    return getattr(ops, name)


@pytest.mark.parametrize(("name", "reference", "bounds"), UNARY, ids=[row[0] for row in UNARY])
def test_unary_functions_and_gradients_equal_numpy(name, reference, bounds):
    check(function(name), reference, numbers(2, 3, low=bounds[0], high=bounds[1]), rtol=1e-7)


@pytest.mark.parametrize(("name", "reference"), STEPS, ids=[row[0] for row in STEPS])
def test_steps_and_predicates(name, reference):
    values = np.array([[-1.5, -0.5, 0.0], [0.5, 2.5, np.inf]])
    check(function(name), reference, values, gradient=False)


@pytest.mark.parametrize(("name", "reference"), BINARY, ids=[row[0] for row in BINARY])
def test_binary_broadcasts(name, reference):
    check(function(name), reference, numbers(2, 3), numbers(3, seed=1) + 0.013)


@pytest.mark.parametrize(("name", "reference"), COMPARISONS, ids=[row[0] for row in COMPARISONS])
def test_comparisons_broadcast_as_in_numpy(name, reference):
    left, right = np.array([[1.0, -2.0, 0.0], [3.0, 3.0, -1.0]]), np.array([1.0, 3.0, -1.0])
    check(function(name), reference, left, right, gradient=False)


@pytest.mark.parametrize(("name", "symbol"), [("bitwise_and", "&"), ("bitwise_or", "|"), ("bitwise_xor", "^")])
def test_bitwise_operators_take_integers_alone(name, symbol):
    left, right = np.array([12, 10, -1]), np.array([10, 3, 6])
    result = function(name)(ms.Tensor(left), ms.Tensor(right))
    expected = eval(f"left {symbol} right", {"left": left, "right": right})
    np.testing.assert_array_equal(result.asnumpy(), expected)
    with pytest.raises(TypeError, match="must be integers or bools, but got Float32"):
        function(name)(ms.Tensor([1.0]), ms.Tensor([1.0]))


@pytest.mark.parametrize("exponent", [2, 3, 0, -1, 0.5, True])
def test_power_of_a_number(exponent):
    check(lambda x: ops.pow(x, exponent), lambda x: x**exponent, numbers(2, 3, low=0.2, high=2), gradient=exponent != 0)


def test_power_of_a_tensor():
    check(ops.pow, np.power, numbers(2, 3, low=0.2, high=2), numbers(3))
    check(lambda y: 2.0**y, lambda y: 2.0**y, numbers(3))


@pytest.mark.parametrize(("mode", "reference"), [("floor", np.floor_divide), ("trunc", lambda x, y: np.trunc(x / y))])
def test_rounded_division(mode, reference):
    left, right = np.array([7.0, -7.0, 7.5]), np.array([2.0, 2.0, -2.0])
    result = ops.div(ms.Tensor(left), ms.Tensor(right), rounding_mode=mode)
    np.testing.assert_array_equal(result.asnumpy(), reference(left, right))
    whole = ops.div(ms.Tensor([7, -7]), ms.Tensor([2]), rounding_mode=mode)
    assert whole.dtype == ms.int64
    np.testing.assert_array_equal(whole.asnumpy(), reference(np.array([7, -7]), 2))


def test_where_select_and_masked_fill_choose_by_mask():
    mask = np.array([True, False, True])
    for name in ("where", "select"):
        check(function(name), np.where, mask, numbers(2, 3), numbers(3, seed=1))
    check(lambda x, m: ops.masked_fill(x, m, 0.5), lambda x, m: np.where(m, 0.5, x), numbers(2, 3), mask)


def test_clamp_takes_one_or_two_limits():
    for name in ("clamp", "clip_by_value"):
        check(lambda x, name=name: function(name)(x, -0.51, 1.01), lambda x: np.clip(x, -0.51, 1.01), numbers(2, 3))
        check(lambda x, name=name: function(name)(x, None, 0.51), lambda x: np.minimum(x, 0.51), numbers(2, 3))
    np.testing.assert_array_equal(ops.clamp(ms.Tensor([1, 5, 9]), 2.9, 7).asnumpy(), [2, 5, 7])
    both = ms.jit(lambda x, low: ops.clip_by_value((x, x + 3), low, 8))(ms.Tensor([1.0, 7.0]), ms.Tensor(2.0))
    assert [each.asnumpy().tolist() for each in both] == [[2, 7], [4, 8]]


def test_addn_adds_all_its_inputs():
    check(lambda x, y, z: ops.addn((x, y, z)), lambda x, y, z: x + y + z, *(numbers(2, 3, seed=s) for s in range(3)))


def test_derivatives_at_kinks():
    grads = [
        (ops.abs, [0.0], 0.0),
        (ops.relu, [0.0], 0.0),
        (lambda x: ops.maximum(x, ms.Tensor([1.0])), [1.0], 0.5),
        (lambda x: ops.clamp(x, 0.0, 1.0), [1.0], 1.0),
        (ops.reduce_max, [2.0, 2.0], 0.5),
    ]
    for operator, point, expected in grads:
        np.testing.assert_array_equal(ms.grad(operator)(ms.Tensor(point)).asnumpy(), np.full(len(point), expected, "f"))


SIZES = st.sampled_from([0, 1, 2])


@settings(max_examples=15, deadline=None)
@given(shape=st.lists(SIZES, max_size=3), drop=st.integers(0, 3), ones=st.lists(st.booleans(), min_size=3, max_size=3))
def test_broadcasting_is_that_of_numpy(shape, drop, ones):
    """Any shapes that fit, also empty and 0-d ones; the gradient of each operand has its shape."""
    other = [1 if flag else size for flag, size in zip(ones, shape, strict=False)][drop:]
    left, right = np.full(shape, 2.0, np.float32), np.full(other, 3.0, np.float32)
    result = ops.add(ms.Tensor(left), ms.Tensor(right))
    np.testing.assert_array_equal(result.asnumpy(), left + right)
    grads = ms.grad(ops.add, (0, 1))(ms.Tensor(left), ms.Tensor(right))
    assert [grad.shape for grad in grads] == [left.shape, right.shape]
    assert all(
        (grad.asnumpy() * value.size == result.size).all() for grad, value in zip(grads, (left, right), strict=True)
    )


@pytest.mark.parametrize("name", ["add", "less", "bitwise_and", "logical_or", "where"])
def test_shapes_that_do_not_broadcast(name):
    left, right = ms.Tensor(np.ones((2, 3), bool)), ms.Tensor(np.ones((2,), bool))
    arguments = (left, left, right) if name == "where" else (left, right)
    with pytest.raises(ValueError, match=r"need to broadcast, but got .*\(2, 3\).*\(2,\)"):
        function(name)(*arguments)


def test_refused_operands():
    x = ms.Tensor([1.0])
    for wrong in ("a", None, {}, np.ones(1, np.float32)):
        with pytest.raises(TypeError, match="For 'Add'"):
            ops.add(x, wrong)
        with pytest.raises(TypeError, match=r"For 'Tensor\.__add__'"):
            _ = x + wrong
    with pytest.raises(TypeError, match=r"Tensor\[UInt16\] and Tensor\[Int32\]"):
        _ = ms.Tensor([1], ms.uint16) + ms.Tensor([1], ms.int32)
    with pytest.raises(ValueError, match="at least one of 'min' and 'max'"):
        ops.clamp(x)
    with pytest.raises(TypeError, match=r"'mask' must be Tensor\[Bool\], but got Int64"):
        ops.masked_fill(x, ms.Tensor([1]), 0.0)
    with pytest.raises(ValueError, match=r"'rounding_mode' must be one of .*'floor', 'trunc'.*, but got 'up'"):
        ops.div(x, x, rounding_mode="up")


def test_python_operators():
    x = ms.Tensor([1.0, -2.0])
    values = x.asnumpy()
    pairs = [
        (x + 2, values + 2), (2 + x, values + 2), (2 - x, 2 - values), (x * [2, 3], values * [2, 3]),
        (x / 4, values / 4), (4 / x, 4 / values), (7 // x, 7 // values), (x % 3, values % 3), (2**x, 2**values),
        (-x, -values), (+x, values), (abs(x), abs(values)), (x > 0, values > 0), (x == x, values == values),
        (x != 1, values != 1), (x @ x, values @ values), (~(x > 0), ~(values > 0)),
    ]  # fmt: skip
    for ours, expected in pairs:
        np.testing.assert_allclose(ours.asnumpy(), expected)
    assert (x == "a") is False
    assert (x != None) is True  # noqa: E711 - the operator is what is tested
    np.testing.assert_array_equal(np.ones(2) + x, values + 1)
