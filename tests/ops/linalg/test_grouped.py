import numpy as np
import pytest

import sporax as ms
from sporax import Tensor
from sporax.ops.auto_generate import GroupedMatmul, GroupedMatmulV4

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(5, 3).astype(np.float32)
WEIGHT = RANDOM.randn(3, 3, 2).astype(np.float32)
BIAS = RANDOM.randn(3, 2).astype(np.float32)
# Two rows, none, two; the last row is in no group.
BY_HAND = np.concatenate([X[:2] @ WEIGHT[0] + BIAS[0], X[2:4] @ WEIGHT[2] + BIAS[2], np.zeros((1, 2), np.float32)])


def tensors(*arrays):
    return [Tensor(array) for array in arrays]


def test_rows_in_groups(mode):
    ends, sizes = Tensor([2, 2, 4]), Tensor([2, 0, 2])
    together = GroupedMatmul(3, 0)(tensors(X), tensors(WEIGHT), tensors(BIAS), group_list=ends)
    apart = GroupedMatmulV4()(
        *(tensors(X), tensors(*WEIGHT), tensors(*BIAS)), group_list=sizes, split_item=3, group_type=0, group_list_type=1
    )
    transposed = GroupedMatmul(3, 0, transpose_b=True)(
        tensors(X), tensors(WEIGHT.swapaxes(1, 2).copy()), tensors(BIAS), group_list=[2, 2, 4]
    )
    for (result,) in (together, apart, transposed):
        np.testing.assert_allclose(result.asnumpy(), BY_HAND, atol=1e-5)


def test_gradients_of_rows_in_groups():
    def loss(x, weight):
        return GroupedMatmul(3, 0)([x], [weight], group_list=Tensor([2, 2, 4]))[0].sum()

    of_x, of_weight = ms.grad(loss, (0, 1))(Tensor(X), Tensor(WEIGHT))
    np.testing.assert_allclose(of_x.asnumpy()[2], WEIGHT[2].sum(1), atol=1e-5)
    assert not of_x.asnumpy()[4].any() and not of_weight.asnumpy()[1].any()
    np.testing.assert_allclose(of_weight.asnumpy()[0], np.repeat(X[:2].sum(0)[:, None], 2, 1), atol=1e-5)


def test_a_matrix_for_each_tensor():
    first, second = GroupedMatmul()(tensors(X, X[:2]), tensors(WEIGHT[0], WEIGHT[1]), tensors(BIAS[0], BIAS[1]))
    np.testing.assert_allclose(first.asnumpy(), X @ WEIGHT[0] + BIAS[0], atol=1e-5)
    np.testing.assert_allclose(second.asnumpy(), X[:2] @ WEIGHT[1] + BIAS[1], atol=1e-5)
    (half,) = GroupedMatmulV4()(tensors(X), tensors(WEIGHT[0]), output_dtype=ms.float16)
    assert half.dtype == ms.float16


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: GroupedMatmul()(Tensor(X), tensors(WEIGHT)), TypeError, "'x' must be a tuple or list of Tensors"),
        (lambda: GroupedMatmul(3, 0)(tensors(X), tensors(WEIGHT)), ValueError, "no 'group_list'"),
        (lambda: GroupedMatmul(3, 2)(tensors(X), tensors(WEIGHT)), NotImplementedError, "'group_type' must be 0"),
        (
            lambda: GroupedMatmul(3, 0)(tensors(X), tensors(WEIGHT), group_list=Tensor([5])),
            ValueError,
            "'group_list' have one number per group",
        ),
        (lambda: GroupedMatmul(9, -1)(tensors(X), tensors(WEIGHT[0])), ValueError, "'split_item' must be"),
        (
            lambda: GroupedMatmulV4()(tensors(X), tensors(WEIGHT), act_type=1),
            NotImplementedError,
            "'act_type' must be 0",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
