"""Derivatives where a function has a corner, a pole or equal maxima, and of integers: the wheel's (MindSpore 2.10)."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, nn, ops

INF, NAN = float("inf"), float("nan")


def slopes(function, *inputs):
    return [ms.grad(function, place)(*inputs).asnumpy().tolist() for place in range(len(inputs))]


def floats(*values):
    return Tensor(list(values), ms.float32)


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (ops.bessel_i0, [0.0, 1.0], [0.0, 0.5652]),
        (ops.i0, [0.0, -1.0], [0.0, -0.5652]),
        (ops.logit, [0.0, 1.0, 0.5, -1.0, 2.0], [INF, INF, 4.0, NAN, NAN]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_corners_of_functions(function, at, expected):
    np.testing.assert_allclose(slopes(function, floats(*at))[0], expected, rtol=1e-4)


def test_xlogy_where_both_are_0():
    x, y = floats(0, 0, 0, 1), floats(0, 3, 0.5, 0)
    np.testing.assert_allclose(slopes(ops.xlogy, x, y)[0], [0, np.log(3), np.log(0.5), -INF], rtol=1e-6)
    assert ops.xlogy(x, y).asnumpy().tolist() == [0, 0, 0, -INF]


@pytest.mark.parametrize("dtype", [ms.float32, ms.float64])
def test_cross_entropy_of_certain_probabilities(dtype):
    """A wrong one is corrected as strongly as numbers allow, in place of not at all."""
    p, target = (Tensor(values, dtype) for values in ([0.0, 0.0, 1.0, 1.0, 0.5], [0.0, 1.0, 0.0, 1.0, 0.25]))
    for loss in (
        lambda p: ops.binary_cross_entropy(p, target, reduction="sum"),
        lambda p: nn.BCELoss(reduction="sum")(p, target),
    ):
        np.testing.assert_allclose(slopes(loss, p)[0], [0, -1e12, 1e12, 0, 1], rtol=1e-6)
    losses = ops.binary_cross_entropy(p, target, reduction="none").asnumpy()
    np.testing.assert_allclose(losses, [0, 27.631, 27.631, 0, 0.693147], rtol=1e-5, atol=1e-7)


def test_labels_of_a_divergence_and_values_of_one_hot_have_no_gradient():
    for divergence in (ops.KLDivLoss("sum"), nn.KLDivLoss("sum")):
        given, labels = slopes(divergence, floats(-1, -2), floats(0.25, 0.75))
        assert (given, labels) == ([-0.25, -0.75], [0, 0])
    ids = Tensor([0, 2], ms.int32)
    assert slopes(lambda on, off: ops.OneHot()(ids, 3, on, off), floats(2)[0], floats(0)[0]) == [0, 0]


@pytest.mark.parametrize("size", [1, 2, (2, 1)])
def test_the_first_of_equal_maxima_has_the_gradient(size):
    image = floats(1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3).reshape(1, 1, 4, 4)
    places = {1: [8], 2: [0, 2, 8, 10], (2, 1): [2, 8]}[size]
    (gradient,) = slopes(lambda x: ops.adaptive_max_pool2d(x, size), image)
    assert np.flatnonzero(gradient).tolist() == places
    assert np.sum(gradient) == len(places)


@pytest.mark.parametrize("dtype", [ms.float32, ms.int32, ms.int64])
@pytest.mark.parametrize("name", ["TensorScatterUpdate", "tensor_scatter_elements", "scatter"])
def test_all_updates_of_a_place_have_its_gradient(name, dtype):
    x, updates = Tensor([1, 2, 3], dtype), Tensor([5, 6, 7], dtype)
    ids = Tensor([0, 2, 0], ms.int32)
    call = {
        "TensorScatterUpdate": lambda x, u: ops.TensorScatterUpdate()(x, ids.reshape(3, 1), u),
        "tensor_scatter_elements": lambda x, u: ops.tensor_scatter_elements(x, ids, u, 0),
        "scatter": lambda x, u: ops.scatter(x, 0, ids, u),
    }[name]
    assert call(x, updates).asnumpy().tolist() == [7, 2, 6]
    assert slopes(call, x, updates) == [[0, 1, 0], [1, 1, 1]]
    out_of_range = Tensor([0, 9, 0], ms.int32)
    if name == "TensorScatterUpdate":
        assert slopes(lambda x, u: ops.TensorScatterUpdate()(x, out_of_range.reshape(3, 1), u), x, updates)[0] == [
            0,
            1,
            1,
        ]


@pytest.mark.parametrize("dtype", [ms.int8, ms.int32, ms.int64])
def test_rounding_of_integers_has_no_gradient_and_the_corner_of_abs_none(dtype):
    x = Tensor([2, -1, 0], dtype)
    for function in (ops.round, ops.trunc, ops.floor, ops.ceil):
        assert function(x).asnumpy().tolist() == [2, -1, 0]
        assert slopes(function, x) == [[0, 0, 0]]
    assert ops.abs(x).asnumpy().tolist() == [2, 1, 0]
    assert slopes(ops.abs, x) == [[1, -1, 0]]


@pytest.mark.parametrize("dtype", [ms.int8, ms.int32, ms.uint8, ms.int64])
def test_sums_without_nan_of_integers_keep_their_dtype(dtype):
    x = Tensor([[1, 2], [3, 0]], dtype)
    assert (ops.nansum(x).dtype, ops.nansum(x).asnumpy()) == (dtype, 6)
    assert ops.nansum(x, 0, dtype=ms.float32).dtype == ms.float32
    assert ops.nansum(x != 0).dtype == ms.int64
    assert mint.nansum(x).dtype == dtype
