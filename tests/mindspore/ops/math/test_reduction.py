"""Reductions against numpy."""

import itertools

import numpy as np
import pytest
from against_numpy import check, numbers
from hypothesis import given, settings, strategies as st

import sporax.mindspore as ms
from sporax.mindspore import mint, ops

REDUCTIONS = [
    ("ReduceSum", np.sum),
    ("ReduceMean", np.mean),
    ("ReduceMax", np.max),
    ("ReduceMin", np.min),
    ("ReduceProd", np.prod),
]
AXES = [((), False), (0, True), (-1, False), ((0, -1), True)]


def over(reference, axis, keep):
    return lambda x: reference(x, axis=None if axis == () else axis, keepdims=keep)


@pytest.mark.parametrize(("name", "reference"), REDUCTIONS, ids=[row[0] for row in REDUCTIONS])
@pytest.mark.parametrize(("axis", "keep"), AXES)
def test_reduce_family(name, reference, axis, keep):
    check(lambda x: getattr(ops, name)(keep)(x, axis), over(reference, axis, keep), numbers(2, 3, 2))


@pytest.mark.parametrize(
    ("name", "reference"), [("sum", np.sum), ("mean", np.mean), ("prod", np.prod), ("var", np.var), ("std", np.std)]
)
@pytest.mark.parametrize(("axis", "keep"), [(None, False), (-1, True)])
def test_reductions_and_gradients_equal_numpy(name, reference, axis, keep):
    keyword = "keepdim" if name == "sum" else "keepdims" if name in ("var", "std") else "keep_dims"
    check(lambda x: getattr(ops, name)(x, axis, **{keyword: keep}), over(reference, axis, keep), numbers(2, 3))


def test_degrees_of_freedom():
    for ddof, call in ((1, ops.var), (2, ops.var), (1, ops.std)):
        reference = np.var if call is ops.var else np.std
        check(lambda x, c=call, d=ddof: c(x, 1, d), lambda x, r=reference, d=ddof: r(x, 1, ddof=d), numbers(2, 4))
    check(lambda x: mint.var(x, 1), lambda x: np.var(x, 1, ddof=1), numbers(2, 4), gradient=False)
    check(lambda x: mint.std(x, correction=0), np.std, numbers(2, 4), gradient=False)


def test_all_and_any_reduce_truth_values():
    values = np.array([[1.0, 0.0], [2.0, 3.0]])
    for name, reference in (("all", np.all), ("any", np.any)):
        result = getattr(ops, name)(ms.Tensor(values), 1)
        np.testing.assert_array_equal(result.asnumpy(), reference(values, 1))
        cell = getattr(ops, f"Reduce{name.capitalize()}")()(ms.Tensor(values != 0), ())
        assert bool(cell) == reference(values)


def test_reductions_widen_dtypes_as_mindspore_does():
    small, flags = ms.Tensor([1, 2], ms.int8), ms.Tensor([True, True])
    assert ops.ReduceSum()(small).dtype == ms.int8
    assert ops.sum(small).dtype == ops.sum(flags).dtype == ops.prod(small).dtype == ms.int64
    assert ops.sum(small, dtype=ms.float32).dtype == ms.float32
    assert int(ops.mean(small)) == 1  # cut to a whole number, as in MindSpore
    assert float(ops.mean(flags)) == 1.0
    assert ops.argmax(small).dtype == ops.max(small)[1].dtype == ms.int64
    assert ops.argmin(small).dtype == ops.Argmax()(small).dtype == ms.int32
    assert ops.Argmax(output_type=ms.int64)(small).dtype == ms.int64


def test_extrema_come_with_their_positions():
    values = numbers(3, 4)
    for name, reference in (("argmax", np.argmax), ("argmin", np.argmin)):
        np.testing.assert_array_equal(getattr(ops, name)(ms.Tensor(values)).asnumpy(), reference(values))
        np.testing.assert_array_equal(getattr(ops, name)(ms.Tensor(values), -1).asnumpy(), reference(values, 1))
    check(lambda x: ops.max(x, 1)[0], lambda x: x.max(1), values)
    check(lambda x: ops.ArgMinWithValue(0, True)(x)[1], lambda x: x.min(0, keepdims=True), values)
    largest, where = ops.max(ms.Tensor(values), 1, keepdims=True)
    np.testing.assert_array_equal(np.take_along_axis(values, where.asnumpy(), 1), largest.asnumpy())
    whole, zero = ops.min(ms.Tensor(values))
    assert (float(whole), int(zero)) == (values.min(), 0)


def test_a_tie_is_decided_for_the_first():
    index, value = ops.ArgMaxWithValue(0)(ms.Tensor([1.0, 2.0, 2.0]))
    assert (int(index), float(value)) == (1, 2.0)
    grad = ms.grad(lambda x: ops.ArgMaxWithValue(0)(x)[1])(ms.Tensor([1.0, 2.0, 2.0]))
    np.testing.assert_array_equal(grad.asnumpy(), [0, 1, 0])


def test_extremes_with_a_start():
    x = ms.Tensor([[1.0, 5.0], [2.0, 3.0]])
    np.testing.assert_array_equal(ops.max(x, 1, initial=4.0)[0].asnumpy(), [5, 4])
    mask = ms.Tensor([[True, False], [True, True]])
    np.testing.assert_array_equal(x.max(axis=1, initial=0.0, where=mask).asnumpy(), [1, 3])
    np.testing.assert_array_equal(x.min(axis=1, initial=9.0, where=mask).asnumpy(), [1, 2])
    with pytest.raises(ValueError, match="'where' needs an 'initial' value"):
        ops.max(x, 1, where=mask)


def test_running_sums():
    values = numbers(2, 3)
    check(lambda x: ops.cumsum(x, -1), lambda x: np.cumsum(x, 1), values)
    for exclusive, reverse in itertools.product((False, True), repeat=2):

        def reference(x, exclusive=exclusive, reverse=reverse):
            x = x[:, ::-1] if reverse else x
            total = np.cumsum(x, 1) - x if exclusive else np.cumsum(x, 1)
            return total[:, ::-1] if reverse else total

        check(lambda x, e=exclusive, r=reverse: ops.CumSum(e, r)(x, 1), reference, values)


def test_reductions_as_tensor_methods():
    values = np.arange(6.0).reshape(2, 3)
    x = ms.Tensor(values)
    assert float(x.sum(initial=1)) == 16
    np.testing.assert_array_equal(x.sum(0, ms.int32, True).asnumpy(), [[3, 5, 7]])
    np.testing.assert_array_equal(x.max(axis=1, keepdims=True).asnumpy(), [[2], [5]])
    np.testing.assert_array_equal(x.argmax(axis=1, keepdims=True).asnumpy(), [[2], [2]])
    np.testing.assert_allclose(x.std(1, 1).asnumpy(), values.std(1, ddof=1))
    assert [int(part) for part in x.max(axis=None, return_indices=True)] == [5, 0]


@settings(max_examples=12, deadline=None)
@given(data=st.data(), shape=st.sampled_from([(), (0,), (2, 3), (2, 0, 3)]))
def test_any_axes_of_any_shape(data, shape):
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True)) if shape else []
    axis = tuple(ax - len(shape) if data.draw(st.booleans()) else ax for ax in axes)
    values = np.ones(shape, np.float32)
    expected = np.sum(values, axis=axis or None, keepdims=True)
    np.testing.assert_array_equal(ops.ReduceSum(True)(ms.Tensor(values), axis).asnumpy(), expected)


def test_arguments_that_do_not_fit_are_refused():
    x = ms.Tensor(np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"'axis' must be in range \[-2, 2\), but got 2"):
        ops.ReduceSum()(x, 2)
    with pytest.raises(ValueError, match=r"names a dimension twice: \(0, -2\)"):
        ops.ReduceSum()(x, (0, -2))
    for axis in (1.0, "a", True):
        with pytest.raises(TypeError, match="the type of 'axis' must be int or tuple of int or None, but got"):
            ops.mean(x, axis)
    for call in (ops.argmax, ops.ReduceMax()):
        with pytest.raises(ValueError, match=r"For '(argmax|ReduceMax)'"):
            call(ms.Tensor(np.ones((0, 3), np.float32)))
