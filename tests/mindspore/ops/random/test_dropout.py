"""Random operators: distributions, streams, and the same numbers compiled or not."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops


@pytest.fixture(autouse=True)
def _seed():
    ms.set_seed(7)


def test_a_seed_gives_the_same_numbers_and_draws_differ():
    draws = [ops.standard_normal((3,)).asnumpy() for _ in range(2)]
    ms.set_seed(7)
    again = [ops.standard_normal((3,)).asnumpy() for _ in range(2)]
    np.testing.assert_array_equal(draws, again)
    assert not np.array_equal(*draws)


def test_compiled_draws_are_the_same_and_advance():
    eager = [ops.dropout(ops.ones((4, 4))).asnumpy() for _ in range(3)]
    ms.set_seed(7)
    compiled = ms.jit(lambda x: ops.dropout(x))
    np.testing.assert_array_equal(eager, [compiled(ops.ones((4, 4))).asnumpy() for _ in range(3)])
    assert len(compiled.program.compilations) == 1


def test_dropout_keeps_the_mean():
    x = ops.ones((100, 100))
    kept = ops.dropout(x, 0.25).asnumpy()
    assert set(np.unique(kept)) == {0, np.float32(1 / 0.75)}
    assert kept.mean() == pytest.approx(1, abs=0.03)
    result, mask = ops.Dropout(keep_prob=0.25)(x)
    np.testing.assert_allclose(result.asnumpy(), mask.asnumpy() * 4)


def test_dropout_without_effect():
    x = ops.ones((3,))
    assert ops.dropout(x, training=False) is x
    np.testing.assert_array_equal(ops.dropout(x, 1.0).asnumpy(), np.zeros(3))
    np.testing.assert_array_equal(ops.dropout(x, 0.0).asnumpy(), np.ones(3))


def test_a_seed_of_its_own_repeats():
    x = ops.ones((8, 8))
    np.testing.assert_array_equal(ops.dropout(x, seed=3).asnumpy(), ops.dropout(x, seed=3).asnumpy())
    one, other = ops.Dropout(0.5, Seed0=3), ops.Dropout(0.5, Seed0=3)
    np.testing.assert_array_equal(one(x)[0].asnumpy(), other(x)[0].asnumpy())


def test_the_gradient_goes_through_what_was_kept():
    x = ops.ones((5, 5))
    ms.set_seed(1)
    value, grad = ms.value_and_grad(lambda x: ops.dropout(x))(x)
    np.testing.assert_array_equal(value.asnumpy(), grad.asnumpy())


def test_draws_have_the_mean_spread_and_range_of_their_distribution():
    shape = (100, 100)
    normal = ops.normal(shape, 3.0, 0.5).asnumpy()
    assert (normal.mean(), normal.std()) == (pytest.approx(3, abs=0.02), pytest.approx(0.5, rel=0.03))
    uniform = ops.uniform(shape, -1.0, 3.0).asnumpy()
    assert (uniform.min() >= -1, uniform.max() < 3, uniform.mean()) == (True, True, pytest.approx(1, abs=0.05))
    whole = ops.randint(2, 5, shape).asnumpy()
    assert set(np.unique(whole)) == {2, 3, 4}
    assert ops.randn(2, 3).shape == ops.rand((2, 3)).shape == (2, 3)
    assert (ops.rand(2, dtype=ms.float64).dtype, whole.dtype) == (ms.float64, np.int64)


def test_arguments_that_do_not_fit_are_refused():
    x = ops.ones((2,))
    for call in (lambda: ops.dropout(x, 1.5), lambda: ops.Dropout(0.0)):
        with pytest.raises(ValueError, match=r"must be in [\[(]0, 1\], but got"):
            call()
    with pytest.raises(TypeError, match="'p' must be a number, but got str"):
        ops.dropout(x, "a")
    with pytest.raises(TypeError, match="tuple of ints"):
        ops.randn(2.5)


def test_whole_numbers_between_tensors(mode):
    ms.set_seed(1)

    def drawn(high):
        return ops.uniform((200,), Tensor(-2, ms.int32), high, dtype=ms.int32)

    result = (ms.jit(drawn) if mode == ms.GRAPH_MODE else drawn)(Tensor(3, ms.int32))
    assert result.dtype == ms.int32 and set(result.asnumpy().tolist()) == {-2, -1, 0, 1, 2}
    with pytest.raises(TypeError, match="'maxval' must be an integer where 'dtype' is Int32"):
        ops.uniform((2,), 0, Tensor(1.0), dtype=ms.int32)
    with pytest.raises(ValueError, match="'minval' must be a scalar tensor"):
        ops.uniform((2,), Tensor([0, 1]), 4, dtype=ms.int32)
