"""Operators that make, reshape, join and cut tensors, against numpy."""

import numpy as np
import pytest
from against_numpy import check, numbers
from hypothesis import given, settings, strategies as st

import sporax.mindspore as ms
from sporax.mindspore import mint, ops

# what it is, call, reference, shapes of the inputs
CASES = [
    ("reshape", lambda x: ops.reshape(x, (3, -1)), lambda x: x.reshape(3, -1), [(2, 3)]),
    ("reshape of nothing", lambda x: ops.reshape(x, (4, 0, -1)), lambda x: x.reshape(4, 0, 0), [(0, 4)]),
    ("view", lambda x: x.view(3, 2), lambda x: x.reshape(3, 2), [(2, 3)]),
    ("transpose", lambda x: ops.transpose(x, (2, -3, 1)), lambda x: x.transpose(2, 0, 1), [(2, 3, 4)]),
    ("permute", lambda x: ops.permute(x, (1, 0)), np.transpose, [(2, 3)]),
    ("T", lambda x: x.T, lambda x: x.T, [(2, 3, 4)]),
    ("swapaxes", lambda x: ops.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1), [(2, 3, 4)]),
    ("mint transpose", lambda x: mint.transpose(x, 0, 1), np.transpose, [(2, 3)]),
    ("expand_dims", lambda x: ops.expand_dims(x, -1), lambda x: x[..., None], [(2, 3)]),
    ("unsqueeze", lambda x: x.unsqueeze(0), lambda x: x[None], [(2, 3)]),
    ("squeeze", ops.squeeze, np.squeeze, [(1, 3, 1)]),
    ("Squeeze", lambda x: ops.Squeeze((0, -1))(x), np.squeeze, [(1, 3, 1)]),
    ("Flatten", lambda x: ops.Flatten()(x), lambda x: x.reshape(2, -1), [(2, 3, 2)]),
    ("flatten", lambda x: ops.flatten(x, start_dim=0, end_dim=1), lambda x: x.reshape(6, 2), [(2, 3, 2)]),
    ("flatten F", lambda x: ops.flatten(x, "F", start_dim=0), lambda x: x.reshape(-1, order="F"), [(2, 3)]),
    ("flatten method", lambda x: x.flatten(), np.ravel, [(2, 3)]),
    ("mint flatten", mint.flatten, np.ravel, [(2, 3)]),
    ("tile", lambda x: ops.tile(x, (2, 1, 2)), lambda x: np.tile(x, (2, 1, 2)), [(2, 3)]),
    ("broadcast_to", lambda x: ops.broadcast_to(x, (4, 2, -1)), lambda x: np.broadcast_to(x, (4, 2, 3)), [(2, 3)]),
    ("expand_as", lambda x, y: x.expand_as(y) * 1.0, lambda x, y: np.broadcast_to(x, (2, 3)) + 0 * y, [(3,), (2, 3)]),
    ("concat", lambda x, y: ops.concat((x, y), -1), lambda x, y: np.concatenate((x, y), 1), [(2, 3), (2, 1)]),
    ("cat", lambda x, y: ops.cat([x, y]), lambda x, y: np.concatenate((x, y)), [(2, 3), (1, 3)]),
    ("stack", lambda x, y: ops.stack((x, y), -1), lambda x, y: np.stack((x, y), -1), [(2, 3), (2, 3)]),
    ("Split", lambda x: ops.Split(1, 2)(x), lambda x: np.split(x, 2, 1), [(2, 4)]),
    ("split size", lambda x: ops.split(x, 3, 1), lambda x: np.split(x, [3], 1), [(2, 4)]),
    ("split sections", lambda x: ops.split(x, (1, 0, 3), -1), lambda x: np.split(x, [1, 1], 1), [(2, 4)]),
    ("unstack", lambda x: ops.unstack(x, 1), lambda x: tuple(np.moveaxis(x, 1, 0)), [(2, 3)]),
    ("slice", lambda x: ops.slice(x, (0, 1), (2, -1)), lambda x: x[0:2, 1:], [(2, 3)]),
    (
        "strided slice",
        lambda x: ops.strided_slice(x, (0, 3), (9, 0), (1, -2), end_mask=1),
        lambda x: x[0:, 3:0:-2],
        [(2, 4)],
    ),
    (
        "strided slice masks",
        lambda x: ops.StridedSlice(1, 2, 4, 8, 16)(x, (0, 1, 0, 0, 1), (2, 0, 0, 0, 0), (1,) * 5),
        lambda x: x[:2, 1:, ..., None, 1],
        [(2, 3, 4, 2)],
    ),
    ("tril", lambda x: ops.tril(x, 1), lambda x: np.tril(x, 1), [(3, 3)]),
    ("triu", lambda x: ops.triu(x, -1), lambda x: np.triu(x, -1), [(2, 3, 3)]),
    ("identity", ops.deepcopy, np.copy, [(2, 3)]),
    ("method select", lambda x: x.select(1, 2), lambda x: x[:, 2], [(2, 3)]),
]


@pytest.mark.parametrize(("call", "reference", "shapes"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_values_and_gradients(call, reference, shapes):
    check(call, reference, *(numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)))


def test_gather_takes_rows_by_index_along_an_axis():
    index = np.array([[2, 0], [-1, 2]])
    check(lambda x, i: ops.gather(x, i, 0), lambda x, i: x[i], numbers(3, 2), index)
    check(lambda x, i: ops.Gather()(x, i, -1), lambda x, i: x[:, i], numbers(2, 3), index)
    batched = lambda x, i: np.stack([rows[item] for rows, item in zip(x, i, strict=True)])
    check(lambda x, i: ops.gather(x, i, 1, batch_dims=1), batched, numbers(2, 3, 2), index)


def test_gather_out_of_range_gives_zeros():
    rows = ops.gather(ms.Tensor([[1.0], [2.0]]), ms.Tensor([5, 1, -7]), 0)
    np.testing.assert_array_equal(rows.asnumpy(), [[0], [2], [0]])


def test_one_hot():
    index = ms.Tensor([0, 2, 5, -1])
    expected = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    hot = ops.one_hot(index, 3)
    assert hot.dtype == ms.int64
    np.testing.assert_array_equal(hot.asnumpy(), expected)
    along_first = ops.OneHot(0)(index, 3, ms.Tensor(2.5), ms.Tensor(0.5))
    assert along_first.dtype == ms.float32
    np.testing.assert_array_equal(along_first.asnumpy(), np.where(expected.T, 2.5, 0.5))


def test_shape_rank_and_size_are_python_numbers():
    tensor = ms.Tensor([[1, 2]])
    assert (ops.shape(tensor), ops.rank(tensor), ops.size(tensor)) == ((1, 2), 2, 2)


def test_joining_brings_dtypes_together():
    parts = ops.concat((ms.Tensor([1]), ms.Tensor([0.5])))
    assert parts.dtype == ms.float32
    with pytest.raises(TypeError, match="For 'Concat', type implicit conversion"):
        ops.concat((ms.Tensor([1], ms.uint32), ms.Tensor([1], ms.int32)))


@settings(max_examples=12, deadline=None)
@given(data=st.data(), shape=st.sampled_from([(), (0, 3), (2, 3, 4)]))
def test_any_order_of_dimensions(data, shape):
    order = data.draw(st.permutations(range(len(shape))))
    signed = tuple(item - len(shape) if data.draw(st.booleans()) else item for item in order)
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(ops.transpose(ms.Tensor(values), signed).asnumpy(), values.transpose(order))


F = ms.Tensor(np.ones((2, 3), np.float32))
ERRORS = [
    (lambda: ops.reshape(F, (4, 2)), ValueError, r"\(2, 3\) \(6 elements\).*\(4, 2\)"),
    (lambda: ops.reshape(F, (-1, -1)), ValueError, r"one -1"),
    (lambda: ops.reshape(F, 6), TypeError, "'shape' must be tuple of int, but got int: 6"),
    (lambda: ops.reshape(F, (3, 2.0)), TypeError, r"'shape' must be tuple of int, but got tuple: \(3, 2.0\)"),
    (lambda: ops.transpose(F, (0,)), ValueError, "all 2 dimensions"),
    (lambda: ops.transpose(F, (0, 0)), ValueError, "twice"),
    (lambda: ops.expand_dims(F, 3), ValueError, r"\[-3, 3\), but got 3"),
    (lambda: ops.Squeeze(0)(F), ValueError, r"dim 0 must be of size 1, but the shape is \(2, 3\)"),
    (lambda: ops.Flatten()(ms.Tensor(1.0)), ValueError, "at least one dimension"),
    (lambda: ops.flatten(F, start_dim=1, end_dim=0), ValueError, "must not be after"),
    (lambda: ops.flatten(F, "Z"), ValueError, r"'order' must be one of \('C', 'F'\), but got 'Z'"),
    (lambda: ops.tile(F, (-1, 2)), ValueError, r">= 0, but got \(-1, 2\)"),
    (lambda: ops.broadcast_to(F, (2, 4)), ValueError, r"\(2, 3\) does not broadcast to \(2, 4\)"),
    (lambda: ops.broadcast_to(F, (3,)), ValueError, "does not broadcast"),
    (lambda: ops.concat(()), ValueError, "at least one Tensor"),
    (lambda: ops.concat((F, F[0])), ValueError, r"x\[1\] has shape \(3,\)"),
    (lambda: ops.concat((F, F[:, :2])), ValueError, r"x\[0\].shape is \(2, 3\) and x\[1\].shape is \(2, 2\)"),
    (lambda: ops.concat(F), TypeError, "'tensors' must be tuple of Tensor"),
    (lambda: ops.stack((F, F[:1])), ValueError, "sizes"),
    (lambda: ops.Split(1, 2)(F), ValueError, "size 3 must be divisible by 'output_num' 2"),
    (lambda: ops.split(F, (1, 1), 1), ValueError, "must add up to 3"),
    (lambda: ops.Unstack(0, 3)(F), ValueError, "'num' must be the size of dim 0, 2, but got 3"),
    (lambda: ops.slice(F, (0, 1), (2, 3)), ValueError, "begin 1 and size 3 leave the range of dim 1"),
    (lambda: ops.slice(F, (0,), (2,)), ValueError, "one number per dim"),
    (lambda: ops.strided_slice(F, (0,), (1,), (0,)), ValueError, "must not be 0"),
    (lambda: ops.strided_slice(F, (0, 0), (1,), (1,)), ValueError, "one length"),
    (lambda: ops.gather(F, F, 0), TypeError, "'input_indices' must be an integer type, but got Float32"),
    (lambda: ops.one_hot(F, 3), TypeError, "integer"),
    (lambda: ops.one_hot(ms.Tensor([1]), -1), ValueError, "'depth' must be >= 0, but got -1"),
    (lambda: ops.zeros((2, -1)), ValueError, r">= 0, but got \(2, -1\)"),
    (lambda: ops.zeros(2.0), TypeError, "tuple of ints"),
    (lambda: ops.arange(0, 3, 0), ValueError, "'step' must not be 0"),
    (lambda: ops.shape(3), TypeError, "must be a Tensor, but got int"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
