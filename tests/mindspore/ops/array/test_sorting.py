import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

A = numbers(3, 4)

CASES = {
    "Sort": case(lambda x: ops.Sort()(x)[0], np.sort, A),
    "sort descending": case(lambda x: ops.sort(x, 0, True)[0], lambda x: -np.sort(-x, 0), A),
    "mint.sort": case(lambda x: mint.sort(x, dim=0)[0], lambda x: np.sort(x, 0), A),
    "argsort": case(lambda x: ops.argsort(x, 0), lambda x: np.argsort(x, 0), A, grad=False),
    "msort": case(ops.msort, lambda x: np.sort(x, 0), A),
    "TopK": case(lambda x: ops.TopK()(x, 2)[0], lambda x: -np.sort(-x)[:, :2], A),
    "topk smallest": case(lambda x: ops.topk(x, 2, 0, largest=False)[0], lambda x: np.sort(x, 0)[:2], A),
    "kthvalue": case(lambda x: x.kthvalue(2, 1, True)[0], lambda x: np.sort(x)[:, 1:2], A),
    "searchsorted": case(lambda x, v: ops.searchsorted(x, v, right=True), lambda x, v: np.searchsorted(x, v, "right"),
                         np.array([0.0, 1, 1, 2]), numbers(2, 2), grad=False),
    "searchsorted of rows": case(ops.searchsorted, lambda x, v: np.stack([np.searchsorted(a, b) for a, b in zip(x, v, strict=True)]),
                                 np.sort(A), numbers(3, 2), grad=False),
    "bucketize": case(lambda x: ops.bucketize(x, [-0.5, 0.5]), lambda x: np.digitize(x, [-0.5, 0.5], right=True), A, grad=False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@settings(max_examples=10, deadline=None)
@given(
    arrays(np.int32, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), elements=st.integers(-2, 2)),
    st.booleans(),
    st.data(),
)
def test_sorting_keeps_the_order_of_equals(values, descending, data):
    """Any shape, empty and zero-dimensional ones included; along any dimension, counted from either end."""
    axis = data.draw(st.integers(-max(values.ndim, 1), max(values.ndim, 1) - 1))
    result, order = (item.asnumpy() for item in ops.sort(Tensor(values), axis, descending))
    if values.ndim:
        expected = np.argsort(-values if descending else values, axis, kind="stable")
        np.testing.assert_array_equal(order, expected)
        np.testing.assert_array_equal(result, np.take_along_axis(values, expected, axis))
    else:
        assert result == values and order == 0


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(-3, 3), max_size=8))
def test_unique_keeps_the_order_of_first_occurrences(values):
    values = np.array(values, np.int64)
    actual, place = (item.asnumpy() for item in ops.unique(Tensor(values)))
    assert actual.tolist() == list(dict.fromkeys(values.tolist()))
    np.testing.assert_array_equal(actual[place], values)


def test_unique_relatives():
    actual, place = ops.unique_with_pad(Tensor([3, 1, 3]), 0)
    assert actual.tolist() == [3, 1, 0] and place.tolist() == [0, 1, 0]
    kept, inverse, counts = ops.UniqueConsecutive(True, True)(Tensor([1, 1, 2, 1]))
    assert (kept.tolist(), inverse.tolist(), counts.tolist()) == ([1, 2, 1], [0, 0, 1, 2], [2, 1, 1])
    assert mint.unique_consecutive(Tensor([[1, 1], [1, 1], [2, 3]]), dim=0).tolist() == [[1, 1], [2, 3]]
    assert ops.unique_consecutive(Tensor(np.zeros(0, np.int32))).shape == (0,)


def test_positions_and_ties():
    x = Tensor([2.0, 5.0, 5.0, 1.0])
    values, places = ops.topk(x, 3)
    assert values.tolist() == [5, 5, 2] and places.tolist() == [1, 2, 0] and places.dtype == ms.int32
    assert mint.topk(x, 2)[1].dtype == ms.int64
    assert ops.intopk(Tensor([[0.1, 0.9, 0.5]]), Tensor([2], ms.int32), 2).tolist() == [True]
    assert ops.intopk(Tensor([[0.1, 0.9, 0.5]]), Tensor([0], ms.int32), 2).tolist() == [False]


@pytest.mark.parametrize("call", [ops.unique, lambda x: ops.nonzero(x), lambda x: ops.masked_select(x, x > 0)])
def test_dynamic_shapes_in_a_compiled_step(call):
    x = Tensor([1.0, 0.0, 1.0])
    with pytest.warns(UserWarning, match="runs operator by operator"):
        compiled = ms.jit(call)(x)
    for actual, expected in zip(*map(jax.tree.leaves, (compiled, call(x))), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.topk(Tensor(A), 5), ValueError, r"\[0, 4\]"),
        (lambda: ops.topk(Tensor(A), 1.5), TypeError, "'k'"),
        (lambda: ops.sort(Tensor(A), 2), ValueError, r"\[-2, 2\)"),
        (lambda: ops.searchsorted(Tensor(A), Tensor(numbers(2, 2))), ValueError, "agree"),
        (lambda: ops.searchsorted(Tensor(A[0]), Tensor(A[0]), right=True, side="left"), ValueError, "contradict"),
        (lambda: ops.unique([1, 2]), TypeError, "must be a Tensor"),
        (lambda: Tensor(A).kthvalue(0), ValueError, "'k' must be in"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
