"""Inner primitives; the numbers are those of MindSpore 2.10 on CPU, as far as it has kernels for them."""

import importlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.ops import auto_generate as A, operations as _grad_ops

X = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
ONES = Tensor(np.ones((2, 3), np.float32))
L = Tensor([[2.0, 1.0], [1.0, 4.0]])


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
        (lambda: A.Scatter()(X, 1, Tensor([[0], [1]]), Tensor([[9.0], [8.0]])), [([[9, 1, 2], [3, 8, 5]], ms.float32)]),
        (lambda: A.SliceExt()(X, 1, 0, 2, 1), [([[0, 1], [3, 4]], ms.float32)]),
        (lambda: A.SliceExt()(X, -1, -3, 100, 2), [([[0, 2], [3, 5]], ms.float32)]),
        (lambda: A.TraceV2()(X, 1, 0, 1), [(6, ms.float32)]),
        (lambda: A.TraceV2()(X.astype(ms.int32)), [(4, ms.int64)]),
        (lambda: A.TraceV2()(X, dtype=ms.int64), [(4, ms.int64)]),
        (lambda: A.SolveTriangular()(L, Tensor([[2.0], [4.0]])), [([[0.5], [1]], ms.float32)]),
        (lambda: A.SolveTriangular()(L[None], Tensor([[2.0, 5.0]]), 0, True), [([[1, 1]], ms.float32)]),
        (lambda: A.SolveTriangular()(L, Tensor([2.0, 5.0]), 1, False, True), [([2, 3], ms.float32)]),
        (lambda: A.OneHotExt()(Tensor([1, 5]), 2, 3.0, 1.0), [([[1, 3], [1, 1]], ms.float32)]),
        (lambda: A.EluExt(2.0)(X), listed(X)),
        (lambda: A.ConvertToDynamic(is_dynamic_rank=True)(X), listed(X)),
        (lambda: A.Index()(X, (Tensor([1, 0]), Tensor([2, 1]))), [([5, 1], ms.float32)]),
    ],
)
def test_values(call, expected):
    assert listed(call()) == expected


def test_cosine_transforms_are_orthonormal():
    for forth, back, data in ((A.DCT(), A.IDCT(), X), (A.DCTN(), A.IDCTN(), Tensor(X.asnumpy() + 2j))):
        moved = forth(data)
        assert moved.dtype == data.dtype and moved.shape == data.shape
        np.testing.assert_allclose(back(moved).asnumpy(), data.asnumpy(), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(moved.asnumpy()), np.linalg.norm(data.asnumpy()), rtol=1e-6)
    np.testing.assert_allclose(A.DCT()(Tensor([1, 2, 3, 4])).asnumpy(), [5, -2.2304, 0, -0.1585], atol=1e-4)
    assert A.DCTN()(X, 2, (2, 4), (0, 1)).shape == (2, 4) and A.DCT()(X, 2, 5, 0).shape == (5, 3)


def test_convolution_is_those_of_ops():
    random = np.random.RandomState(0)
    image, kernel = (Tensor(random.randn(*shape).astype(np.float32)) for shape in ((1, 2, 5, 5), (4, 2, 3, 3)))
    expected = ops.conv2d(image, kernel, pad_mode="pad", padding=1, stride=2).asnumpy()
    np.testing.assert_allclose(A.Convolution()(image, kernel, None, (2, 2), (1, 1)).asnumpy(), expected)
    back = A.Convolution()(Tensor(expected), kernel, None, 2, 1, 1, True, 0, 1)
    np.testing.assert_allclose(back.asnumpy(), ops.conv_transpose2d(Tensor(expected), kernel, None, 2, 1).asnumpy())


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
        (lambda: A.SliceExt()(X, 0, 0, 2, 0), ValueError, "For 'SliceExt', 'step' must be positive"),
        (lambda: A.SolveTriangular()(L, L, 3), ValueError, "For 'SolveTriangular', 'trans'"),
        (lambda: A.IDCT()(X, 3), ValueError, "For 'IDCT', 'type'"),
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


def test_primitives_of_mint_need_no_import_of_mint():
    code = "from sporax.mindspore.ops.auto_generate import LinSpaceExt; print(LinSpaceExt()(1, 3, 3))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1. 2. 3.]\n"


def test_there_is_one_object_of_each_primitive():
    assert A.add_ext_op is A.add_ext_op and A.batch_mat_mul_op.name == "BatchMatMul"
    assert A.cumsum_ext_op(X, 1).tolist() == [[0, 1, 3], [3, 7, 12]]
    with pytest.raises(AttributeError, match="got 'no_such_op'"):
        _ = A.no_such_op


def test_dropout_is_a_function_of_two_numbers():
    ones = Tensor(np.ones((64, 64), np.float32))
    result, mask = A.dropout_ext_op(ones, 0.75, Tensor(1), Tensor(2))
    np.testing.assert_array_equal(result.asnumpy(), mask.asnumpy() * 4.0)
    assert 0.2 < mask.asnumpy().mean() < 0.3
    np.testing.assert_array_equal(A.DropoutExt()(ones, 0.75, Tensor(1), Tensor(2))[1].asnumpy(), mask.asnumpy())
    assert (A.DropoutExt()(ones, 0.75, Tensor(1), Tensor(3))[1] != mask).any()
    assert not A.DropoutExt()(ones, 1.0, Tensor(1), Tensor(2))[0].any()


OUT = jnp.asarray(np.linspace(0.2, 0.9, 12, dtype=np.float32).reshape(3, 4))
UP = jnp.asarray(np.linspace(1.0, 2.0, 12, dtype=np.float32).reshape(3, 4))


@pytest.mark.parametrize(("name", "forward", "takes"), [
    ("ACosGrad", jnp.arccos, "x dy"), ("AsinGrad", jnp.arcsin, "x dy"), ("AtanGrad", jnp.arctan, "x dy"),
    ("AcoshGrad", lambda x: jnp.arccosh(x + 1), "y dy"), ("AsinhGrad", jnp.arcsinh, "y dy"), ("TanhGrad", jnp.tanh, "y dy"),
    ("SigmoidGrad", jax.nn.sigmoid, "y dy"), ("ReciprocalGrad", jnp.reciprocal, "y dy"), ("EluGrad", jax.nn.elu, "dy y"),
    ("ReluGrad", jax.nn.relu, "dy y"), ("ReLU6Grad", jax.nn.relu6, "dy x"), ("SoftplusGrad", jax.nn.softplus, "dy x"),
    ("HSigmoidGrad", lambda x: jax.nn.relu6(x + 3) / 6, "dy x"), ("HSwishGrad", jax.nn.hard_swish, "dy x"),
    ("SiLUGrad", jax.nn.silu, "dy x"), ("GeLUGrad", jax.nn.gelu, "dy x y"), ("LogSoftmaxGrad", jax.nn.log_softmax, "y dy"),
    ("FastGeLUGrad", lambda x: x * jax.nn.sigmoid(1.702 * x), "dy x"),
    ("HShrinkGrad", lambda x: jnp.where(x > 0.5, x, 0), "dy x"), ("SoftShrinkGrad", lambda x: jax.nn.relu(x - 0.5), "dy x"),
])  # fmt: skip
def test_kernels_of_gradients_are_pullbacks(name, forward, takes):
    result, pull = jax.vjp(forward, OUT)
    named = {"x": OUT, "y": result, "dy": UP}
    actual = getattr(_grad_ops, name)()(*(Tensor(named[word]) for word in takes.split()))
    np.testing.assert_allclose(actual.asnumpy(), pull(UP)[0], rtol=2e-5, atol=1e-6)


def test_kernels_of_gradients_with_settings():
    pulled = jax.vjp(lambda x: jax.nn.glu(x, 0), jnp.concatenate([OUT, UP]))[1](UP)[0]
    glu = _grad_ops.GluGrad(0)(Tensor(UP), Tensor(jnp.concatenate([OUT, UP])))
    np.testing.assert_allclose(glu.asnumpy(), pulled, rtol=1e-6)
    image = Tensor(np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4))
    assert _grad_ops.BiasAddGrad()(image).asnumpy().tolist() == [66, 210]
    assert _grad_ops.BiasAddGrad("NHWC")(image).asnumpy().tolist() == [60, 66, 72, 78]
    slopes = Tensor([0.1, 0.2, 0.3, 0.4])
    to_x, to_slopes = _grad_ops.PReLUGrad()(Tensor(UP), Tensor(-OUT), slopes)
    np.testing.assert_allclose(to_x.asnumpy(), UP * slopes.asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(to_slopes.asnumpy(), (UP * -OUT).sum(0), rtol=1e-6)


def test_the_kernel_of_a_layer_norms_gradients_gives_all_three():
    def norm(x, gamma, beta):
        return jax.nn.standardize(x, -1, epsilon=0) * gamma + beta

    gamma = UP[0]
    expected = jax.vjp(norm, OUT, gamma, gamma)[1](UP)
    moments = (OUT.var(-1, keepdims=True), OUT.mean(-1, keepdims=True))
    actual = _grad_ops.LayerNormGrad()(*map(Tensor, (OUT, UP, *moments, gamma)))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-4, atol=1e-4)


def test_kernels_are_called_by_their_names_as_functions():
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    functions = importlib.import_module("sporax.mindspore.ops.auto_generate.gen_ops_def")
    for actual, expected in (
        (functions.sub_ext(x, x, 2.0), -x.asnumpy()),
        (functions.mm_ext(x, x.T), x.asnumpy() @ x.asnumpy().T),
        (functions.log_softmax_ext(x * 0, 1), np.full((2, 3), -np.log(3))),
    ):
        np.testing.assert_allclose(actual.asnumpy(), expected, rtol=1e-6)


class Copies(nn.Cell):
    def __init__(self, strategy=None):
        super().__init__()
        self.held = ms.Parameter(Tensor(np.zeros((8, 4), np.float32)), name="held")
        self.copy = A.InplaceCopy()
        if strategy:
            self.copy.shard(strategy)

    def construct(self, src):
        return self.copy(self.held, src) + 1


@pytest.mark.parametrize("strategy", [None, ((4, 2), (2,))])
def test_elements_are_copied_in_place(strategy):
    mode = ms.context.get_context("mode")
    ms.context.set_context(mode=ms.GRAPH_MODE)
    if strategy:
        ms.context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    try:
        net = Copies(strategy)
        result = net(Tensor(np.arange(4, dtype=np.int32)))
        np.testing.assert_array_equal(net.held.asnumpy(), np.tile(np.arange(4, dtype=np.float32), (8, 1)))
        np.testing.assert_array_equal(result.asnumpy(), net.held.asnumpy() + 1)
        with pytest.raises(ValueError, match="'src' must be broadcast to the shape"):
            net(Tensor(np.ones(3, np.float32)))
    finally:
        ms.context.reset_auto_parallel_context()
        ms.context.set_context(mode=mode)
