"""`nn.Range`, `nn.Roll`, `nn.Moments`; and what is said for names that are not offered."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_range():
    assert nn.Range(1, 8, 2)().asnumpy().tolist() == [1, 3, 5, 7]
    assert nn.Range(3)().dtype == ms.int32 and nn.Range(3)().shape == (3,)
    assert nn.Range(0.0, 1.0, 0.5)().dtype == ms.float32
    with pytest.raises(ValueError, match="'delta' must not be 0"):
        nn.Range(0, 4, 0)


def test_roll():
    np.testing.assert_array_equal(nn.Roll(1, 0)(Tensor(X)).asnumpy(), np.roll(X, 1, 0))
    np.testing.assert_array_equal(nn.Roll([1, -2], [0, 1])(Tensor(X)).asnumpy(), np.roll(X, (1, -2), (0, 1)))
    with pytest.raises(TypeError, match="'shift' must be an int"):
        nn.Roll(1.0, 0)
    with pytest.raises(ValueError, match="the same length"):
        nn.Roll((1, 2), 0)


@pytest.mark.parametrize(("axis", "keep"), [(None, None), (0, False), ((0, 1), True), (1, True)])
def test_moments(axis, keep):
    mean, variance = nn.Moments(axis, keep)(Tensor(X))
    np.testing.assert_allclose(mean.asnumpy(), X.mean(axis, keepdims=bool(keep)))
    np.testing.assert_allclose(variance.asnumpy(), X.var(axis, keepdims=bool(keep)), rtol=1e-6)
    with pytest.raises(TypeError, match="must be float16 or float32"):
        nn.Moments(axis, keep)(Tensor(X.astype(np.int32)))


def test_names_that_are_not_offered_say_why():
    from sporax.mindspore.boost import AutoBoost

    with pytest.raises(NotImplementedError, match="boost_level='O0'"):
        AutoBoost("O1")


def test_dtypes_are_in_common_too():
    from sporax.mindspore.common import float32, int64

    assert float32 is ms.float32 and int64 is ms.int64
