import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

A = numbers(3, 4)
I = np.array([[0, 2, 1, 1], [2, 2, 0, 0]])
MASK = np.array([[True, False, True, True], [False] * 4, [True] * 4])

CASES = {
    "GatherD": case(lambda x, i: ops.GatherD()(x, 0, i), lambda x, i: np.take_along_axis(x, i, 0), A, I),
    "gather_elements": case(lambda x, i: ops.gather_elements(x, 1, i), lambda x, i: np.take_along_axis(x[:2], i, 1), A, I),
    "mint.gather": case(lambda x, i: mint.gather(x, 0, i), lambda x, i: np.take_along_axis(x, i, 0), A, I),
    "GatherNd": case(ops.GatherNd(), lambda x, i: x[i[:, 0], i[:, 1]], A, I[:, :2]),
    "GatherNd of rows": case(ops.gather_nd, lambda x, i: x[i[..., 0]], A, I[..., None]),
    "index_select": case(lambda x, i: ops.index_select(x, 1, i), lambda x, i: x[:, i], A, I[0]),
    "take": case(ops.take, lambda x, i: x.ravel()[i], A, I),
    "mint.select": case(lambda x: mint.select(x, 1, -1), lambda x: x[:, -1], A),
    "EmbeddingLookup": case(lambda x, i: ops.EmbeddingLookup()(x, i, 1), lambda x, i: np.stack([x[1], np.zeros(4), x[0]]), A, np.array([2, 0, 1])),
    "SparseGatherV2": case(lambda x, i: ops.SparseGatherV2()(x, i, 1), lambda x, i: x[:, i], A, I[0]),
    "embedding": case(lambda i, x: ops.embedding(i, x), lambda i, x: x[i], I, numbers(3, 2)),
    "masked_select": case(ops.masked_select, lambda x, m: x[m], A, MASK),
    "MaskedSelect broadcast": case(ops.MaskedSelect(), lambda x, m: x[:, m].ravel(), A, MASK[0]),
    "nonzero": case(ops.nonzero, np.argwhere, MASK, grad=False),
    "argwhere": case(ops.argwhere, np.argwhere, A > 0, grad=False),
    "narrow": case(lambda x: ops.narrow(x, 1, -3, 2), lambda x: x[:, 1:3], A),
    "chunk": case(lambda x: ops.chunk(x, 3, 1), lambda x: (x[:, :2], x[:, 2:]), A),
    "tensor_split": case(lambda x: ops.tensor_split(x, 3, 1), lambda x: np.array_split(x, 3, 1), A),
    "tensor_split at": case(lambda x: ops.tensor_split(x, (1, 3), 1), lambda x: np.split(x, (1, 3), 1), A),
    "hsplit": case(lambda x: ops.hsplit(x, 2), lambda x: np.hsplit(x, 2), A),
    "vsplit": case(lambda x: ops.vsplit(x, [1]), lambda x: np.vsplit(x, [1]), A),
    "dsplit": case(lambda x: ops.dsplit(x, 2), lambda x: np.dsplit(x, 2), numbers(1, 2, 4)),
    "unbind": case(lambda x: ops.unbind(x, 1), lambda x: tuple(x.T), A),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 7), st.integers(1, 9))
def test_chunks_cover_everything(size, chunks):
    parts = ops.chunk(Tensor(np.arange(size)), chunks)
    assert sum((part.tolist() for part in parts), []) == list(range(size))
    assert len(parts) <= chunks and len({part.size for part in parts[:-1]}) <= 1


def test_out_of_range_gives_zeros():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert ops.gather_nd(x, Tensor([[5]])).tolist() == [[0, 0]]
    assert ops.GatherD()(x, 1, Tensor([[7], [0]])).tolist() == [[0], [3]]
    assert ops.index_select(x, 0, Tensor([9])).tolist() == [[0, 0]]


def test_positions_as_a_tuple():
    rows, columns = ops.nonzero(Tensor([[0, 1], [1, 0]]), as_tuple=True)
    assert rows.tolist() == [0, 1] and columns.tolist() == [1, 0] and rows.dtype == ms.int64


def test_embedding_options():
    table, at = Tensor([[3.0, 4.0], [1.0, 0.0]]), Tensor([0, 0, 1])
    np.testing.assert_allclose(ops.embedding(at, table, max_norm=1.0).asnumpy()[0], [0.6, 0.8], rtol=1e-6)
    rows = lambda **settings: ms.grad(lambda w: ops.embedding(at, w, **settings).sum())(table).tolist()
    assert rows() == [[2, 2], [1, 1]]
    assert rows(padding_idx=0) == [[0, 0], [1, 1]]
    assert rows(scale_grad_by_freq=True) == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.GatherD()(Tensor(A), 0, Tensor([0])), ValueError, "as many dims"),
        (lambda: ops.GatherD()(Tensor(A), 0, Tensor(A)), TypeError, "integer"),
        (lambda: ops.gather_nd(Tensor(A), Tensor([[0, 0, 0]])), ValueError, "at most"),
        (lambda: ops.masked_select(Tensor(A), Tensor(A)), TypeError, r"Tensor\[Bool\]"),
        (lambda: ops.narrow(Tensor(A), 0, 2, 2), ValueError, "must lie within"),
        (lambda: ops.chunk(Tensor(A), 0), ValueError, "positive int"),
        (lambda: ops.embedding(Tensor([0]), Tensor(A[0])), ValueError, "2 dimensions"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
