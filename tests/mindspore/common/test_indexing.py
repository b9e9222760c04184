"""Reading and writing parts of a Tensor, against numpy."""

import weakref

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn

SHAPE = (3, 2, 4)
VALUES = np.arange(24, dtype=np.float32).reshape(SHAPE)
MASK = np.array([True, False, True])
X = Tensor(VALUES)

# an index for Tensors, and the same for numpy
FORMS = [
    (1, 1), (-1, -1), (slice(None, None, -2), slice(None, None, -2)), (Ellipsis, Ellipsis), (None, None), ((), ()),
    (True, None), ((0, Ellipsis, 1), (0, Ellipsis, 1)), ((slice(1), None, -1), (slice(1), None, -1)),
    (Tensor([2, -3]), [2, -3]), ([0, 2], [0, 2]), (Tensor([[0], [1]]), [[0], [1]]), (Tensor(MASK), MASK),
    (MASK.tolist(), MASK), ((slice(None), Tensor([1]), [0, 3]), (slice(None), [1], [0, 3])),
    ((Tensor([0, 1]), slice(None), Tensor([1, 2])), ([0, 1], slice(None), [1, 2])), ([[0, 1], [1, 0]], ([0, 1], [1, 0])),
    (Tensor(1), 1), (slice(Tensor(1), None), slice(1, None)), (np.int64(1), 1), (np.array([1, 0]), [1, 0]),
    ((Tensor(VALUES[..., 0] > 8), 2), (VALUES[..., 0] > 8, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), FORMS, ids=str)
def test_get_and_set(ours, theirs):
    np.testing.assert_array_equal(Tensor(VALUES)[ours].asnumpy(), VALUES[theirs])
    tensor, array = Tensor(VALUES), VALUES.copy()
    tensor[ours] = -1
    array[theirs] = -1
    np.testing.assert_array_equal(tensor.asnumpy(), array)
    tensor, array = Tensor(VALUES), VALUES.copy()
    part = -np.arange(VALUES[theirs].size, dtype=np.float32).reshape(VALUES[theirs].shape)
    tensor[ours] = Tensor(part)
    array[theirs] = part
    np.testing.assert_array_equal(tensor.asnumpy(), array)


PART = st.one_of(
    st.integers(-2, 1),
    st.builds(
        slice, st.sampled_from([None, -2, 0, 1]), st.sampled_from([None, -1, 2]), st.sampled_from([None, 1, -1, 2])
    ),
    st.just(None),
)


@settings(max_examples=15, deadline=None)
@given(index=st.lists(PART, max_size=3).map(tuple))
def test_basic_indices_are_those_of_numpy(index):
    if sum(part is not None for part in index) <= 3:
        np.testing.assert_array_equal(Tensor(VALUES)[index].asnumpy(), VALUES[index])


def test_values_are_cast_and_broadcast():
    tensor = Tensor([[1, 2], [3, 4]])
    tensor[0] = 2.7
    tensor[:, 1] = [8, 9]
    tensor[1, 0] = Tensor([7.0])
    np.testing.assert_array_equal(tensor.asnumpy(), [[2, 8], [7, 9]])
    tensor[...] = (Tensor(5), 6)
    np.testing.assert_array_equal(tensor.asnumpy(), [[5, 6], [5, 6]])


def test_updates_and_aliases():
    tensor = Tensor(VALUES)
    part = tensor[1]
    tensor[1] += 1
    tensor[:, 0] *= 2
    np.testing.assert_array_equal(part.asnumpy(), VALUES[1])  # a copy, never a view
    np.testing.assert_array_equal(tensor[1, 0].asnumpy(), (VALUES[1, 0] + 1) * 2)


def test_a_parameter_keeps_itself():
    weight = ms.Parameter(Tensor([1.0, 2.0]), name="weight")
    weight[0] = 5
    assert (type(weight), weight.name, float(weight[0])) == (ms.Parameter, "weight", 5)
    whole = weight[:]
    ms.jit(lambda: weight.set_data(weight * 2) is None)()  # gives the buffer away
    np.testing.assert_array_equal(whole.asnumpy(), [5, 2])


def test_inside_compiled_functions():
    @ms.jit
    def f(x, i):
        y = x * 1
        y[0] = x[i]
        return y, x[i, 1:], x[[0, -1]]

    first, second, third = f(Tensor(VALUES), Tensor(2))
    np.testing.assert_array_equal(first[0].asnumpy(), VALUES[2])
    np.testing.assert_array_equal(second.asnumpy(), VALUES[2, 1:])
    np.testing.assert_array_equal(third.asnumpy(), VALUES[[0, -1]])


ROWS, CUBE = Tensor(MASK), VALUES > 8
WRITES_THROUGH_MASKS = [
    ((MASK,), 5.0),
    ((CUBE,), 0.0),
    ((VALUES[..., 0] > 8,), 7.0),
    ((MASK, 1), 4.0),
    ((1, np.array([False, True]), slice(None, None, 2)), 3.0),
    ((slice(1, None), np.array([True, False]), -1), 3.0),
    ((..., np.array([True, False, True, True])), 2.0),
    ((MASK, slice(None), 1), 6.0),
    ((None, MASK), 6.0),
    ((np.array(True),), 1.0),
    ((MASK,), np.arange(4.0)),  # a row for each hit
    ((MASK,), np.arange(16.0).reshape(2, 2, 4)),  # one for all hits together
    ((MASK, 0), np.arange(8.0).reshape(2, 4)),
    ((MASK, np.array([0, 1])), 9.0),
    ((MASK, np.array(1)), 9.0),
    ((MASK, np.array([True, True]), 0), 9.0),  # pairs of hits
]


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize(("index", "value"), WRITES_THROUGH_MASKS, ids=str)
@pytest.mark.sampled(16)
def test_writes_through_masks_that_are_computed_in_a_step(index, value, mode):
    expected, hit = VALUES.copy(), np.zeros(SHAPE, bool)
    expected[index], hit[index] = value, True
    weight = np.cos(VALUES)

    def written(x, v, *masks):
        arrays, y = iter(masks), x * 1
        y[tuple(next(arrays) if isinstance(part, np.ndarray) else part for part in index)] = v
        return (y * Tensor(weight)).sum(), y

    masks = [Tensor(part) for part in index if isinstance(part, np.ndarray)]
    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    (_, result), (by_x, by_v) = ms.value_and_grad(
        ms.jit(written) if mode == ms.GRAPH_MODE else written, (0, 1), has_aux=True
    )(Tensor(VALUES), Tensor(np.float32(value)), *masks)
    ms.set_context(mode=before)
    np.testing.assert_array_equal(result.asnumpy(), expected)
    np.testing.assert_allclose(by_x.asnumpy(), np.where(hit, 0, weight), rtol=1e-6)
    np.testing.assert_allclose(by_v.asnumpy().sum(), weight[hit].sum(), rtol=1e-5)


def test_a_value_of_the_full_shape_is_chosen_element_by_element():
    @ms.jit
    def chosen(x, mask):
        x[mask] = x * 2
        return x

    np.testing.assert_array_equal(chosen(X, ROWS).asnumpy(), np.where(MASK[:, None, None], VALUES * 2, VALUES))


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.ones((3, 1, 1)), "mask must have 3 hits"), (np.ones(3), r"shape \(3,\) cannot be broadcast")],
    ids=str,
)
def test_a_value_that_does_not_fit_the_hits_is_an_error_when_the_step_has_run(value, message):
    def written(x, mask, v):
        x[mask] = v
        return x

    with pytest.raises(ValueError, match=message):
        ms.jit(written)(Tensor(VALUES), ROWS, Tensor(value.astype(np.float32))).asnumpy()


def test_gradients_of_reads_and_writes_by_index():
    grad = ms.grad(lambda x: x[Tensor([0, 0, 2])] * Tensor([1.0, 2.0, 3.0]))(Tensor([5.0, 6.0, 7.0]))
    np.testing.assert_array_equal(grad.asnumpy(), [3, 0, 3])

    def written(x, v):
        y = x * 2
        y[1] = v
        return y

    by_x, by_v = ms.grad(written, (0, 1))(Tensor([1.0, 2.0]), Tensor(3.0))
    np.testing.assert_array_equal(by_x.asnumpy(), [2, 0])
    assert float(by_v) == 1


ERRORS = [
    (3, IndexError, r"index 3 is out of range \[-3, 2\] at dim 0"),
    ((0, Tensor([0, 5])), IndexError, r"index 5 is out of range \[-2, 1\] at dim 1"),
    ((0, 0, 0, 0), IndexError, "too many indices: 4 for a tensor with 3 dimensions"),
    ((..., ...), IndexError, "only one ellipsis"),
    (False, IndexError, "must be True"),
    (1.5, IndexError, "but got float: 1.5"),
    ("a", IndexError, "but got str: 'a'"),
    ({0}, IndexError, "but got set"),
    ([], IndexError, "must not be empty"),
    (Tensor([0.0]), IndexError, "Int32, Int64 or Bool"),
    (Tensor([0], ms.uint8), IndexError, "Int32, Int64 or Bool"),
    (Tensor([True]), ValueError, r"mask of shape \(1,\) does not match \(3,\)"),
    (slice(None, None, 0), ValueError, "step of a slice must not be 0"),
    (slice(1.0, 2), TypeError, "must be integers, but got float"),
    ((Tensor([0, 1]), Tensor([0, 1, 0])), ValueError, r"must broadcast, but got shapes \[\(2,\), \(3,\)\]"),
]


@pytest.mark.parametrize(("index", "kind", "message"), ERRORS, ids=str)
def test_wrong_indices(index, kind, message):
    with pytest.raises(kind, match=message):
        X[index]
    with pytest.raises(kind, match=message):
        Tensor(VALUES)[index] = 0


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, TypeError), ("a", TypeError), (np.ones(1), TypeError), ({}, TypeError), ([1.0, 2.0, 3.0], ValueError),
     (Tensor(np.ones((2, 4))), ValueError), ([1.0], ValueError)],
    ids=str,
)  # fmt: skip
def test_wrong_values(value, kind):
    with pytest.raises(kind, match=r"For 'Tensor.__setitem__'"):
        Tensor(VALUES)[0, 0, 0] = value


def test_a_scalar_cannot_be_indexed():
    with pytest.raises(TypeError, match="scalar tensor"):
        Tensor(1.0)[0]
    assert Tensor(1.0)[None].shape == (1,)


def assigned(x):
    """``x`` with parts of parts assigned to, as MindSpore's eager code does."""
    x[0][1] = 5
    x[Tensor([0, 2])][1][0, 2] = 6
    x[1][1][0] = 7
    for row in x:
        row[0, 0] = 8
    part = x[2]
    part[1][1] = 9
    return part


def test_parts_of_parts_are_views_that_keep_nothing_alive():
    x = Tensor(VALUES)
    part = assigned(x)
    expected = VALUES.copy()
    expected[0, 1], expected[2, 0, 2], expected[1, 1, 0], expected[:, 0, 0], expected[2, 1, 1] = 5, 6, 7, 8, 9
    np.testing.assert_array_equal(x.asnumpy(), expected)
    np.testing.assert_array_equal(part.asnumpy(), expected[2])
    whole = weakref.ref(x)
    del x
    assert whole() is None
    part[0] = 1
    assert part.asnumpy()[0].tolist() == [1, 1, 1, 1]


class Parts(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = Parameter(Tensor(np.zeros((2, 2), np.float32)), name="table")
        self.count = Parameter(Tensor([2], ms.int32), name="count")

    def construct(self, x):
        x[0][1] = 5
        named = x[1]
        named[0] = 6
        self.table[1][0] = 7
        count = self.count
        count *= 1.5
        return x, named, count


def test_compiled_code_assigns_to_parts_without_a_name_and_to_parameters_in_place():
    net = Parts()
    x, named, count = ms.jit(net)(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert (x.asnumpy().tolist(), named.asnumpy().tolist()) == ([[1, 5], [3, 4]], [6, 4])
    assert net.table.asnumpy().tolist() == [[0, 0], [7, 0]]
    assert net.count.asnumpy() == count.asnumpy() == [3]
    assert net.count.dtype == ms.int32
