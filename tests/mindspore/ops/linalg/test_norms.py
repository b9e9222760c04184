import numpy as np
import pytest
from operator_cases import case, check, numbers
from scipy.spatial import distance

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

A, B = numbers(3, 4), numbers(2, 4, seed=1)


def normalized(x, p, dim):
    return x / np.linalg.norm(x, p, dim, keepdims=True)


CASES = {
    "norm": case(ops.norm, np.linalg.norm, A),
    "norm of rows": case(lambda x: ops.norm(x, 3, 1, True), lambda x: np.linalg.norm(x, 3, 1, True), A),
    "norm inf": case(lambda x: ops.norm(x, float("inf"), 0), lambda x: np.linalg.norm(x, np.inf, 0), A),
    "norm 0": case(lambda x: ops.norm(x, 0, 0), lambda x: np.linalg.norm(x, 0, 0), A, grad=False),
    "matrix norms": case(
        lambda x: tuple(ops.norm(x, each) for each in ("fro", "nuc", 1, -1, 2)),
        lambda x: tuple(np.linalg.norm(x, each) for each in ("fro", "nuc", 1, -1, 2)), A),
    "vector_norm": case(lambda x: ops.vector_norm(x, 1), lambda x: np.abs(x).sum(), A),
    "matrix_norm": case(lambda x: ops.matrix_norm(x, 1), lambda x: np.linalg.norm(x, 1), A),
    "mint.norm": case(lambda x: mint.norm(x, 3.0, 1), lambda x: np.linalg.norm(x, 3, 1), A),
    "LpNorm": case(ops.LpNorm(1, 3), lambda x: np.linalg.norm(x, 3, 1), A),
    "L2Loss": case(ops.L2Loss(), lambda x: (x**2).sum() / 2, A),
    "SquareSumAll": case(ops.SquareSumAll(), lambda x, y: ((x**2).sum(), (y**2).sum()), A, B),
    "Cdist": case(ops.Cdist(), distance.cdist, A, B),
    "Cdist p": case(ops.Cdist(3.0), lambda x, y: distance.cdist(x, y, "minkowski", p=3), A, B),
    "Cdist inf": case(ops.Cdist(float("inf")), lambda x, y: distance.cdist(x, y, "chebyshev"), A, B),
    "Pdist": case(ops.pdist, distance.pdist, A),
    "dist": case(lambda x, y: ops.dist(x, y, 1), lambda x, y: abs(x - y).sum(), A, A + B[:1]),
    "cosine_similarity": case(ops.cosine_similarity, lambda x, y: (normalized(x, 2, 1) * normalized(y, 2, 1)).sum(1), A, A + 1),
    "L2Normalize": case(ops.L2Normalize(1), lambda x: normalized(x, 2, 1), A),
    "L2Normalize near 0": case(ops.L2Normalize(0, 0.5), lambda x: x / np.sqrt(0.5), np.array([0.1, 0.2])),
    "normalize": case(lambda x: mint.nn.functional.normalize(x, 3.0, 0), lambda x: normalized(x, 3, 0), A),
    "Renorm": case(ops.Renorm(2.0, 0, 1.0), lambda x: x / (np.linalg.norm(x, 2, 1, keepdims=True) + 1e-7), A * 5),
    "clip_by_norm": case(lambda x: ops.clip_by_norm(x, 0.5), lambda x: x * (0.5 / (np.linalg.norm(x) + 1e-6)), A),
    "clip_by_global_norm": case(
        lambda x, y: ops.clip_by_global_norm((x, y), 0.5),
        lambda x, y: tuple(each * 0.5 / np.sqrt((x**2).sum() + (y**2).sum()) for each in (x, y)), A, B),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_small_norms_are_left_alone():
    x = Tensor([0.3, 0.4])
    assert ops.clip_by_norm(x, 1.0).tolist() == x.tolist()
    assert ops.clip_by_global_norm([x])[0].tolist() == x.tolist()
    np.testing.assert_allclose(ops.renorm(x.reshape(1, 2), 2.0, 0, 1.0).asnumpy(), [[0.3, 0.4]], rtol=1e-6)


def test_half_precision_is_summed_in_float32():
    clipped = ops.clip_by_global_norm([Tensor(np.full(4096, 100, np.float16))], 1.0)[0]
    assert clipped.dtype == ms.float16
    np.testing.assert_allclose(clipped.asnumpy().astype(np.float32), 1 / 64, rtol=2e-3)


@pytest.mark.parametrize(
    "call",
    [ops.norm, lambda x: ops.cdist(x, x).sum(), lambda x: ops.pdist(x).sum(), lambda x: ops.clip_by_norm(x, 1.0).sum()],
)
def test_gradient_at_zero_is_finite(call):
    gradient = ms.grad(call)(Tensor(np.zeros((2, 2))))
    assert np.isfinite(gradient.asnumpy()).all()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.clip_by_global_norm([Tensor(A)], 1.0, Tensor(1.0)), ValueError, "'use_norm' must be None"),
        (lambda: ops.clip_by_global_norm([Tensor(A)], -1.0), ValueError, "positive"),
        (lambda: ops.clip_by_global_norm([A]), TypeError, "Tensors"),
        (lambda: ops.clip_by_norm(Tensor([float("inf")]), 1.0, error_if_nonfinite=True), RuntimeError, "finite"),
        (lambda: ops.cdist(Tensor(A), Tensor(numbers(2, 3))), ValueError, "one length"),
        (lambda: ops.Cdist(-1.0)(Tensor(A), Tensor(A)), ValueError, ">= 0"),
        (lambda: ops.norm(Tensor(numbers(2, 2, 2)), 1), ValueError, "'dim' must be given"),
        (lambda: ops.matrix_norm(Tensor(A), "max"), ValueError, "must be one of"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
