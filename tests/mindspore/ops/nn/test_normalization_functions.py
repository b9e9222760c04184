import numpy as np
import pytest
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, mint, ops

X, G, B = numbers(3, 4, 2, 2), numbers(4, low=0.5, high=2), numbers(4)


def group_norm(x, groups):
    parts = x.reshape(len(x), groups, -1)
    return ((parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)).reshape(x.shape)


def spread(v):
    return v[:, None, None]


CASES = {
    "BatchNorm eval": case(lambda x, g, b, m, v: ops.BatchNorm()(x, g, b, m, v)[0],
                           lambda x, g, b, m, v: (x - spread(m)) / np.sqrt(spread(v) + 1e-5) * spread(g) + spread(b), X, G, B, B, G),
    "BatchNorm training": case(lambda x, g, b: ops.BatchNorm(True)(x, g, b, Tensor(B), Tensor(G))[0],
                               lambda x, g, b: (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5) * spread(g) + spread(b), X, G, B),
    "group_norm": case(lambda x: ops.group_norm(x, 2), lambda x: group_norm(x, 2), X),
    "group_norm affine": case(lambda x, g, b: mint.nn.functional.group_norm(x, 4, g, b), lambda x, g, b: group_norm(x, 4) * spread(g) + spread(b), X, G, B),
    "LRN": case(ops.LRN(1, 2.0, 0.5, 0.75), lambda x: x / (2 + 0.5 * sum(np.pad(x**2, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, i : i + 4] for i in range(3))) ** 0.75, X),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_moving_statistics():
    mean, variance = Parameter(Tensor(np.zeros(4)), name="mean"), Parameter(Tensor(np.ones(4)), name="variance")
    step = ms.jit(lambda x: ops.BatchNorm(True, momentum=0.25)(x, Tensor(G), Tensor(B), mean, variance))
    _, used, unbiased, *_ = step(Tensor(X))
    np.testing.assert_allclose(used.asnumpy(), X.mean((0, 2, 3)))
    np.testing.assert_allclose(unbiased.asnumpy(), X.var((0, 2, 3), ddof=1))
    np.testing.assert_allclose(mean.asnumpy(), 0.25 * X.mean((0, 2, 3)))
    np.testing.assert_allclose(variance.asnumpy(), 0.75 + 0.25 * X.var((0, 2, 3), ddof=1))


def test_channels_last():
    plain = ops.BatchNorm()(Tensor(X), *map(Tensor, (G, B, B, G)))[0].asnumpy()
    last = ops.BatchNorm(data_format="NHWC")(Tensor(X.transpose(0, 2, 3, 1)), *map(Tensor, (G, B, B, G)))[0].asnumpy()
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), plain)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.group_norm(Tensor(X), 3), ValueError, "divisible by 'num_groups'"),
        (lambda: ops.group_norm(Tensor(X), 2, Tensor(G[:2])), ValueError, "'weight' must have shape"),
        (lambda: ops.BatchNorm()(Tensor(X), *map(Tensor, (G[:2], B, B, G))), ValueError, "one element for each"),
        (lambda: ops.LRN()(Tensor(X[0])), ValueError, "4 dimensions"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
