import numpy as np
import pytest
from operator_cases import case, check, numbers

from sporax.mindspore import Tensor, mint, ops

M, N = numbers(3, 3), numbers(3, 3, seed=1)
T, U = numbers(2, 3, 4), numbers(2, 4, 3, seed=1)
V, W = numbers(3), numbers(3, seed=1)

CASES = {
    "mm": case(ops.mm, np.matmul, M, N),
    "mv": case(ops.mv, np.matmul, M, V),
    "dot": case(ops.dot, np.dot, T, numbers(4, 2)),
    "Tensor.dot": case(lambda x, y: x.dot(y), np.dot, V, W),
    "Tensor.dot of matrices": case(lambda x, y: x.dot(y), np.dot, numbers(2, 3), numbers(4, 3, 5, seed=1)),
    "vdot": case(mint.vdot, np.vdot, V, W),
    "vecdot": case(ops.vecdot, lambda x, y: (x * y).sum(-1), M, V),
    "inner": case(ops.inner, np.inner, M, N),
    "outer": case(ops.outer, np.outer, V, numbers(2)),
    "Ger": case(ops.ger, np.outer, V, numbers(2)),
    "kron": case(ops.kron, np.kron, M, numbers(2)),
    "Cross": case(ops.Cross(1), np.cross, M, N),
    "cross along the first of size 3": case(ops.cross, lambda x, y: np.cross(x, y, axis=1), numbers(2, 3), numbers(2, 3, seed=1)),
    "tensor_dot": case(lambda x, y: ops.tensor_dot(x, y, ((1,), (2,))), lambda x, y: np.tensordot(x, y, ((1,), (2,))), T, U),
    "batch_dot": case(ops.batch_dot, lambda x, y: np.einsum("bij,bjk->bik", x, y), T, U),
    "batch_dot of vectors": case(ops.batch_dot, lambda x, y: (x * y).sum(1, keepdims=True), M, N),
    "einsum": case(lambda x, y: ops.einsum("bij,bji->b", x, y), lambda x, y: np.einsum("bij,bji->b", x, y), T, U),
    "Einsum": case(lambda x: ops.Einsum("ii->i")((x,)), np.diag, M),
    "addmm": case(lambda *a: ops.addmm(*a, beta=0.5, alpha=2.0), lambda c, a, b: 0.5 * c + 2 * a @ b, M, N, M),
    "addmv": case(ops.addmv, lambda c, a, b: c + a @ b, V, M, W),
    "addr": case(ops.addr, lambda c, a, b: c + np.outer(a, b), M, V, W),
    "addbmm": case(ops.addbmm, lambda c, a, b: c + (a @ b).sum(0), M, T, U),
    "baddbmm": case(ops.baddbmm, lambda c, a, b: c + a @ b, numbers(2, 3, 3), T, U),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.mm(Tensor(V), Tensor(M)), ValueError, "must have 2 dimensions"),
        (lambda: ops.cross(Tensor(np.ones(2)), Tensor(np.ones(2))), ValueError, "of size 3"),
        (lambda: ops.einsum("ij,jk->ik", Tensor(M), Tensor(V)), ValueError, "einsum"),
        (lambda: ops.einsum(3, Tensor(M)), TypeError, "equation"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
