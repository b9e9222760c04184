"""Matrices: values are SciPy's; dtypes, shapes of empty results and errors were recorded with MindSpore 2.10 (CPU)."""

import numpy as np
import pytest
import scipy.linalg as sl

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.scipy import linalg

A = np.array([[3.0, 1, 2], [1, 4, 1], [2, 1, 5]])
B = np.array([1.0, 2, 3])
TALL = np.arange(6.0).reshape(3, 2) ** 2


def tensors(*arrays, dtype=np.float64):
    return [Tensor(array.astype(dtype)) for array in arrays]


CASES = {
    "inv": (linalg.inv, np.linalg.inv, (A,)),
    "det": (linalg.det, np.linalg.det, (A,)),
    "cholesky": (linalg.cholesky, sl.cholesky, (A,)),
    "cholesky lower": (lambda a: linalg.cholesky(a, lower=True), np.linalg.cholesky, (A,)),
    "cho_solve": (lambda a, b: linalg.cho_solve(linalg.cho_factor(a), b), np.linalg.solve, (A, B)),
    "cho_solve lower": (lambda a, b: linalg.cho_solve(linalg.cho_factor(a, True), b), np.linalg.solve, (A, A)),
    "lu_solve": (lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b), np.linalg.solve, (A, B)),
    "lu_solve transposed": (
        lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b, 1),
        lambda a, b: np.linalg.solve(a.T, b),
        (A[::-1] + np.eye(3, k=1), A),
    ),
    "eigh": (lambda a: linalg.eigh(a)[0], np.linalg.eigvalsh, (A,)),
    "eigh upper": (lambda a: linalg.eigh(a, lower=False, eigvals_only=True), lambda a: sl.eigvalsh(a), (A,)),
    "solve_triangular": (linalg.solve_triangular, sl.solve_triangular, (A, B)),
    "solve_triangular of the transpose": (
        lambda a, b: linalg.solve_triangular(a, b, "T", lower=True, unit_diagonal=True),
        lambda a, b: sl.solve_triangular(a, b, trans="T", lower=True, unit_diagonal=True),
        (A, A),
    ),
    "solve_triangular of batches": (
        linalg.solve_triangular,
        lambda a, b: np.stack([sl.solve_triangular(one, side) for one, side in zip(a, b, strict=True)]),
        (np.stack([A, 2 * A]), np.stack([A, A])),
    ),
    "lstsq": (lambda a, b: linalg.lstsq(a, b)[0], lambda a, b: np.linalg.lstsq(a, b)[0], (TALL, B)),
    "lstsq wide": (lambda a, b: linalg.lstsq(a, b)[0], lambda a, b: np.linalg.lstsq(a, b)[0], (TALL.T, A[:2])),
    "lu": (lambda a: linalg.lu(a, permute_l=True), lambda a: sl.lu(a, permute_l=True), (A[::-1],)),
    "lu_factor": (linalg.lu_factor, sl.lu_factor, (A[::-1],)),
}


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys(name, dtype, mode):
    call, reference, arrays = CASES[name]
    ms.set_context(mode=mode)
    found, wanted = ms.jit(call)(*tensors(*arrays, dtype=dtype)), reference(*arrays)
    for result, expected in zip(*((r,) if not isinstance(r, tuple) else r for r in (found, wanted)), strict=True):
        assert result.dtype in (ms.pytype_to_dtype(dtype), ms.int32)
        np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-4 if dtype == np.float32 else 1e-9, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "inv",
        "det",
        "cholesky",
        "cho_solve",
        "lu_solve transposed",
        "eigh",
        "solve_triangular of batches",
        "lstsq",
        "lu",
    ],
)
def test_gradients_are_those_of_finite_differences(name):
    call, _, arrays = CASES[name]

    def loss(*inputs):
        results = call(*inputs)
        parts = results if isinstance(results, tuple) else (results,)
        return sum((part * part).sum() for part in parts)

    direction = np.random.default_rng(0).standard_normal(arrays[0].shape)
    if arrays[0].ndim == 2 and arrays[0].shape[0] == arrays[0].shape[1]:
        direction = direction + direction.T  # of what is symmetric, one triangle may be read
    gradient = ms.grad(loss)(*tensors(*arrays)).asnumpy()
    high, low = (float(loss(*tensors(arrays[0] + h * direction, *arrays[1:]))) for h in (1e-5, -1e-5))
    assert np.sum(gradient * direction) == pytest.approx((high - low) / 2e-5, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("driver", "shapes"),
    [
        (None, [(2, 2), (0,), (), (0,)]),
        ("gels", [(2, 2), (2,), (0,), (0,)]),
        ("gelsy", [(2, 2), (0,), (), (0,)]),
        ("gelss", [(2, 2), (2,), (), (2,)]),
        ("gelsd", [(2, 2), (2,), (), (2,)]),
    ],
)
def test_the_driver_says_which_results_there_are(driver, shapes):
    results = linalg.lstsq(*tensors(TALL, np.ones((3, 2)), dtype=np.float32), driver=driver)
    assert [result.shape for result in results] == shapes
    assert [result.dtype for result in results] == [ms.float32, ms.float32, ms.int64, ms.float32]
    if driver == "gelsd":
        _, residual, rank, singular = (result.asnumpy() for result in results)
        np.testing.assert_allclose(residual, [0.46377, 0.46377], rtol=1e-4)
        np.testing.assert_allclose(singular, [31.25283, 1.50352], rtol=1e-4)
        assert rank == 2


def test_batches_are_solved_one_by_one():
    a, b = np.random.default_rng(1).standard_normal((2, 5, 3)), np.random.default_rng(2).standard_normal((2, 5))
    found = linalg.lstsq(*tensors(a, b), driver="gelsd")
    for index in range(2):
        wanted = sl.lstsq(a[index], b[index])
        np.testing.assert_allclose(found[0].asnumpy()[index], wanted[0], rtol=1e-9)
        np.testing.assert_allclose(found[3].asnumpy()[index], wanted[3], rtol=1e-9)


def test_integers_are_computed_in_float64():
    (whole,) = tensors(A, dtype=np.int32)
    for call in (
        linalg.inv,
        linalg.cholesky,
        linalg.det,
        lambda a: linalg.lu_factor(a)[0],
        lambda a: linalg.eigh(a)[1],
    ):
        assert call(whole).dtype == ms.float64
    permutation, lower, upper = linalg.lu(Tensor([[0, 1, 2], [3, 4, 5]]))
    assert (permutation.dtype, lower.dtype, upper.shape) == (ms.int32, ms.float64, (2, 3))
    np.testing.assert_array_equal(permutation.asnumpy(), [[0, 1], [1, 0]])


def test_block_diag_takes_vectors_and_numbers_as_rows():
    parts = (A, np.zeros(2), np.float64(2))
    np.testing.assert_array_equal(linalg.block_diag(*tensors(*parts)).asnumpy(), sl.block_diag(*parts)[[0, 1, 2, 3, 4]])
    assert linalg.block_diag().shape == (1, 0) and linalg.block_diag(Tensor(1), Tensor(7)).dtype == ms.int64
    with pytest.raises(ValueError, match="For 'block_diag', 'arrs' must have at most 2 dims"):
        linalg.block_diag(Tensor(np.ones((1, 1, 1))))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: linalg.inv(Tensor(TALL)), ValueError, "For 'inv', 'a' must be a square matrix"),
        (lambda: linalg.inv(Tensor(np.ones((2, 2, 2)))), ValueError, "For 'inv', 'a' must be a square matrix"),
        (
            lambda: linalg.inv(Tensor(A.astype(np.float16))),
            TypeError,
            "For 'inv', the dtype of 'a' must be one of int32",
        ),
        (lambda: linalg.inv(3.0), TypeError, "For 'inv', the type of 'a' must be Tensor"),
        (lambda: linalg.inv(Tensor(A), overwrite_a=1), TypeError, "For 'inv', the type of 'overwrite_a' must be bool"),
        (lambda: linalg.eigh(Tensor(A), Tensor(A)), ValueError, "For 'eigh', 'b' must be None"),
        (lambda: linalg.eigh(Tensor(A), eigvals=(0, 1)), ValueError, "For 'eigh', 'eigvals' must be None"),
        (lambda: linalg.eigh(Tensor(A), type=1.0), TypeError, "For 'eigh', the type of 'type' must be int"),
        (lambda: linalg.lu(Tensor(TALL)), ValueError, "For 'lu', 'a' must be .m, n. with m <= n"),
        (lambda: linalg.cho_solve((Tensor(A), True), Tensor(np.ones(2))), ValueError, "For 'cho_solve', 'b' must be"),
        (
            lambda: linalg.cho_solve((Tensor(A), True), *tensors(B, dtype=np.float32)),
            TypeError,
            "dtypes must be the same",
        ),
        (lambda: linalg.lu_solve((Tensor(A), Tensor(B)), Tensor(B)), TypeError, "the dtype of 'pivot' must be int32"),
        (lambda: linalg.solve_triangular(Tensor(A), Tensor(B), trans=3), ValueError, "'trans' must be one of"),
        (lambda: linalg.lstsq(Tensor(A), Tensor(B), driver="qr"), ValueError, "For 'lstsq', 'driver' must be one of"),
        (lambda: linalg.lstsq(Tensor(A), Tensor(np.ones(2))), ValueError, "For 'lstsq', A and B must be"),
    ],
)
def test_what_does_not_fit_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


class Solved(nn.Cell):
    """Rows of a product that is sharded, solved for a matrix that is whole."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(A, ms.float32), name="weight")
        self.matmul = ms.ops.MatMul().shard(((8, 1), (1, 1)))

    def construct(self, x):
        matrix = self.weight @ self.weight.T
        rows = self.matmul(x, linalg.inv(matrix)) + linalg.cho_solve(linalg.cho_factor(matrix), x.T).T
        return (
            (rows * rows).sum() + linalg.det(matrix) + linalg.eigh(matrix)[0].sum() + linalg.lstsq(matrix, x.T)[0].sum()
        )


def test_steps_over_eight_devices_compute_the_same():
    x = Tensor(np.arange(24.0).reshape(8, 3), ms.float32)
    net = Solved()
    ms.set_context(mode=ms.GRAPH_MODE)
    step = ms.value_and_grad(net, None, net.trainable_params())
    wanted = [ms.ops.functional.stop_gradient(part).asnumpy() for part in (step(x)[0], step(x)[1][0])]
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    try:
        value, (gradient,) = ms.jit(ms.value_and_grad(net, None, net.trainable_params()))(x)
    finally:
        ms.context.reset_auto_parallel_context()
    np.testing.assert_allclose(value.asnumpy(), wanted[0], rtol=1e-4)
    np.testing.assert_allclose(gradient.asnumpy(), wanted[1], rtol=1e-3, atol=1e-3)
