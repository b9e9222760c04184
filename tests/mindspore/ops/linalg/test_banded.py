"""Bands of diagonals: there and back again, gradients, refusals; values of MindSpore are in `cases/signals.cases`."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import ops

M = numbers(2, 3, 4)
CASES = {
    "matrix_diag": case(lambda x: ops.matrix_diag(x, (-1, 1), 3, 4, 2.0), None, numbers(2, 3, 3)),
    "matrix_diag_part": case(lambda x: ops.matrix_diag_part(x, (-1, 2), 0.0), None, M),
    "matrix_set_diag": case(lambda x, d: ops.matrix_set_diag(x, d, (0, 1)), None, M, numbers(2, 2, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_banded_operators_equal_differences(name):
    check(CASES[name])


@given(
    rows=st.integers(1, 4), columns=st.integers(1, 4), ends=st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
    align=st.sampled_from(["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"]),
)  # fmt: skip
@settings(max_examples=10, deadline=None)
def test_a_band_taken_out_and_put_back_is_the_same(rows, columns, ends, align):
    low, high = (max(1 - rows, min(columns - 1, end)) for end in sorted(ends))
    matrix = np.arange(1.0, rows * columns + 1).reshape(rows, columns)
    band = ops.matrix_diag_part(ms.Tensor(matrix), (low, high), 0.0, align)
    kept = np.triu(np.tril(matrix, high), low)
    alone = ops.matrix_diag(band, (low, high), rows, columns, 0.0, align)
    put = ops.matrix_set_diag(ops.zeros((rows, columns), ms.float64), band, (low, high), align)
    for result in (alone, put):
        np.testing.assert_array_equal(result.asnumpy(), kept)


def test_arguments_that_do_not_fit_are_refused():
    x = ms.Tensor(M)
    with pytest.raises(ValueError, match="ascending order within a 3 x 4 matrix"):
        ops.matrix_diag_part(x, (1, 0), 0.0)
    with pytest.raises(ValueError, match="ascending order within a 3 x 4 matrix, but got \\(4,\\)"):
        ops.matrix_diag_part(x, 4, 0.0)
    with pytest.raises(ValueError, match=r"must have shape \(…, 2, 3\)"):
        ops.matrix_set_diag(x, x, (0, 1))
    with pytest.raises(ValueError, match="has no diagonals 0 to 0 of length 4"):
        ops.matrix_diag(x, 0, 2, 2)
    with pytest.raises(ValueError, match="'align' must be one of"):
        ops.MatrixDiagV3("LEFT")
