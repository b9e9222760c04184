"""Matrix products against numpy."""

import numpy as np
import pytest
from against_numpy import check, numbers

import sporax.mindspore as ms
from sporax.mindspore import ops


@pytest.mark.parametrize("turn_left", [False, True])
@pytest.mark.parametrize("turn_right", [False, True])
def test_matmul_of_matrices(turn_left, turn_right):
    left, right = numbers(*((3, 2) if turn_left else (2, 3))), numbers(*((2, 3) if turn_right else (3, 2)), seed=1)
    reference = lambda x, y: (x.T if turn_left else x) @ (y.T if turn_right else y)
    check(ops.MatMul(turn_left, turn_right), reference, left, right)


@pytest.mark.parametrize(
    ("left", "right"), [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 1, 2, 3), (4, 3, 2)), ((0, 3), (3, 2))]
)
def test_matmul_of_anything(left, right):
    check(ops.matmul, np.matmul, numbers(*left), numbers(*right, seed=1))


def test_batched_products_equal_numpy():
    check(ops.BatchMatMul(), np.matmul, numbers(2, 2, 3), numbers(2, 3, 2))
    check(
        ops.BatchMatMul(transpose_b=True), lambda x, y: x @ y.swapaxes(1, 2), numbers(2, 2, 3), numbers(2, 2, 3, seed=1)
    )
    check(ops.bmm, np.matmul, numbers(2, 2, 3), numbers(2, 3, 2))


def test_dense_multiplies_by_the_transposed_weight():
    check(ops.dense, lambda x, w, b: x @ w.T + b, numbers(2, 2, 3), numbers(4, 3, seed=1), numbers(4, seed=2))
    check(ops.dense, lambda x, w: x @ w.T, numbers(3), numbers(4, 3, seed=1))


def test_bias_add():
    check(ops.bias_add, lambda x, b: x + b[:, None, None], numbers(2, 3, 2, 2), numbers(3, seed=1))
    check(ops.BiasAdd("NHWC"), lambda x, b: x + b, numbers(2, 2, 2, 3), numbers(3, seed=1))


F, G = ms.Tensor(np.ones((2, 3), np.float32)), ms.Tensor(np.ones((3, 2), np.float16))
ERRORS = [
    (lambda: ops.MatMul()(F, F), ValueError, r"\(2, 3\) and \(2, 3\)"),
    (lambda: ops.MatMul()(F[0], F), ValueError, r"'input' must have 2 dimensions, but got 1: shape \(3,\)"),
    (lambda: ops.MatMul()(F, G), TypeError, "'input': Float32, 'mat2': Float16"),
    (lambda: F @ F, ValueError, r"For 'matmul', .*\(2, 3\) and \(2, 3\)"),
    (lambda: ops.matmul(F, ms.Tensor(1.0)), ValueError, "need a dimension"),
    (lambda: ops.matmul(ops.ones((2, 1, 2)), ops.ones((3, 2, 1))), ValueError, "leading dims must broadcast"),
    (lambda: ops.BatchMatMul()(F[0], F), ValueError, "at least 2 dimensions"),
    (lambda: ops.bmm(F[0], F), ValueError, "2 or 3 dimensions"),
    (lambda: ops.dense(F, F.T), ValueError, r"\(2, 3\) and \(3, 2\)"),
    (lambda: ops.dense(F, F, F[0]), ValueError, r"'bias' must have shape \(2,\).*\(3,\)"),
    (lambda: ops.bias_add(F, F[:, 0]), ValueError, r"\(2, 3\) and \(2,\)"),
    (lambda: ops.BiasAdd("NC"), ValueError, "'data_format' must be one of"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
