"""Inner primitives that are doors to public functions: the same results, gradients and marks."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, nn, ops
from sporax.mindspore.ops import auto_generate as inner
from sporax.mindspore.ops.auto_generate import DOORS

X = Tensor(np.sin(np.arange(12, dtype=np.float32)).reshape(3, 4))
IDS = Tensor([2, 0, 1])

CALLS = [
    ("FFT", (X, 8, 0, "ortho"), lambda: ops.fft(X, 8, 0, "ortho")),
    ("IRFFT2", (X,), lambda: ops.irfft2(X)),
    ("RFFTFreq", (8, 0.5), lambda: ops.rfftfreq(8, 0.5)),
    ("SortExt", (X, 1, True, True), lambda: mint.sort(X, dim=1, descending=True, stable=True)),
    ("CumsumExt", (X, 0, ms.float64), lambda: mint.cumsum(X, 0, dtype=ms.float64)),
    ("Arange", (1, 9, 3, ms.int32), lambda: ops.arange(1, 9, 3, dtype=ms.int32)),
    ("Max", (X,), lambda: mint.max(X)),
    ("Outer", (X[0], X[:, 0]), lambda: mint.outer(X[0], X[:, 0])),
    ("Embedding", (IDS, X, 1), lambda: mint.nn.functional.embedding(IDS, X, 1)),
    ("RemainderTensorScalar", (X, 0.3), lambda: ops.remainder(X, 0.3)),
    ("RepeatInterleaveInt", (X, 2, 1), lambda: ops.repeat_interleave(X, 2, 1)),
    ("Addmm", (X[:, :3], X, X.T, 2, 3), lambda: mint.addmm(X[:, :3], X, X.T, beta=2, alpha=3)),
    ("LinSpaceExt", (0, 4, 5, ms.float32), lambda: mint.linspace(0, 4, 5, dtype=ms.float32)),
    ("Hardtanh", (X, 0.0, 0.5), lambda: mint.nn.functional.hardtanh(X, 0.0, 0.5)),
    ("Threshold", (X, 0.2, 9.0), lambda: mint.nn.functional.threshold(X, 0.2, 9.0)),
    ("MedianDim", (X, 1, True), lambda: mint.median(X, 1, True)),
    ("LinalgQr", (X,), lambda: mint.linalg.qr(X)),
    ("IndexFillScalar", (X, 0, IDS, 7.0), lambda: ops.index_fill(X, 0, IDS, 7.0)),
    (
        "Conv2DExt",
        (X.reshape(1, 1, 3, 4), X[:2, :2].reshape(1, 1, 2, 2), None, (1, 2), (0, 1), (1, 1), 1),
        lambda: mint.nn.functional.conv2d(X.reshape(1, 1, 3, 4), X[:2, :2].reshape(1, 1, 2, 2), None, (1, 2), (0, 1)),
    ),
    ("LogSoftmaxExt", (X, 0, None), lambda: mint.nn.functional.log_softmax(X, 0)),
    ("VarMean", (X, 0, 0, True), lambda: mint.var_mean(X, 0, correction=0, keepdim=True)),
]


@pytest.mark.parametrize(("name", "inputs", "function"), CALLS, ids=[name for name, *_ in CALLS])
def test_a_door_gives_what_the_function_does(name, inputs, function):
    got, expected = getattr(inner, name)()(*inputs), function()
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, expected)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


def test_every_door_leads_to_a_function():
    for name, (functions, function) in DOORS.items():
        assert callable(functions[function]), name
        assert issubclass(getattr(inner, name), ops.Primitive)


def test_its_strategy_is_that_of_the_function():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.outer = inner.Outer().shard(((2,), (4,)))

        def construct(self, a, b):
            return self.outer(a, b)

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    net, a = Net(), Tensor(np.arange(8, dtype=np.float32))
    np.testing.assert_array_equal(net(a, a).asnumpy(), np.outer(a.asnumpy(), a.asnumpy()))
    assert net.program.planned.summary().axes == (("a", 2), ("b", 4))
    ms.reset_auto_parallel_context()


def test_the_diagonal_has_its_place_in_the_constructor():
    cube = Tensor(np.arange(24.0, dtype=np.float32).reshape(2, 3, 4))
    assert np.array_equal(inner.Diagonal(1, -1, 2 - 1)(cube).asnumpy(), np.diagonal(cube.asnumpy(), 1, -1, 1))
