import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxIndexError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, Tensor, nn, ops

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def matrix():
    return Tensor(MATRIX)


def dot(x, y):
    return (x * y).sum()


def test_vmap_maps_the_specified_axes(mode, matrix):
    ones = Tensor(np.ones((2, 3), np.float32))
    np.testing.assert_allclose(ms.vmap(dot)(matrix, ones).asnumpy(), MATRIX.sum(1))
    np.testing.assert_allclose(ops.vmap(dot, in_axes=1)(matrix, ones).asnumpy(), MATRIX.sum(0))
    np.testing.assert_allclose(ops.vmap(dot, (0, None))(matrix, ones[0]).asnumpy(), MATRIX.sum(1))
    np.testing.assert_allclose(ops.vmap(lambda x, y: x + y, (0, None))(matrix, 2.0).asnumpy(), MATRIX + 2)
    nested = ops.vmap(lambda pair, y: pair[0] + pair[1] * y, ((0, None), None))((matrix, matrix[0]), 2.0)
    np.testing.assert_allclose(nested.asnumpy(), MATRIX + 2 * MATRIX[0])


def test_vmap_stacks_results_along_the_specified_axis(mode, matrix):
    first, second = ops.vmap(lambda x: (x, x + 1), 0, (1, 0))(matrix)
    np.testing.assert_array_equal(first.asnumpy(), MATRIX.T)
    np.testing.assert_array_equal(second.asnumpy(), MATRIX + 1)


def test_vmap_of_cells_gradients_and_vmap(mode, matrix):
    net = nn.Dense(3, 2)
    np.testing.assert_allclose(ms.vmap(net)(matrix).asnumpy(), net(matrix).asnumpy(), rtol=1e-6)
    slopes = ms.vmap(ms.grad(lambda x: (x**3).sum()))(matrix)
    np.testing.assert_allclose(slopes.asnumpy(), 3 * MATRIX**2, rtol=1e-6)
    table = ms.vmap(ms.vmap(lambda x, y: x * y, (None, 0)), (0, None))(matrix[0], matrix[1])
    np.testing.assert_allclose(table.asnumpy(), np.outer(MATRIX[0], MATRIX[1]))


def test_a_parameter_gets_one_value_for_all_members(mode, matrix):
    calls = Parameter(Tensor(0, ms.int32), name="calls")

    def count(x):
        ops.assign_add(calls, Tensor(1, ms.int32))
        return x

    ms.vmap(count)(matrix)
    assert int(calls.asnumpy()) == 1
    last = Parameter(Tensor(np.zeros(3, np.float32)), name="last")
    with pytest.raises(SporaxRuntimeError, match="a Parameter must get one value for all members"):
        ms.vmap(lambda x: ops.assign(last, x))(matrix)


@pytest.mark.parametrize(
    ("in_axes", "out_axes", "error", "words"),
    [
        ((0, 0, 0), 0, SporaxRuntimeError, "len"),
        (5, 0, SporaxRuntimeError, "axis 5"),
        (None, 0, SporaxRuntimeError, "non-None"),
        (0, 3, SporaxRuntimeError, "axis 3"),
        (0, None, SporaxRuntimeError, "None"),
        ("a", 0, SporaxTypeError, "'in_axes' must be an int, None or a tuple"),
        (0, (True,), SporaxTypeError, "'out_axes' must be an int, None or a tuple"),
    ],
)
def test_axes_that_do_not_fit(matrix, in_axes, out_axes, error, words: str):
    with pytest.raises(error, match=f"For 'vmap'.*{words}"):
        ms.vmap(dot, in_axes, out_axes)(matrix, matrix)


def test_what_cannot_be_mapped(matrix):
    with pytest.raises(SporaxRuntimeError, match="inconsistent sizes"):
        ms.vmap(dot)(matrix, matrix[:1])
    with pytest.raises(SporaxTypeError, match="'fn' must be a function or a Cell"):
        ms.vmap(3)


@pytest.mark.parametrize("jacobian", [ms.jacfwd, ms.jacrev], ids=["forwards", "backwards"])
def test_jacobians_equal_those_by_hand(mode, jacobian):
    x, y = Tensor(np.array([1.0, 2.0], np.float32)), Tensor(np.array([3.0, 4.0], np.float32))

    def two(x, y):
        return x * x * y, 3 * x

    def by_hand():
        return np.diag([6.0, 16.0]), np.diag([1.0, 4.0]), np.diag([3.0, 3.0]), np.zeros((2, 2))

    (xx, xy), (tx, ty) = jacobian(two, (0, 1))(x, y)
    for actual, expected in zip((xx, xy, tx, ty), by_hand(), strict=True):
        np.testing.assert_allclose(actual.asnumpy(), expected, rtol=1e-6)
    single, further = jacobian(two, 1, has_aux=True)(x, y)
    np.testing.assert_allclose(single.asnumpy(), by_hand()[1], rtol=1e-6)
    np.testing.assert_allclose(further.asnumpy(), [3.0, 6.0])


def test_what_has_no_jacobian():
    x = Tensor(np.ones(2, np.float32))
    with pytest.raises(SporaxTypeError, match="'grad_position' must be int or tuple of ints, but got 'a'"):
        ms.jacfwd(dot, "a")
    with pytest.raises(SporaxValueError, match="distinct numbers"):
        ms.jacrev(dot, (0, 0))
    with pytest.raises(SporaxTypeError, match="'has_aux' must be a bool"):
        ms.jacrev(dot, 0, 1)
    with pytest.raises(SporaxTypeError, match="argument 1 must be a Tensor, but got float"):
        ms.jacrev(dot, 1)(x, 2.0)
    with pytest.raises(SporaxIndexError, match="beyond|arguments"):
        ms.jacfwd(dot, 3)(x, x)
