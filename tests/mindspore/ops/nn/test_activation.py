"""Activation functions against their formulas."""

import numpy as np
import pytest
import scipy.special
from against_numpy import check, numbers

import sporax.mindspore as ms
from sporax.mindspore import mint, ops


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x * scipy.special.ndtr(x)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ROWS = [
    ("relu", ops.relu, lambda x: np.maximum(x, 0)),
    ("relu6", lambda x: ops.relu6(4 * x), lambda x: np.clip(4 * x, 0, 6)),
    ("gelu", ops.gelu, gelu),
    ("gelu tanh", lambda x: ops.gelu(x, "tanh"), gelu_tanh),
    ("GeLU", ops.GeLU(), gelu_tanh),
    ("sigmoid", ops.sigmoid, sigmoid),
    ("silu", ops.silu, lambda x: x * sigmoid(x)),
    ("softmax", lambda x: ops.softmax(x, 0), lambda x: scipy.special.softmax(x, 0)),
    ("Softmax of two dims", ops.Softmax((0, 1)), scipy.special.softmax),
    ("log_softmax", ops.log_softmax, lambda x: scipy.special.log_softmax(x, -1)),
    ("leaky_relu", lambda x: ops.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    ("steep leaky_relu", lambda x: ops.leaky_relu(x, 3.0), lambda x: np.where(x > 0, x, 3 * x)),
    ("elu", lambda x: ops.elu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    ("softplus", lambda x: ops.softplus(x, 2, 1), lambda x: np.where(2 * x > 1, x, np.log1p(np.exp(2 * x)) / 2)),
    ("Softplus", ops.Softplus(), lambda x: np.log1p(np.exp(x))),
]


@pytest.mark.parametrize(("call", "reference"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_values_and_gradients(call, reference):
    check(call, reference, numbers(2, 3), rtol=1e-7)


def test_mint_forms():
    functional = mint.nn.functional
    x = numbers(2, 3)
    for ours, expected in (
        (functional.relu(ms.Tensor(x)), np.maximum(x, 0)),
        (functional.softmax(ms.Tensor(x)), scipy.special.softmax(x, 1)),
        (functional.log_softmax(ms.Tensor(x), dim=0), scipy.special.log_softmax(x, 0)),
        (functional.leaky_relu(ms.Tensor(x)), np.where(x > 0, x, 0.01 * x)),
        (functional.silu(ms.Tensor(x)), x * sigmoid(x)),
        (functional.elu(ms.Tensor(x)), np.where(x > 0, x, np.expm1(x))),
        (functional.relu6(ms.Tensor(x)), np.clip(x, 0, 6)),
        (mint.softmax(ms.Tensor(x), dim=1), scipy.special.softmax(x, 1)),
    ):
        np.testing.assert_allclose(ours.asnumpy(), expected, rtol=1e-12)


def test_large_inputs_stay_finite():
    x = ms.Tensor([1e4, -1e4])
    for call in (ops.softmax, ops.log_softmax, ops.softplus, ops.sigmoid, ops.gelu, ops.elu):
        assert np.isfinite(call(x).asnumpy()).all()
        assert np.isfinite(ms.grad(call)(x).asnumpy()).all()


def test_integers_keep_their_dtype_or_are_refused():
    assert ops.relu(ms.Tensor([-1, 2])).dtype == ms.int64
    assert ops.relu(ms.Tensor([True])).dtype == ms.bool_
    assert ops.sigmoid(ms.Tensor([0])).dtype == ms.float32
    assert ops.softmax(ms.Tensor([1, 2]), dtype=ms.float32).dtype == ms.float32
    for call in (ops.softmax, ops.gelu, ops.silu, ops.log_softmax, ops.relu6):
        with pytest.raises(TypeError, match="must be floating point, but got Int64"):
            call(ms.Tensor([1]))


def test_arguments_that_do_not_fit_are_refused():
    x = ms.Tensor([1.0])
    with pytest.raises(NotImplementedError, match="'inplace' must be False, but got True"):
        ops.relu(x, inplace=True)
    with pytest.raises(ValueError, match=r"'approximate' must be one of \('none', 'tanh'\), but got 'fast'"):
        ops.gelu(x, "fast")
    with pytest.raises(ValueError, match="'beta' must not be 0"):
        ops.softplus(x, 0)
    with pytest.raises(ValueError, match=r"'axis' must be in range \[-1, 1\), but got 1"):
        ops.Softmax(1)(x)
    with pytest.raises(TypeError, match="the type of 'axis' must be int or tuple of int, but got str: 'a'"):
        ops.Softmax("a")
