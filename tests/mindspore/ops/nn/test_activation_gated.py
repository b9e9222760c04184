import numpy as np
import pytest
from operator_cases import case, check, numbers
from scipy.special import expit, softmax

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, nn, ops
from sporax.mindspore.ops import auto_generate

A = 2 * numbers(3, 4)
F = mint.nn.functional

CASES = {
    "HSigmoid": case(ops.HSigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1), 2 * A),
    "HSwish": case(ops.hardswish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), 2 * A),
    "Mish": case(ops.Mish(), lambda x: x * np.tanh(np.log1p(np.exp(x))), A),
    "SeLU": case(ops.SeLU(), lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), A),
    "Softsign": case(ops.Softsign(), lambda x: x / (1 + abs(x)), A),
    "logsigmoid": case(ops.logsigmoid, lambda x: np.log(expit(x)), A),
    "tanhshrink": case(ops.tanhshrink, lambda x: x - np.tanh(x), A),
    "FastGeLU": case(ops.FastGeLU(), lambda x: x * expit(1.702 * x), A),
    "HShrink": case(ops.HShrink(0.7), lambda x: np.where(abs(x) > 0.7, x, 0), A),
    "SoftShrink": case(ops.SoftShrink(0.7), lambda x: np.sign(x) * np.maximum(abs(x) - 0.7, 0), A),
    "soft_shrink": case(lambda x: x.soft_shrink(), lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0), A),
    "CeLU": case(ops.CeLU(2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)), A),
    "hardtanh": case(lambda x: ops.hardtanh(x, -0.5, 2.0), lambda x: np.clip(x, -0.5, 2), A),
    "threshold": case(lambda x: ops.threshold(x, 0.2, 7.0), lambda x: np.where(x > 0.2, x, 7), A),
    "softmin": case(lambda x: ops.softmin(x, 0), lambda x: softmax(-x, 0), A),
    "GLU": case(ops.GLU(), lambda x: x[:, :2] * expit(x[:, 2:]), A),
    "mint glu": case(lambda x: F.glu(x, dim=1), lambda x: x[:, :2] * expit(x[:, 2:]), A),
    "swiglu": case(ops.swiglu, lambda x: x[:, :2] * expit(x[:, :2]) * x[:, 2:], A),
    "PReLU": case(ops.PReLU(), lambda x, w: np.where(x > 0, x, w * x), A, numbers(4)),
    "PReLU with one slope": case(ops.prelu, lambda x, w: np.where(x > 0, x, w * x), A, numbers(1)),
    "PReLU of images": case(ops.prelu, lambda x, w: np.where(x > 0, x, w[:, None] * x), numbers(2, 3, 2), numbers(3)),
}


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_random_slopes():
    ms.set_seed(0)
    x = Tensor(np.full(1000, -1.0))
    slopes = -ops.rrelu(x, 0.1, 0.3).asnumpy()
    assert 0.1 <= slopes.min() < 0.11 and 0.29 < slopes.max() <= 0.3
    assert ops.rrelu(Tensor([2.0])).item() == 2


def test_gumbel_softmax():
    ms.set_seed(0)
    logits = Tensor(np.log(np.tile([0.1, 0.2, 0.7], (4000, 1))))
    hard = ops.gumbel_softmax(logits, hard=True)
    np.testing.assert_allclose(hard.asnumpy().mean(0), [0.1, 0.2, 0.7], atol=0.03)
    assert set(np.unique(hard.asnumpy().round(6))) == {0.0, 1.0}
    soft = ops.gumbel_softmax(logits, tau=0.5)
    np.testing.assert_allclose(soft.asnumpy().sum(-1), 1, rtol=1e-6)
    assert abs(ms.grad(lambda x: ops.gumbel_softmax(x, hard=True)[0, 0])(logits)).sum().item() > 0


def test_in_place_forms():
    x = Tensor([-3.0, 0.5])
    assert F.hardtanh(x, inplace=True) is x and x.tolist() == [-1, 0.5]
    assert F.threshold(x, 0.0, 9.0).tolist() == [9, 0.5] and x.tolist() == [-1, 0.5]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.hardswish(Tensor([True])), TypeError, "floating point"),
        (lambda: ops.CeLU(0.0)(Tensor(A)), ValueError, "not be 0"),
        (lambda: ops.glu(Tensor(A[:, :3])), ValueError, "must be even"),
        (lambda: ops.prelu(Tensor(A), Tensor(numbers(3))), ValueError, "1 or 4 elements"),
        (lambda: ops.rrelu(Tensor(A), 0.5, 0.2), ValueError, "'lower' <= 'upper'"),
        (lambda: ops.gumbel_softmax(Tensor(A), tau=0.0), ValueError, "positive"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


class _Halved(nn.Cell):
    def __init__(self, strategy=None):
        super().__init__()
        self.operator, self.double = auto_generate.Swiglu(), ops.Mul()
        if strategy is not None:
            self.operator.shard((strategy,))

    def construct(self, x):
        return self.operator(self.double(x, 2.0), -1)


def test_the_dimension_that_is_halved_stays_whole(eight_devices):
    """As in MindSpore, whose rule takes (1, 8, 1) and refuses (1, 2, 4)."""
    x = Tensor(np.linspace(-2, 2, 8 * 16 * 8, dtype=np.float32).reshape(8, 16, 8))
    expected = _Halved()(x)
    eight_devices()
    np.testing.assert_allclose(_Halved((1, 8, 1))(x).asnumpy(), expected.asnumpy(), rtol=1e-6)
    with pytest.raises(RuntimeError, match="dimension 2 of tensor 0 must stay whole"):
        _Halved((1, 2, 4))(x)
