"""`RowTensor`: what it holds, and what it refuses."""

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import RowTensor, Tensor, nn

INDICES, VALUES = Tensor([0, 2]), Tensor(np.ones((2, 3), np.float32))


def test_it_holds_rows():
    rows = RowTensor(INDICES, VALUES, (4, 3))
    again = RowTensor(row_tensor=rows)
    assert (again.indices, again.values, again.dense_shape) == (INDICES, VALUES, (4, 3))
    assert "shape=(4, 3)" in repr(rows)


def test_it_goes_through_compiled_functions():
    doubled = ms.jit(lambda rows: RowTensor(rows.indices, rows.values * 2, rows.dense_shape))(
        RowTensor(INDICES, VALUES, (4, 3))
    )
    np.testing.assert_array_equal(doubled.values.asnumpy(), 2 * VALUES.asnumpy())
    assert doubled.dense_shape == (4, 3)
    assert len(jax.tree.leaves(doubled)) == 2


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((), TypeError),
        (([0], VALUES, (4, 3)), TypeError),
        ((INDICES, VALUES, [4, 3]), TypeError),
        ((Tensor([0.0, 2.0]), VALUES, (4, 3)), TypeError),
        ((Tensor([0]), VALUES, (4, 3)), ValueError),
        ((INDICES, VALUES, (4, 2)), ValueError),
        ((INDICES, VALUES, (4, 3), RowTensor(INDICES, VALUES, (4, 3))), TypeError),
    ],
)
def test_what_does_not_fit_is_refused(arguments, kind):
    with pytest.raises(kind, match="For 'RowTensor'"):
        RowTensor(*arguments)


def test_a_reducer_of_one_rank_only_scales():
    parameter = ms.Parameter(Tensor(np.zeros((4, 3), np.float32)), name="table")
    reducer = nn.DistributedGradReducer([parameter], mean=True, degree=2)
    (rows,) = reducer((RowTensor(INDICES, VALUES, (4, 3)),))
    np.testing.assert_array_equal(rows.indices.asnumpy(), [0, 2])
    np.testing.assert_array_equal(rows.values.asnumpy(), VALUES.asnumpy() / 2)
