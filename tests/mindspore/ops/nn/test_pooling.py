import itertools

import numpy as np
import pytest
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, nn, ops

X1, X2, X3 = numbers(2, 3, 7), numbers(2, 3, 5, 6), numbers(1, 2, 4, 5, 4)
F = mint.nn.functional


def pooled(x, size, stride, function, pad=0, fill=0.0):
    """Windows one by one over all spatial dims."""
    x = np.pad(x, [(0, 0), (0, 0)] + [(pad, pad)] * (x.ndim - 2), constant_values=fill)
    outs = [(item - size) // stride + 1 for item in x.shape[2:]]
    result = np.zeros((*x.shape[:2], *outs))
    for place in itertools.product(*map(range, outs)):
        window = x[(slice(None), slice(None), *(slice(at * stride, at * stride + size) for at in place))]
        result[(slice(None), slice(None), *place)] = function(window.reshape(*x.shape[:2], -1))
    return result


def mean(window):
    return window.mean(-1)


def top(window):
    return window.max(-1)


def adaptive(x, outs, function):
    result = np.zeros((*x.shape[:2], *outs))
    for place in itertools.product(*map(range, outs)):
        cut = tuple(
            slice(at * n // o, -(-(at + 1) * n // o)) for at, n, o in zip(place, x.shape[2:], outs, strict=True)
        )
        result[(slice(None), slice(None), *place)] = function(
            x[(slice(None), slice(None), *cut)].reshape(*x.shape[:2], -1)
        )
    return result


CASES = {
    "avg_pool1d": case(lambda x: ops.avg_pool1d(x, 3, 2, 1), lambda x: pooled(x, 3, 2, mean, 1), X1),
    "avg_pool2d": case(lambda x: ops.avg_pool2d(x, 2, 2), lambda x: pooled(x, 2, 2, mean), X2),
    "avg_pool2d real cells": case(lambda x: ops.avg_pool2d(x, 2, 2, 1, False, False),
                                  lambda x: pooled(x, 2, 2, lambda w: w.sum(-1), 1) / pooled(np.ones_like(x), 2, 2, lambda w: w.sum(-1), 1), X2),
    "avg_pool2d divisor": case(lambda x: ops.avg_pool2d(x, 2, divisor_override=3), lambda x: pooled(x, 2, 1, lambda w: w.sum(-1) / 3), X2),
    "avg_pool3d": case(lambda x: ops.avg_pool3d(x, 2), lambda x: pooled(x, 2, 1, mean), X3),
    "mint avg_pool2d": case(lambda x: F.avg_pool2d(x, 2), lambda x: pooled(x, 2, 2, mean), X2),
    "AvgPool3D": case(ops.AvgPool3D(2, 2), lambda x: pooled(x, 2, 2, mean), X3),
    "AvgPool3D pad": case(ops.AvgPool3D(2, 2, "pad", 1), lambda x: pooled(x, 2, 2, mean, 1), X3),
    "lp_pool1d": case(lambda x: ops.lp_pool1d(x, 3, 2), lambda x: pooled(x, 2, 2, lambda w: (w**3).sum(-1) ** (1 / 3)), abs(X1)),
    "lp_pool2d": case(lambda x: ops.lp_pool2d(x, 2, 2), lambda x: pooled(x, 2, 2, lambda w: (w**2).sum(-1) ** 0.5), X2),
    "max_pool2d": case(lambda x: ops.max_pool2d(x, 2), lambda x: pooled(x, 2, 2, top), X2),
    "max_pool2d padded": case(lambda x: ops.max_pool2d(x, 3, 2, 1), lambda x: pooled(x, 3, 2, top, 1, -np.inf), X2),
    "max_pool2d dilated": case(lambda x: ops.max_pool2d(x, 2, 1, 0, 2), lambda x: np.maximum.reduce([x[:, :, i : i + 3, j : j + 4] for i in (0, 2) for j in (0, 2)]), X2),
    "mint max_pool2d": case(lambda x: F.max_pool2d(x, 2), lambda x: pooled(x, 2, 2, top), X2),
    "max_pool3d": case(lambda x: ops.max_pool3d(x, 2, 1), lambda x: pooled(x, 2, 1, top), X3),
    "MaxPool3D": case(ops.MaxPool3D(2, 2), lambda x: pooled(x, 2, 2, top), X3),
    "MaxPool3D pad": case(ops.MaxPool3D(2, 2, "pad", 1), lambda x: pooled(x, 2, 2, top, 1, -np.inf), X3),
    "MaxPoolWithArgmax": case(lambda x: ops.MaxPoolWithArgmax(2, 2)(x)[0], lambda x: pooled(x, 2, 2, top), X2),
    "MaxPool3DWithArgmax": case(lambda x: ops.MaxPool3DWithArgmax(2, 2, 0)(x)[0], lambda x: pooled(x, 2, 2, top), X3),
    "adaptive_avg_pool1d": case(lambda x: ops.adaptive_avg_pool1d(x, 3), lambda x: adaptive(x, (3,), mean), X1),
    "AdaptiveAvgPool2D": case(ops.AdaptiveAvgPool2D((3, None)), lambda x: adaptive(x, (3, 6), mean), X2),
    "adaptive_avg_pool3d": case(lambda x: ops.adaptive_avg_pool3d(x, (2, 3, 1)), lambda x: adaptive(x, (2, 3, 1), mean), X3),
    "AdaptiveAvgPool3D": case(ops.AdaptiveAvgPool3D(2), lambda x: adaptive(x, (2, 2, 2), mean), X3),
    "adaptive_max_pool1d": case(lambda x: ops.adaptive_max_pool1d(x, 3), lambda x: adaptive(x, (3,), top), X1),
    "adaptive_max_pool3d": case(lambda x: ops.adaptive_max_pool3d(x, 2), lambda x: adaptive(x, (2, 2, 2), top), X3),
    "AdaptiveMaxPool2D": case(lambda x: ops.AdaptiveMaxPool2D(2)(x)[0], lambda x: adaptive(x, (2, 2), top), X2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.max_pool2d(x, 2, return_indices=True),
        lambda x: ops.max_pool2d(x, 3, 2, 1, 1, True, True),
        ops.MaxPoolWithArgmax(2, 2),
        ops.MaxPoolWithArgmaxV2(2, 2),
        ops.AdaptiveMaxPool2D(2),
        lambda x: mint.nn.functional.adaptive_max_pool2d(x, 3, True),
    ],
)
def test_positions_lead_to_the_maxima(call):
    values, places = (item.asnumpy() for item in call(Tensor(X2)))
    flat = X2.reshape(2, 3, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, places.reshape(2, 3, -1), 2), values.reshape(2, 3, -1))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_puts_maxima_back(dims):
    x = Tensor({1: X1[..., :6], 2: X2[:, :, :4], 3: X3[:, :, :, :4]}[dims])
    if dims == 2:
        values, places = ops.max_pool2d(x, 2, return_indices=True)
    elif dims == 3:
        values, places = ops.max_pool3d(x, 2, return_indices=True)
    else:
        values, places = mint.nn.functional.adaptive_max_pool1d(x, 3, True)
    back = getattr(ops, f"max_unpool{dims}d")(values, places, 2)
    assert back.shape == x.shape
    np.testing.assert_allclose(back.asnumpy()[back.asnumpy() != 0], x.asnumpy()[back.asnumpy() != 0])
    assert np.count_nonzero(back.asnumpy()) == values.size
    check(case(lambda v: getattr(ops, f"max_unpool{dims}d")(v, places, 2), None, values.asnumpy()))


def test_ceil_mode():
    x = Tensor(np.arange(5.0).reshape(1, 1, 5))
    assert ops.avg_pool1d(x, 2, 2, ceil_mode=True).tolist() == [[[0.5, 2.5, 4.0]]]
    assert ops.max_pool2d(x.reshape(1, 1, 1, 5), (1, 2), ceil_mode=True).tolist() == [[[[1, 3, 4]]]]
    # A window that would start in the padding is left out.
    assert ops.avg_pool1d(x, 2, 3, 1, ceil_mode=True).tolist() == [[[0.0, 2.5]]]


def test_dtypes_of_positions():
    x = Tensor(X2.astype(np.float32))
    assert ops.MaxPoolWithArgmax(2, 2)(x)[1].dtype == ms.int32
    assert ops.MaxPoolWithArgmaxV2(2, argmax_type=ms.int32)(x)[1].dtype == ms.int32
    assert ops.max_pool2d(x, 2, return_indices=True)[1].dtype == ms.int64


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.max_pool2d(Tensor(X2), 2, padding=2), ValueError, "at most half"),
        (lambda: ops.avg_pool2d(Tensor(X2), 9), ValueError, "does not fit"),
        (lambda: ops.avg_pool2d(Tensor(X2), (1, 2, 3)), ValueError, "one or 2 ints"),
        (lambda: ops.MaxPool3D(2, 1, "full")(Tensor(X3)), ValueError, "pad_mode"),
        (lambda: ops.adaptive_avg_pool3d(Tensor(X3), 0), ValueError, "ints >= 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_maxima_of_integers_and_of_not_a_number_have_positions():
    x = np.array([[[3, 1, 2, 5, 4]]])
    for dtype in ("int32", "float32"):
        values, places = nn.MaxPool1d(3, 1, "pad", 1, return_indices=True)(Tensor(x.astype(dtype)))
        assert (values.tolist(), places.tolist()) == ([[[3, 3, 5, 5, 5]]], [[[0, 0, 3, 3, 3]]])
    holes = Tensor(np.array([[[[3, np.nan, 2, np.nan, 4]]]], np.float32))
    values, places = ops.max_pool2d(holes, (1, 3), return_indices=True)
    assert np.isnan(values.asnumpy()).all()
    assert places.tolist() == [[[[1]]]]
