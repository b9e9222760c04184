import numpy as np
import pytest
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops

A = numbers(4, 2)
IDS = np.array([0, 2, 0, -1])
SORTED = np.array([0, 0, 2, 2])


def unsorted(function, empty):
    """Reductions of the rows with the numbers 0 to 2."""
    return lambda x: np.stack([function(x[IDS == item], 0) if item in IDS else np.full(2, empty) for item in range(3)])


BIG = np.finfo(np.float64).max
CASES = {
    "UnsortedSegmentSum": case(lambda x: ops.UnsortedSegmentSum()(x, Tensor(IDS), 3), unsorted(np.sum, 0), A),
    "UnsortedSegmentProd": case(lambda x: ops.unsorted_segment_prod(x, Tensor(IDS), 3), unsorted(np.prod, 1), A),
    "UnsortedSegmentMax": case(lambda x: ops.UnsortedSegmentMax()(x, Tensor(IDS), 3), unsorted(np.max, -BIG), A, grad=False),
    "UnsortedSegmentMin": case(lambda x: x.unsorted_segment_min(Tensor(IDS), 3), unsorted(np.min, BIG), A, grad=False),
    "max without empty ones": case(lambda x: ops.unsorted_segment_max(x, Tensor([0, 1, 0, 1]), 2),
                                   lambda x: np.stack([x[::2].max(0), x[1::2].max(0)]), A),
    "ids of two dims": case(lambda x: ops.unsorted_segment_sum(x, Tensor([[0, 1]] * 4), 2), lambda x: x.sum(0), A),
    "SegmentSum": case(lambda x: ops.SegmentSum()(x, Tensor(SORTED)), lambda x: np.stack([x[:2].sum(0), [0, 0], x[2:].sum(0)]), A),
    "SegmentMean": case(lambda x: ops.SegmentMean()(x, Tensor(SORTED)), lambda x: np.stack([x[:2].mean(0), [0, 0], x[2:].mean(0)]), A),
    "SegmentMax": case(lambda x: ops.SegmentMax()(x, Tensor(SORTED)), lambda x: np.stack([x[:2].max(0), [0, 0], x[2:].max(0)]), A),
    "SegmentMin": case(lambda x: ops.SegmentMin()(x, Tensor(SORTED)), lambda x: np.stack([x[:2].min(0), [0, 0], x[2:].min(0)]), A),
    "SegmentProd": case(lambda x: ops.SegmentProd()(x, Tensor(SORTED)), lambda x: np.stack([x[:2].prod(0), [1, 1], x[2:].prod(0)]), A),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_compiled_and_the_number_as_a_tensor():
    total = ms.jit(lambda x: ops.unsorted_segment_sum(x, Tensor(IDS), 3))(Tensor(A))
    again = ops.unsorted_segment_sum(Tensor(A), Tensor(IDS), Tensor(3))
    np.testing.assert_allclose(total.asnumpy(), again.asnumpy())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.unsorted_segment_sum(Tensor(A), Tensor(IDS), 0), ValueError, "'num_segments' must be >= 1"),
        (lambda: ops.unsorted_segment_sum(Tensor(A), Tensor(IDS), 1.5), TypeError, "'num_segments'"),
        (lambda: ops.unsorted_segment_sum(Tensor(A), Tensor([0, 1]), 2), ValueError, "head of that"),
        (lambda: ops.SegmentSum()(Tensor(A), Tensor([1, 0, 1, 1])), ValueError, "ascending"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_gradients_by_the_numbers_of_segments_too():
    """They only choose; the products keep the derivative that they have by a rule of their own."""
    x = Tensor(A.astype(np.float32))
    alone = ms.grad(lambda x: ops.UnsortedSegmentProd()(x, Tensor(IDS), 3))(x)
    by_both = ms.grad(ops.UnsortedSegmentProd(), (0, 1))(x, Tensor(IDS), 3)
    np.testing.assert_allclose(by_both[0].asnumpy(), alone.asnumpy(), rtol=1e-6)
    assert not by_both[1].asnumpy().any()
