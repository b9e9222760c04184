"""Normalisation against its formulas."""

import numpy as np
import pytest
from against_numpy import check, numbers

import sporax.mindspore as ms
from sporax.mindspore import ops
from sporax.mindspore.ops.nn.normalization import batch_norm_eval, batch_norm_train


def normed(x, axes, epsilon):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon), mean, variance


@pytest.mark.parametrize(("begin", "axes"), [(1, (1, 2)), (-1, (2,))])
def test_layer_norm(begin, axes):
    call = ops.LayerNorm(begin, begin, 1e-3)

    def reference(x, gamma, beta):
        result, mean, variance = normed(x, axes, 1e-3)
        return result * gamma + beta, mean, variance

    shape = (3, 2) if begin == 1 else (2,)
    check(call, reference, numbers(2, 3, 2), numbers(*shape, seed=1), numbers(*shape, seed=2))


def test_rms_norm():
    def reference(x, gamma):
        scale = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return x * scale * gamma, scale

    check(ops.rms_norm, reference, numbers(2, 3), numbers(3, seed=1))


def test_batch_norm():
    x, gamma, beta = numbers(4, 3, 2), numbers(3, seed=1), numbers(3, seed=2)
    spread = lambda v: v[:, None]

    def by_batch(x, gamma, beta):
        result, mean, variance = normed(x, (0, 2), 1e-3)
        return result * spread(gamma) + spread(beta), mean.ravel(), variance.ravel() * 8 / 7

    check(lambda *a: batch_norm_train(*a, 1, 1e-3), by_batch, x, gamma, beta)
    mean, variance = numbers(3, seed=3), numbers(3, seed=4, low=0.5)

    def by_statistics(x, m, v, gamma, beta):
        return (x - spread(m)) / np.sqrt(spread(v) + 1e-3) * spread(gamma) + spread(beta)

    check(lambda *a: batch_norm_eval(*a, 1, 1e-3), by_statistics, x, mean, variance, gamma, beta)


def test_half_precision_has_statistics_in_float32():
    x = ms.Tensor(np.array([[1000.0, 1001.0, 1002.0, 1003.0]], np.float16))
    result, mean, variance = ops.LayerNorm()(x, ops.ones(4, ms.float16), ops.zeros(4, ms.float16))
    assert (result.dtype, mean.dtype, variance.dtype) == (ms.float16, ms.float32, ms.float32)
    assert float(variance[0, 0]) == 1.25


def test_arguments_that_do_not_fit_are_refused():
    x = ms.Tensor(np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"must have shape \(3,\), but got \(2,\) and \(3,\)"):
        ops.LayerNorm()(x, x[:, 0], x[0])
    with pytest.raises(ValueError, match=r"must end with that of 'gamma', but got \(2, 3\) and \(2,\)"):
        ops.rms_norm(x, x[:, 0])
    with pytest.raises(ValueError, match=r"each of the 3 channels of 'x'.*its shape is \(2,\)"):
        batch_norm_train(x, x[:, 0], x[0], 1, 1e-5)
    with pytest.raises(TypeError, match="floating point, but got Int32"):
        ops.rms_norm(x.int(), x[0])
