"""Primitives that are shown by `ops.auto_generate` only. Values are the wheel's where it has CPU kernels."""

import numpy as np
import pytest
from sporax.ops.auto_generate.gen_ops_prim import MaxDim, SumExt

import sporax as ms
from sporax import Tensor, context, ops
from sporax.ops import auto_generate

X = Tensor([[0.0, 1, 2], [3, 4, 5]])

CASES = [
    (lambda: auto_generate.AddExt()(X, X, 2), [[0, 3, 6], [9, 12, 15]]),
    (lambda: auto_generate.AddExt()(X, 1), [[1, 2, 3], [4, 5, 6]]),
    (lambda: auto_generate.SubExt()(X, X, 2), [[0, -1, -2], [-3, -4, -5]]),
    (lambda: SumExt()(X, (0,), True), [[3, 5, 7]]),
    (lambda: auto_generate.MeanExt()(X, 1), [1, 4]),
    (lambda: auto_generate.ProdExt()(X, 1), [0, 60]),
    (lambda: auto_generate.MatMulExt()(X, X.T), [[5, 14], [14, 50]]),
    (lambda: auto_generate.BatchMatMulExt()(X[None], X.T[None]), [[[5, 14], [14, 50]]]),
    (lambda: auto_generate.StackExt(1)((X[0], X[1])), [[0, 3], [1, 4], [2, 5]]),
    (lambda: auto_generate.Scatter()(X, 1, Tensor([[0], [1]]), Tensor([[9.0], [8.0]]), "none"), [[9, 1, 2], [3, 8, 5]]),
    (lambda: auto_generate.Scatter()(X, 1, Tensor([[0], [0]]), Tensor([[9.0], [8.0]]), "add"), [[9, 1, 2], [11, 4, 5]]),
]


@pytest.mark.parametrize(("call", "expected"), CASES)
def test_values(call, expected):
    np.testing.assert_array_equal(call().asnumpy(), expected)


def test_pairs():
    values, places = MaxDim()(X, 1)
    assert (values.asnumpy().tolist(), places.asnumpy().tolist(), places.dtype) == ([2, 5], [2, 2], ms.int64)
    values, places = auto_generate.MinDim()(X, 0, True)
    assert (values.asnumpy().tolist(), places.asnumpy().tolist()) == ([[0, 1, 2]], [[0, 0, 0]])
    values, places = auto_generate.TopkExt()(X, 2)
    assert (values.asnumpy().tolist(), places.asnumpy().tolist()) == ([[2, 1], [5, 4]], [[2, 1], [2, 1]])


def test_parts():
    first, second = auto_generate.SplitWithSize()(X, (1, 2), 1)
    assert (first.asnumpy().tolist(), second.asnumpy().tolist()) == ([[0], [3]], [[1, 2], [4, 5]])
    assert [part.shape for part in auto_generate.SplitTensor()(X, 2, 1)] == [(2, 2), (2, 1)]
    with pytest.raises(ValueError, match="For 'SplitWithSize', 'split_size' must add up to 3"):
        auto_generate.SplitWithSize()(X, (1, 1), 1)


def test_gated_halves():
    x = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
    silu = x[:, :2] / (1 + np.exp(-x[:, :2]))
    np.testing.assert_allclose(auto_generate.Swiglu()(Tensor(x)).asnumpy(), silu * x[:, 2:], rtol=1e-6)
    with pytest.raises(ValueError, match="For 'Swiglu', the size of dim 1 must be even, but got 3"):
        auto_generate.Swiglu()(X)


def test_dtypes_of_sums():
    assert SumExt()(X, None, False, ms.float16).dtype == ms.float16


def test_the_others_are_those_of_ops():
    assert auto_generate.Cast is ops.Cast
    assert "AddExt" in dir(auto_generate)
    assert not hasattr(ops, "AddExt")
    assert not hasattr(auto_generate, "NoSuchOperator")


def test_strategies_shard_them():
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    try:

        class Net(ms.nn.Cell):
            def __init__(self):
                super().__init__()
                self.add = auto_generate.AddExt().shard(((4, 2), (4, 2)))
                self.split = auto_generate.SplitWithSize().shard(((8, 1),))
                self.matmul = auto_generate.MatMulExt().shard(((2, 4), (4, 1)))

            def construct(self, x, y):
                first, second = self.split(self.add(x, x, 3), (4, 4), 1)
                return self.matmul(first + second, y)

        x = np.arange(64, dtype=np.float32).reshape(8, 8)
        y = np.ones((4, 2), np.float32)
        expected = (4 * (x[:, :4] + x[:, 4:])) @ y
        np.testing.assert_allclose(Net()(Tensor(x), Tensor(y)).asnumpy(), expected)
    finally:
        context.reset_auto_parallel_context()
