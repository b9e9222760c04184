"""Products of groups of rows, against numpy. The wheel has no CPU kernels for them."""

import numpy as np
import pytest

import sporax as ms
from sporax import Tensor
from sporax.ops.auto_generate import GroupedMatmul, GroupedMatmulV4

DRAW = np.random.default_rng(4)
X, WEIGHT = DRAW.normal(size=(6, 3)).astype(np.float32), DRAW.normal(size=(3, 3, 2)).astype(np.float32)
BIAS = DRAW.normal(size=(3, 2)).astype(np.float32)
GROUP_OF_ROW = [0, 0, 2, 2, 2]


def _expected(bias=False):
    rows = [X[row] @ WEIGHT[group] + (BIAS[group] if bias else 0) for row, group in enumerate(GROUP_OF_ROW)]
    return np.array([*rows, np.zeros(2)])


@pytest.mark.parametrize("bias", [False, True])
def test_rows_meet_the_matrix_of_their_group(mode, bias):
    # The second group is empty, and the last row belongs to none.
    product = GroupedMatmul(split_item=3, group_type=0)
    given = [Tensor(BIAS)] if bias else None
    (result,) = product([Tensor(X)], [Tensor(WEIGHT)], given, None, None, None, None, Tensor([2, 2, 5], ms.int32))
    np.testing.assert_allclose(result.asnumpy(), _expected(bias), rtol=1e-5, atol=1e-6)


def test_weights_may_be_turned():
    product = GroupedMatmul(3, 0, False, True)
    turned = Tensor(WEIGHT.swapaxes(1, 2).copy())
    (result,) = product([Tensor(X)], [turned], group_list=Tensor([2, 2, 5], ms.int32))
    np.testing.assert_allclose(result.asnumpy(), _expected(), rtol=1e-5, atol=1e-6)


def test_groups_may_be_told_by_their_sizes():
    settings = {"split_item": 2, "group_type": 0, "group_list_type": 1, "output_dtype": ms.float16}
    (result,) = GroupedMatmulV4()([Tensor(X)], [Tensor(WEIGHT)], group_list=Tensor([2, 0, 3], ms.int64), **settings)
    assert result.dtype == ms.float16
    np.testing.assert_allclose(result.asnumpy(), _expected(), rtol=1e-2, atol=1e-2)


def test_pairs():
    results = GroupedMatmul()([Tensor(X), Tensor(X[:2])], [Tensor(WEIGHT[0]), Tensor(WEIGHT[1])])
    for result, expected in zip(results, (X @ WEIGHT[0], X[:2] @ WEIGHT[1]), strict=True):
        np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, w, g: GroupedMatmul(3, 0)(x, w), TypeError, "'group_list' must be a Tensor"),
        (lambda x, w, g: GroupedMatmul(3, 0)(x[0], w, group_list=g), TypeError, "'x' must be a list of Tensors"),
        (lambda x, w, g: GroupedMatmul(3, 0)(x, w, group_list=g[:2]), ValueError, "must fit the weight"),
        (
            lambda x, w, g: GroupedMatmul(3, 0)(x, w, scale=g, group_list=g),
            NotImplementedError,
            "'scale' is not offered",
        ),
        (lambda x, w, g: GroupedMatmul(3, 2)(x, w, group_list=g), NotImplementedError, "other forms are not offered"),
        (lambda x, w, g: GroupedMatmul()(x, [*w, *w]), ValueError, "'x' as long as 'weight'"),
        (lambda x, w, g: GroupedMatmulV4()(x, w, group_list=g, act_type=1), NotImplementedError, "'act_type'"),
        (lambda x, w, g: GroupedMatmulV4()(x, w, group_list_type=2), ValueError, "'group_list_type' must be 0 or 1"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call([Tensor(X)], [Tensor(WEIGHT)], Tensor([2, 2, 5], ms.int32))
