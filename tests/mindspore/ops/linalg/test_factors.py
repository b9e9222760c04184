"""Packed factors of matrices against numpy and scipy, and gradients where there are any."""

import numpy as np
import pytest
import scipy.linalg
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops

A, B = numbers(4, 3), numbers(4, 2, seed=1)
SQUARE = numbers(3, 3, seed=2) + 3 * np.eye(3)
PACKED, PIVOTS = scipy.linalg.lu_factor(SQUARE)
PIVOTS = (PIVOTS + 1).astype(np.int32)
REFLECTIONS, TAU = (part.asnumpy() for part in ops.geqrf(Tensor(A)))
Q = scipy.linalg.qr(A)[0]

CASES = {
    "Lstsq": case(ops.Lstsq(), lambda a, b: np.linalg.lstsq(a, b)[0], A, B),
    "NuclearNorm": case(ops.NuclearNorm(), lambda a: np.linalg.norm(a, "nuc"), A),
    "NuclearNorm of dims": case(
        ops.NuclearNorm((2, 0), True), lambda a: np.linalg.norm(a, "nuc", (2, 0), True), numbers(2, 3, 3), grad=False
    ),
    "ConjugateTranspose": case(lambda a: ops.ConjugateTranspose()(a, (1, 0)), np.transpose, A),
    "lu_solve": case(
        lambda b: ops.lu_solve(b, Tensor(PACKED), Tensor(PIVOTS)), lambda b: np.linalg.solve(SQUARE, b), B[:3]
    ),
    "lu_unpack": case(lambda p: ops.lu_unpack(p, Tensor(PIVOTS))[1:], None, PACKED),
    "orgqr": case(ops.orgqr, lambda r, t: Q[:, :3], REFLECTIONS, TAU, grad=False),
    "ormqr": case(ops.ormqr, lambda r, t, b: Q @ b, REFLECTIONS, TAU, B, grad=False),
    "ormqr transposed": case(
        ops.Ormqr(False, True), lambda r, t, b: b @ Q.T, REFLECTIONS, TAU, numbers(2, 4), grad=False
    ),
    "TridiagonalMatMul": case(
        ops.TridiagonalMatMul(),
        lambda u, d, s, b: (np.diag(u[0, :2], 1) + np.diag(d[0]) + np.diag(s[0, 1:], -1)) @ b,
        numbers(1, 3), numbers(1, 3, seed=1), numbers(1, 3, seed=2), numbers(3, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_products_of_the_factors():
    permutation, lower, upper = ops.lu_unpack(Tensor(PACKED), Tensor(PIVOTS))
    np.testing.assert_allclose((permutation @ lower @ upper).asnumpy(), SQUARE, rtol=1e-10)
    np.testing.assert_allclose(ops.orgqr(*ops.geqrf(Tensor(A))).asnumpy() @ np.triu(REFLECTIONS[:3]), A, rtol=1e-10)
    values, vectors = ops.Eig(True)(Tensor(SQUARE))
    np.testing.assert_allclose(SQUARE @ vectors.asnumpy(), vectors.asnumpy() * values.asnumpy(), atol=1e-10)
    assert ops.Eig()(Tensor(SQUARE))[1].shape == (0,)


def test_arguments_that_do_not_fit_are_refused():
    x = Tensor(A)
    with pytest.raises(TypeError, match="'l2_regularizer' must be 0.0, but got 0.5"):
        ops.Lstsq(l2_regularizer=0.5)(x, x)
    with pytest.raises(ValueError, match="'LU_pivots' must have shape"):
        ops.lu_unpack(x, Tensor([1], ms.int32))
    with pytest.raises(ValueError, match="k <= n <= m"):
        ops.orgqr(x.T, Tensor(TAU))
    with pytest.raises(ValueError, match="must name two dims"):
        ops.NuclearNorm((0,))(x)
