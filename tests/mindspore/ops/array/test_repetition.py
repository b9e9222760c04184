import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes
from operator_cases import case, check, numbers
from scipy.linalg import block_diag

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

A, T, V = numbers(3, 4), numbers(2, 3, 4), numbers(3)

CASES = {
    "LinSpace": case(lambda a, b: ops.LinSpace()(a, b, 5), lambda a, b: np.linspace(a, b, 5), np.array(1.0), np.array(3.0)),
    "logspace": case(lambda: ops.logspace(0, 2, 3), lambda: np.float32([1, 10, 100]), grad=False),
    "Fill": case(lambda: ops.Fill()(ms.int32, (2, 2), 3), lambda: np.full((2, 2), 3), grad=False),
    "fill": case(lambda: ops.fill(ms.float32, (2,), 3), lambda: np.full(2, 3), grad=False),
    "FillV2": case(lambda: ops.FillV2()((2,), Tensor(1.5)), lambda: np.full(2, 1.5), grad=False),
    "fills": case(lambda x: ops.fills(x, 2), lambda x: np.full(x.shape, 2.0), A, grad=False),
    "Eye": case(lambda: ops.Eye()(2, 3, ms.float64), lambda: np.eye(2, 3), grad=False),
    "Zeros": case(lambda: ops.Zeros()((2,), ms.int32), lambda: np.zeros(2), grad=False),
    "Ones": case(lambda: ops.Ones()((2,)), lambda: np.ones(2), grad=False),
    "Range": case(lambda: ops.Range()(1, 8, 3), lambda: np.arange(1, 8, 3), grad=False),
    "range backwards": case(lambda: ops.range(3.0, 0.0, -1.5), lambda: np.arange(3.0, 0, -1.5), grad=False),
    "tril_indices": case(lambda: ops.tril_indices(3, 4, 1), lambda: np.stack(np.tril_indices(3, 1, 4)), grad=False),
    "TriuIndices": case(lambda: ops.TriuIndices(3, 4, 1)(), lambda: np.stack(np.triu_indices(3, 1, 4)), grad=False),
    "meshgrid": case(ops.meshgrid, np.meshgrid, V, A[0]),
    "Meshgrid": case(lambda x, y: ops.Meshgrid("ij")((x, y)), lambda x, y: np.meshgrid(x, y, indexing="ij"), V, A[0]),
    "mint.meshgrid": case(mint.meshgrid, lambda x, y: np.meshgrid(x, y, indexing="ij"), V, A[0]),
    "flip": case(lambda x: ops.flip(x, (0, -1)), lambda x: np.flip(x, (0, 1)), A),
    "ReverseV2": case(ops.ReverseV2((1,)), lambda x: np.flip(x, 1), A),
    "reverse": case(lambda x: ops.reverse(x, 0), lambda x: np.flip(x, 0), A),
    "fliplr": case(ops.fliplr, np.fliplr, A),
    "flipud": case(ops.flipud, np.flipud, A),
    "roll": case(lambda x: ops.roll(x, (1, -2), (0, 1)), lambda x: np.roll(x, (1, -2), (0, 1)), A),
    "roll flat": case(lambda x: ops.Roll(3)(x), lambda x: np.roll(x, 3), A),
    "rot90": case(lambda x: ops.rot90(x, 3, (1, 2)), lambda x: np.rot90(x, 3, (1, 2)), T),
    "ReverseSequence": case(lambda x, n: ops.ReverseSequence(1)(x, n), lambda x, n: np.array([x[0, [1, 0, 2, 3]], x[1], x[2, ::-1]]), A, np.array([2, 1, 4])),
    "repeat_elements": case(lambda x: ops.repeat_elements(x, 2, 1), lambda x: np.repeat(x, 2, 1), A),
    "repeat_interleave": case(lambda x: ops.repeat_interleave(x, Tensor([1, 0, 2]), 0), lambda x: np.repeat(x, [1, 0, 2], 0), A),
    "Tensor.repeat": case(lambda x: x.repeat(2, 1), lambda x: np.tile(x, (2, 1)), A),
    "hstack": case(lambda x, y: ops.hstack((x, y)), lambda x, y: np.hstack((x, y)), A, A + 1),
    "vstack": case(lambda x, y: ops.vstack((x, y)), lambda x, y: np.vstack((x, y)), A, A[0]),
    "dstack": case(lambda x, y: mint.dstack((x, y)), lambda x, y: np.dstack((x, y)), A, A + 1),
    "column_stack": case(lambda x, y: ops.column_stack((x, y)), lambda x, y: np.column_stack((x, y)), V, V + 1),
    "atleast_2d": case(ops.atleast_2d, np.atleast_2d, V),
    "atleast_3d": case(lambda x, y: ops.atleast_3d((x, y)), np.atleast_3d, V, A),
    "block_diag": case(ops.block_diag, block_diag, A, V),
    "cartesian_prod": case(ops.cartesian_prod, lambda x, y: np.array(list(itertools.product(x, y))), V, A[0]),
    "combinations": case(lambda x: ops.combinations(x, 2, True), lambda x: np.array(list(itertools.combinations_with_replacement(x, 2))), V),
    "movedim": case(lambda x: ops.movedim(x, (0, 1), (2, 0)), lambda x: np.moveaxis(x, (0, 1), (2, 0)), T),
    "moveaxis": case(lambda x: x.moveaxis(0, -1), lambda x: np.moveaxis(x, 0, -1), T),
    "swapdims": case(lambda x: ops.swapdims(x, 0, 2), lambda x: np.swapaxes(x, 0, 2), T),
    "t": case(ops.t, np.transpose, A),
    "ravel": case(ops.ravel, np.ravel, A),
    "view_as": case(ops.view_as, lambda x, y: x.reshape(4, 3), A, numbers(4, 3)),
    "expand": case(lambda x: ops.expand(x, (2, -1, -1)), lambda x: np.broadcast_to(x, (2, 3, 4)), A),
    "Tensor.expand": case(lambda x: x.expand(2, 3), lambda x: np.broadcast_to(x, (2, 3)), V),
    "Diag": case(ops.Diag(), np.diag, V),
    "Diag of a matrix": case(ops.diag, lambda x: np.diag(x.ravel()).reshape(3, 4, 3, 4), A),
    "DiagPart": case(ops.DiagPart(), np.diagonal, A[:, :3]),
    "mint.diag": case(lambda x: mint.diag(x, 1), lambda x: np.diag(x, 1), A),
    "diagflat": case(lambda x: ops.diagflat(x, -1), lambda x: np.diagflat(x, -1), A),
    "diagonal": case(lambda x: x.diagonal(1, axis1=1, axis2=2), lambda x: np.diagonal(x, 1, 1, 2), T),
    "diag_embed": case(lambda x: ops.diag_embed(x, 1, 0, 2), lambda x: np.moveaxis(np.stack([np.diag(v, 1) for v in x]), (1, 2), (0, 2)), A),
    "sequence_mask": case(ops.sequence_mask, lambda n: np.arange(3) < n[..., None], np.array([[1, 3], [0, 2]]), grad=False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@settings(max_examples=8, deadline=None)
@given(array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3), st.data())
def test_any_dimension(shape, data):
    """Along any dimension, counted from either end, of tensors that may be empty."""
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    shift = data.draw(st.integers(-4, 4))
    np.testing.assert_array_equal(ops.flip(Tensor(values), axis).asnumpy(), np.flip(values, axis))
    np.testing.assert_array_equal(ops.roll(Tensor(values), shift, axis).asnumpy(), np.roll(values, shift, axis))
    np.testing.assert_array_equal(ops.movedim(Tensor(values), axis, 0).asnumpy(), np.moveaxis(values, axis, 0))


def test_facts_as_values():
    x = Tensor(np.zeros((2, 3), np.float16))
    assert (ops.Shape()(x), ops.Rank()(x), ops.Size()(x), ops.DType()(x)) == ((2, 3), 2, 6, ms.float16)
    assert (ops.numel(x), ops.dtype(x), ops.is_tensor(x), ops.is_tensor(1)) == (6, ms.float16, True, False)
    assert ops.type_as(Tensor([1.5]), Tensor([1], ms.int32)).dtype == ms.int32


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.LinSpace()(Tensor(1.0), Tensor(2.0), 0), ValueError, "'num' must be >= 1"),
        (lambda: ops.Range(3)(0, 10, 1), ValueError, "at most 'maxlen' 3"),
        (lambda: ops.flip(Tensor(A), 2), ValueError, "dims"),
        (lambda: ops.rot90(Tensor(A), 1, (0,)), ValueError, "two dims"),
        (lambda: ops.DiagPart()(Tensor(A)), ValueError, "one shape twice"),
        (lambda: ops.diag_embed(Tensor(A), 0, 1, 1), ValueError, "must differ"),
        (lambda: ops.t(Tensor(T)), ValueError, "dimensions"),
        (lambda: ops.Shape()([1]), TypeError, "must be a Tensor"),
        (lambda: ops.fliplr(Tensor(V)), ValueError, "more than 1 dims"),
        (lambda: ops.repeat_interleave(Tensor(V), [1, 2]), ValueError, "'repeats'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
