import numpy as np
import pytest
import scipy.linalg as sl
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

M, N = numbers(3, 3), numbers(3, 3, seed=1)
T, U = numbers(2, 3, 4), numbers(2, 4, 3, seed=1)
V, W = numbers(3), numbers(3, seed=1)
S = M @ M.T + 3 * np.eye(3)
L = np.linalg.cholesky(S)
R = numbers(3, 2, seed=2)


def rebuilt(factors):
    """The product of a decomposition, which, unlike its factors, has one sign."""
    return factors[0] @ factors[1]


def from_svd(parts):
    s, u, v = parts
    return (u * s.expand_dims(-2)) @ v.swapaxes(-1, -2)


CASES = {
    "MatrixSolve": case(ops.MatrixSolve(), np.linalg.solve, M, R),
    "MatrixSolve adjoint": case(ops.MatrixSolve(True), lambda a, b: np.linalg.solve(a.T, b), M, R),
    "MatrixTriangularSolve": case(ops.MatrixTriangularSolve(), lambda a, b: sl.solve_triangular(a, b, lower=True), M, R),
    "triangular_solve": case(lambda b, a: mint.triangular_solve(b, a)[0], lambda b, a: sl.solve_triangular(a, b), R, M),
    "lstsq": case(ops.lstsq, lambda a, b: np.linalg.lstsq(a, b)[0], numbers(4, 2), numbers(4, 1)),
    "MatrixInverse": case(ops.MatrixInverse(), np.linalg.inv, M),
    "inverse": case(ops.inverse, np.linalg.inv, np.stack([M, N])),
    "pinv": case(ops.pinv, np.linalg.pinv, numbers(4, 2)),
    "pinv with a limit": case(lambda x: ops.pinv(x, atol=1e-8), np.linalg.pinv, numbers(4, 2), grad=False),
    "Cholesky": case(ops.Cholesky(), np.linalg.cholesky, S, grad=False),
    "cholesky upper": case(lambda x: ops.cholesky((x + x.T) / 2, True), lambda x: np.linalg.cholesky(x).T, S),
    "CholeskyInverse": case(ops.CholeskyInverse(), lambda x: np.linalg.inv(x @ x.T), L),
    "CholeskySolve": case(ops.cholesky_solve, lambda b, x: np.linalg.solve(x @ x.T, b), R, L),
    "qr": case(lambda x: rebuilt(ops.qr(x)), lambda x: x, numbers(4, 3)),
    "Qr": case(lambda x: rebuilt(ops.Qr(True)(x)), lambda x: x, numbers(4, 3), grad=False),
    "svd": case(lambda x: from_svd(ops.svd(x)), lambda x: x, numbers(4, 3)),
    "singular values": case(lambda x: ops.svd(x, compute_uv=False), lambda x: np.linalg.svd(x)[1], M),
    "MatrixDeterminant": case(ops.MatrixDeterminant(), np.linalg.det, M),
    "det": case(ops.det, np.linalg.det, np.stack([M, N])),
    "LogMatrixDeterminant": case(ops.LogMatrixDeterminant(), lambda x: tuple(np.linalg.slogdet(x)), M, grad=False),
    "slogdet": case(lambda x: ops.slogdet(x)[1], lambda x: np.linalg.slogdet(x)[1], M),
    "logdet": case(ops.logdet, lambda x: np.linalg.slogdet(x)[1], S),
    "MatrixPower": case(ops.MatrixPower(3), lambda x: np.linalg.matrix_power(x, 3), M),
    "matrix_power of the inverse": case(lambda x: ops.matrix_power(x, -2), lambda x: np.linalg.matrix_power(x, -2), M),
    "MatrixExp": case(ops.matrix_exp, sl.expm, M / 3),
    "Trace": case(ops.Trace(), np.trace, M),
    "Tensor.trace": case(lambda x: x.trace(1), lambda x: np.trace(x, 1), M),
    "adjoint": case(ops.adjoint, lambda x: np.conj(x.T), M + 1j * N, grad=False),
    "vander": case(lambda x: ops.vander(x, 4), lambda x: np.vander(x, 4), V),
    "MatrixBandPart": case(lambda x: ops.matrix_band_part(x, 1, 0), lambda x: np.tril(np.triu(x, -1)), M),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_eigenvalues_and_vectors_fit_the_matrix():
    values = ops.eigvals(Tensor(M)).asnumpy()
    np.testing.assert_allclose(sorted(values, key=str), sorted(np.linalg.eigvals(M), key=str), rtol=1e-9)
    values, vectors = (item.asnumpy() for item in ops.eig(Tensor(M)))
    np.testing.assert_allclose(M @ vectors, vectors * values, atol=1e-9)


def test_orthogonal_factors():
    q, r = (item.asnumpy() for item in ops.qr(Tensor(numbers(4, 2)), "complete"))
    assert q.shape == (4, 4) and r.shape == (4, 2)
    np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-12)


def test_in_a_compiled_step():
    assert ms.jit(lambda x: ops.inverse(x) @ x)(Tensor(M)).asnumpy() == pytest.approx(np.eye(3), abs=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.inverse(Tensor(R)), ValueError, "square matrices"),
        (lambda: ops.det(Tensor([[1, 2], [3, 4]])), TypeError, "floating point"),
        (lambda: ops.matrix_power(Tensor(M), 0.5), TypeError, "'n'"),
        (lambda: ops.lstsq(Tensor(M), Tensor(numbers(4, 2))), ValueError, "rows"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
