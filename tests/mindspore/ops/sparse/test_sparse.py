"""COOTensor and CSRTensor: their methods against scipy, inside compiled Cells, and their gradients."""

import numpy as np
import pytest
import scipy.sparse

import sporax.mindspore as ms
from sporax.mindspore import COOTensor, CSRTensor, SparseTensor, Tensor, nn, ops, set_context

RANDOM = np.random.default_rng(7)
DENSE = RANDOM.normal(size=(5, 4)).astype(np.float32) * (RANDOM.random((5, 4)) < 0.5)
OTHER = RANDOM.normal(size=(5, 4)).astype(np.float32) * (RANDOM.random((5, 4)) < 0.5)
FULL = RANDOM.normal(size=(5, 4)).astype(np.float32) + 3
RIGHT = RANDOM.normal(size=(4, 3)).astype(np.float32)


def coo(dense):
    matrix = scipy.sparse.coo_matrix(dense)
    places = np.stack((matrix.row, matrix.col), 1).astype(np.int32)
    return COOTensor(Tensor(places), Tensor(matrix.data), dense.shape)


def csr(dense):
    matrix = scipy.sparse.csr_matrix(dense)
    return CSRTensor(Tensor(matrix.indptr), Tensor(matrix.indices), Tensor(matrix.data), dense.shape)


def same(actual, expected):
    actual = actual if isinstance(actual, Tensor) else actual.to_dense()
    np.testing.assert_allclose(actual.asnumpy(), expected, rtol=1e-5, atol=1e-6)


AT_ENTRIES = np.where(DENSE != 0, 1, 0)
CASES = {
    "coo to csr": (lambda: coo(DENSE).to_csr(), DENSE),
    "coo to csr, rows out of order": (
        lambda: COOTensor(Tensor([[2, 1], [0, 3], [2, 0]]), Tensor([1.0, 2.0, 3.0]), (3, 4)).to_csr(),
        [[0, 0, 0, 2], [0, 0, 0, 0], [3, 1, 0, 0]],
    ),
    "csr to coo": (lambda: csr(DENSE).to_coo(), DENSE),
    "csr to dense": (lambda: csr(DENSE), DENSE),
    "empty last rows": (lambda: csr(np.float32([[0, 1], [0, 0], [0, 0]])).to_coo(), [[0, 1], [0, 0], [0, 0]]),
    "empty first rows": (lambda: csr(np.float32([[0, 0], [0, 0], [2, 1]])).to_coo(), [[0, 0], [0, 0], [2, 1]]),
    "coalesce": (lambda: COOTensor(Tensor([[1, 1], [1, 1], [0, 2]]), Tensor([1.0, -2.0, 3.0]), (2, 3)).coalesce(),
                 [[0, 0, 3], [0, -1, 0]]),
    "coo + coo": (lambda: coo(DENSE) + coo(OTHER), DENSE + OTHER),
    "coo - coo": (lambda: coo(DENSE) - coo(OTHER), DENSE - OTHER),
    "coo + dense": (lambda: coo(DENSE) + Tensor(FULL), DENSE + FULL),
    "dense + coo": (lambda: Tensor(FULL) + coo(DENSE), DENSE + FULL),
    "coo - dense": (lambda: coo(DENSE) - Tensor(FULL), DENSE - FULL),
    "dense - coo": (lambda: Tensor(FULL) - coo(DENSE), FULL - DENSE),
    "coo * dense": (lambda: coo(DENSE) * Tensor(FULL), DENSE * FULL),
    "coo / dense": (lambda: coo(DENSE) / Tensor(FULL), DENSE / FULL),
    "csr + csr": (lambda: csr(DENSE) + csr(OTHER), DENSE + OTHER),
    "csr - csr": (lambda: csr(DENSE) - csr(OTHER), DENSE - OTHER),
    "csr.add": (lambda: csr(DENSE).add(csr(OTHER), Tensor(2.0), Tensor(-3.0)), 2 * DENSE - 3 * OTHER),
    "csr * dense": (lambda: csr(DENSE) * Tensor(FULL), DENSE * FULL),
    "csr * column": (lambda: csr(DENSE) * Tensor(FULL[:, :1]), DENSE * FULL[:, :1]),
    "csr / row": (lambda: csr(DENSE) / Tensor(FULL[:1]), DENSE / FULL[:1]),
    "csr.mv": (lambda: csr(DENSE).mv(Tensor(RIGHT[:, :1])), DENSE @ RIGHT[:, :1]),
    "csr.mm": (lambda: csr(DENSE).mm(Tensor(RIGHT)), DENSE @ RIGHT),
    "csr @ csr": (lambda: csr(DENSE).mm(csr(RIGHT)), DENSE @ RIGHT),
    "csr @ csr.T": (lambda: ops.csr_mm(csr(DENSE), csr(OTHER), trans_b=True), DENSE @ OTHER.T),
    "csr.T @ csr": (lambda: ops.csr_mm(csr(DENSE), csr(OTHER), trans_a=True), DENSE.T @ OTHER),
    "csr.sum": (lambda: csr(DENSE).sum(1), DENSE.sum(1, keepdims=True)),
    "abs": (lambda: csr(DENSE).abs(), np.abs(DENSE)),
    "negative": (lambda: -coo(DENSE), -DENSE),
    "cosine of the values": (lambda: ops.csr_cos(csr(DENSE)), np.cos(DENSE) * AT_ENTRIES),
    "dense to coo": (lambda: ops.dense_to_sparse_coo(Tensor(DENSE)), DENSE),
    "dense to csr": (lambda: ops.dense_to_sparse_csr(Tensor(DENSE)), DENSE),
    "rows below each other": (lambda: ops.coo_concat((coo(DENSE), coo(OTHER))), np.concatenate((DENSE, OTHER))),
    "side by side": (lambda: ops.coo_concat([coo(DENSE), coo(OTHER)], 1), np.concatenate((DENSE, OTHER), 1)),
    "softmax": (
        lambda: ops.csr_softmax(csr(np.float32([[1, 2, 0], [0, 0, 0], [0, 5, 5]])), ms.float32),
        [[0.2689414, 0.7310586, 0], [0, 0, 0], [0, 0.5, 0.5]],
    ),
    "nn.SparseToDense": (lambda: nn.SparseToDense()(coo(DENSE)), DENSE),
    "nn.SparseTensorDenseMatmul": (
        lambda: nn.SparseTensorDenseMatmul(adjoint_st=True)(*coo(DENSE).to_tuple(), Tensor(FULL)), DENSE.T @ FULL,
    ),
    "ops.SparseTensorDenseMatmul, both transposed": (
        lambda: ops.SparseTensorDenseMatmul(True, True)(*coo(DENSE).to_tuple(), Tensor(FULL.T.copy())), DENSE.T @ FULL,
    ),
    "ops.SparseTensorDenseAdd": (
        lambda: ops.SparseTensorDenseAdd()(coo(DENSE).indices, coo(DENSE).values, Tensor([5, 4], ms.int32), Tensor(FULL)),
        DENSE + FULL,
    ),
    "the old name": (lambda: SparseTensor(*coo(DENSE).to_tuple()), DENSE),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    compute, expected = CASES[name]
    same(compute(), expected)


class Everything(nn.Cell):
    """What needs no known coordinates."""

    def construct(self, x, y, dense, right):
        return x.mm(right), x * dense, x.to_coo(), y.to_csr(), -y, y.to_dense(), x.sum(1), dense + y, ops.csr_exp(x)


@pytest.mark.parametrize("mode", [0, 1])
def test_they_are_arguments_and_results_of_cells(mode):
    set_context(mode=mode)
    x, y = csr(DENSE), coo(OTHER)
    product, scaled, as_coo, as_csr, negative, whole, sums, total, exponentials = Everything()(
        x, y, Tensor(FULL), Tensor(RIGHT)
    )
    same(product, DENSE @ RIGHT)
    same(scaled, DENSE * FULL)
    same(as_coo, DENSE)
    same(as_csr, OTHER)
    same(negative, -OTHER)
    same(whole, OTHER)
    same(sums, DENSE.sum(1, keepdims=True))
    same(total, FULL + OTHER)
    same(exponentials, np.exp(DENSE) * AT_ENTRIES)
    assert isinstance(as_coo, COOTensor) and isinstance(as_csr, CSRTensor) and as_csr.shape == (5, 4)


class Loss(nn.Cell):
    def construct(self, x, right):
        return (x.mm(right) ** 2).sum()


@pytest.mark.parametrize("mode", [0, 1])
def test_gradients_of_values_and_of_dense_operands(mode):
    set_context(mode=mode)
    by_values, by_right = ms.grad(Loss(), (0, 1))(csr(DENSE), Tensor(RIGHT))
    slope = 2 * DENSE @ RIGHT
    np.testing.assert_allclose(by_right.asnumpy(), DENSE.T @ slope, rtol=1e-4, atol=1e-5)
    matrix = scipy.sparse.csr_matrix(DENSE)
    rows = np.repeat(np.arange(5), np.diff(matrix.indptr))
    np.testing.assert_allclose(by_values.asnumpy(), (slope @ RIGHT.T)[rows, matrix.indices], rtol=1e-4, atol=1e-5)


def test_gradient_operation_counts_sparse_arguments():
    (by_values,) = ops.GradOperation(get_all=True)(lambda x: (x.to_dense() ** 2).sum())(coo(DENSE))
    np.testing.assert_allclose(by_values.asnumpy(), 2 * coo(DENSE).values.asnumpy(), rtol=1e-6)


def test_a_sum_of_two_is_compiled_where_the_coordinates_are_constants():
    first, second = csr(DENSE), csr(OTHER)

    @ms.jit
    def total(values):
        return (CSRTensor(first.indptr, first.indices, values, first.shape) + second).to_dense()

    same(total(first.values * 2), 2 * DENSE + OTHER)


def test_a_sum_of_two_arguments_of_a_step_runs_operator_by_operator():
    with pytest.warns(UserWarning, match="runs operator by operator"):
        total = ms.jit(lambda a, b: a + b)(csr(DENSE), csr(OTHER))
    same(total.to_dense(), DENSE + OTHER)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: COOTensor([[0, 1]], Tensor([1.0]), (2, 2)), TypeError),
        (lambda: COOTensor(Tensor([[0.0, 1.0]]), Tensor([1.0]), (2, 2)), TypeError),
        (lambda: COOTensor(Tensor([[0, 1]]), Tensor([1.0]), [2, 2]), TypeError),
        (lambda: COOTensor(Tensor([[0, 1]]), Tensor([1.0]), (2, 2, 2)), ValueError),
        (lambda: COOTensor(Tensor([[0, 1]]), Tensor([1.0, 2.0]), (2, 2)), ValueError),
        (lambda: COOTensor(Tensor([[0, 1]]), Tensor([1.0]), (0, 2)), ValueError),
        (lambda: COOTensor(coo_tensor=csr(DENSE)), TypeError),
        (lambda: CSRTensor(Tensor([0, 1]), Tensor([0]), Tensor([1.0]), (2, 2)), ValueError),
        (lambda: CSRTensor(Tensor([0, 1, 1]), Tensor([0, 1]), Tensor([1.0]), (2, 2)), ValueError),
        (lambda: csr(DENSE) + Tensor(FULL), TypeError),
        (lambda: coo(DENSE) * coo(DENSE), TypeError),
        (lambda: coo(DENSE) + coo(RIGHT), ValueError),
        (lambda: csr(DENSE).sum(0), ValueError),
        (lambda: csr(DENSE).mm(Tensor(FULL)), ValueError),
        (lambda: csr(DENSE) * Tensor(FULL[:, :3]), ValueError),
        (lambda: ops.csr_abs(coo(DENSE)), TypeError),
        (lambda: ops.coo_concat((coo(DENSE), coo(RIGHT)), 1), ValueError),
        (lambda: ops.coo_concat((coo(DENSE),)), ValueError),
        (lambda: ops.dense_to_sparse_coo(Tensor([1.0])), ValueError),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, kind):
    with pytest.raises(kind, match="^For '"):
        call()


def test_what_they_report_about_themselves():
    x = csr(DENSE)
    assert (x.shape, x.ndim, x.dtype, x.size, x.itemsize) == ((5, 4), 2, ms.float32, np.count_nonzero(DENSE), 4)
    assert x.astype(ms.float64).dtype == ms.float64
    assert repr(x).startswith("CSRTensor(shape=[5, 4], dtype=Float32, indptr=Tensor(")
    assert repr(coo(DENSE)).startswith("COOTensor(shape=[5, 4], dtype=Float32, indices=Tensor(")
    assert isinstance(ops.make_csr_tensor(*x.to_tuple()), CSRTensor)
    assert ops.csr_tensor_get_dense_shape(x) == (5, 4)
    assert CSRTensor(csr_tensor=x).values is x.values
