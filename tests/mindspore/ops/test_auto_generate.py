"""Inner primitives; the numbers are those of MindSpore 2.10 on CPU, as far as it has kernels for them."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.ops import auto_generate as A

X = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
ONES = Tensor(np.ones((2, 3), np.float32))


def listed(result):
    parts = result if isinstance(result, tuple) else (result,)
    return [(part.asnumpy().tolist(), part.dtype) for part in parts]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: A.AddExt()(X, ONES, 2), [([[2, 3, 4], [5, 6, 7]], ms.float32)]),
        (lambda: A.SubExt()(X, ONES, 2), [([[-2, -1, 0], [1, 2, 3]], ms.float32)]),
        (lambda: A.AddExt()(X.astype(ms.int32), ONES, 2), [([[2, 3, 4], [5, 6, 7]], ms.float32)]),
        (lambda: A.AddExt()(X, 2.5, 2), [([[5, 6, 7], [8, 9, 10]], ms.float32)]),
        (lambda: A.SubExt()(X > 2, X > 4), [([[False] * 3, [True, True, False]], ms.bool_)]),
        (lambda: A.SumExt()(X.astype(ms.int32), 1, True), [([[3], [12]], ms.int64)]),
        (lambda: A.SumExt()(X > 0), [(5, ms.int64)]),
        (lambda: A.SumExt()(X, (0, 1), False, ms.float16), [(15, ms.float16)]),
        (lambda: A.MeanExt()(X, 1, True), [([[1], [4]], ms.float32)]),
        (lambda: A.MeanExt()(X.astype(ms.int32)), [(2, ms.int32)]),
        (lambda: A.MatMulExt()(X, ONES.T), [([[3, 3], [12, 12]], ms.float32)]),
        (lambda: A.MatMulExt()(X[0], ONES[0]), [(3, ms.float32)]),
        (lambda: A.BatchMatMulExt()(X[None], ONES.T[None]), [([[[3, 3], [12, 12]]], ms.float32)]),
        (lambda: A.SplitWithSize()(X, [1, 2], 1), [([[0], [3]], ms.float32), ([[1, 2], [4, 5]], ms.float32)]),
        (lambda: A.ProdExt()(X.astype(ms.int32), 1), [([0, 60], ms.int64)]),
        (lambda: A.SplitTensor()(X, 2, 1), [([[0, 1], [3, 4]], ms.float32), ([[2], [5]], ms.float32)]),
        (lambda: A.MaxDim()(X, 1), [([2, 5], ms.float32), ([2, 2], ms.int64)]),
        (
            lambda: A.MinDim()(Tensor([[3.0, 1.0], [1.0, 1.0]]), 1, True),
            [([[1], [1]], ms.float32), ([[1], [0]], ms.int64)],
        ),
        (lambda: A.TopkExt()(X, 2), [([[2, 1], [5, 4]], ms.float32), ([[2, 1], [2, 1]], ms.int64)]),
        (lambda: A.StackExt(1)((X, ONES)), [([[[0, 1, 2], [1, 1, 1]], [[3, 4, 5], [1, 1, 1]]], ms.float32)]),
        (
            lambda: A.Scatter()(X, 1, Tensor([[0], [1]]), Tensor([[9.0], [8.0]])),
            [([[9, 1, 2], [3, 8, 5]], ms.float32)],
        ),
    ],
)
def test_values(call, expected):
    assert listed(call()) == expected


def test_swiglu_is_that_of_ops():
    x = Tensor(np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4))
    np.testing.assert_allclose(A.Swiglu()(x).asnumpy(), ops.swiglu(x).asnumpy())


def test_the_first_of_equal_elements_gets_the_gradient_of_the_largest():
    gradient = ms.grad(lambda x: A.MaxDim()(x, 1)[0].sum())(Tensor([[2.0, 2.0], [1.0, 3.0]]))
    assert gradient.asnumpy().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: A.AddExt()(X.astype(ms.int32), 2, 0.5), TypeError, "For 'AddExt', a float 'alpha' needs floating"),
        (lambda: A.SplitWithSize()(X, (1, 3), 1), ValueError, "the sum of 'split_size' must be 3"),
        (lambda: A.BatchMatMulExt()(X, ONES), ValueError, "For 'BatchMatMulExt'"),
        (lambda: A.Scatter()(X, 1, Tensor([[0]]), Tensor([[1.0]]), "add"), ValueError, "For 'Scatter', 'reduce'"),
    ],
)
def test_wrong_arguments_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_the_names_of_ops_are_there_too():
    from sporax.mindspore.ops.auto_generate.gen_ops_prim import AddExt, MatMul

    assert AddExt is A.AddExt and MatMul is ops.MatMul and A.softmax is ops.softmax
    assert not hasattr(ops, "AddExt")


def test_strategies_are_kept_in_a_network():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.add = A.AddExt().shard(((2, 1), (2, 1)))

        def construct(self, x, y):
            return self.add(x, y)

    net = Net()
    assert net.add.in_strategy == ((2, 1), (2, 1))
    assert listed(net(X, ONES)) == [([[1, 2, 3], [4, 5, 6]], ms.float32)]
